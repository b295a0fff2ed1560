"""Whether a device can be believed: a fixed kernel, a canary, around every measurement.

A neighbour on the host, a hog on the core, a processor that throttles: each makes a kernel slow
for a while, and the latency a number that says nothing of the schedule. The canary has always the
same work to do. Where it is slow around a measurement, that measurement is made again when it is
not; where it stays slow, the latency is kept, and flagged. Pure: no clock, no compiler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from release_ray.measure.process import ChildFailure

T = TypeVar("T")

DISTURBED = 1.2
"""A canary so many times slower than usual is no accident."""
ATTEMPTS = 3
"""How often a measurement is made at most, to have an undisturbed one."""
POLLS = 5
"""How often it is looked before an attempt whether the disturbance is over, at most."""
CHANCES = 3
"""How often a canary may fail before its device is given up."""
_WINDOW = 64
_USUAL = 0.2


class Watch:
    """What a device's canaries have been like; the usual one is a fast one of the last `_WINDOW`.

    So that a device which has become slower for good, because it throttles, is measured as it
    is and does not repeat everything for ever.
    """

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_WINDOW)

    def heard(self, seconds: float) -> None:
        """Takes in a canary's time."""
        self._seconds.append(seconds)

    @property
    def usual_s(self) -> float | None:
        """Seconds of an undisturbed canary; None before the first."""
        if not self._seconds:
            return None
        return sorted(self._seconds)[int(_USUAL * (len(self._seconds) - 1))]


@dataclass(frozen=True)
class Watched(Generic[T]):
    """A measurement, and how the device was around it."""

    value: T
    canary_s: float
    """The slower one of the two canaries around the measurement."""
    usual_s: float
    """What a canary usually takes there."""
    canaries_s: tuple[float, ...] = ()
    """All that were run for it, those around other attempts too."""

    @property
    def slowdown(self) -> float:
        """About 1 where nothing disturbed the device."""
        return self.canary_s / self.usual_s

    @property
    def disturbed(self) -> bool:
        return self.slowdown > DISTURBED

    @property
    def warning(self) -> str:
        """One line about the disturbance; empty where there was none."""
        if not self.disturbed:
            return ""
        return f"the device was disturbed: a fixed kernel took {self.slowdown:.1f} times the usual"


def watched(
    measure: Callable[[], T],
    canary_s: Callable[[], float],
    *,
    usual_s: float | None,
    seconds: Callable[[T], float],
    matters: Callable[[T, float], bool],
    pause: Callable[[], bool],
) -> Watched[T]:
    """The first undisturbed measurement, or the fastest of `ATTEMPTS`: nothing is disturbed faster.

    Another attempt waits until the canary is calm again, for `POLLS` pauses at most. Disturbances
    on a shared host come and go within tenths of a second.

    Args:
        measure: makes one.
        canary_s: runs the canary; its seconds.
        usual_s: what the canary usually takes; None where nothing is known yet.
        seconds: what a measurement says.
        matters: whether a measurement is worth another attempt, made with such a slowdown.
        pause: waits a moment; False where there is no time for another attempt.
    """
    canaries = [canary_s()]
    made: list[Watched[T]] = []

    def usual() -> float:
        return usual_s or min(canaries)

    def calm() -> bool:
        for _ in range(POLLS):
            if not pause():
                return False
            canaries.append(canary_s())
            if canaries[-1] <= DISTURBED * usual():
                break
        return True

    for attempt in range(1, ATTEMPTS + 1):
        value = measure()
        canaries.append(canary_s())
        made.append(Watched(value, max(canaries[-2:]), usual()))
        if not made[-1].disturbed or attempt == ATTEMPTS:
            break
        if not matters(value, made[-1].slowdown) or not calm():
            break
    best = min(made, key=lambda one: (one.disturbed, seconds(one.value)))
    return replace(best, canaries_s=tuple(canaries))


def unfit(canary: Callable[[], object]) -> str:
    """Why a device is of no use any more, after one of its measurements has failed.

    Empty where the canary lives: then it is the candidate that is to blame.
    """
    for attempt in range(1, CHANCES + 1):
        try:
            canary()
            return ""
        except ChildFailure as failure:
            reason = f"its canary failed {attempt} times: {failure}"
    return reason
