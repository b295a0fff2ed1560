"""How good an agent's proposals are, on a recorded layer, and what they cost.

A cost model learns from 96 of a conv2d's 592 measurements; each policy proposes 32 unmeasured
configurations after 5,000 calls of it; the mean true fitness of these (by a model of all
measurements) is what counts.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from pathlib import Path

import numpy as np
import ray

import policies
from release_ray.core.settings import AgentSettings
from release_ray.testing.recorded import RecordedLayer

LAYER = Path(__file__).parents[2] / "tests" / "data" / "recorded_conv2d_64x56x56.json.gz"
MEASURED, PROPOSED, CALLS = 96, 32, 5000


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", nargs="+", default=["random", "ppo"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("."), help="where agent.csv goes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    layer = RecordedLayer.load(LAYER)
    truth = layer.truth()
    rows = []
    for name in arguments.policies:
        for seed in range(arguments.seeds):
            # A fresh agent each time: nothing carries over from one seed to the next.
            policy = policies.create(name, AgentSettings(model_calls=CALLS), seed)
            policy.prepare()
            state = layer.search_state(MEASURED, sample=0, seed=seed)
            start = time.process_time()
            candidates = policy.propose(state, PROPOSED)
            cpu_s = time.process_time() - start
            policy.close()
            true = float(truth(candidates.points).mean())
            rows.append((name, seed, true, cpu_s))
            print(
                f"{name}, seed {seed}: true fitness {true:.3f}, {cpu_s:.2f} CPU-s",
                file=sys.stderr,
            )
    path = arguments.out / "agent.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("policy", "seed", "true_fitness", "cpu_s"), *rows])
    print(json.dumps(summary(path)))
    ray.shutdown()


def summary(path: Path) -> dict[str, dict[str, float]]:
    """Per policy the means over seeds, read back from the CSV."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        name: {
            column: round(
                float(np.mean([float(r[column]) for r in rows if r["policy"] == name])), 4
            )
            for column in ("true_fitness", "cpu_s")
        }
        for name in dict.fromkeys(row["policy"] for row in rows)
    }


if __name__ == "__main__":
    main()
