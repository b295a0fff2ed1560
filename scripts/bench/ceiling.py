"""How near tuned convolutions come to what the core can do: the share of numpy's sgemm, in one run.

The 3×3 layers of stride 1 are tuned with the defaults, warm caches as a matrix product of this size
has them. The product's rate is measured before and after, on one core, and the better one counts.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from math import exp, log
from pathlib import Path

from operators import RESNET18, Convolution
from tuners import release_ray

FIELDS = ("layer", "seed", "trials", "best_s", "gflops", "sgemm_gflops")
WARM = {"measure": {"flush_cache": False}}
SGEMM = """
import os, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
import numpy as np
n = 1024
a, b = (np.random.default_rng(i).random((n, n), np.float32) for i in (0, 1))
best = 1e9
for _ in range(20):
    begun = time.perf_counter()
    a @ b
    best = min(best, time.perf_counter() - begun)
print(2 * n**3 / best / 1e9)
"""


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout; the CSV grows with each call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("."), help="where ceiling.csv goes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "ceiling.csv"
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    for seed in arguments.seeds:
        for layer in RESNET18:
            if (layer.kernel, layer.stride) == (3, 1):
                row = contest(layer, arguments.trials, seed)
                with path.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerow(row)
                print(*row, file=sys.stderr, flush=True)
    print(json.dumps(summary(path)))


def contest(layer: Convolution, trials: int, seed: int) -> tuple:
    """A row: the layer's best, and what the core does."""
    before = sgemm_gflops()
    with tempfile.TemporaryDirectory() as scratch:
        network = layer.save(Path(scratch))
        work = Path(scratch, "work")
        best_s = release_ray(network, work, trials=trials, seed=seed, settings=WARM).best_s
    pixels = (layer.image // layer.stride) ** 2
    flops = 2 * pixels * layer.filters * layer.channels * layer.kernel**2
    ceiling = max(before, sgemm_gflops())
    return layer.name, seed, trials, best_s, round(flops / best_s / 1e9, 2), round(ceiling, 2)


def sgemm_gflops() -> float:
    """The best of 20 products of 1024 x 1024 on the last core, by one thread."""
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    told = subprocess.run(
        [sys.executable, "-c", SGEMM], env=alone, check=True, stdout=subprocess.PIPE, text=True
    )
    return float(told.stdout)


def summary(path: Path) -> dict[str, dict[str, float]]:
    """By layer, and in the geometric mean, the share of the product's rate."""
    shares: dict[str, list[float]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            share = float(row["gflops"]) / float(row["sgemm_gflops"])
            shares.setdefault(row["layer"], []).append(share)
    every = [share for values in shares.values() for share in values]
    return {
        "share_of_sgemm": {
            **{layer: round(_mean(values), 3) for layer, values in shares.items()},
            "mean": round(_mean(every), 3),
        }
    }


def _mean(values: list[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


if __name__ == "__main__":
    main()
