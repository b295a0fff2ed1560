"""The Ray actors that build and measure. Each owns one child process at a time.

Plain classes: `release_ray.measure.pool_actor` makes actors of them. Their methods run one after
the other, so a device is never asked two things at once.

Jobs, artifacts and reports travel as bytes that are pickled here. Ray would pickle them with
cloudpickle, which asks Python about every class it meets: 0.4 ms a message, of which a candidate
has four.
"""

from __future__ import annotations

import os
import pickle
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from release_ray.core.errors import InputError
from release_ray.core.settings import MeasureSettings
from release_ray.measure.devices import device_kind
from release_ray.measure.devices.base import CandidateBuilder, DeviceWorker
from release_ray.measure.devices.cores import leave_cores
from release_ray.measure.jobs import Artifact, DeviceSpec, Job, Outcome
from release_ray.measure.placement import here
from release_ray.measure.process import ChildFailure


@dataclass(frozen=True)
class Failure:
    """An error on its way through Ray, which would wrap it if it were raised."""

    error: InputError | ChildFailure


@dataclass(frozen=True)
class Report:
    """What an actor says after each piece of work."""

    outcome: Outcome | None
    """None where a build went well."""
    overhead_cpu_s: float
    """CPU-seconds so far of the actor and its clean parent, which no outcome accounts for."""
    unfit: str = ""
    """Why the device is of no use any more. Its outcome then says nothing of the candidate."""
    disturbed: bool = False
    """Whether the latency was kept although a canary was slow around it."""


@dataclass(frozen=True)
class Started:
    """Where an actor is, and what its start has cost (see `Report`)."""

    host: str
    pid: int
    overhead_cpu_s: float
    gpu: str
    """Which GPU Ray has given it; empty for none."""


class BuilderActor:
    """Builds candidates on the cores that no device has."""

    def __init__(
        self, devices: Sequence[DeviceSpec], settings: MeasureSettings, target_kind: str
    ) -> None:
        cores = leave_cores(here(devices))
        kind = device_kind(devices[0].kind)
        self._builder = kind.builder(devices[0], cores, settings, target_kind)

    def start(self) -> Started | Failure:
        """Returns when it can build."""
        return _started(self._builder)

    def build(self, job: bytes) -> tuple[bytes, bytes]:
        """The report for the pool, and apart from it the artifact, which goes to a device."""
        built = self._builder.build(pickle.loads(job))
        overhead = time.process_time() + self._builder.overhead_cpu_s()
        if isinstance(built, Artifact):
            return packed(Report(None, overhead)), packed(built)
        return packed(Report(built, overhead)), b""

    def stop(self) -> None:
        """Ends the child processes."""
        self._builder.close()


class DeviceActor:
    """One device. The actor itself stays off the device's cores."""

    def __init__(
        self,
        spec: DeviceSpec,
        devices: Sequence[DeviceSpec],
        settings: MeasureSettings,
        target_kind: str,
    ) -> None:
        leave_cores(here(devices))
        self._worker = device_kind(spec.kind).worker(spec, settings, target_kind)

    def start(self) -> Started | Failure:
        """Returns when it can measure."""
        return _started(self._worker)

    def measure(self, job: bytes, artifact: bytes) -> bytes:
        """Times an artifact; the report."""
        return self._report(self._worker.measure(pickle.loads(job), pickle.loads(artifact)))

    def build_and_measure(self, job: bytes) -> bytes:
        """Builds a candidate and times it; the report."""
        return self._report(self._worker.build_and_measure(pickle.loads(job)))

    def check(self, job: Job) -> Any:
        """Relative error against the unscheduled operator, or a `Failure`."""
        return _caught(lambda: self._worker.check(job))

    def call(self, function: str, arguments: Sequence[Any], timeout_s: float) -> Any:
        """The value of a function run on the device, or a `Failure`."""
        return _caught(lambda: self._worker.call(function, arguments, timeout_s))

    def canary(self) -> Any:
        """A `Canary`, or a `Failure`."""
        return _caught(self._worker.canary)

    def stop(self) -> None:
        """Ends the child processes and gives the device back."""
        self._worker.close()

    def _report(self, outcome: Outcome) -> bytes:
        overhead = time.process_time() + self._worker.overhead_cpu_s()
        return packed(Report(outcome, overhead, self._worker.unfit, self._worker.disturbed))


def packed(value: Job | Artifact | Report) -> bytes:
    """What travels, as bytes; `pickle.loads` gives it back."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def _started(worker: CandidateBuilder | DeviceWorker) -> Started | Failure:
    failure = _caught(worker.start)
    if failure is not None:
        return failure
    overhead = time.process_time() + worker.overhead_cpu_s()
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "") if ray.get_gpu_ids() else ""
    return Started(platform.node(), os.getpid(), overhead, gpu)


def _caught(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (InputError, ChildFailure) as error:
        return Failure(error)
