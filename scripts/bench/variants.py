"""The paper's four variants, and rivals: what the agent and the sampling are each worth.

SA is simulated annealing, RL the agent, both with the greedy sampler; +AS with adaptive sampling.
All begin with nothing known of other operators, have the same budget, and differ in nothing else.
On hardware each is a run of `release-ray tune`; with `--replay` the layers of a file of recorded
measurements are searched instead, where a model tells what was not recorded.

Writes `variants.csv`, the paper's tables as `variants.md` (what each needs until it has what SA has
in the end, and what it has in the end), and `variants.png`: the best by then, mean and range over
seeds. The CSV grows: repeated calls add layers, variants and seeds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from courses import Course, append, mean, read
from operators import RESNET18
from tuners import release_ray

import policies
import samplers
from release_ray.configuration import validate
from release_ray.core import recorded
from release_ray.testing.surrogate import Replay, Surrogate

ALONE = {"cost_model": {"prior": 0, "transfer": 0}}
WARM = {"measure": {"flush_cache": False}}
BASE = "SA"
CLOSE = 1.01
VARIANTS: dict[str, dict[str, Any]] = {
    "SA": {"policy": "annealing", "sampler": {"name": "greedy"}},
    "RL": {"policy": "ppo", "sampler": {"name": "greedy"}},
    "SA+AS": {"policy": "annealing"},
    "RL+AS": {"policy": "ppo"},
    "genetic": {"policy": "genetic", "sampler": {"name": "greedy"}},
    "genetic+AS": {"policy": "genetic"},
    "random": {"policy": "random", "sampler": {"name": "greedy"}},
    # As many a plan as AutoTVM has, and the paper's baseline.
    "RL, plans of 64": {"policy": "ppo", "sampler": {"name": "greedy", "max_clusters": 64}},
    # As many a plan as adaptive sampling has in the mean: is it more than smaller plans?
    "RL, plans of 12": {"policy": "ppo", "sampler": {"name": "greedy", "max_clusters": 12}},
    "SA, plans of 12": {"policy": "annealing", "sampler": {"name": "greedy", "max_clusters": 12}},
}
PAPER = {
    "first_batch": 64,
    "sampler": {"min_clusters": 8, "max_clusters": 64, "cluster_step": 8},
    "agent": {"walkers": 128, "model_calls": 64000},
}
"""The sizes of the paper; ours are for smaller budgets."""


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS)[:4])
    parser.add_argument("--layers", nargs="+", help="of ResNet-18, or of the file; all if left out")
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--scale", choices=["ours", "paper"], default="ours")
    parser.add_argument("--replay", type=Path, help="a file of recorded measurements")
    parser.add_argument("--workers", type=int, default=1, help="processes of a replay")
    parser.add_argument("--out", type=Path, default=Path("."))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "variants.csv"
    known = [one.name for one in RESNET18]
    if arguments.replay:
        known = [task.name for task in recorded.load(arguments.replay)]
    wanted = [
        (layer, seed, variant, arguments.trials, arguments.scale, arguments.replay)
        for layer, seed, variant in product(
            arguments.layers or known, arguments.seeds, arguments.variants
        )
    ]
    courses: Iterator[Course] = map(run, wanted)
    if arguments.replay:
        courses = ProcessPoolExecutor(arguments.workers).map(run, wanted)
    for (layer, seed, variant, *_), course in zip(wanted, courses, strict=True):
        append(path, layer, seed, variant, course)
    figures = summary(path)
    (arguments.out / "variants.md").write_text(markdown(figures["variants"]))
    plot(path, arguments.out / "variants.png")
    print(json.dumps(figures))


def run(wanted: tuple[str, int, str, int, str, Path | None]) -> Course:
    """One variant on one layer with one seed."""
    layer, seed, variant, trials, scale, replay = wanted
    settings = merged(VARIANTS[variant], ALONE, WARM, PAPER if scale == "paper" else {})
    if replay is not None:
        return replayed(surrogate(replay, layer), settings, trials, seed)
    operator = next(one for one in RESNET18 if one.name == layer)
    with tempfile.TemporaryDirectory() as scratch:
        network = operator.save(Path(scratch))
        return release_ray(
            network, Path(scratch, "work"), trials=trials, seed=seed, settings=settings
        )


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of several layers, group by group; where they contradict the first one counts."""
    result: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(result.get(name), Mapping)
            result[name] = {**value, **result[name]} if both else result.get(name, value)
    return result


@lru_cache(maxsize=2)
def surrogate(path: Path, layer: str) -> Surrogate:
    """The layer of a file, to be measured without hardware."""
    return Surrogate(next(task for task in recorded.load(path) if task.name == layer))


def replayed(layer: Surrogate, settings: dict[str, Any], trials: int, seed: int) -> Course:
    """A search without hardware. A trial counts as a second."""
    chosen = validate({**settings, "seed": seed}, "variant")
    if chosen.policy == "ppo":
        connect()
    policy = policies.create(chosen.policy, chosen.agent, seed)
    replay = Replay(layer, chosen, samplers.create(chosen.sampler.name, chosen.sampler))
    replay.run(policy, trials)
    policy.close()
    return Course(
        tuple((float(n), layer.best_s / max(best, 1e-6)) for n, best in enumerate(replay.curve, 1)),
        start_s=0.0,
        wall_s=float(len(replay.curve)),
    )


def connect() -> None:
    """RLlib wants a Ray to be there, though nothing of it is used."""
    import ray

    if not ray.is_initialized():
        options: dict[str, Any] = {"num_cpus": 1, "include_dashboard": False}
        ray.init("local", log_to_driver=False, logging_level="ERROR", **options)


def summary(path: Path) -> dict[str, Any]:
    """What sampling saves of the agent's measurements, and what every variant has in the end.

    `measurements_saved_by_sampling`: the trials that RL needs for what it has in the end, over
    those that RL+AS needs for it within 1 %. `quality` is relative to SA's; `variants` has both of
    every variant with intervals. Geometric means over layers and seeds. A variant that never gets
    there counts as if it had got there at its end.
    """
    contests = list(read(path).values())
    figures = against_base([c for c in contests if BASE in c])
    both = [(c["RL"], c["RL+AS"]) for c in contests if {"RL", "RL+AS"} <= set(c)]
    saved = [
        greedy.until(CLOSE * greedy.best_s)[1] / sampled.until(CLOSE * greedy.best_s)[1]
        for greedy, sampled in both
    ]
    return {
        "measurements_saved_by_sampling": mean(saved)["ratio"] if saved else None,
        "quality": {variant: figure["quality"]["ratio"] for variant, figure in figures.items()},
        "variants": figures,
    }


def against_base(contests: Sequence[Mapping[str, Course]]) -> dict[str, dict]:
    """Time and trials to the quality that SA has in the end, and quality in the end."""
    figures: dict[str, dict] = {}
    for variant in dict.fromkeys(name for c in contests for name in c):
        pairs = [(c[variant], c[BASE]) for c in contests if variant in c]
        until = [(mine.until(base.best_s), base) for mine, base in pairs]
        figures[variant] = {
            "time": mean([base.wall_s / seconds for (seconds, _), base in until]),
            "trials": mean([len(base.trials) / trials for (_, trials), base in until]),
            "quality": mean([base.best_s / mine.best_s for mine, base in pairs]),
            "reached": sum(mine.best_s <= base.best_s for mine, base in pairs) / len(pairs),
        }
    return figures


def markdown(figures: dict[str, dict]) -> str:
    """The paper's two tables: optimisation time, and output."""

    def cell(value: dict) -> str:
        return f"{value['ratio']:.2f} ({value['interval'][0]:.2f} to {value['interval'][1]:.2f})"

    lines = ["Ratios to SA: more is better. Geometric means with 95 % intervals.", ""]
    lines += ["| | time to SA's end | trials to SA's end | got there | best in the end |"]
    lines += ["|---|---|---|---|---|"]
    for name, of in figures.items():
        cells = [name, cell(of["time"]), cell(of["trials"]), f"{of['reached']:.0%}"]
        lines.append("| " + " | ".join([*cells, cell(of["quality"])]) + " |")
    return "\n".join(lines) + "\n"


def plot(path: Path, picture: Path) -> None:
    """A panel a layer: speed of the best so far over trials, relative to the best of all."""
    from matplotlib.figure import Figure

    contests = read(path)
    layers = list(dict.fromkeys(layer for layer, _ in contests))
    columns = min(3, len(layers))
    rows = -(-len(layers) // columns)
    figure = Figure(figsize=(4.5 * columns, 3.2 * rows), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns, sharey=True)).ravel()
    for panel, layer in zip(panels, layers, strict=False):
        mine = {key: c for key, c in contests.items() if key[0] == layer}
        best = min(course.best_s for c in mine.values() for course in c.values())
        for variant in dict.fromkeys(name for c in mine.values() for name in c):
            curves = padded([curve(c[variant], best) for c in mine.values() if variant in c])
            trials = np.arange(1, curves.shape[1] + 1)
            (line,) = panel.plot(trials, curves.mean(axis=0), label=variant)
            low, high = curves.min(axis=0), curves.max(axis=0)
            panel.fill_between(trials, low, high, alpha=0.15, color=line.get_color())
        panel.set(title=layer, xlabel="measurements", ylabel="speed of the best so far")
    panels[0].legend(fontsize="small")
    figure.savefig(picture, dpi=120)


def curve(course: Course, best_s: float) -> np.ndarray:
    """The best speed after each trial, relative to that of `best_s`."""
    return best_s / np.minimum.accumulate([latency for _, latency in course.trials])


def padded(curves: Sequence[np.ndarray]) -> np.ndarray:
    """Curves of unequal length as rows; what is missing stays as it was."""
    longest = max(len(values) for values in curves)
    return np.array([np.pad(values, (0, longest - len(values)), "edge") for values in curves])


if __name__ == "__main__":
    main()
