"""The simulated device: a made-up latency for every configuration, the same each time.

For tests of the pool and the search without a compiler, and for planning. The latency is a smooth
function of the knob values with a hidden optimum for every workload, so there is something to
learn; it is no model of any hardware.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from release_ray.core.errors import InputError
from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Purpose, Status
from release_ray.measure.canary import unfit
from release_ray.measure.devices.base import CandidateBuilder, DeviceKind, DeviceWorker
from release_ray.measure.hosts import Host
from release_ray.measure.jobs import Artifact, Canary, DeviceSpec, Job, Outcome, Workload
from release_ray.measure.process import Dead
from release_ray.measure.scheduler import NOTHING_DONE

UNTUNED = 10.0
"""So many times as long as at the hidden optimum an operator takes untuned."""
OPTIONS = {
    "build_s": 0.0,  # seconds that a build takes
    "run_s": 0.0,  # seconds that a measurement takes, whatever the latency
    "noise": 0.0,  # relative standard deviation of latencies
    "crash": 0.0,  # share of configurations whose kernel crashes
    "build_error": 0.0,  # share of configurations that cannot be built
    "gflops": 100.0,  # speed of the best possible configuration
    "breaks_after": math.inf,  # measurements until the device itself is broken
    "gpus": 0.0,  # GPUs that Ray sets aside for each device
}
_AT_MOST = {
    "build_s": 3600.0,
    "run_s": 3600.0,
    "noise": 1.0,
    "crash": 1.0,
    "build_error": 1.0,
    "gflops": 1e6,
    "breaks_after": 1e9,
    "gpus": 64.0,
}
_AT_LEAST = {"gflops": 1e-3}
_WHOLE = ("breaks_after", "gpus")
_DEVICES_AT_MOST = 10_000


class SimKind(DeviceKind):
    """`sim:COUNT`, or `sim:COUNT?run_s=0.25&noise=0.01`; see `OPTIONS`. Spread over the hosts.

    Without a count, as `sim:?gpus=1`, it is one a host, or as many as there are GPUs for.
    """

    name: ClassVar[str] = "sim"
    builds: ClassVar[bool] = True
    simulated: ClassVar[bool] = True

    def expand(self, options: str, hosts: Sequence[Host]) -> list[DeviceSpec]:
        number, _, query = options.partition("?")
        if number and (not number.isdecimal() or int(number) < 1):
            raise InputError(f"devices: cannot read sim:{options}; write sim:COUNT as sim:2")
        if number and int(number) > _DEVICES_AT_MOST:
            raise InputError(f"devices: sim:{number} are more than {_DEVICES_AT_MOST}")
        chosen = dict(OPTIONS)
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name not in OPTIONS:
                raise InputError(f"devices: sim has no option {name!r}; use {', '.join(OPTIONS)}")
            try:
                chosen[name] = float(value)
            except ValueError:
                raise InputError(f"devices: sim's {name}={value} is not a number") from None
            low, high = _AT_LEAST.get(name, 0.0), _AT_MOST.get(name, math.inf)
            if not low <= chosen[name] <= high:
                raise InputError(f"devices: sim's {name}={value} is not from {low:g} to {high:g}")
            if name in _WHOLE and not chosen[name].is_integer():
                raise InputError(f"devices: sim's {name}={value} is not a whole number")
        gpus = int(chosen["gpus"])
        places = self._places(int(number) if number else None, gpus, hosts)
        return [
            DeviceSpec(
                f"sim:{i}",
                self.name,
                options=dict(chosen),
                node=host.node,
                gpus=gpus,
                model="simulated",
            )
            for i, host in enumerate(places)
        ]

    @staticmethod
    def _places(count: int | None, gpus: int, hosts: Sequence[Host]) -> list[Host]:
        if not gpus:
            return [hosts[i % len(hosts)] for i in range(count or len(hosts))]
        places = [host for host in hosts for _ in range(len(host.gpus) // gpus)]
        if len(places) < (count or 1):
            raise InputError(
                f"devices: {count or 1} simulated ones with {gpus} GPUs each: there is room for"
                f" {len(places)}; ask for fewer, or start nodes with ray start --num-gpus"
            )
        return places[:count]

    def grows(self, spec: DeviceSpec, options: str) -> str:
        return "" if options.partition("?")[0] else f"{self.name}:{options}"

    def builder(
        self, spec: DeviceSpec, cores: Sequence[int], settings: MeasureSettings, target_kind: str
    ) -> CandidateBuilder:
        return SimBuilder(spec)

    def worker(self, spec: DeviceSpec, settings: MeasureSettings, target_kind: str) -> DeviceWorker:
        return SimWorker(spec)


class SimBuilder(CandidateBuilder):
    """Sleeps for as long as a build takes, and builds nothing."""

    def __init__(self, spec: DeviceSpec) -> None:
        self._options = {**OPTIONS, **spec.options}

    def start(self) -> None:
        """Always ready."""

    def build(self, job: Job) -> Artifact | Outcome:
        build_s = self._options["build_s"]
        time.sleep(build_s)
        if _chance(job, "build_error") < self._options["build_error"]:
            return replace(
                NOTHING_DONE,
                job_id=job.id,
                status=Status.BUILD_ERROR,
                message="simulated build error",
                host=platform.node(),
                build_s=build_s,
            )
        return Artifact("sim", b"", (), build_s=build_s)

    def close(self) -> None:
        """Holds nothing."""


class SimWorker(DeviceWorker):
    """Sleeps for as long as a measurement takes, and makes up the outcome."""

    def __init__(self, spec: DeviceSpec) -> None:
        self._spec = spec
        self._options = {**OPTIONS, **spec.options}
        self._builder = SimBuilder(spec)
        self._measured = 0
        self._unfit = ""

    def start(self) -> None:
        """Always ready."""

    def measure(self, job: Job, artifact: Artifact) -> Outcome:
        run_s = self._options["run_s"]
        time.sleep(run_s)
        done = replace(
            NOTHING_DONE,
            job_id=job.id,
            device=self._spec.name,
            host=platform.node(),
            build_s=artifact.build_s,
            run_s=run_s,
        )
        self._measured += 1
        if self._broken:
            self._unfit = unfit(self.canary)
            return replace(done, message=self._unfit)
        if _chance(job, "crash") < self._options["crash"]:
            return replace(done, status=Status.CRASH, message="killed by SIGSEGV (simulated)")
        if job.purpose is Purpose.DEFAULT:
            untuned_s = UNTUNED * ideal_latency_s(job.workload, self._options["gflops"])
            return replace(done, status=Status.OK, latency_s=untuned_s)
        latency_s = simulated_latency_s(job.workload, job.decisions, self._options["gflops"])
        latency_s *= math.exp(self._options["noise"] * _normal(job))
        if job.best_s is not None and latency_s > job.settings.early_stop * job.best_s:
            return replace(done, status=Status.SLOW, bound_s=latency_s)
        return replace(done, status=Status.OK, latency_s=latency_s)

    def build_and_measure(self, job: Job) -> Outcome:
        built = self._builder.build(job)
        if isinstance(built, Artifact):
            return self.measure(job, built)
        return replace(built, device=self._spec.name)

    def check(self, job: Job) -> float:
        return 0.0

    def call(self, function: str, arguments: Sequence[Any], timeout_s: float) -> Any:
        raise InputError(f"devices: {self._spec.name} is simulated and runs no programs; use cpu")

    def canary(self) -> Canary:
        if self._broken:
            raise Dead("killed by SIGSEGV (simulated)")
        return Canary(self._options["gflops"], 2 * self._options["noise"])

    @property
    def unfit(self) -> str:
        return self._unfit

    @property
    def _broken(self) -> bool:
        return self._measured > self._options["breaks_after"]

    def close(self) -> None:
        """Holds nothing."""


def simulated_latency_s(workload: Workload, decisions: str, gflops: float) -> float:
    """The latency of a configuration: at `gflops` at the hidden optimum, more with the distance.

    Each number of the decisions has a preferred size and a weight, drawn from the workload's key.
    A tile prefers a certain share of its loop at every level, on a logarithmic scale.
    """
    distance = 0.0
    for place, value in _coordinates(json.loads(decisions)):
        preferred, weight = (
            _fraction(workload.key, place, "at"),
            _fraction(workload.key, place, "w"),
        )
        distance += weight * (value - preferred) ** 2
    return ideal_latency_s(workload, gflops) * (1.0 + 4.0 * distance)


def ideal_latency_s(workload: Workload, gflops: float) -> float:
    """The latency at the hidden optimum."""
    return max(workload.flops, 1.0) / (gflops * 1e9)


def _coordinates(decisions: Any) -> Iterator[tuple[str, float]]:
    """Numbers in about [0, 1] with the name of their place."""
    for index, value in enumerate(decisions):
        if isinstance(value, list):
            extent = math.log2(max(2, math.prod(value)))
            # The last level follows from the others.
            for level, factor in enumerate(value[:-1]):
                share = math.log2(max(1, factor)) / extent
                yield f"{index}.{level}", share * len(value) / 2
        else:
            yield f"{index}", math.log2(1 + abs(value)) / 10


def _fraction(*parts: str) -> float:
    """A number in [0, 1) that the parts decide, on any machine."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _chance(job: Job, event: str) -> float:
    return _fraction(job.workload.key, job.decisions, event)


def _normal(job: Job) -> float:
    """A standard normal number that belongs to the configuration (Box and Muller)."""
    radius = math.sqrt(-2 * math.log(1 - _chance(job, "radius")))
    return radius * math.cos(2 * math.pi * _chance(job, "angle"))
