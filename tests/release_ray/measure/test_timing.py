"""How long a kernel is timed, against scripted clocks."""

import math

import pytest

from release_ray.core.settings import MeasureSettings
from release_ray.measure.timing import (
    CANARY_FLOPS,
    COLD_RUNS,
    BadTiming,
    Timing,
    run_timeout_s,
    time_kernel,
)

SETTINGS = MeasureSettings(repeats=3, early_stop=3.0)


class Clock:
    """Gives scripted times, and keeps how often it was asked for how many."""

    def __init__(self, *times):
        self.times = list(times)
        self.asked = []

    def __call__(self, repeats, min_repeat_ms):
        self.asked.append(repeats)
        taken, self.times = self.times[:repeats], self.times[repeats:]
        return taken


def timed(clock, best_s=None, budget_s=5.0):
    return time_kernel(clock, best_s=best_s, settings=SETTINGS, budget_s=budget_s)


def test_the_median_of_the_repeats():
    clock = Clock(0.05, 0.01, 0.03, 0.02)
    assert timed(clock) == Timing(0.02, None)
    assert clock.asked == [1, 3]


def test_until_a_best_one_is_known_a_long_run_is_enough():
    clock = Clock(0.5, 0.1)
    assert timed(clock) == Timing(0.5, None)
    assert clock.asked == [1]


def test_far_from_the_best_it_stops_after_one_run():
    clock = Clock(0.11)
    assert timed(clock, best_s=0.01) == Timing(None, 0.11)
    assert clock.asked == [1]


def test_slow_once_is_confirmed_by_three_more():
    clock = Clock(0.05, 0.06, 0.04, 0.05)
    assert timed(clock, best_s=0.01) == Timing(None, 0.04)
    assert clock.asked == [1, 3]


def test_slow_once_by_accident_is_measured_in_full():
    clock = Clock(0.05, 0.06, 0.02, 0.05, 0.02, 0.02, 0.02)
    assert timed(clock, best_s=0.01) == Timing(0.02, None)


def test_near_the_best_it_is_measured_twice_as_long():
    clock = Clock(0.0101, *[0.0101] * 3, *[0.0099] * 3)
    latency = timed(clock, best_s=0.01).latency_s
    assert latency == pytest.approx(0.01)
    assert clock.asked == [1, 3, 3]


def test_a_kernel_that_fills_the_budget_has_its_first_time():
    clock = Clock(6.0)
    assert timed(clock) == Timing(6.0, None)
    clock = Clock(2.0, 2.5, 2.1)
    assert timed(clock, best_s=2.0).latency_s == pytest.approx(2.3)
    assert clock.asked == [1, 2]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_cannot_be_a_time_is_an_error(bad):
    with pytest.raises(BadTiming):
        timed(Clock(bad))
    with pytest.raises(BadTiming):
        timed(Clock(0.01, 0.01, bad, 0.01))


def test_cold_runs_are_single_ones_and_their_median_counts():
    def cold(clock, budget_s=20.0, best_s=None):
        return time_kernel(clock, best_s=best_s, settings=SETTINGS, budget_s=budget_s, cold=True)

    clock = Clock(0.001, *[0.001] * 7, *[0.002] * 8)
    assert cold(clock) == Timing(0.002, None)
    assert clock.asked == [1, COLD_RUNS]
    # No longer than with warm caches, three times 20 ms here.
    clock = Clock(0.01, 0.01, 0.03, 0.02, 0.01, 0.03, 0.02)
    assert cold(clock).latency_s == pytest.approx(0.02)
    assert clock.asked == [1, 6]
    clock = Clock(0.5, 0.3, 0.1, 0.2)
    assert cold(clock) == Timing(0.2, None)
    assert cold(Clock(2.0), budget_s=1.5) == Timing(2.0, None)
    assert cold(Clock(2.0), best_s=0.1) == Timing(None, 2.0)


def test_the_time_out_grows_with_the_best():
    assert run_timeout_s(None, SETTINGS) == SETTINGS.run_timeout_s
    assert run_timeout_s(0.01, SETTINGS) == SETTINGS.run_timeout_s
    assert run_timeout_s(2.0, SETTINGS) == 24.0


def test_before_a_best_is_known_the_canary_says_how_fast_the_device_is():
    slow_s = CANARY_FLOPS / 1e8
    assert run_timeout_s(None, SETTINGS, 1e9, slow_s) == pytest.approx(12 * 10 * 1e9 / 1e8)
    assert run_timeout_s(None, SETTINGS, 1e6, slow_s) == SETTINGS.run_timeout_s
    assert run_timeout_s(0.01, SETTINGS, 1e9, slow_s) == SETTINGS.run_timeout_s
