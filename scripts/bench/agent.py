"""How good an agent's proposals are, on a recorded layer, and what they cost.

A cost model learns from 96 of a conv2d's 592 measurements; each policy proposes 32 unmeasured
configurations after 5,000 calls of it; the mean true fitness of these (by a model of all
measurements) is what counts, and beside it what the cost model thinks of them.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import ray

import policies
from release_ray.core.settings import AgentSettings
from release_ray.testing.recorded import RecordedLayer

LAYER = Path(__file__).parents[2] / "tests" / "data" / "recorded_conv2d_64x56x56.json.gz"
MEASURED, PROPOSED, CALLS = 96, 32, 5000
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {}),
    "annealing": ("annealing", {}),
    "genetic": ("genetic", {}),
    "ppo alone": ("ppo", {"fine_tune": 0.0}),
    "ppo": ("ppo", {}),
}
FIELDS = ("policy", "sample", "seed", "true_fitness", "predicted_fitness", "cpu_s")


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES))
    parser.add_argument("--samples", type=int, default=3, help="choices of what is measured")
    parser.add_argument("--seeds", type=int, default=3, help="searches of each")
    parser.add_argument("--out", type=Path, default=Path("."), help="where agent.csv goes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    layer = RecordedLayer.load(LAYER)
    truth = layer.truth()
    rows = []
    for name, sample, seed in product(
        arguments.policies, range(arguments.samples), range(arguments.seeds)
    ):
        registered, more = POLICIES[name]
        # A fresh agent each time: nothing carries over from one search to the next.
        settings = AgentSettings(model_calls=CALLS, **more)
        policy = policies.create(registered, settings, seed)
        policy.prepare()
        state = layer.search_state(MEASURED, sample=sample, seed=seed)
        start = time.process_time()
        candidates = policy.propose(state, PROPOSED)
        cpu_s = time.process_time() - start
        policy.close()
        true, predicted = (float(f.mean()) for f in (truth(candidates.points), candidates.scores))
        rows.append((name, sample, seed, true, predicted, cpu_s))
        print(
            f"{name}, sample {sample}, seed {seed}: true fitness {true:.3f}, {cpu_s:.2f} CPU-s",
            file=sys.stderr,
        )
    path = arguments.out / "agent.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([FIELDS, *rows])
    print(json.dumps(summary(path)))
    ray.shutdown()


def summary(path: Path) -> dict[str, dict[str, float]]:
    """Per policy the means over samples and seeds, read back from the CSV."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        name: {
            column: round(
                float(np.mean([float(r[column]) for r in rows if r["policy"] == name])), 4
            )
            for column in FIELDS[3:]
        }
        for name in dict.fromkeys(row["policy"] for row in rows)
    }


if __name__ == "__main__":
    main()
