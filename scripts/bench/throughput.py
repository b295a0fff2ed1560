"""Trials a second of `release-ray tune` and of stock MetaSchedule, on one conv2d, in one run.

Both tune the same operator for one core, both may use every core of the machine, both have their
defaults, but that both find warm caches, as the peer does. A trial is a distinct candidate that was
measured (`ok` or `slow`). Starting up is not counted, and reported beside.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from math import isfinite
from pathlib import Path

from courses import Course
from operators import RESNET_3X3
from tuners import metaschedule, release_ray, task_of

WARM = {"measure": {"flush_cache": False}}


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("."), help="where throughput.csv goes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    trials, seed = arguments.trials, arguments.seed
    with tempfile.TemporaryDirectory() as scratch:
        network, work_dir = RESNET_3X3.save(Path(scratch)), Path(scratch, "work")
        courses = {
            "release_ray": release_ray(network, work_dir, trials=trials, seed=seed, settings=WARM),
            "metaschedule": metaschedule([task_of(work_dir)], trials=trials, seed=seed),
        }
    path = arguments.out / "throughput.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("tuner", "start_s", "seconds", "latency_s"))
        for tuner, course in courses.items():
            writer.writerows(rows(tuner, course))
    print(json.dumps(summary(path)))


def rows(tuner: str, course: Course) -> list[tuple]:
    """A row for each trial: seconds from the first candidate's beginning."""
    return [
        (tuner, course.start_s, at - course.start_s, latency)
        for at, latency in course.trials
        if isfinite(latency)
    ]


def summary(path: Path) -> dict[str, float]:
    """The benchmark's figures from its CSV."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    rate, best, start = {}, {}, {}
    for tuner in ("release_ray", "metaschedule"):
        mine = [row for row in rows if row["tuner"] == tuner]
        rate[tuner] = len(mine) / max(float(row["seconds"]) for row in mine)
        best[tuner] = min(float(row["latency_s"]) for row in mine)
        start[tuner] = float(mine[0]["start_s"])
    return {
        "ratio": rate["release_ray"] / rate["metaschedule"],
        "ours_trials_per_s": rate["release_ray"],
        "peer_trials_per_s": rate["metaschedule"],
        "quality_ratio": best["metaschedule"] / best["release_ray"],
        "ours_best_ms": best["release_ray"] * 1e3,
        "peer_best_ms": best["metaschedule"] * 1e3,
        "ours_start_s": start["release_ray"],
        "peer_start_s": start["metaschedule"],
    }


if __name__ == "__main__":
    main()
