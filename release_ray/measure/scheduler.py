"""Who builds and who measures what, next: the pool's scheduler as a pure state machine.

Events go in (a method each), commands come out. It knows no clock, no Ray and no compiler, so the
same scheduler runs on a cluster (`pool_actor`) and on a virtual clock (`virtual`).

What it keeps to:

- Jobs of a run start in the order in which they were submitted, and each ends in exactly one
  `Finish`. Runs that share the pool have equally many jobs under way.
- A device has the next artifact waiting while it measures, so that it is not idle for a message's
  way there and back.
- Builders stop while `max_waiting` artifacts a device wait, and those being built count.
- A device that starves, and can build, builds the next candidate itself. Where builders are the
  bottleneck, as on a machine of two cores, this keeps every core busy.
- A job whose builder or device went away is started once more, elsewhere if there is an elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from release_ray.core.statuses import Status
from release_ray.measure.jobs import Job, Outcome

QUEUED_PER_DEVICE = 2
"""A device measures one artifact and holds the next."""


@dataclass(frozen=True)
class Build:
    """`builder` shall build the job; the answer is `Scheduler.built` or `build_failed`."""

    builder: str
    job: Job


@dataclass(frozen=True)
class Measure:
    """`device` shall time the artifact, after what it was told before; answer: `measured`."""

    device: str
    job: Job
    artifact: Any


@dataclass(frozen=True)
class BuildAndMeasure:
    """`device` shall build the job itself and time it; answer: `measured`."""

    device: str
    job: Job


@dataclass(frozen=True)
class Finish:
    """The job is over; this is what became of it."""

    outcome: Outcome


Command = Build | Measure | BuildAndMeasure | Finish


@dataclass
class _Ticket:
    """A job on its way through the pool."""

    job: Job
    run: str
    losses: int = 0
    avoid: str = ""
    """Where it was lost: it goes elsewhere if there is an elsewhere."""


@dataclass
class _Place:
    """A builder or a device: expected (starting, or starting again), or up."""

    up: bool = False
    held: bool = False
    can_build: bool = True
    queue: deque[_Ticket] = field(default_factory=deque)
    """What it was told to do and has not answered: the first is running."""

    @property
    def usable(self) -> bool:
        return self.up and not self.held


@dataclass
class _Run:
    """One user of the pool: its jobs that have not begun, and how much of the pool it has."""

    pending: deque[_Ticket] = field(default_factory=deque)
    under_way: int = 0
    last_turn: int = 0


class Scheduler:
    """See the module. Every event returns the commands that follow from it, in order.

    An event costs the same however many builders and devices there are: who is free is kept, not
    looked for.
    """

    def __init__(self, *, max_waiting: int) -> None:
        """`max_waiting`: artifacts a device, built or being built, beyond those devices hold."""
        self._max_waiting = max_waiting
        self._runs: dict[str, _Run] = {}
        self._turns = 0
        self._ready: deque[tuple[_Ticket, Any]] = deque()
        self._builders: dict[str, _Place] = {}
        self._devices: dict[str, _Place] = {}
        self._building = 0
        self._on_devices = 0
        self._usable: set[str] = set()
        # Dictionaries for their order: who has been free for longest comes first.
        self._idle_builders: dict[str, None] = {}
        self._slots: tuple[dict[str, None], ...] = tuple({} for _ in range(QUEUED_PER_DEVICE))
        self._last_loss = ""

    # -- builders and devices come and go -------------------------------------------------------

    def expect_builder(self, name: str) -> None:
        """A builder will join; until it has, it counts as one that jobs can wait for."""
        self._builders[name] = _Place()

    def expect_device(self, name: str, *, can_build: bool) -> None:
        """A device will join. `can_build`: it may build candidates when it starves."""
        self._devices[name] = _Place(can_build=can_build)

    def joined(self, name: str) -> list[Command]:
        """An expected builder or device is up."""
        self._place(name).up = True
        self._settle(name)
        return self._dispatch()

    def lost(self, name: str, message: str, *, returns: bool) -> list[Command]:
        """A builder or device went away. `returns`: it is starting again and will join.

        What it was running is started once more, what it had not begun is not counted against it.
        """
        place = self._place(name)
        self._last_loss = f"{name}: {message}"
        queued = list(place.queue)
        self._count(name, -len(queued))
        place.queue.clear()
        place.up = False
        self._settle(name)
        if not returns:
            self._builders.pop(name, None)
            self._devices.pop(name, None)
        commands: list[Command] = []
        again: list[_Ticket] = []
        for position, ticket in enumerate(queued):
            self._runs[ticket.run].under_way -= 1
            if position == 0:
                ticket.losses += 1
                ticket.avoid = name
            if ticket.losses > 1:
                commands.append(Finish(_lost(ticket.job, name, message)))
            else:
                again.append(ticket)
        for ticket in reversed(again):
            self._runs[ticket.run].pending.appendleft(ticket)
        return commands + self._dispatch()

    def hold(self, name: str) -> list[Command]:
        """Sends the device nothing more until `release`: somebody wants it alone."""
        self._devices[name].held = True
        self._settle(name)
        return []

    def release(self, name: str) -> list[Command]:
        """Ends `hold`; a device that is gone by now is none of a caller's concern."""
        if name in self._devices:
            self._devices[name].held = False
            self._settle(name)
        return self._dispatch()

    # -- jobs -----------------------------------------------------------------------------------

    def submit(self, jobs: Iterable[Job], run: str = "") -> list[Command]:
        """Jobs of a run to be built and measured, in this order."""
        pending = self._runs.setdefault(run, _Run()).pending
        pending.extend(_Ticket(job, run) for job in jobs)
        return self._dispatch()

    def built(self, builder: str, job_id: int, artifact: Any) -> list[Command]:
        """A builder is done. `artifact` is whatever the devices understand, such as a handle."""
        self._ready.append((self._take(builder, job_id), artifact))
        return self._dispatch()

    def build_failed(self, builder: str, outcome: Outcome) -> list[Command]:
        """A builder is done, and the candidate cannot be built."""
        return self._finish(builder, outcome)

    def measured(self, device: str, outcome: Outcome) -> list[Command]:
        """A device is done with a `Measure` or a `BuildAndMeasure`."""
        return self._finish(device, outcome)

    def withdraw(self, run: str = "") -> list[int]:
        """Takes back a run's jobs that no device was sent; their ids. They never finish.

        Those that are being built at the moment have been begun, and finish.
        """
        gone = [ticket.job.id for ticket, _ in self._ready if ticket.run == run]
        self._ready = deque(pair for pair in self._ready if pair[0].run != run)
        mine = self._runs.setdefault(run, _Run())
        mine.under_way -= len(gone)
        gone += [ticket.job.id for ticket in mine.pending]
        mine.pending.clear()
        return gone

    # -- what it looks like ---------------------------------------------------------------------

    @property
    def unfinished(self) -> int:
        """Jobs that were submitted and are not finished."""
        return self._pending + len(self._ready) + self._building + self._on_devices

    @property
    def waiting(self) -> dict[str, int]:
        """Lengths of the queues: jobs not begun, being built, and artifacts not yet sent on."""
        return {
            "pending": self._pending,
            "building": self._building,
            "ready": len(self._ready),
        }

    def load(self, device: str) -> int:
        """Jobs that a device was sent and has not finished."""
        return len(self._devices[device].queue)

    @property
    def devices(self) -> dict[str, bool]:
        """The devices that are not lost for good: whether each is up."""
        return {name: place.up for name, place in self._devices.items()}

    # -- the rules ------------------------------------------------------------------------------

    def _dispatch(self) -> list[Command]:
        commands = self._give_up()
        commands += self._send_artifacts()
        commands += self._start_builds()
        commands += self._feed_starving()
        return commands

    def _give_up(self) -> list[Command]:
        """Everything that waits is finished as lost where nothing is left to work on it."""
        if not self._devices:
            reason = "no device is left"
        elif not self._builders and not any(d.can_build for d in self._devices.values()):
            reason = "no builder is left"
            # What is built already can still be measured.
        else:
            return []
        if self._last_loss:
            reason = f"{reason}; the last to go was {self._last_loss}"
        gone: list[_Ticket] = []
        if not self._devices:
            gone += [ticket for ticket, _ in self._ready]
            self._ready.clear()
            for ticket in gone:
                self._runs[ticket.run].under_way -= 1
        for run in self._runs.values():
            gone += run.pending
            run.pending.clear()
        return [Finish(_lost(ticket.job, "", reason)) for ticket in gone]

    def _send_artifacts(self) -> list[Command]:
        commands: list[Command] = []
        kept: deque[tuple[_Ticket, Any]] = deque()
        while self._ready and any(self._slots):
            ticket, artifact = self._ready.popleft()
            choice = self._device_for(ticket)
            if choice is None:
                kept.append((ticket, artifact))
            else:
                self._put(choice, ticket)
                commands.append(Measure(choice, ticket.job, artifact))
        self._ready.extendleft(reversed(kept))
        return commands

    def _device_for(self, ticket: _Ticket) -> str | None:
        """The least busy device with a free slot, the one free for longest among equals."""
        for slots in self._slots:
            for name in slots:
                if _welcome(ticket, name, self._devices):
                    return name
        return None

    def _start_builds(self) -> list[Command]:
        commands: list[Command] = []
        for name in list(self._idle_builders) if self._pending else ():
            if not self._may_build():
                break
            ticket = self._next_for(name, self._builders)
            if ticket is not None:
                self._put(name, ticket)
                commands.append(Build(name, ticket.job))
        return commands

    def _may_build(self) -> bool:
        free_slots = sum(
            (QUEUED_PER_DEVICE - load) * len(slots) for load, slots in enumerate(self._slots)
        )
        limit = self._max_waiting * max(1, len(self._usable))
        return self._building + len(self._ready) < limit + free_slots

    def _feed_starving(self) -> list[Command]:
        commands: list[Command] = []
        for name in list(self._slots[0]) if self._pending else ():
            if self._devices[name].can_build:
                ticket = self._next_for(name, self._devices)
                if ticket is not None:
                    self._put(name, ticket)
                    commands.append(BuildAndMeasure(name, ticket.job))
        return commands

    def _next_for(self, name: str, places: dict[str, _Place]) -> _Ticket | None:
        """A pending job that this place may take: the first of the run that has least under way."""
        waiting = (run for run in self._runs.values() if run.pending)
        for run in sorted(waiting, key=lambda run: (run.under_way, run.last_turn)):
            for index, ticket in enumerate(run.pending):
                if _welcome(ticket, name, places):
                    del run.pending[index]
                    run.under_way += 1
                    self._turns += 1
                    run.last_turn = self._turns
                    return ticket
        return None

    # -- what it keeps --------------------------------------------------------------------------

    @property
    def _pending(self) -> int:
        return sum(len(run.pending) for run in self._runs.values())

    def _place(self, name: str) -> _Place:
        return self._builders[name] if name in self._builders else self._devices[name]

    def _put(self, name: str, ticket: _Ticket) -> None:
        self._place(name).queue.append(ticket)
        self._count(name, 1)
        self._settle(name)

    def _take(self, name: str, job_id: int) -> _Ticket:
        queue = self._place(name).queue
        for ticket in queue:
            if ticket.job.id == job_id:
                queue.remove(ticket)
                self._count(name, -1)
                self._settle(name)
                return ticket
        raise ValueError(f"job {job_id} was not asked for here")

    def _finish(self, name: str, outcome: Outcome) -> list[Command]:
        self._runs[self._take(name, outcome.job_id).run].under_way -= 1
        return [Finish(outcome), *self._dispatch()]

    def _count(self, name: str, change: int) -> None:
        if name in self._builders:
            self._building += change
        else:
            self._on_devices += change

    def _settle(self, name: str) -> None:
        """Keeps who is free, after something has changed about this builder or device."""
        place = self._place(name)
        load = len(place.queue)
        if name in self._builders:
            self._idle_builders.pop(name, None)
            if place.usable and not load:
                self._idle_builders[name] = None
            return
        for slots in self._slots:
            slots.pop(name, None)
        self._usable.discard(name)
        if place.usable:
            self._usable.add(name)
            if load < QUEUED_PER_DEVICE:
                self._slots[load][name] = None


def _welcome(ticket: _Ticket, name: str, places: dict[str, _Place]) -> bool:
    """Whether a job may go there: not where it was lost, while another of the kind is up."""
    return ticket.avoid != name or not any(
        place.up for other, place in places.items() if other != name
    )


def _lost(job: Job, device: str, message: str) -> Outcome:
    return replace(NOTHING_DONE, job_id=job.id, device=device, message=message)


NOTHING_DONE = Outcome(
    job_id=-1,
    status=Status.DEVICE_LOST,
    latency_s=None,
    bound_s=None,
    message="",
    device="",
    host="",
    build_s=0.0,
    run_s=0.0,
    build_cpu_s=0.0,
    run_cpu_s=0.0,
)
"""The outcome of a job that nobody got to; a template for others."""
