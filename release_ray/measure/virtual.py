"""The scheduler on a virtual clock: what a pool of some size would do, without waiting for it."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from release_ray.core.statuses import Status
from release_ray.measure.jobs import Job, Outcome
from release_ray.measure.scheduler import (
    NOTHING_DONE,
    Build,
    BuildAndMeasure,
    Command,
    Finish,
    Measure,
    Scheduler,
)

Duration = Callable[[Job], float]


@dataclass(frozen=True)
class Loss:
    """A builder or device goes away at `at_s` and joins again `back_after_s` later, or never."""

    name: str
    at_s: float
    back_after_s: float | None = None


@dataclass(frozen=True)
class Timeline:
    """How a simulated pool fared."""

    wall_s: float
    outcomes: tuple[Outcome, ...]
    """In the order in which they came."""
    busy_s: dict[str, float]
    """Seconds of work of every builder and device; a device's own building counts."""
    run_s: dict[str, float]
    """Seconds in which each device measured."""
    most_waiting: int
    """The most artifacts that waited in the pool at once."""

    @property
    def utilisation(self) -> float:
        """Share of the devices' time in which they measured."""
        return sum(self.run_s.values()) / (self.wall_s * len(self.run_s)) if self.wall_s else 0.0


def simulate(
    jobs: Iterable[Job],
    *,
    builders: int,
    devices: int,
    build_s: Duration,
    run_s: Duration,
    max_waiting: int = 4,
    device_builds: bool = True,
    message_s: float = 0.0,
    losses: Sequence[Loss] = (),
) -> Timeline:
    """Runs jobs through a pool of `builder:0..` and `device:0..` whose work takes the times given.

    The scheduler is one process: each measurement keeps it busy for `message_s`, and others wait.
    The same arguments give the same timeline. Ends when no job is left that can still be done.
    """
    scheduler = Scheduler(max_waiting=max_waiting)
    pool = _VirtualPool(scheduler, build_s, run_s, device_builds, message_s)
    pool.start([f"builder:{i}" for i in range(builders)], [f"device:{i}" for i in range(devices)])
    pool.lose(losses)
    pool.submit(jobs)
    return pool.run()


@dataclass
class _Server:
    """One builder or device: it works on its commands one after the other."""

    todo: deque[Command] = field(default_factory=deque)
    running: bool = False
    life: int = 0
    """Counts its losses: what an earlier life was doing never finishes."""


class _VirtualPool:
    def __init__(
        self,
        scheduler: Scheduler,
        build_s: Duration,
        run_s: Duration,
        device_builds: bool,
        message_s: float,
    ) -> None:
        self._scheduler = scheduler
        self._build_s = build_s
        self._run_s = run_s
        self._device_builds = device_builds
        self._message_s = message_s
        self._listens_at = 0.0
        self._now = 0.0
        self._last = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._servers: dict[str, _Server] = {}
        self._outcomes: list[Outcome] = []
        self._busy: dict[str, float] = {}
        self._ran: dict[str, float] = {}
        self._most_waiting = 0

    def start(self, builders: Sequence[str], devices: Sequence[str]) -> None:
        for name in builders:
            self._scheduler.expect_builder(name)
        for name in devices:
            self._scheduler.expect_device(name, can_build=self._device_builds)
            self._ran[name] = 0.0
        for name in (*builders, *devices):
            self._servers[name] = _Server()
            self._busy[name] = 0.0
            self._obey(self._scheduler.joined(name))

    def lose(self, losses: Sequence[Loss]) -> None:
        for loss in losses:
            self._at(loss.at_s, partial(self._lose, loss))

    def submit(self, jobs: Iterable[Job]) -> None:
        self._obey(self._scheduler.submit(jobs))

    def run(self) -> Timeline:
        while self._events and self._scheduler.unfinished:
            self._now, _, event = heapq.heappop(self._events)
            event()
        return Timeline(
            wall_s=self._last,
            outcomes=tuple(self._outcomes),
            busy_s=self._busy,
            run_s=self._ran,
            most_waiting=self._most_waiting,
        )

    def _lose(self, loss: Loss) -> None:
        server = self._servers.get(loss.name)
        if server is None:
            return  # lost for good before
        server.life += 1
        server.todo.clear()
        server.running = False
        returns = loss.back_after_s is not None
        self._obey(self._scheduler.lost(loss.name, "lost", returns=returns))
        if loss.back_after_s is None:
            del self._servers[loss.name]
        else:
            life = server.life
            self._at(self._now + loss.back_after_s, lambda: self._return(loss.name, life))

    def _return(self, name: str, life: int) -> None:
        if name in self._servers and self._servers[name].life == life:
            self._obey(self._scheduler.joined(name))

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Finish):
                self._outcomes.append(command.outcome)
                self._last = self._now
                continue
            name = command.builder if isinstance(command, Build) else command.device
            self._servers[name].todo.append(command)
            self._work(name)
        self._most_waiting = max(self._most_waiting, self._scheduler.waiting["ready"])

    def _work(self, name: str) -> None:
        server = self._servers[name]
        if server.running or not server.todo:
            return
        server.running = True
        command = server.todo.popleft()
        assert not isinstance(command, Finish)
        build = 0.0 if isinstance(command, Measure) else self._build_s(command.job)
        run = 0.0 if isinstance(command, Build) else self._run_s(command.job)
        life = server.life

        def done() -> None:
            self._done(name, life, command, build, run)

        if isinstance(command, Build):
            self._at(self._now + build, done)
        else:
            self._at(self._now + build + run, lambda: self._hear(done))

    def _hear(self, event: Callable[[], None]) -> None:
        """Lets the event happen once the scheduler's process has time for it."""
        if not self._message_s:
            return event()
        self._listens_at = max(self._now, self._listens_at) + self._message_s
        self._at(self._listens_at, event)

    def _done(self, name: str, life: int, command: Command, build: float, run: float) -> None:
        server = self._servers.get(name)
        if server is None or server.life != life:
            return
        server.running = False
        self._busy[name] += build + run
        if isinstance(command, Build):
            self._obey(self._scheduler.built(name, command.job.id, None))
        elif isinstance(command, Measure | BuildAndMeasure):
            self._ran[name] += run
            outcome = replace(
                NOTHING_DONE,
                job_id=command.job.id,
                status=Status.OK,
                latency_s=run,
                device=name,
                build_s=build,
                run_s=run,
            )
            self._obey(self._scheduler.measured(name, outcome))
        self._work(name)

    def _at(self, time_s: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time_s, self._count, event))
