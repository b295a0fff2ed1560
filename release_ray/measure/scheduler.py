"""Who builds and who measures what, next: the pool's scheduler as a pure state machine.

Events go in (a method each), commands come out. It knows no clock, no Ray and no compiler, so the
same scheduler runs on a cluster (`pool_actor`) and on a virtual clock (`virtual`).

What it keeps to:

- Jobs start in the order in which they were submitted, and each ends in exactly one `Finish`.
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


class Scheduler:
    """See the module. Every event returns the commands that follow from it, in order."""

    def __init__(self, *, max_waiting: int) -> None:
        """`max_waiting`: artifacts a device, built or being built, beyond those devices hold."""
        self._max_waiting = max_waiting
        self._pending: deque[_Ticket] = deque()
        self._ready: deque[tuple[_Ticket, Any]] = deque()
        self._builders: dict[str, _Place] = {}
        self._devices: dict[str, _Place] = {}
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
        return self._dispatch()

    def lost(self, name: str, message: str, *, returns: bool) -> list[Command]:
        """A builder or device went away. `returns`: it is starting again and will join.

        What it was running is started once more, what it had not begun is not counted against it.
        """
        place = self._place(name)
        self._last_loss = f"{name}: {message}"
        queued, place.queue = list(place.queue), deque()
        if returns:
            place.up = False
        else:
            self._builders.pop(name, None)
            self._devices.pop(name, None)
        commands: list[Command] = []
        again: list[_Ticket] = []
        for position, ticket in enumerate(queued):
            if position == 0:
                ticket.losses += 1
                ticket.avoid = name
            if ticket.losses > 1:
                commands.append(Finish(_lost(ticket.job, name, message)))
            else:
                again.append(ticket)
        self._pending.extendleft(reversed(again))
        return commands + self._dispatch()

    def hold(self, name: str) -> list[Command]:
        """Sends the device nothing more until `release`: somebody wants it alone."""
        self._devices[name].held = True
        return []

    def release(self, name: str) -> list[Command]:
        """Ends `hold`; a device that is gone by now is none of a caller's concern."""
        if name in self._devices:
            self._devices[name].held = False
        return self._dispatch()

    # -- jobs -----------------------------------------------------------------------------------

    def submit(self, jobs: Iterable[Job]) -> list[Command]:
        """Jobs to be built and measured, in this order."""
        self._pending.extend(_Ticket(job) for job in jobs)
        return self._dispatch()

    def built(self, builder: str, job_id: int, artifact: Any) -> list[Command]:
        """A builder is done. `artifact` is whatever the devices understand, such as a handle."""
        ticket = self._take(self._builders[builder], job_id)
        self._ready.append((ticket, artifact))
        return self._dispatch()

    def build_failed(self, builder: str, outcome: Outcome) -> list[Command]:
        """A builder is done, and the candidate cannot be built."""
        self._take(self._builders[builder], outcome.job_id)
        return [Finish(outcome), *self._dispatch()]

    def measured(self, device: str, outcome: Outcome) -> list[Command]:
        """A device is done with a `Measure` or a `BuildAndMeasure`."""
        self._take(self._devices[device], outcome.job_id)
        return [Finish(outcome), *self._dispatch()]

    def withdraw(self) -> list[int]:
        """Takes back the jobs that no device was sent, and returns their ids: they never finish."""
        gone = [ticket.job.id for ticket, _ in self._ready]
        gone += [ticket.job.id for ticket in self._pending]
        self._ready.clear()
        self._pending.clear()
        return gone

    # -- what it looks like ---------------------------------------------------------------------

    @property
    def unfinished(self) -> int:
        """Jobs that were submitted and are not finished."""
        places = [*self._builders.values(), *self._devices.values()]
        return len(self._pending) + len(self._ready) + sum(len(place.queue) for place in places)

    @property
    def waiting(self) -> dict[str, int]:
        """Lengths of the queues: jobs not begun, being built, and artifacts not yet sent on."""
        return {
            "pending": len(self._pending),
            "building": sum(len(place.queue) for place in self._builders.values()),
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
        gone = list(self._pending)
        self._pending.clear()
        if not self._devices:
            gone = [ticket for ticket, _ in self._ready] + gone
            self._ready.clear()
        return [Finish(_lost(ticket.job, "", reason)) for ticket in gone]

    def _send_artifacts(self) -> list[Command]:
        commands: list[Command] = []
        kept: deque[tuple[_Ticket, Any]] = deque()
        for ticket, artifact in self._ready:
            choice = self._device_for(ticket)
            if choice is None:
                kept.append((ticket, artifact))
            else:
                self._devices[choice].queue.append(ticket)
                commands.append(Measure(choice, ticket.job, artifact))
        self._ready = kept
        return commands

    def _device_for(self, ticket: _Ticket) -> str | None:
        """The least busy device with a free slot, the one that joined first among equals."""
        free = [
            name
            for name, place in self._devices.items()
            if place.up and not place.held and len(place.queue) < QUEUED_PER_DEVICE
        ]
        allowed = [name for name in free if _welcome(ticket, name, self._devices)]
        return min(allowed, key=self.load, default=None)

    def _start_builds(self) -> list[Command]:
        commands: list[Command] = []
        for name, builder in self._builders.items():
            if builder.up and not builder.queue and self._may_build():
                ticket = self._next_for(name, self._builders)
                if ticket is not None:
                    builder.queue.append(ticket)
                    commands.append(Build(name, ticket.job))
        return commands

    def _may_build(self) -> bool:
        usable = [place for place in self._devices.values() if place.up and not place.held]
        free_slots = sum(QUEUED_PER_DEVICE - len(place.queue) for place in usable)
        building = sum(len(place.queue) for place in self._builders.values())
        limit = self._max_waiting * max(1, len(usable))
        return building + len(self._ready) < limit + free_slots

    def _feed_starving(self) -> list[Command]:
        commands: list[Command] = []
        for name, device in self._devices.items():
            if device.up and not device.held and device.can_build and not device.queue:
                ticket = self._next_for(name, self._devices)
                if ticket is not None:
                    device.queue.append(ticket)
                    commands.append(BuildAndMeasure(name, ticket.job))
        return commands

    def _next_for(self, name: str, places: dict[str, _Place]) -> _Ticket | None:
        """The first pending job that this place may take."""
        for index, ticket in enumerate(self._pending):
            if _welcome(ticket, name, places):
                del self._pending[index]
                return ticket
        return None

    def _place(self, name: str) -> _Place:
        return self._builders[name] if name in self._builders else self._devices[name]

    @staticmethod
    def _take(place: _Place, job_id: int) -> _Ticket:
        for ticket in place.queue:
            if ticket.job.id == job_id:
                place.queue.remove(ticket)
                return ticket
        raise ValueError(f"job {job_id} was not asked for here")


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
