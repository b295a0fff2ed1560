"""MetaSchedule's runner, on the measurement pool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.runner import (
    PyRunner,
    PyRunnerFuture,
    RunnerFuture,
    RunnerInput,
    RunnerResult,
)

from release_ray import cluster, tvm_setup
from release_ray.core.settings import MeasureSettings
from release_ray.measure.devices import expand
from release_ray.measure.jobs import Artifact, Job, Outcome, Workload
from release_ray.measure.pool import MeasurePool
from release_ray.metaschedule.connection import closed_with, connected

_POLL_S = 1.0
_KERNEL = Workload(key="", name="metaschedule", module_json="", target_json="", flops=0.0)


@derived_object
class RayRunner(PyRunner):
    """Times artifacts on all devices of the pool, each in a child process pinned to its cores.

    Results come as they are measured, so that MetaSchedule searches for its next task meanwhile.
    A kernel that crashes, hangs or gives no time costs only itself: its result says why.
    """

    def __init__(
        self,
        *,
        devices: str = "auto",
        measure: MeasureSettings | None = None,
        address: str | None = None,
    ) -> None:
        """Starts nothing; the first `run` does.

        Args:
            devices: as `--devices` says it.
            measure: how a kernel is timed.
            address: of a Ray cluster; default: `RAY_ADDRESS`, else one is started.
        """
        super().__init__()
        # Else whoever imports the builders waits 20 s for intrinsics of other back ends.
        tvm_setup.prepare()
        self._devices = devices
        self._settings = measure or MeasureSettings()
        self._address = address
        self._stack = closed_with(self)
        self._pending: _Pending | None = None

    def run(self, runner_inputs: list[RunnerInput]) -> list[RunnerFuture]:
        """A future for each input; all are on their way when it returns."""
        if not len(runner_inputs):
            return []
        if self._pending is None:
            self._pending = self._start(str(runner_inputs[0].device_type))
        return self._pending.submit([_artifact(given) for given in runner_inputs], self._settings)

    def close(self) -> None:
        """Leaves the pool, and a Ray that was started for it; the next `run` starts anew."""
        self._pending = None
        self._stack.close()

    def _start(self, device_type: str) -> _Pending:
        hosts = cluster.hosts(self._stack, self._address)
        self._stack.enter_context(connected(self._address))
        devices = expand(self._devices, hosts, target=device_type)
        # What comes is built, so the pool needs no builders.
        pool = MeasurePool.start(devices, 0, self._settings, device_type, hosts)
        self._stack.callback(pool.shutdown)
        pool.ready()
        return _Pending(pool)


class _Pending:
    """What is being measured, and what has been and was not asked for yet."""

    def __init__(self, pool: MeasurePool) -> None:
        self._pool = pool
        self._submitted = 0
        self._outcomes: dict[int, Outcome] = {}

    def submit(
        self, artifacts: Sequence[Artifact], settings: MeasureSettings
    ) -> list[RunnerFuture]:
        """Sends artifacts to the pool."""
        first = self._submitted
        self._submitted += len(artifacts)
        self._pool.submit(
            [
                Job(first + i, _KERNEL, "", "", best_s=None, settings=settings, artifact=artifact)
                for i, artifact in enumerate(artifacts)
            ]
        )
        return [RayRunnerFuture(self, first + i) for i in range(len(artifacts))]

    def has(self, number: int) -> bool:
        """Whether it has been measured."""
        if number not in self._outcomes:
            self._receive(0.0)
        return number in self._outcomes

    def outcome(self, number: int) -> Outcome:
        """Waits for it."""
        while number not in self._outcomes:
            self._receive(_POLL_S)
        return self._outcomes.pop(number)

    def _receive(self, timeout_s: float) -> None:
        self._outcomes.update((done.job_id, done) for done in self._pool.wait(timeout_s))


@derived_object
class RayRunnerFuture(PyRunnerFuture):
    """One measurement on its way."""

    def __init__(self, pending: _Pending, number: int) -> None:
        super().__init__()
        self._pending = pending
        self._number = number
        self._result: RunnerResult | None = None

    def done(self) -> bool:
        """Whether `result` would return at once."""
        return self._result is not None or self._pending.has(self._number)

    def result(self) -> RunnerResult:
        """Waits for it: the latency, or why there is none."""
        if self._result is None:
            outcome = self._pending.outcome(self._number)
            seconds = outcome.latency_s if outcome.latency_s is not None else outcome.bound_s
            error = f"RayRunner: {outcome.status.value}: {outcome.message}"
            self._result = (
                RunnerResult([seconds], None) if seconds is not None else RunnerResult(None, error)
            )
        return self._result


def _artifact(given: RunnerInput) -> Artifact:
    path = Path(str(given.artifact_path))
    arguments: list[Any] = [
        (tuple(int(extent) for extent in info.shape), str(info.dtype)) for info in given.args_info
    ]
    return Artifact(path.suffix.removeprefix("."), path.read_bytes(), tuple(arguments))
