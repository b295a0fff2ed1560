"""What each of release_ray's parts is worth in MetaSchedule's own loop, in one run.

On a conv2d of ResNet-18 or, with `--network`, on all tasks of a built-in network.

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

from release_ray import networks
from release_ray.configuration import load_settings
from release_ray.measure.devices import expand
from release_ray.prepare import prepare
from release_ray.tasks import dump_tasks

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
    parser.add_argument("--network", choices=networks.BUILT_IN_NAMES)
    parser.add_argument(
        "--parts", nargs="+", choices=list(COMBINATIONS), default=list(COMBINATIONS)
    )
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("."), help="where parts.csv goes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "parts.csv"
    what = arguments.network or arguments.layer
    tasks = of_network(what) if arguments.network else of_layer(what)
    for name in arguments.parts:
        course = metaschedule(
            tasks,
            trials=arguments.trials,
            seed=arguments.seed,
            ours=COMBINATIONS[name],
            # So that each task has its turn.
            batch=16 if arguments.network else 64,
        )
        append(path, what, arguments.seed, name, course)
    print(json.dumps(summary(path)))


def of_layer(layer: str) -> list[dict]:
    """The convolution of a layer, as a task."""
    operator = next(operator for operator in RESNET18 if operator.name == layer)
    with tempfile.TemporaryDirectory() as scratch:
        tasks = of_network(str(operator.save(Path(scratch))))
    return [task for task in tasks if task["name"].startswith("conv2d")][:1]


def of_network(network: str) -> list[dict]:
    """All tasks of a network."""
    return json.loads(dump_tasks(prepare(network, load_settings(None, {}), expand("auto")).tasks))


def summary(path: Path) -> dict[str, dict[str, dict[str, float]]]:
    """By what was tuned and by combination: seconds, those to stock's best, ratios to stock."""
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for (what, _), courses in read(path).items():
        base = courses[BASE]
        for name, course in courses.items():
            figures.setdefault(what, {})[name] = {
                "wall_s": round(course.wall_s, 1),
                "wall_ratio": round(base.wall_s / course.wall_s, 2),
                "s_to_stock_best": round(course.until(base.best_s)[0], 1),
                "best_ms": round(course.best_s * 1e3, 4),
                "best_ratio": round(base.best_s / course.best_s, 3),
            }
    return figures


if __name__ == "__main__":
    main()
