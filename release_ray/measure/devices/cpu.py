"""CPU devices: some cores of this host, on which nothing else runs."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from release_ray.core.errors import InputError
from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Status
from release_ray.measure.devices.base import CandidateBuilder, DeviceKind, DeviceWorker
from release_ray.measure.devices.cores import CoreLocks
from release_ray.measure.jobs import Artifact, Canary, DeviceSpec, Job, Outcome
from release_ray.measure.process import Child, ChildFailure, Dead, TimedOut
from release_ray.measure.scheduler import NOTHING_DONE
from release_ray.measure.timing import Timing, run_timeout_s

_HANDLERS = "release_ray.measure.handlers"
_CHECK_TIMEOUT_S = 120.0


class CpuKind(DeviceKind):
    """`cpu`, or `cpu:COUNTxCORES`: COUNT devices of CORES cores each, from the last core down.

    Without a count it is one device of all cores but one, and from five cores on all but a
    quarter: what is left builds, searches and runs Ray.
    """

    name: ClassVar[str] = "cpu"
    builds: ClassVar[bool] = True

    def expand(self, options: str, cores: Sequence[int]) -> list[DeviceSpec]:
        count, width = self._shape(options, len(cores))
        if count * width > len(cores):
            raise InputError(
                f"devices: cpu:{options} asks for {count * width} cores and this process may use"
                f" {len(cores)}; ask for fewer"
            )
        chosen = list(cores)[len(cores) - count * width :]
        return [
            DeviceSpec(f"cpu:{i}", self.name, tuple(chosen[i * width : (i + 1) * width]))
            for i in range(count)
        ]

    def builder(
        self, spec: DeviceSpec, cores: Sequence[int], settings: MeasureSettings, target_kind: str
    ) -> CandidateBuilder:
        return CpuBuilder(cores, settings, target_kind)

    def worker(self, spec: DeviceSpec, settings: MeasureSettings, target_kind: str) -> DeviceWorker:
        return CpuWorker(spec, settings, target_kind)

    @staticmethod
    def _shape(options: str, available: int) -> tuple[int, int]:
        if not options:
            reserved = 1 if available <= 4 else available // 4
            return 1, max(1, available - reserved)
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", options)
        if match is None:
            raise InputError(
                f"devices: cannot read cpu:{options}; write cpu:COUNTxCORES as cpu:2x4"
            )
        return int(match[1]), int(match[2])


class CpuBuilder(CandidateBuilder):
    """Compiles candidates in a child process."""

    def __init__(self, cores: Sequence[int], settings: MeasureSettings, target_kind: str) -> None:
        self._settings = settings
        self._child = Child(
            cores=cores, threads=1, kinds=[target_kind], jobs_per_worker=settings.jobs_per_worker
        )

    def start(self) -> None:
        self._child.wait_ready()

    def build(self, job: Job) -> Artifact | Outcome:
        built = _build(self._child, job, self._settings, keep=False)
        self._child.end_job()
        return built

    def overhead_cpu_s(self) -> float:
        return self._child.parent_cpu_s()

    def close(self) -> None:
        self._child.close()


class CpuWorker(DeviceWorker):
    """Times kernels in a child process that is pinned to the device's cores."""

    def __init__(self, spec: DeviceSpec, settings: MeasureSettings, target_kind: str) -> None:
        self._spec = spec
        self._settings = settings
        self._locks: CoreLocks | None = None
        self._child = Child(
            cores=spec.cores,
            threads=max(1, len(spec.cores)),
            kinds=[target_kind],
            jobs_per_worker=settings.jobs_per_worker,
        )

    def start(self) -> None:
        if self._locks is None:
            self._locks = CoreLocks(self._spec.cores)
        self._child.wait_ready()

    def measure(self, job: Job, artifact: Artifact) -> Outcome:
        outcome = self._run(job, artifact)
        self._child.end_job()
        return outcome

    def build_and_measure(self, job: Job) -> Outcome:
        built = _build(self._child, job, self._settings, keep=True)
        outcome = self._run(job, built) if isinstance(built, Artifact) else built
        self._child.end_job()
        return replace(outcome, device=self._spec.name)

    def check(self, job: Job) -> float:
        return self.call(f"{_HANDLERS}:check", (job, "cpu"), _CHECK_TIMEOUT_S)

    def call(self, function: str, arguments: Sequence[Any], timeout_s: float) -> Any:
        try:
            return self._child.call(function, *arguments, timeout_s=timeout_s).value
        finally:
            self._child.end_job()

    def canary(self) -> Canary:
        return self.call(f"{_HANDLERS}:canary", ("cpu",), self._settings.build_timeout_s)

    def overhead_cpu_s(self) -> float:
        return self._child.parent_cpu_s()

    def close(self) -> None:
        self._child.close()
        if self._locks is not None:
            self._locks.release()

    def _run(self, job: Job, artifact: Artifact) -> Outcome:
        done = replace(
            NOTHING_DONE,
            job_id=job.id,
            device=self._spec.name,
            host=platform.node(),
            build_s=artifact.build_s,
            build_cpu_s=artifact.build_cpu_s,
        )
        limit_s = run_timeout_s(job.best_s, self._settings)
        try:
            reply = self._child.call(
                f"{_HANDLERS}:run",
                artifact,
                "cpu",
                job.best_s,
                self._settings,
                limit_s,
                timeout_s=limit_s,
            )
        except ChildFailure as failure:
            status = _status(failure, Status.RUN_ERROR, Status.RUN_TIMEOUT)
            return replace(
                done,
                status=status,
                message=failure.message,
                run_s=failure.wall_s,
                run_cpu_s=failure.cpu_s,
            )
        timing: Timing = reply.value
        return replace(
            done,
            status=Status.OK if timing.latency_s is not None else Status.SLOW,
            latency_s=timing.latency_s,
            bound_s=timing.bound_s,
            run_s=reply.wall_s,
            run_cpu_s=reply.cpu_s,
        )


def _build(child: Child, job: Job, settings: MeasureSettings, *, keep: bool) -> Artifact | Outcome:
    try:
        reply = child.call(f"{_HANDLERS}:build", job, keep, timeout_s=settings.build_timeout_s)
    except ChildFailure as failure:
        return replace(
            NOTHING_DONE,
            job_id=job.id,
            status=_status(failure, Status.BUILD_ERROR, Status.BUILD_TIMEOUT),
            message=failure.message,
            host=platform.node(),
            build_s=failure.wall_s,
            build_cpu_s=failure.cpu_s,
        )
    return replace(reply.value, build_s=reply.wall_s, build_cpu_s=reply.cpu_s)


def _status(failure: ChildFailure, raised: Status, timed_out: Status) -> Status:
    if isinstance(failure, TimedOut):
        return timed_out
    return Status.CRASH if isinstance(failure, Dead) else raised
