"""How long a kernel is timed: little if it is slow, longer if it may be the best."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from release_ray.core.settings import MeasureSettings

Evaluate = Callable[[int, float], list[float]]
"""`evaluate(repeats, min_repeat_ms)`: seconds a run, one for each repeat, after a warm-up."""

CERTAIN = 10.0
"""A first run so many times the best needs no confirming: noise does not reach that far."""
CONFIRMING_RUNS = 3
NEAR_BEST = 1.05
"""Up to so many times the best a kernel may be the winner, and is timed twice as long."""

SLACK = 10.0
COLD_RUNS = 15
"""Each with the caches emptied before it, so that none can be longer to be less noisy."""


CANARY = 256
CANARY_FLOPS = 2 * CANARY**3
"""The canary multiplies square matrices of `CANARY` rows."""


class BadTiming(Exception):
    """A time that no kernel can have: 0, negative, infinite or NaN."""


@dataclass(frozen=True)
class Timing:
    """Either the latency, or a lower bound of it where the kernel was given up as slow."""

    latency_s: float | None
    bound_s: float | None

    @property
    def seconds(self) -> float:
        """Whichever it is."""
        return self.latency_s or self.bound_s or 0.0


def time_kernel(
    evaluate: Evaluate,
    *,
    best_s: float | None,
    settings: MeasureSettings,
    budget_s: float,
    cold: bool = False,
) -> Timing:
    """The median of `settings.repeats`; or `slow`, when the first runs show it to be far off.

    `cold` is for an `evaluate` that empties the caches before every repeat, so that a repeat is a
    single run: then it is the median of as many as take no longer, `COLD_RUNS` at most.

    One slow first run is often noise, so that one is confirmed by the fastest of three more.
    A kernel so slow that not even one repeat fits into `budget_s` has its first run's time; so has,
    until a best one is known, a kernel whose first run takes longer than all repeats have to.

    Raises:
        BadTiming: the clock gave what cannot be a time.
    """
    first_s = min(_checked(evaluate(1, 0.0)))
    if best_s is not None:
        slow_s = settings.early_stop * best_s
        if slow_s < first_s < CERTAIN * best_s:
            first_s = min(first_s, *_checked(evaluate(CONFIRMING_RUNS, 0.0)))
        if first_s > slow_s:
            return Timing(None, first_s)
    at_least_ms, repeats = settings.min_repeat_ms, settings.repeats
    if best_s is None and not cold and first_s * 1e3 > repeats * at_least_ms > 0:
        return Timing(first_s, None)
    if cold:
        wanted = int(repeats * at_least_ms / 1e3 / max(first_s, 1e-9))
        at_least_ms, repeats = 0.0, min(COLD_RUNS, max(repeats, wanted))
    repeats = min(repeats, int(budget_s / max(first_s, at_least_ms / 1e3, 1e-9)))
    if repeats < 1:
        return Timing(first_s, None)
    samples = _checked(evaluate(repeats, at_least_ms))
    if best_s is not None and median(samples) < NEAR_BEST * best_s:
        samples += _checked(evaluate(repeats, at_least_ms))
    return Timing(median(samples), None)


def run_timeout_s(
    best_s: float | None,
    settings: MeasureSettings,
    flops: float = 0.0,
    canary_s: float | None = None,
) -> float:
    """How long a run may take: the setting, or more where even a good kernel is slow.

    Before a good one is known, the canary tells how fast the device is: a kernel may need `SLACK`
    times as long for its `flops`.
    """
    best_s = best_s or SLACK * flops * (canary_s or 0.0) / CANARY_FLOPS
    return max(settings.run_timeout_s, 4 * settings.early_stop * best_s)


def _checked(samples: list[float]) -> list[float]:
    for sample in samples:
        if not math.isfinite(sample) or sample <= 0:
            raise BadTiming(f"a run took {sample} s")
    return samples
