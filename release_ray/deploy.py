"""From the best records to a checked library, and what it gained."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tvm.ir import IRModule
from tvm.target import Target

from release_ray.benchmark import Comparison
from release_ray.compile import compile_network, export
from release_ray.core.errors import WorkFailed
from release_ray.database import Entry, open_database, write_database
from release_ray.journal import Journal
from release_ray.measure.jobs import Job
from release_ray.measure.pool import MeasurePool
from release_ray.measure.process import ChildFailure
from release_ray.networks import Network
from release_ray.records import FINALISTS
from release_ray.replay import replayed
from release_ray.tuner import TaskState
from release_ray.verify import max_rel_error, tolerance
from release_ray.workdir import SCRATCH

_log = logging.getLogger(__name__)

_COMPARE_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Deployment:
    """Latencies (ms) of the whole network in one run, and max|a-b| / max|b| of the tuned output."""

    default_ms: float
    tuned_ms: float
    max_rel_error: float
    default_right: bool = True
    """Whether the default network's output is within the tolerance too."""

    @property
    def keeps_tuned(self) -> bool:
        """Whether the tuned library was left: the default one is where it is faster, and right."""
        return self.tuned_ms <= self.default_ms or not self.default_right

    @property
    def model_ms(self) -> float:
        """Latency of the library that was left."""
        return self.tuned_ms if self.keeps_tuned else self.default_ms


def choose_winners(states: Sequence[TaskState], journal: Journal, pool: MeasurePool) -> list[Entry]:
    """The best candidate of each task whose output is right.

    Finalists are compared with the unscheduled operator on a device, best first. One whose output
    is wrong is recorded as such, and the next is tried. Tasks without any are left out, and so are
    those that are faster untuned.

    Raises `WorkFailed` where no task has one, and none is faster untuned.
    """
    winners = []
    for state in states:
        planner = state.planner
        for record in journal.best(planner.task, FINALISTS):
            if journal.untuned_won(planner.task):
                _log.warning("%s: nothing found is faster than untuned: it stays so", state.name)
                break
            entry = replayed(planner.task, planner.sketches, record)
            if entry is None:
                continue
            job = Job(0, planner.task.workload, entry.trace_json, record.decisions, entry.latency_s)
            try:
                error = pool.check(job)
            except ChildFailure as failure:
                # That says nothing of its output: it may be the device that failed.
                _log.warning("%s: a candidate could not be checked: %s", state.name, failure)
                continue
            if error <= tolerance(job.workload.module_json):
                winners.append(entry)
                break
            wrong = f"its output differs from the unscheduled operator's by {error:.2g}"
            _log.warning("%s: the best candidate is wrong: %s", state.name, wrong)
            journal.mark_wrong(record, wrong)
            journal.recount(state)
    if not winners and not any(journal.untuned_won(state.planner.task) for state in states):
        raise WorkFailed("no candidate of any task could be checked and gave the right output")
    return winners


def deploy(
    network: Network,
    module: IRModule,
    target: Target,
    winners: Sequence[Entry],
    *,
    pool: MeasurePool,
    database: Path,
    model: Path,
    seed: int,
    stage: Callable[[str], None],
) -> Deployment:
    """Compiles the default and the tuned network, checks them, and leaves the better as `model`.

    The default is what TVM makes of the network as it was imported, in its own layout.
    `database` is the directory of MetaSchedule's files. Raises `WorkFailed` where the tuned network
    cannot be compiled or run, or gives another result than the network's own framework.
    """
    write_database(database, winners)
    inputs = network.example_inputs(seed)
    model.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=model.parent, prefix=SCRATCH) as scratch:
        default_so, tuned_so = Path(scratch, "default.so"), Path(scratch, "tuned.so")
        stage("compiling the default network")
        export(compile_network(network.module, target), default_so)
        stage("compiling the tuned network")
        export(compile_network(module, target, open_database(database)), tuned_so)
        stage("comparing the tuned network with the default one")
        comparison = _compare(pool, default_so, tuned_so, inputs)
        reference = network.reference(inputs)
        error = max_rel_error(comparison.tuned_outputs, reference)
        default_error = max_rel_error(comparison.default_outputs, reference)
        # What is computed in 16 bits counts, also where inputs and outputs have more.
        accepted = tolerance(module.script(), *(str(x.dtype) for x in reference))
        if not error <= accepted:
            raise WorkFailed(
                f"the tuned network's output differs from the reference by {error:.2g} (the "
                f"default one's by {default_error:.2g}); no model was written"
            )
        deployment = Deployment(
            comparison.default_ms, comparison.tuned_ms, error, default_error <= accepted
        )
        (tuned_so if deployment.keeps_tuned else default_so).replace(model)
    if not deployment.keeps_tuned:
        _log.warning("tuning gave nothing: the model is the default network")
    return deployment


def _compare(
    pool: MeasurePool, default_so: Path, tuned_so: Path, inputs: Sequence[np.ndarray]
) -> Comparison:
    device = "cuda" if pool.devices[0].kind == "cuda" else "cpu"
    function: str = "compare"
    libraries: list[str] | list[bytes] = [str(so.resolve()) for so in (default_so, tuned_so)]
    if not pool.near:
        function = "compare_shipped"
        libraries = [so.read_bytes() for so in (default_so, tuned_so)]
    try:
        return pool.call_on_device(
            f"release_ray.benchmark:{function}", (*libraries, inputs, device), _COMPARE_TIMEOUT_S
        )
    except ChildFailure as failure:
        raise WorkFailed(f"the compiled network does not run: {failure}") from failure
