"""Where the defaults come from: settings of the agent and the sampler, one changed at a time.

Each is searched with on recorded layers (`pack_records.py` makes the files), where a model tells
what was not recorded. All begin with nothing known of other operators. What is found is relative to
what the defaults find on the same layer with the same seed.

The CSV grows: repeated calls add layers, values and seeds.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from courses import Course, append, mean, read
from variants import ALONE, WARM, merged, replayed, surrogate

from release_ray.configuration import put
from release_ray.core import recorded

DEFAULT = "default"
Change = tuple[str, float] | None
"""A setting by name and its value; None for the defaults."""
VALUES: dict[str, tuple[float, ...]] = {
    "agent.lr": (1e-3, 1e-2),
    "agent.entropy": (0.02, 0.2),
    "agent.clip": (0.1, 0.4),
    "agent.walkers": (32, 128),
    "agent.steps": (3, 10),
    "sampler.threshold": (1.5, 4.0),
    "sampler.max_clusters": (8, 32),
    "sampler.epsilon": (0.0, 0.15, 0.25),
    "first_batch": (8, 32),
}


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=Path, nargs="+", required=True, help="of recorded layers")
    parser.add_argument("--settings", nargs="+", choices=list(VALUES), default=list(VALUES))
    parser.add_argument("--values", type=float, nargs="+", help="of one setting, in place of ours")
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, default=Path("."), help="where defaults.csv goes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "defaults.csv"
    known = [(file, task.name) for file in arguments.files for task in recorded.load(file)]
    changes: list[Change] = [None]
    changes += [
        (name, value) for name in arguments.settings for value in arguments.values or VALUES[name]
    ]
    done = read(path) if path.exists() else {}
    wanted = [
        (file, layer, seed, change, arguments.trials)
        for (file, layer), seed, change in product(known, arguments.seeds, changes)
        if told(change) not in done.get((place(file, layer), str(seed)), {})
    ]
    with ProcessPoolExecutor(arguments.workers) as pool:
        for (file, layer, seed, change, _), course in zip(
            wanted, pool.map(run, wanted), strict=True
        ):
            append(path, place(file, layer), seed, told(change), course)
    print(json.dumps(summary(path)))


def place(file: Path, layer: str) -> str:
    """How the CSV names a layer of a network."""
    return f"{file.name.split('.')[0]}/{layer}"


def told(change: Change) -> str:
    """How the CSV names it."""
    return f"{change[0]}={change[1]:g}" if change else DEFAULT


def run(wanted: tuple[Path, str, int, Change, int]) -> Course:
    """One layer with one seed and one change."""
    file, layer, seed, change, trials = wanted
    return replayed(surrogate(file, layer), settings_of(change), trials, seed)


def settings_of(change: Change) -> dict[str, Any]:
    """The settings of a search with that change, nested as in a file."""
    changed: dict[str, Any] = {}
    if change:
        put(changed, *change)
    return merged(changed, ALONE, WARM)


def summary(path: Path) -> dict[str, Any]:
    """By change, over layers and seeds: the best halfway and in the end, relative to the defaults.

    And the trials that the defaults take to their end, over those until it has as much.
    """
    contests = [c for c in read(path).values() if DEFAULT in c]
    figures: dict[str, Any] = {}
    for change in dict.fromkeys(name for c in contests for name in c):
        pairs = [(c[change], c[DEFAULT]) for c in contests if change in c]
        figures[change] = {
            "halfway": mean([half(base) / half(mine) for mine, base in pairs]),
            "quality": mean([base.best_s / mine.best_s for mine, base in pairs]),
            "trials": mean(
                [base.until(base.best_s)[1] / mine.until(base.best_s)[1] for mine, base in pairs]
            ),
        }
    return {"settings": figures}


def half(course: Course) -> float:
    """The best latency after half of the trials."""
    return min(latency for _, latency in course.trials[: len(course.trials) // 2])


if __name__ == "__main__":
    main()
