"""How tuners fared, as values, as CSV, and as ratios between them."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np

FIELDS = ("layer", "seed", "tuner", "start_s", "seconds", "trial", "latency_s")


@dataclass(frozen=True)
class Course:
    """How one tuner fared: (seconds since its process began, latency in s) of each trial.

    The latency of a failed one is infinite; that of one stopped early is its lower bound. `start_s`
    is when the first candidate was begun, `wall_s` when everything was measured.
    """

    trials: tuple[tuple[float, float], ...]
    start_s: float
    wall_s: float

    @property
    def best_s(self) -> float:
        return min(latency for _, latency in self.trials)

    def reaches(self, latency_s: float) -> tuple[float, int] | None:
        """Seconds and trials until one is as fast; None if none is."""
        for number, (at, latency) in enumerate(self.trials, 1):
            if latency <= latency_s:
                return at, number
        return None

    def until(self, latency_s: float) -> tuple[float, int]:
        """The same; where none is as fast, the end of all trials."""
        return self.reaches(latency_s) or (self.wall_s, len(self.trials))

    def best_within(self, seconds: float) -> float:
        """The best latency that was known by then."""
        return min((latency for at, latency in self.trials if at <= seconds), default=inf)


def append(path: Path, layer: str, seed: int, tuner: str, course: Course) -> None:
    """Adds a row for each trial to a CSV, which is made where there is none."""
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            (layer, seed, tuner, round(course.start_s, 2), round(at, 2), number, latency)
            for number, (at, latency) in enumerate(course.trials, 1)
        )
    told = f"{course.best_s * 1e3:.3f} ms in {course.wall_s:.0f} s, begun at {course.start_s:.0f} s"
    print(f"{layer}, seed {seed}, {tuner}: {told}", file=sys.stderr, flush=True)


def read(path: Path) -> dict[tuple[str, str], dict[str, Course]]:
    """The courses of each (layer, seed), by tuner."""
    trials: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    starts: dict[tuple[str, str, str], float] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            by_tuner = trials.setdefault((row["layer"], row["seed"]), {})
            course = by_tuner.setdefault(row["tuner"], [])
            course.append((float(row["seconds"]), float(row["latency_s"])))
            starts[row["layer"], row["seed"], row["tuner"]] = float(row["start_s"])
    return {
        key: {
            tuner: Course(tuple(course), starts[(*key, tuner)], max(at for at, _ in course))
            for tuner, course in by_tuner.items()
        }
        for key, by_tuner in trials.items()
    }


def mean(ratios: Sequence[float]) -> dict[str, float | int | list[float]]:
    """The geometric mean and its 95 % interval by bootstrap over the contests."""
    logs = np.log(np.maximum(ratios, 1e-9))
    drawn = np.random.default_rng(0).choice(logs, (2000, len(logs))).mean(axis=1)
    low, high = np.exp(np.quantile(drawn, (0.025, 0.975)))
    return {
        "ratio": round(float(np.exp(logs.mean())), 3),
        "interval": [round(float(low), 3), round(float(high), 3)],
        "contests": len(logs),
    }
