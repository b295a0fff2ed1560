"""How good each policy's proposals are, on recorded layers, and what they cost.

A cost model learns from 96 of a layer's measurements; each policy proposes 32 unmeasured
configurations; the mean true fitness of these (by a model of all measurements) is what counts, and
beside it what the cost model thinks of them. All have 5,000 calls of it, one of the annealings as
many as fill the agent's CPU time. An agent that carries over has proposed for all other layers of
the file before, and not for this one; all others are fresh.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import ray
from courses import mean

import policies
from policies.base import Policy
from release_ray.core import recorded
from release_ray.core.settings import AgentSettings
from release_ray.testing.recorded import RecordedLayer

LAYER = Path(__file__).parents[2] / "tests" / "data" / "recorded_conv2d_64x56x56.json.gz"
MEASURED, PROPOSED, CALLS = 96, 32, 5000
BASE = "annealing"
CARRIED_ROUNDS = 4
"""Of each other layer."""


@dataclass(frozen=True)
class Contestant:
    """A policy by name, the settings that are not the default, and whether it has a past."""

    policy: str
    settings: dict[str, Any] = field(default_factory=dict)
    carries_over: bool = False


POLICIES = {
    "random": Contestant("random"),
    BASE: Contestant("annealing"),
    "annealing, equal CPU": Contestant("annealing", {"model_calls": 17000}),
    "genetic": Contestant("genetic"),
    "ppo alone": Contestant("ppo", {"fine_tune": 0.0}),
    "ppo alone, carried": Contestant("ppo", {"fine_tune": 0.0}, carries_over=True),
    "ppo": Contestant("ppo"),
    "ppo, carried": Contestant("ppo", carries_over=True),
}
FIELDS = ("policy", "layer", "sample", "seed", "true_fitness", "predicted_fitness", "cpu_s")


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, default=LAYER, help="of recorded layers")
    parser.add_argument("--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES))
    parser.add_argument("--samples", type=int, default=3, help="choices of what is measured")
    parser.add_argument("--seeds", type=int, default=3, help="searches of each")
    parser.add_argument("--out", type=Path, default=Path("."), help="where agent.csv goes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    layers = [RecordedLayer(task) for task in recorded.load(arguments.file)]
    truths = [layer.truth() for layer in layers]
    rows = []
    for name, number, sample, seed in product(
        arguments.policies, range(len(layers)), range(arguments.samples), range(arguments.seeds)
    ):
        others = layers[:number] + layers[number + 1 :]
        policy = contestant(POLICIES[name], others, sample, seed)
        state = layers[number].search_state(MEASURED, sample=sample, seed=seed)
        start = time.process_time()
        candidates = policy.propose(state, PROPOSED)
        cpu_s = time.process_time() - start
        policy.close()
        found = truths[number](candidates.points)
        true, predicted = float(found.mean()), float(candidates.scores.mean())
        rows.append((name, layers[number].task.name, sample, seed, true, predicted, cpu_s))
        told = f"sample {sample}, seed {seed}: true fitness {true:.3f}, {cpu_s:.2f} CPU-s"
        print(f"{name}, {layers[number].task.name}, {told}", file=sys.stderr)
    path = arguments.out / "agent.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([FIELDS, *rows])
    print(json.dumps(summary(path)))
    ray.shutdown()


def contestant(of: Contestant, others: list[RecordedLayer], sample: int, seed: int) -> Policy:
    """A fresh policy, ready to propose, or one that has proposed for other layers."""
    settings = AgentSettings(**{"model_calls": CALLS, **of.settings})
    policy = policies.create(of.policy, settings, seed)
    policy.prepare()
    if of.carries_over:
        for layer, more in product(others, range(CARRIED_ROUNDS)):
            past = layer.search_state(MEASURED, sample=sample + more, seed=seed + more)
            policy.propose(past, PROPOSED)
    return policy


def summary(path: Path) -> dict[str, dict]:
    """Per policy the means over layers, samples and seeds, and the true fitness over annealing's.

    Read back from the CSV.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    contests: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        contest = contests.setdefault((row["layer"], row["sample"], row["seed"]), {})
        contest[row["policy"]] = float(row["true_fitness"])
    figures: dict[str, dict] = {}
    for name in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == name]
        figures[name] = {
            column: round(float(np.mean([float(row[column]) for row in mine])), 4)
            for column in FIELDS[4:]
        }
        both = [c for c in contests.values() if name in c and BASE in c]
        if both:
            figures[name]["over_annealing"] = mean([c[name] / c[BASE] for c in both])
    return figures


if __name__ == "__main__":
    main()
