"""Devices that run compiled kernels: building and timing in child processes."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Purpose, Status
from release_ray.measure.canary import Watch, Watched, unfit
from release_ray.measure.devices.base import CandidateBuilder, DeviceKind, DeviceWorker
from release_ray.measure.jobs import Artifact, Canary, DeviceSpec, Job, Outcome
from release_ray.measure.process import Child, ChildFailure, Dead, TimedOut
from release_ray.measure.scheduler import NOTHING_DONE
from release_ray.measure.timing import Timing, run_timeout_s

HANDLERS = "release_ray.measure.handlers"
_CHECK_TIMEOUT_S = 120.0
_NEVER = 1e9


class ChildBuilder(CandidateBuilder):
    """Compiles candidates in a child process."""

    def __init__(self, cores: Sequence[int], settings: MeasureSettings, target_kind: str) -> None:
        self._child = Child(
            cores=cores, threads=1, kinds=[target_kind], jobs_per_worker=settings.jobs_per_worker
        )

    def start(self) -> None:
        self._child.wait_ready()

    def build(self, job: Job) -> Artifact | Outcome:
        if job.artifact is not None:
            return job.artifact
        built = build_in(self._child, job, keep=False)
        self._child.end_job()
        return built

    def overhead_cpu_s(self) -> float:
        return self._child.parent_cpu_s()

    def close(self) -> None:
        self._child.close()


class ChildWorker(DeviceWorker):
    """Times kernels in a child process, which alone touches the device."""

    device: str
    """As `places.opened` takes it."""
    waits_s: float = 0.0
    """How long it may take to be had, and to be sent what it needs."""

    def __init__(self, spec: DeviceSpec, settings: MeasureSettings, target_kind: str) -> None:
        self._spec = spec
        self._settings = settings
        self._child = Child(
            cores=spec.cores,
            threads=max(1, len(spec.cores)),
            kinds=[target_kind],
            jobs_per_worker=settings.jobs_per_worker,
        )
        self._watch = Watch()
        self._unfit = ""
        self._disturbed = False
        self._described = json.dumps(dict(spec.target))

    def start(self) -> None:
        self._child.wait_ready()

    def measure(self, job: Job, artifact: Artifact) -> Outcome:
        outcome = self._run(job, artifact)
        self._child.end_job()
        return outcome

    def build_and_measure(self, job: Job) -> Outcome:
        built = job.artifact or build_in(self._child, job, keep=True)
        outcome = self._run(job, built) if isinstance(built, Artifact) else built
        self._child.end_job()
        return replace(outcome, device=self._spec.name)

    def check(self, job: Job) -> float:
        return self.call(f"{HANDLERS}:check", (job, self.device), _CHECK_TIMEOUT_S)

    def call(self, function: str, arguments: Sequence[Any], timeout_s: float) -> Any:
        try:
            return self._child.call(function, *arguments, timeout_s=timeout_s).value
        finally:
            self._child.end_job()

    def canary(self) -> Canary:
        arguments = (self.device, self._described)
        timeout_s = self._settings.build_timeout_s + self.waits_s
        return self.call(f"{HANDLERS}:canary", arguments, timeout_s)

    def overhead_cpu_s(self) -> float:
        return self._child.parent_cpu_s()

    @property
    def disturbed(self) -> bool:
        return self._disturbed

    @property
    def unfit(self) -> str:
        return self._unfit

    def close(self) -> None:
        self._child.close()

    def _after(self, failure: ChildFailure) -> tuple[str, bool]:
        """Why nothing can be measured here any more, and whether the candidate is to blame.

        Without a reason it is. A device that is broken itself makes every candidate fail.
        """
        reason = unfit(self.canary)
        return reason, not reason

    def _run(self, job: Job, artifact: Artifact) -> Outcome:
        self._disturbed = False
        done = replace(
            NOTHING_DONE,
            job_id=job.id,
            device=self._spec.name,
            host=platform.node(),
            build_s=artifact.build_s,
            build_cpu_s=artifact.build_cpu_s,
        )
        limit_s = run_timeout_s(job.best_s, job.settings, job.workload.flops, self._watch.usual_s)
        settings = job.settings
        if job.purpose is Purpose.REMEASURE:
            settings = settings.model_copy(update={"flush_cache": True, "early_stop": _NEVER})
        try:
            reply = self._child.call(
                f"{HANDLERS}:run",
                artifact,
                self.device,
                job.best_s,
                settings,
                limit_s,
                self._watch.usual_s,
                self._described,
                timeout_s=limit_s + self.waits_s,
            )
        except ChildFailure as failure:
            # What it has left on the device, such as a broken context, goes with its process.
            self._child.renew()
            self._unfit, to_blame = self._after(failure)
            if self._unfit and not to_blame:
                return replace(done, message=self._unfit)
            status = _status(failure, Status.RUN_ERROR, Status.RUN_TIMEOUT)
            if self._unfit:
                status = Status.CRASH
            return replace(
                done,
                status=status,
                message=failure.message,
                run_s=failure.wall_s,
                run_cpu_s=failure.cpu_s,
            )
        watched: Watched[Timing] = reply.value
        self._disturbed = watched.disturbed
        for seconds in watched.canaries_s:
            self._watch.heard(seconds)
        timing = watched.value
        return replace(
            done,
            message=watched.warning,
            status=Status.OK if timing.latency_s is not None else Status.SLOW,
            latency_s=timing.latency_s,
            bound_s=timing.bound_s,
            run_s=reply.wall_s,
            run_cpu_s=reply.cpu_s,
            canary_s=watched.canary_s,
        )


class CompiledKind(DeviceKind):
    """A kind whose candidates are compiled in builders and timed by a `ChildWorker`."""

    worker_class: ClassVar[type[ChildWorker]]

    def builder(
        self, spec: DeviceSpec, cores: Sequence[int], settings: MeasureSettings, target_kind: str
    ) -> CandidateBuilder:
        return ChildBuilder(cores, settings, target_kind)

    def worker(self, spec: DeviceSpec, settings: MeasureSettings, target_kind: str) -> DeviceWorker:
        return self.worker_class(spec, settings, target_kind)


def build_in(child: Child, job: Job, *, keep: bool) -> Artifact | Outcome:
    """Compiles a job in a child: the artifact, or the outcome of one that cannot be built."""
    try:
        timeout_s = job.settings.build_timeout_s
        reply = child.call(f"{HANDLERS}:build", job, keep, timeout_s=timeout_s)
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
