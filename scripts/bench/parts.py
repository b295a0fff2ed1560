"""What each of release_ray's parts is worth in MetaSchedule's own loop, on one conv2d, in one run.

Stock MetaSchedule (helped as in `metaschedule_peer.py`), the same with each part alone, and with
all three. Seconds are those of the whole process, its start included.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from courses import append, read
from operators import RESNET18
from tuners import metaschedule

from release_ray.configuration import load_settings
from release_ray.measure.devices import expand
from release_ray.prepare import prepare

BASE = "stock"
COMBINATIONS: dict[str, tuple[str, ...]] = {
    BASE: (),
    "RayBuilder": ("builder",),
    "RayRunner": ("runner",),
    "ReleaseSearch": ("strategy",),
    "all": ("builder", "runner", "strategy"),
}


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout; the CSV grows with each call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [operator.name for operator in RESNET18]
    parser.add_argument("--layer", choices=names, default=names[1])
    parser.add_argument(
        "--parts", nargs="+", choices=list(COMBINATIONS), default=list(COMBINATIONS)
    )
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("."), help="where parts.csv goes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "parts.csv"
    task = convolution(arguments.layer)
    for name in arguments.parts:
        course = metaschedule(
            task, trials=arguments.trials, seed=arguments.seed, ours=COMBINATIONS[name]
        )
        append(path, arguments.layer, arguments.seed, name, course)
    print(json.dumps(summary(path)))


def convolution(layer: str) -> dict[str, str]:
    """Module and target of a layer's convolution."""
    operator = next(operator for operator in RESNET18 if operator.name == layer)
    with tempfile.TemporaryDirectory() as scratch:
        network = str(operator.save(Path(scratch)))
        prepared = prepare(network, load_settings(None, {}), expand("auto"))
    task = next(task for task in prepared.tasks if task.name.startswith("conv2d"))
    return {"module": task.workload.module_json, "target": task.workload.target_json}


def summary(path: Path) -> dict[str, dict[str, float]]:
    """Per combination the seconds in all, those to stock's best, and ratios to stock."""
    figures: dict[str, dict[str, float]] = {}
    for courses in read(path).values():
        base = courses[BASE]
        for name, course in courses.items():
            figures[name] = {
                "wall_s": round(course.wall_s, 1),
                "wall_ratio": round(base.wall_s / course.wall_s, 2),
                "s_to_stock_best": round(course.until(base.best_s)[0], 1),
                "best_ms": round(course.best_s * 1e3, 4),
                "best_ratio": round(base.best_s / course.best_s, 3),
            }
    return figures


if __name__ == "__main__":
    main()
