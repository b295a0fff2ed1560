"""Time to the quality of stock MetaSchedule, layer by layer, in one run.

Both tune the same operator for one core of the same machine, with their defaults, in turns: the
peer, `release-ray tune`, and the searches that it has to beat in its own pool. All time with warm
caches, as the peer does. Seconds are counted from the start of each program.

What is compared: how long ours takes until it has what the peer has found in all its trials,
against how long the peer takes for them; what ours has found when the peer's time is over; how many
trials it takes. A tuner that never gets there counts as if it had got there at its end.

The CSV grows: repeated calls add layers, tuners and seeds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

from courses import Course, append, mean, read
from operators import RESNET18, Convolution
from tuners import metaschedule, release_ray, task_of

WARM = {"measure": {"flush_cache": False}}
ALONE = {"cost_model": {"prior": 0, "transfer": 0}}
PEER = "metaschedule"
OURSELVES = "release_ray"
OURS = {
    OURSELVES: {},
    # Without what was measured of other operators, before and in this run.
    "without_prior": ALONE,
    "random+greedy": {**ALONE, "policy": "random", "sampler": "greedy"},
    "annealing+greedy": {**ALONE, "policy": "annealing", "sampler": "greedy"},
    "genetic+greedy": {**ALONE, "policy": "genetic", "sampler": "greedy"},
    "evolutionary+greedy": {**ALONE, "policy": "evolutionary", "sampler": "greedy"},
}
RIVALS = [tuner for tuner in OURS if "+" in tuner]


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", nargs="+", choices=[one.name for one in RESNET18], default=None)
    parser.add_argument("--tuners", nargs="+", choices=list(OURS), default=list(OURS))
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("."), help="where peer.csv goes; it grows")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "peer.csv"
    layers = [layer for layer in RESNET18 if layer.name in (arguments.layers or [layer.name])]
    for seed in arguments.seeds:
        for layer in layers:
            contest(path, layer, arguments.tuners, arguments.trials, seed)
    print(json.dumps(summary(path)))


def contest(path: Path, layer: Convolution, tuners: Sequence[str], trials: int, seed: int) -> None:
    """Appends the courses of all tuners on one layer, but for those that are there."""
    done = read(path).get((layer.name, str(seed)), {}) if path.exists() else {}
    tuners = [tuner for tuner in tuners if tuner not in done]
    if not tuners:
        return
    with tempfile.TemporaryDirectory() as scratch:
        network = layer.save(Path(scratch))
        for tuner in tuners:
            work_dir = Path(scratch, tuner)
            settings = {**WARM, **OURS[tuner]}
            course = release_ray(network, work_dir, trials=trials, seed=seed, settings=settings)
            append(path, layer.name, seed, tuner, course)
        if PEER not in done:
            peer = metaschedule([task_of(Path(scratch, tuners[0]))], trials=trials, seed=seed)
            append(path, layer.name, seed, PEER, peer)


def summary(path: Path) -> dict[str, Any]:
    """Geometric means: ours against the peer, layer by layer too, and every tuner's.

    `time_ratio` is how much sooner ours has what the peer has in the end, `quality_ratio` how much
    faster its best kernel is when the peer's time is over. `tuners` has every measure of every
    tuner with its bootstrap interval of 95 % over layers and seeds. `rivals` is how much faster
    ours is after all trials than each of the searches in its own pool, and how much sooner it has
    what the peer has.
    """
    contests = {key: c for key, c in read(path).items() if PEER in c}
    tuners = dict.fromkeys(tuner for c in contests.values() for tuner in c if tuner != PEER)

    def figure(measure: Measure, tuner: str, layer: str | None = None) -> dict[str, Any] | None:
        pairs = [
            (c[tuner], c[PEER])
            for (where, _), c in contests.items()
            if tuner in c and layer in (None, where)
        ]
        return mean([measure(*pair) for pair in pairs]) if pairs else None

    def ratios(layer: str | None = None) -> dict[str, float | None]:
        return {
            name: told["ratio"] if (told := figure(measure, OURSELVES, layer)) else None
            for name, measure in HEADLINES.items()
        }

    def rivalled(rival: str) -> dict[str, Any] | None:
        both = [c for c in contests.values() if {OURSELVES, rival} <= set(c)]
        if not both:
            return None
        return {
            "quality": mean([c[rival].best_s / c[OURSELVES].best_s for c in both]),
            "time": mean(
                [time_ratio(c[OURSELVES], c[PEER]) / time_ratio(c[rival], c[PEER]) for c in both]
            ),
        }

    return {
        **ratios(),
        "rivals": {tuner: rivalled(tuner) for tuner in tuners if tuner in RIVALS},
        "layers": {layer: ratios(layer) for layer, _ in contests},
        "tuners": {
            tuner: {name: figure(measure, tuner) for name, measure in MEASURES.items()}
            for tuner in tuners
        },
    }


def time_ratio(ours: Course, peer: Course) -> float:
    """The peer's time for its trials over ours until one is as fast as its best."""
    return peer.wall_s / ours.until(peer.best_s)[0]


def searching_ratio(ours: Course, peer: Course) -> float:
    """The same without the start-up of either."""
    return (peer.wall_s - peer.start_s) / (ours.until(peer.best_s)[0] - ours.start_s)


def trials_ratio(ours: Course, peer: Course) -> float:
    """The peer's trials over ours until one is as fast as its best."""
    return len(peer.trials) / ours.until(peer.best_s)[1]


def quality_at_equal_time(ours: Course, peer: Course) -> float:
    """The peer's best over ours when its time, or our trials, are over."""
    best = ours.best_within(peer.wall_s)
    return peer.best_s / best if best < inf else 0.0


def quality_at_equal_trials(ours: Course, peer: Course) -> float:
    """The peer's best over ours after as many trials."""
    return peer.best_s / min(latency for _, latency in ours.trials[: len(peer.trials)])


Measure = Callable[[Course, Course], float]
HEADLINES: dict[str, Measure] = {"time_ratio": time_ratio, "quality_ratio": quality_at_equal_time}
MEASURES: dict[str, Measure] = {
    "time": time_ratio,
    "time_without_start": searching_ratio,
    "trials": trials_ratio,
    "quality_at_equal_time": quality_at_equal_time,
    "quality_at_equal_trials": quality_at_equal_trials,
}


if __name__ == "__main__":
    main()
