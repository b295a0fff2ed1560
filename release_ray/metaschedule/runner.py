"""MetaSchedule's runner, on the measurement pool."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
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
from release_ray.core.errors import WorkFailed
from release_ray.core.settings import MeasureSettings
from release_ray.measure.jobs import Artifact, Job, Outcome, Workload
from release_ray.measure.pool import MeasurePool
from release_ray.metaschedule.connection import closed_with, connected, real_devices

_POLL_S = 0.5
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
        self._measuring: dict[str, _Measuring] = {}
        """By what the kernels run on."""

    def run(self, runner_inputs: list[RunnerInput]) -> list[RunnerFuture]:
        """A future for each input; all are on their way when it returns."""
        if not len(runner_inputs):
            return []
        kind = _kind(str(runner_inputs[0].device_type))
        if kind not in self._measuring:
            self._measuring[kind] = self._start(kind)
        artifacts = [_artifact(given) for given in runner_inputs]
        sent = self._measuring[kind].submit(artifacts, self._settings)
        return [RayRunnerFuture(one) for one in sent]

    def close(self) -> None:
        """Leaves the pool, and a Ray that was started for it; the next `run` starts anew."""
        self._measuring = {}
        self._stack.close()

    def _start(self, kind: str) -> _Measuring:
        hosts = cluster.hosts(self._stack, self._address, connected)
        self._stack.enter_context(connected(self._address))
        devices = real_devices(self._devices, hosts, kind)
        # What comes is built, so the pool needs no builders.
        pool = MeasurePool.start(devices, 0, self._settings, kind, hosts)
        self._stack.callback(pool.shutdown)
        pool.ready()
        measuring = _Measuring(pool)
        self._stack.callback(measuring.close)
        return measuring


class _Measuring:
    """What is on its way through the pool.

    A thread takes in what comes. While nothing is on its way, whatever this process has started,
    such as MetaSchedule's own builders, may use the devices' cores too.
    """

    def __init__(self, pool: MeasurePool) -> None:
        self._pool = pool
        self._submitted = 0
        self._waiting: dict[int, Future[Outcome]] = {}
        self._lock = threading.Lock()
        self._receiver: threading.Thread | None = None
        self._closing = False

    def submit(
        self, artifacts: Sequence[Artifact], settings: MeasureSettings
    ) -> list[Future[Outcome]]:
        """Sends artifacts to the pool."""
        with self._lock:
            numbers = range(self._submitted, self._submitted + len(artifacts))
            self._submitted = numbers.stop
            self._pool.stand_aside()
            self._pool.submit(
                [
                    Job(number, _KERNEL, "", "", best_s=None, settings=settings, artifact=artifact)
                    for number, artifact in zip(numbers, artifacts, strict=True)
                ]
            )
            sent: dict[int, Future[Outcome]] = {number: Future() for number in numbers}
            received = not self._waiting
            self._waiting.update(sent)
            if received:
                self._receiver = threading.Thread(target=self._receive, daemon=True)
                self._receiver.start()
        return list(sent.values())

    def close(self) -> None:
        """Waits for nothing any more, and says so to whoever does. Before the pool goes."""
        self._closing = True
        if self._receiver is not None:
            self._receiver.join()
        self._give_up(WorkFailed("RayRunner was closed before this was measured"))

    def _receive(self) -> None:
        try:
            while not self._closing and self._take_in():
                pass
        except Exception as error:
            self._give_up(error)

    def _take_in(self) -> bool:
        """Hands over what has come; says whether there is more on its way."""
        outcomes = self._pool.wait(_POLL_S)
        with self._lock:
            # An interrupted submit leaves jobs that nobody waits for.
            known = [done for done in outcomes if done.job_id in self._waiting]
            if len(known) == len(self._waiting):
                self._pool.come_back()
            for done in known:
                self._waiting.pop(done.job_id).set_result(done)
            return bool(self._waiting)

    def _give_up(self, reason: Exception) -> None:
        with self._lock:
            for future in self._waiting.values():
                future.set_exception(reason)
            self._waiting.clear()


@derived_object
class RayRunnerFuture(PyRunnerFuture):
    """One measurement on its way."""

    def __init__(self, outcome: Future[Outcome]) -> None:
        super().__init__()
        self._outcome = outcome

    def done(self) -> bool:
        """Whether `result` would return at once."""
        return self._outcome.done()

    def result(self) -> RunnerResult:
        """Waits for it: the latency, or why there is none."""
        outcome = self._outcome.result()
        seconds = outcome.latency_s if outcome.latency_s is not None else outcome.bound_s
        if seconds is not None:
            return RunnerResult([seconds], None)
        return RunnerResult(None, f"RayRunner: {outcome.status.value}: {outcome.message}")


def _kind(device_type: str) -> str:
    """What `tune` calls the targets of such a device: it is to share a pool with this."""
    return tvm_setup.host_back_end() if device_type in ("cpu", "llvm") else device_type


def _artifact(given: RunnerInput) -> Artifact:
    path = Path(str(given.artifact_path))
    arguments: list[Any] = [
        (tuple(int(extent) for extent in info.shape), str(info.dtype)) for info in given.args_info
    ]
    return Artifact(path.suffix.removeprefix("."), path.read_bytes(), tuple(arguments))
