"""Stock MetaSchedule on operators: the peer of the benchmarks. Run as a script, prints JSON.

With `--ours` some of its parts are release_ray's.

As shipped, each of its builder processes imports every back end's tensor intrinsics (15 to 25 s) in
every batch, and then often hits its own 30 s time-out. So it is given the light import as the
initializer of its builders. All else is its default: evolutionary search, XGBoost, 64 candidates
a batch, one builder process a core.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from release_ray import tvm_setup

tvm_setup.prepare(["llvm"])

import tvm  # noqa: E402
from tvm.ir.utils import derived_object  # noqa: E402
from tvm.s_tir import meta_schedule as ms  # noqa: E402


def light_import() -> None:
    """Runs in each builder process before its first candidate."""
    tvm_setup.prepare(["llvm"])


@derived_object
class Stamps(ms.measure_callback.PyMeasureCallback):
    """Notes when each batch was measured, and what came of it.

    Of a single operator that is each candidate's latency; of several the sum of the best so far,
    each by its weight.
    """

    def __init__(
        self, begun: float, weights: Sequence[float], trials: list[tuple[float, float | None]]
    ) -> None:
        super().__init__()
        self._begun = begun
        self._weights = weights
        self._best = [inf] * len(weights)
        self._trials = trials

    def apply(self, _scheduler, task, _candidates, _builds, results) -> None:  # noqa: ANN001
        at = time.time() - self._begun
        for result in results:
            seconds = [float(s) for s in result.run_secs or ()]
            latency = sum(seconds) / len(seconds) if seconds and not result.error_msg else inf
            self._best[task] = min(self._best[task], latency)
            if len(self._best) > 1:
                latency = sum(w * s for w, s in zip(self._weights, self._best, strict=True))
            self._trials.append((at, latency if latency < inf else None))


def main() -> None:
    """Tunes the operators of a JSON file; prints {start_s, wall_s, trials}.

    The file is a list of {name, module, target, weight}. A trial is (seconds since the beginning,
    latency in s or null).
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", type=Path)
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64, help="candidates a batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ours", nargs="*", default=[], choices=["builder", "runner", "strategy"])
    parser.add_argument("--begun", type=float, default=time.time(), help="of the epoch, in s")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    operators = json.loads(arguments.operators.read_text())
    parts = made(arguments.ours, arguments.seed)
    strategy = parts.pop("strategy", "evolutionary")
    contexts = [
        ms.TuneContext(
            mod=tvm.ir.load_json(operator["module"]),
            target=tvm.target.Target(json.loads(operator["target"])),
            space_generator="post-order-apply",
            search_strategy=strategy,
            task_name=operator["name"],
            rand_state=arguments.seed or 1,
            # As `extracted_tasks_to_tune_contexts` does: each has a strategy of its own.
        ).clone()
        for operator in operators
    ]
    weights = [float(operator["weight"]) for operator in operators]
    trials: list[tuple[float, float | None]] = []
    with tempfile.TemporaryDirectory() as directory:
        start_s = time.time() - arguments.begun
        if "builder" not in parts:
            parts["builder"] = ms.builder.LocalBuilder(initializer=light_import)
        ms.tune_tasks(
            tasks=contexts,
            task_weights=weights,
            work_dir=directory,
            max_trials_global=arguments.trials,
            num_trials_per_iter=arguments.batch,
            **parts,
            measure_callbacks=[
                *ms.measure_callback.MeasureCallback.create("default"),
                Stamps(arguments.begun, weights, trials),
            ],
        )
        wall_s = time.time() - arguments.begun
    print(json.dumps({"start_s": start_s, "wall_s": wall_s, "trials": trials}))


def made(ours: Sequence[str], seed: int) -> dict[str, Any]:
    """The parts named, and what goes with them, as `ms.tune_tasks` takes them."""
    if not ours:
        return {}
    # Stock MetaSchedule is not to pay for what it does not use.
    from release_ray.metaschedule import RayBuilder, RayRunner, ReleaseSearch

    parts: dict[str, Any] = {}
    if "builder" in ours:
        parts["builder"] = RayBuilder()
    if "runner" in ours:
        parts["runner"] = RayRunner()
    if "strategy" in ours:
        # What nobody asks need not be trained.
        parts |= {"strategy": ReleaseSearch(seed=seed), "cost_model": "random"}
    return parts


if __name__ == "__main__":
    main()
