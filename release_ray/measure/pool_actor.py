"""The scheduler's Ray front: an asyncio actor that turns its commands into calls of actors.

It starts the builders and devices, so they end with it. Several runs may share it: each holds a
lease, gets its own outcomes back, and its fair share of the devices; when the last lease has ended
the pool ends itself, whatever its builders and devices are doing.

Artifacts pass from a builder to a device by reference; neither this actor nor the driver unpacks
them. Outcomes stay here until the driver has said that it has them, so that an interrupted call
loses none.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import pickle
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, RayError

from release_ray.core.errors import InputError
from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Status
from release_ray.measure.actors import (
    BuilderActor,
    DeviceActor,
    Failure,
    Report,
    Started,
    packed,
)
from release_ray.measure.devices import device_kind, expand
from release_ray.measure.devices.cores import leave_cores
from release_ray.measure.hosts import Host, cluster_hosts
from release_ray.measure.jobs import DeviceSpec, Job, Outcome, Workload
from release_ray.measure.lease import LeaseOffice
from release_ray.measure.metrics import PoolMetrics
from release_ray.measure.placement import here, on_node, spread_builders
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

MAX_RESTARTS = 3
"""How often Ray starts a crashed builder or device actor again."""
UNUSED_S = 60.0
"""How long a new pool waits for its first run."""
STOP_S = 1.0
"""How long builders and devices have to give everything back, when the pool ends."""
FAREWELL_S = 0.2
"""Between the pool's end and that of its process."""
ASKED = 3
"""How often something is asked of a device at most, each time because the last one went away."""
GATHER_S = 0.05
"""How long after an answer a run has to wait for the next, at least."""
GROW_S = 2.0
"""How often the pool looks for new nodes, if it may grow."""
METRICS_S = 5.0
"""How often queues and utilisation are shown."""
PLACE_WAIT_S, PLACE_WAITS = 30.0, 4
"""How long Ray may take to make an actor: once that for a GPU that others have, else so often."""
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
    disturbed: int
    """Measurements that were kept although a canary was slow around them."""


@dataclass(frozen=True)
class PoolStats:
    """What the pool has done so far. CPU-seconds are sums over all processes of a sort."""

    devices: dict[str, DeviceStats]
    queues: dict[str, int]
    """Jobs not begun (`pending`) and being built (`building`), artifacts that wait (`ready`)."""
    runs: int
    """How many share the pool."""
    statuses: dict[str, int]
    """Of the run that asks, as the next two."""
    build_cpu_s: float
    run_cpu_s: float
    overhead_cpu_s: float
    """Of the actors and of loading the compiler."""
    pool_cpu_s: float
    """Of the scheduler's own actor, which is a part of `overhead_cpu_s`."""
    losses: dict[str, str]
    """The last message of each builder or device that went away."""
    gone: dict[str, str]
    """Devices that are lost for good, and why."""
    pids: dict[str, int]
    """Of the builder and device actors that are or were up."""


@dataclass(frozen=True)
class PoolPlan:
    """What a pool is to be made of. Runs that ask for the same devices share the first one's."""

    devices: tuple[DeviceSpec, ...]
    builders: tuple[str, ...]
    """The node of each builder; empty: anywhere."""
    settings: MeasureSettings
    target_kind: str
    cpus: tuple[int, int]
    """That Ray sets aside for a builder, and for a GPU's or a simulated device's actor."""
    grows: str = ""
    """What finds more such devices on nodes that join the cluster later; empty: none are wanted."""


@dataclass
class _Run:
    """One user of the pool."""

    outcomes: list[Outcome] = field(default_factory=list)
    delivered: int = 0
    answered_at: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    build_cpu_s: float = 0.0
    run_cpu_s: float = 0.0


@dataclass
class _Place:
    """A builder or device actor."""

    handle: Any
    build: Any = None
    """A builder's method of that name; making one that returns two things is not free."""
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
    disturbed: int = 0


_ENDED = Failure(Dead("its connection broke, and with it this run's lease"))


class PoolActor:
    """See the module. Nothing happens before `start`, which may come after other calls."""

    def __init__(self, plan: PoolPlan) -> None:
        leave_cores(here(plan.devices))
        self._plan = plan
        self._scheduler = Scheduler(max_waiting=plan.settings.max_in_flight)
        self._specs = {spec.name: spec for spec in plan.devices}
        self._wanted = frozenset(self._specs)
        self._builders = {f"builder:{i}": node for i, node in enumerate(plan.builders)}
        self._places: dict[str, _Place] = {}
        self._runs: dict[str, _Run] = {}
        self._jobs: dict[int, tuple[str, int]] = {}
        self._ids = itertools.count()
        self._office = LeaseOffice(self._came, self._gone)
        self._address: tuple[str, int] | None = None
        self._starting = asyncio.Lock()
        self._ending = False
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._losses: dict[str, str] = {}
        self._refusals: list[Failure] = []
        self._pids: dict[str, int] = {}
        self._metrics = PoolMetrics()
        # Whoever made it may be gone before it was started; nobody else would end it.
        self._unused = threading.Timer(UNUSED_S, os._exit, (0,))
        self._unused.daemon = True
        self._unused.start()
        # Not in `start`: Ray may begin another method of an asyncio actor before that one.
        self._expect(self._builders, plan.devices)

    async def start(self, target_kind: str) -> tuple[str, int] | Failure | None:
        """Lets every builder and device join as soon as it is ready; does not wait for them.

        Returns where leases are given; None where the pool is just ending; a failure where it was
        started for another kind of target. A second time it starts nothing.
        """
        if self._ending:
            return None
        if target_kind != self._plan.target_kind:
            return Failure(
                InputError(
                    f"devices: they are in use by a run that compiles for"
                    f" {self._plan.target_kind}, not {target_kind}; wait for it"
                )
            )
        async with self._starting:
            if self._address is None:
                host = ray.util.get_node_ip_address()
                self._address = (host, await self._office.open(host))
                self._add(self._builders, self._plan.devices)
                self._spawn(self._show())
                if self._plan.grows:
                    self._spawn(self._grow())
        return self._address

    async def ready(self) -> Failure | None:
        """Waits until every device is up, and a builder; the failure where one cannot be."""
        await self._until(self._is_ready)
        if self._refusals:
            return self._refusals[0]
        return None if self._scheduler.devices else self._nothing_left()

    async def submit(self, run: str, jobs: Sequence[Job]) -> Failure | None:
        """Queues jobs of a run; a failure where its lease has ended."""
        if run not in self._runs:
            return _ENDED
        mine = [replace(job, id=next(self._ids)) for job in jobs]
        for job, original in zip(mine, jobs, strict=True):
            self._jobs[job.id] = (run, original.id)
        self._obey(self._scheduler.submit(mine, run))
        return None

    async def withdraw(self, run: str) -> list[int]:
        """Takes back a run's jobs that no device was sent; their ids."""
        return [self._jobs.pop(job)[1] for job in self._scheduler.withdraw(run)]

    async def next_outcomes(
        self, run: str, received: int, timeout_s: float
    ) -> list[Outcome] | Failure:
        """A run's outcomes after the first `received`, which are forgotten; waits for one.

        Empty after `timeout_s`; a failure where the run's lease has ended.
        """
        if run not in self._runs:
            return _ENDED
        mine = self._runs[run]
        fresh = max(0, received - mine.delivered)
        del mine.outcomes[:fresh]
        mine.delivered += fresh
        # Where many come, a call for each would cost more than the work: let some gather.
        await asyncio.sleep(mine.answered_at + GATHER_S - time.monotonic())
        if not mine.outcomes:
            try:
                await asyncio.wait_for(self._until(lambda: bool(mine.outcomes)), timeout_s)
            except TimeoutError:
                return []
        mine.answered_at = time.monotonic()
        return list(mine.outcomes)

    async def call(
        self, function: str, arguments: Sequence[Any], timeout_s: float, node: str
    ) -> Any:
        """Runs a function alone on a device, of that node if there is one: its value, or a
        `Failure`."""
        return await self._alone(
            lambda device: device.call.remote(function, arguments, timeout_s), node=node
        )

    async def check(self, job: Job) -> Any:
        """The relative error of a candidate's output, or a `Failure`."""
        return await self._alone(lambda device: device.check.remote(job))

    async def canary(self, device: str) -> Any:
        """A device's `Canary`, or a `Failure`."""
        if device not in self._scheduler.devices:
            reason = self._losses.get(device, f"there are {', '.join(self._specs)}")
            return Failure(InputError(f"devices: {device} is none of the pool's: {reason}"))
        return await self._alone(lambda handle: handle.canary.remote(), device)

    async def stats(self, run: str) -> PoolStats:
        """What was done so far; answers at once, whatever the devices are doing."""
        up = self._scheduler.devices
        mine = self._runs.get(run, _Run())
        return PoolStats(
            devices={
                name: DeviceStats(
                    up.get(name, False),
                    place.jobs,
                    place.run_s,
                    place.build_s,
                    place.host,
                    place.gpu,
                    place.disturbed,
                )
                for name, place in self._places.items()
                if name in self._specs
            },
            queues=self._scheduler.waiting,
            runs=len(self._runs),
            statuses=dict(mine.statuses),
            build_cpu_s=mine.build_cpu_s,
            run_cpu_s=mine.run_cpu_s,
            overhead_cpu_s=time.process_time()
            + sum(place.overhead_cpu_s + place.earlier_cpu_s for place in self._places.values()),
            pool_cpu_s=time.process_time(),
            losses=dict(self._losses),
            gone={
                name: self._losses.get(name, "")
                for name in self._specs
                if name not in self._scheduler.devices
            },
            pids=dict(self._pids),
        )

    # -- runs come and go -----------------------------------------------------------------------

    def _came(self, run: str) -> bool:
        if self._ending:
            return False
        self._unused.cancel()
        self._runs.setdefault(run, _Run())
        return True

    def _gone(self, run: str) -> None:
        """What the run has queued is called off; what is on a device ends, and nobody hears of it.

        The last one takes the pool along.
        """
        for job in self._scheduler.withdraw(run):
            del self._jobs[job]
        self._runs.pop(run, None)
        if not self._runs:
            self._spawn(self.end())

    async def leave(self, run: str) -> None:
        """Ends a run's lease; returns when its devices, if nobody else has them, are free."""
        if set(self._runs) <= {run}:
            await self.end()

    async def end(self) -> None:
        """Stops every builder and device, and then this actor, whatever they are doing."""
        if self._ending:
            return
        self._ending = True
        self._office.close()
        # Asked first, an actor gives its device back in order; a busy one is killed, and the
        # kernel then kills its children.
        stops = [_quiet(place.handle.stop.remote()) for place in self._places.values()]
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*stops), STOP_S)
        for place in self._places.values():
            ray.kill(place.handle)
        # Not at once: whoever waits for this to return shall hear of it. Killed, for Ray reports to
        # every driver an actor that goes by itself; where Ray has gone too, nobody kills.
        threading.Timer(FAREWELL_S + STOP_S, os._exit, (0,)).start()
        this = ray.get_runtime_context().current_actor
        asyncio.get_running_loop().call_later(FAREWELL_S, ray.kill, this)

    def _expect(self, builders: Iterable[str], devices: Iterable[DeviceSpec]) -> None:
        for name in builders:
            self._scheduler.expect_builder(name)
        for spec in devices:
            self._scheduler.expect_device(spec.name, can_build=device_kind(spec.kind).builds)

    def _add(self, builders: Mapping[str, str], devices: Sequence[DeviceSpec]) -> None:
        """Makes the actors of builders (name to node) and devices, which join when they are up."""
        plan = self._plan
        common = (tuple(self._specs.values()), plan.settings, plan.target_kind)
        made: dict[str, Any] = {
            name: _actor(BuilderActor, plan.cpus[0], node).remote(*common)
            for name, node in builders.items()
        }
        for spec in devices:
            cpus = len(spec.cores) or plan.cpus[1]
            actor = _actor(DeviceActor, cpus, spec.node, num_gpus=spec.gpus)
            made[spec.name] = actor.remote(spec, *common)
        for name, handle in made.items():
            build = handle.build.options(num_returns=2) if name in builders else None
            self._places[name] = _Place(handle, build)
            self._spawn(self._bring_up(name))

    async def _grow(self) -> None:
        """Takes in the devices of nodes that join the cluster, and builders beside them."""
        known = {node["NodeID"] for node in ray.nodes()}

        def unfit(node: str, reason: str) -> None:
            known.add(node)
            logger.warning("the cluster has grown, but: %s", reason)

        while True:
            await asyncio.sleep(GROW_S)
            there = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            if not there - known:
                continue
            try:
                hosts = await asyncio.to_thread(cluster_hosts, unfit)
            except RayError as error:
                logger.warning("the cluster has grown, but does not answer: %s", error)
                continue
            fresh = [host for host in hosts if host.node not in known]
            known |= {host.node for host in fresh}
            # First those that are in use already: the others must be like them.
            used = {spec.node for spec in self._specs.values()}
            try:
                found = expand(
                    self._plan.grows, sorted(hosts, key=lambda host: host.node not in used)
                )
            except InputError as error:
                logger.warning("the cluster has grown, but: %s", error)
                continue
            self._take_in(fresh, [spec for spec in found if spec.node not in used])

    def _take_in(self, hosts: Sequence[Host], found: Sequence[DeviceSpec]) -> None:
        new = {host.node for host in hosts}
        devices = [
            replace(spec, name=f"{spec.kind}:{len(self._specs) + i}")
            for i, spec in enumerate(
                spec for spec in found if spec.node in new and self._like(spec)
            )
        ]
        if not devices:
            return
        mine = [host for host in hosts if any(spec.node == host.node for spec in devices)]
        nodes = spread_builders(mine, devices)
        builders = {f"builder:{len(self._builders) + i}": node for i, node in enumerate(nodes)}
        self._specs |= {spec.name: spec for spec in devices}
        self._builders |= builders
        self._expect(builders, devices)
        self._add(builders, devices)

    def _like(self, spec: DeviceSpec) -> bool:
        """Whether a device measures what those of the plan do: of narrower ones there may be."""
        first = self._plan.devices[0]
        return (spec.model, len(spec.cores), spec.gpus) == (
            first.model,
            len(first.cores),
            first.gpus,
        )

    # -- commands become calls ------------------------------------------------------------------

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Finish(outcome):
                    self._finish(outcome)
                case Build(builder, job):
                    build = self._places[builder].build
                    reply = build.remote(packed(job))
                    self._spawn(self._follow_build(builder, job, *reply))
                case Measure(device, job, artifact):
                    built = replace(job, trace_json="", workload=_without_module(job.workload))
                    handle = self._places[device].handle
                    measured = handle.measure.remote(packed(built), artifact)
                    self._spawn(self._follow_measure(device, measured, built_here=False))
                case BuildAndMeasure(device, job):
                    measured = self._places[device].handle.build_and_measure.remote(packed(job))
                    self._spawn(self._follow_measure(device, measured, built_here=True))
        self._notify()

    async def _follow_build(
        self, name: str, job: Job, reply: Awaitable[bytes], artifact: Any
    ) -> None:
        report = await self._answer(name, reply)
        if report is None:
            return
        if report.outcome is not None:
            self._obey(self._scheduler.build_failed(name, report.outcome))
        else:
            self._obey(self._scheduler.built(name, job.id, artifact))

    async def _follow_measure(
        self, name: str, reply: Awaitable[bytes], *, built_here: bool
    ) -> None:
        report = await self._answer(name, reply)
        if report is None or report.outcome is None:
            return
        place = self._places[name]
        if report.unfit:
            self._losses[name] = report.unfit
            # It gets nothing more, whatever becomes of its candidate.
            self._scheduler.hold(name)
        if report.outcome.status is Status.DEVICE_LOST:
            self._give_up(name)
            return
        place.jobs += 1
        if report.disturbed:
            place.disturbed += 1
            self._metrics.disturbed(name)
        place.run_s += report.outcome.run_s
        place.build_s += report.outcome.build_s if built_here else 0.0
        self._obey(self._scheduler.measured(name, report.outcome))
        if report.unfit:
            self._give_up(name)

    async def _answer(self, name: str, reply: Awaitable[bytes]) -> Report | None:
        """An actor's report; None where it went away, or had gone away before it answered."""
        place = self._places[name]
        life = place.life
        try:
            report: Report = pickle.loads(await reply)
        except RayError as error:
            if place.life == life:
                self._lose(name, error)
            return None
        if place.life != life:
            return None
        place.overhead_cpu_s = report.overhead_cpu_s
        return report

    def _finish(self, outcome: Outcome) -> None:
        self._metrics.finished(outcome.device, outcome.status)
        run, job = self._jobs.pop(outcome.job_id, ("", 0))
        if run not in self._runs:
            return
        mine = self._runs[run]
        mine.outcomes.append(replace(outcome, job_id=job))
        mine.statuses[outcome.status] += 1
        mine.build_cpu_s += outcome.build_cpu_s
        mine.run_cpu_s += outcome.run_cpu_s

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
        started: Started | Failure
        while True:
            try:
                started = await self._started(name)
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
            # What was up once, or came later, is a loss; the runs that come can do without it.
            if name in self._wanted and name not in self._pids:
                self._refusals.append(started)
            return self._give_up(name)
        self._pids[name] = started.pid
        place.host, place.gpu = started.host, started.gpu
        place.overhead_cpu_s = started.overhead_cpu_s
        self._obey(self._scheduler.joined(name))

    async def _started(self, name: str) -> Started | Failure:
        """What an actor says when it has started; a failure where Ray finds no place for it."""
        handle = self._places[name].handle
        placed = asyncio.ensure_future(handle.__ray_ready__.remote())
        gpus = self._specs[name].gpus if name in self._specs else 0
        waited_s = 0.0
        while waited_s < PLACE_WAITS * PLACE_WAIT_S:
            waited_s += PLACE_WAIT_S
            done, _ = await asyncio.wait({placed}, timeout=PLACE_WAIT_S)
            if done:
                placed.result()
                return await self._said(name, handle.start.remote())
            if gpus > ray.available_resources().get("GPU", 0):
                break
        placed.cancel()
        return Failure(
            InputError(
                f"devices: Ray has found no room for {name} in {waited_s:.0f} s: the CPUs or GPUs"
                " that it needs are in use; wait for them, or ask for fewer"
            )
        )

    @staticmethod
    async def _said(name: str, starting: Awaitable[Started | Failure]) -> Started | Failure:
        limit_s = PLACE_WAITS * PLACE_WAIT_S
        try:
            return await asyncio.wait_for(starting, limit_s)
        except TimeoutError:
            return Failure(
                InputError(f"devices: {name} has a place, and has not started in {limit_s:.0f} s")
            )

    def _give_up(self, name: str) -> None:
        logger.warning("%s is lost: %s", name, self._losses[name])
        self._places[name].life += 1
        ray.kill(self._places[name].handle)
        self._obey(self._scheduler.lost(name, self._losses[name], returns=False))

    def _is_ready(self) -> bool:
        if self._refusals:
            return True
        up = self._scheduler.devices
        builders = [name in self._pids or name in self._losses for name in self._builders]
        return all(up.values()) and (any(builders) or not builders)

    async def _alone(
        self,
        ask: Callable[[ActorHandle], Awaitable[Any]],
        device: str | None = None,
        node: str = "",
    ) -> Any:
        """Asks one device while it has nothing else to do; another one if that goes away."""
        failure = self._nothing_left()
        for _ in range(ASKED):
            name = await self._choose(device, node)
            if name is None:
                return self._nothing_left()
            place = self._places[name]
            async with place.alone:
                if not self._scheduler.devices.get(name):
                    continue  # it went away while somebody else had it
                self._obey(self._scheduler.hold(name))
                life = place.life
                try:
                    return await ask(place.handle)
                except RayError as error:
                    if place.life == life:
                        self._lose(name, error)
                    failure = Failure(Dead(f"{name} went away: {_reason(error)}"))
                finally:
                    self._obey(self._scheduler.release(name))
        return failure

    async def _choose(self, device: str | None, node: str) -> str | None:
        """The least busy device that is up, on that node if there is one there; waits for it.

        None where none is left that could come up.
        """

        def left() -> list[str]:
            return [name for name in self._scheduler.devices if device in (None, name)]

        def up() -> list[str]:
            return [name for name in left() if self._scheduler.devices[name]]

        await self._until(lambda: bool(up()) or not left())
        near = [name for name in up() if self._specs[name].node in ("", node)]
        return min(
            near or up(),
            key=lambda name: (self._places[name].alone.locked(), self._scheduler.load(name)),
            default=None,
        )

    def _nothing_left(self) -> Failure:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self._losses.items())
        return Failure(Dead(f"no device is left: {reasons}"))

    async def _show(self) -> None:
        before: dict[str, float] = {}
        while True:
            await asyncio.sleep(METRICS_S)
            now = {name: self._places[name].run_s for name in self._specs}
            shares = {
                name: min(1.0, (run_s - before.get(name, 0.0)) / METRICS_S)
                for name, run_s in now.items()
            }
            self._metrics.show(self._scheduler.waiting, shares)
            before = now

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


def _actor(of: type, num_cpus: int, node: str, **options: Any) -> Any:
    return _remote(of).options(
        num_cpus=num_cpus,
        max_restarts=MAX_RESTARTS,
        # A line of Ray's dashboard for each candidate is not worth what it costs.
        enable_task_events=False,
        **on_node(node),
        **options,
    )


@lru_cache
def _remote(of: type) -> Any:
    """Made once: Ray ships the class anew for each of these, which takes a third of a second."""
    return ray.remote(of)


@lru_cache(maxsize=1024)
def _without_module(workload: Workload) -> Workload:
    """What a device needs of it: the module is for builders, and long."""
    return replace(workload, module_json="")


async def _quiet(reply: Awaitable[None]) -> None:
    with suppress(RayError):  # it has gone already
        await reply


def _reason(error: RayError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
