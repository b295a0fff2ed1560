"""What happens during a run, as values. The terminal view, logs and plots read this stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from release_ray.core.round_map import RoundMap
from release_ray.core.statuses import Status


@dataclass(frozen=True)
class TaskSummary:
    """A task as a view lists it; trials and best include what earlier calls measured."""

    name: str
    weight: int
    flops: float
    trials: int
    best_s: float | None
    untuned_s: float | None = None


@dataclass(frozen=True)
class RunStarted:
    network: str
    target: str
    devices: tuple[str, ...]
    tasks: tuple[TaskSummary, ...]
    trials_planned: int | None
    time_budget_s: float | None
    earlier_s: float


@dataclass(frozen=True)
class RoundPlanned:
    """`search_cpu_s` is what the plan cost; `metrics` are the agent's losses, rewards, entropy.

    `map` shows the candidates of which these came, where a policy proposed some.
    """

    task: str
    round: int
    candidates: int
    refused: int
    clusters: int
    search_cpu_s: float
    metrics: Mapping[str, float]
    map: RoundMap | None = None


@dataclass(frozen=True)
class Measured:
    task: str
    status: Status
    latency_s: float | None
    message: str
    device: str
    trials: int
    best_s: float | None


@dataclass(frozen=True)
class MeasuredUntuned:
    """How long a task's operator takes as TVM compiles it untuned, about."""

    task: str
    latency_s: float


@dataclass(frozen=True)
class RoundFinished:
    task: str
    round: int
    seconds: float


@dataclass(frozen=True)
class DeviceLost:
    """A device is given up; what it had is measured elsewhere, on the `left` others."""

    name: str
    reason: str
    left: int


@dataclass(frozen=True)
class Stage:
    """A part of the run began, named for people: `loading resnet18`, `compiling`."""

    name: str


Event = RunStarted | RoundPlanned | Measured | MeasuredUntuned | RoundFinished | DeviceLost | Stage
Listener = Callable[[Event], None]


def all_of(*listeners: Listener) -> Listener:
    """A listener that tells each of these."""

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell
