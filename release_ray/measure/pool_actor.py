"""The scheduler's Ray front: an asyncio actor that turns its commands into calls of actors.

Artifacts pass from a builder to a device by reference; neither this actor nor the driver unpacks
them. Outcomes stay here until the driver has said that it has them, so that an interrupted call
loses none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, RayError

from release_ray.core.settings import MeasureSettings
from release_ray.measure.actors import Failure, Report, Started
from release_ray.measure.devices import device_kind
from release_ray.measure.devices.cores import leave_cores
from release_ray.measure.jobs import DeviceSpec, Job, Outcome
from release_ray.measure.placement import here
from release_ray.measure.process import Dead
from release_ray.measure.scheduler import (
    Build,
    BuildAndMeasure,
    Command,
    Finish,
    Measure,
    Scheduler,
)

logger = logging.getLogger(__name__)

RETURN_TIMEOUT_S = 60.0
"""How long an actor that went away may take to be back."""
_RETRY_S = 0.2


@dataclass(frozen=True)
class DeviceStats:
    """What a device has done so far."""

    up: bool
    jobs: int
    run_s: float
    """Seconds of measuring."""
    build_s: float
    """Seconds of building for itself."""
    host: str
    gpu: str
    """The GPU's index on its host; empty for none."""


@dataclass(frozen=True)
class PoolStats:
    """What the pool has done so far. CPU-seconds are sums over all processes of a sort."""

    devices: dict[str, DeviceStats]
    queues: dict[str, int]
    """Jobs not begun (`pending`) and being built (`building`), artifacts that wait (`ready`)."""
    statuses: dict[str, int]
    build_cpu_s: float
    run_cpu_s: float
    overhead_cpu_s: float
    """Of the actors and of loading the compiler."""
    pool_cpu_s: float
    """Of the scheduler's own actor, which is a part of `overhead_cpu_s`."""
    losses: dict[str, str]
    """The last message of each builder or device that went away."""
    pids: dict[str, int]
    """Of the builder and device actors that are or were up."""


@dataclass
class _Place:
    """A builder or device actor."""

    handle: Any
    life: int = 0
    """Counts its losses: an answer from an earlier life is of no use, its job runs elsewhere."""
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    overhead_cpu_s: float = 0.0
    earlier_cpu_s: float = 0.0
    jobs: int = 0
    run_s: float = 0.0
    build_s: float = 0.0
    host: str = ""
    gpu: str = ""


class PoolActor:
    """See the module. Nothing happens before `start`, which may come after other calls."""

    def __init__(
        self,
        builders: Mapping[str, ActorHandle],
        devices: Mapping[str, ActorHandle],
        specs: Sequence[DeviceSpec],
        settings: MeasureSettings,
    ) -> None:
        leave_cores(here(specs))
        self._scheduler = Scheduler(max_waiting=settings.max_in_flight)
        self._places = {name: _Place(handle) for name, handle in {**builders, **devices}.items()}
        self._builders = tuple(builders)
        self._specs = {spec.name: spec for spec in specs}
        self._outcomes: list[Outcome] = []
        self._delivered = 0
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._losses: dict[str, str] = {}
        self._refusals: list[Failure] = []
        self._pids: dict[str, int] = {}
        self._statuses: Counter[str] = Counter()
        self._build_cpu_s = 0.0
        self._run_cpu_s = 0.0
        # Not in `start`: Ray may begin another method of an asyncio actor before that one.
        for name in self._builders:
            self._scheduler.expect_builder(name)
        for name, spec in self._specs.items():
            self._scheduler.expect_device(name, can_build=device_kind(spec.kind).builds)

    async def start(self) -> None:
        """Lets every builder and device join as soon as it is ready; does not wait for them."""
        for name in self._places:
            self._spawn(self._bring_up(name))

    async def ready(self) -> Failure | None:
        """Waits until every device is up, and a builder; the failure where one cannot be."""
        await self._until(self._is_ready)
        if self._refusals:
            return self._refusals[0]
        return None if self._scheduler.devices else self._nothing_left()

    async def submit(self, jobs: Sequence[Job]) -> None:
        """Queues jobs."""
        self._obey(self._scheduler.submit(jobs))

    async def withdraw(self) -> list[int]:
        """Takes back the jobs that no device was sent; their ids."""
        return self._scheduler.withdraw()

    async def next_outcomes(self, received: int, timeout_s: float) -> list[Outcome]:
        """Outcomes after the first `received`, which are forgotten; waits for at least one.

        Empty after `timeout_s`.
        """
        fresh = max(0, received - self._delivered)
        del self._outcomes[:fresh]
        self._delivered += fresh
        if not self._outcomes:
            try:
                await asyncio.wait_for(self._until(lambda: bool(self._outcomes)), timeout_s)
            except TimeoutError:
                return []
        return list(self._outcomes)

    async def call(self, function: str, arguments: Sequence[Any], timeout_s: float) -> Any:
        """Runs a function alone on a device: its value, or a `Failure`."""
        return await self._alone(lambda device: device.call.remote(function, arguments, timeout_s))

    async def check(self, job: Job) -> Any:
        """The relative error of a candidate's output, or a `Failure`."""
        return await self._alone(lambda device: device.check.remote(job))

    async def canary(self, device: str) -> Any:
        """A device's `Canary`, or a `Failure`."""
        return await self._alone(lambda handle: handle.canary.remote(), device)

    async def stats(self) -> PoolStats:
        """What was done so far; answers at once, whatever the devices are doing."""
        up = self._scheduler.devices
        return PoolStats(
            devices={
                name: DeviceStats(
                    up.get(name, False),
                    place.jobs,
                    place.run_s,
                    place.build_s,
                    place.host,
                    place.gpu,
                )
                for name, place in self._places.items()
                if name in self._specs
            },
            queues=self._scheduler.waiting,
            statuses=dict(self._statuses),
            build_cpu_s=self._build_cpu_s,
            run_cpu_s=self._run_cpu_s,
            overhead_cpu_s=time.process_time()
            + sum(place.overhead_cpu_s + place.earlier_cpu_s for place in self._places.values()),
            pool_cpu_s=time.process_time(),
            losses=dict(self._losses),
            pids=dict(self._pids),
        )

    # -- commands become calls ------------------------------------------------------------------

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Finish(outcome):
                    self._finish(outcome)
                case Build(builder, job):
                    reply = self._places[builder].handle.build.options(num_returns=2).remote(job)
                    self._spawn(self._follow_build(builder, job, *reply))
                case Measure(device, job, artifact):
                    measured = self._places[device].handle.measure.remote(job, artifact)
                    self._spawn(self._follow_measure(device, measured, built_here=False))
                case BuildAndMeasure(device, job):
                    measured = self._places[device].handle.build_and_measure.remote(job)
                    self._spawn(self._follow_measure(device, measured, built_here=True))
        self._notify()

    async def _follow_build(
        self, name: str, job: Job, reply: Awaitable[Report], artifact: Any
    ) -> None:
        report = await self._answer(name, reply)
        if report is None:
            return
        if report.outcome is not None:
            self._obey(self._scheduler.build_failed(name, report.outcome))
        else:
            self._obey(self._scheduler.built(name, job.id, artifact))

    async def _follow_measure(
        self, name: str, reply: Awaitable[Report], *, built_here: bool
    ) -> None:
        report = await self._answer(name, reply)
        if report is None or report.outcome is None:
            return
        place = self._places[name]
        place.jobs += 1
        place.run_s += report.outcome.run_s
        place.build_s += report.outcome.build_s if built_here else 0.0
        self._obey(self._scheduler.measured(name, report.outcome))

    async def _answer(self, name: str, reply: Awaitable[Report]) -> Report | None:
        """An actor's report; None where it went away, or had gone away before it answered."""
        place = self._places[name]
        life = place.life
        try:
            report = await reply
        except RayError as error:
            if place.life == life:
                self._lose(name, error)
            return None
        if place.life != life:
            return None
        place.overhead_cpu_s = report.overhead_cpu_s
        return report

    def _finish(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._statuses[outcome.status] += 1
        self._build_cpu_s += outcome.build_cpu_s
        self._run_cpu_s += outcome.run_cpu_s

    # -- actors come and go ---------------------------------------------------------------------

    def _lose(self, name: str, error: RayError) -> None:
        place = self._places[name]
        place.life += 1
        place.earlier_cpu_s += place.overhead_cpu_s
        place.overhead_cpu_s = 0.0
        self._losses[name] = _reason(error)
        logger.warning("%s went away: %s", name, self._losses[name])
        self._obey(self._scheduler.lost(name, self._losses[name], returns=True))
        self._spawn(self._bring_up(name))

    async def _bring_up(self, name: str) -> None:
        """Waits for an actor to start, or to start again, and lets it join."""
        place = self._places[name]
        deadline = time.monotonic() + RETURN_TIMEOUT_S
        while True:
            try:
                started: Started | Failure = await place.handle.start.remote()
                break
            except ActorUnavailableError as error:
                # It is being started again; Ray refuses calls until it is up.
                self._losses[name] = _reason(error)
                if time.monotonic() > deadline:
                    return self._give_up(name)
                await asyncio.sleep(_RETRY_S)
            except RayError as error:
                self._losses[name] = _reason(error)
                return self._give_up(name)
        if isinstance(started, Failure):
            self._losses[name] = str(started.error)
            if name in self._specs:
                self._refusals.append(started)
            return self._give_up(name)
        self._pids[name] = started.pid
        place.host, place.gpu = started.host, started.gpu
        place.overhead_cpu_s = started.overhead_cpu_s
        self._obey(self._scheduler.joined(name))

    def _give_up(self, name: str) -> None:
        logger.warning("%s is lost: %s", name, self._losses[name])
        self._obey(self._scheduler.lost(name, self._losses[name], returns=False))

    def _is_ready(self) -> bool:
        if self._refusals:
            return True
        up = self._scheduler.devices
        builders = [name in self._pids or name in self._losses for name in self._builders]
        return all(up.values()) and (any(builders) or not builders)

    async def _alone(
        self, ask: Callable[[ActorHandle], Awaitable[Any]], device: str | None = None
    ) -> Any:
        def candidates() -> list[str]:
            up = self._scheduler.devices
            return [name for name in up if up[name] and device in (None, name)]

        await self._until(lambda: bool(candidates()) or not self._scheduler.devices)
        if not candidates():
            return self._nothing_left()
        name = min(
            candidates(), key=lambda n: (self._places[n].alone.locked(), self._scheduler.load(n))
        )
        place = self._places[name]
        async with place.alone:
            self._obey(self._scheduler.hold(name))
            life = place.life
            try:
                return await ask(place.handle)
            except RayError as error:
                if place.life == life:
                    self._lose(name, error)
                return Failure(Dead(f"{name} went away: {_reason(error)}"))
            finally:
                self._obey(self._scheduler.release(name))

    def _nothing_left(self) -> Failure:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self._losses.items())
        return Failure(Dead(f"no device is left: {reasons}"))

    # -- waiting --------------------------------------------------------------------------------

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop holds tasks by weak references only
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("the pool has a bug", exc_info=task.exception())

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()


def _reason(error: RayError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
