"""When a measurement is believed, made again or flagged, and when a device is given up."""

import pytest

from release_ray.measure.canary import ATTEMPTS, CHANCES, POLLS, Watch, unfit, watched
from release_ray.measure.process import Dead


class Device:
    """Canaries and measurements as scripted; keeps the order of what was done."""

    def __init__(self, canaries, values, may_go_on=True):
        self.canaries, self.values = iter(canaries), iter(values)
        self.may_go_on = may_go_on
        self.pauses = 0

    def pause(self):
        self.pauses += 1
        return self.may_go_on

    def watched(self, usual_s=1.0, matters=lambda value, slowdown: True):
        return watched(
            lambda: next(self.values),
            lambda: next(self.canaries),
            usual_s=usual_s,
            seconds=float,
            matters=matters,
            pause=self.pause,
        )


def test_an_undisturbed_measurement_is_made_once():
    device = Device([1.0, 1.1], [5])
    seen = device.watched()
    assert (seen.value, seen.disturbed, seen.warning) == (5, False, "")
    assert seen.canaries_s == (1.0, 1.1)
    assert device.pauses == 0


@pytest.mark.parametrize("around", [(1.0, 2.0), (2.0, 1.0)])
def test_a_disturbed_one_is_made_again_a_moment_later(around):
    seen = Device([*around, 1.0, 1.0], [9, 5]).watched()
    assert (seen.value, seen.disturbed) == (5, False)


def test_where_the_disturbance_stays_the_fastest_counts_and_is_flagged():
    device = Device([3, 3, *[2] * POLLS, 2, *[4] * POLLS, 4], [30, 20, 40])
    seen = device.watched()
    assert (seen.value, seen.slowdown) == (20, 2)
    assert device.pauses == (ATTEMPTS - 1) * POLLS
    assert len(seen.canaries_s) == 1 + ATTEMPTS + (ATTEMPTS - 1) * POLLS
    assert seen.warning == "the device was disturbed: a fixed kernel took 2.0 times the usual"


def test_another_attempt_waits_until_the_canary_is_calm():
    device = Device([1, 3, 3, 1.1, 1], [9, 5])
    assert (device.watched().value, device.pauses) == (5, 2)


def test_an_undisturbed_attempt_counts_though_a_disturbed_one_was_faster():
    assert Device([1, 3, 1, 1], [4, 5]).watched().value == 5


def test_without_time_or_need_there_is_no_second_attempt():
    assert Device([2, 2], [9], may_go_on=False).watched().value == 9
    seen = Device([2, 2], [9]).watched(matters=lambda value, slowdown: value / slowdown < 4)
    assert (seen.value, seen.disturbed) == (9, True)


def test_before_anything_is_usual_the_fastest_canary_is():
    seen = Device([1, 2, 1, 1], [9, 5]).watched(usual_s=None)
    assert (seen.value, seen.slowdown) == (5, 1)


def test_the_usual_follows_a_device_that_throttles():
    watch = Watch()
    assert watch.usual_s is None
    for _ in range(50):
        watch.heard(1.0)
    watch.heard(0.1)
    assert watch.usual_s == 1.0
    for _ in range(30):
        watch.heard(2.0)
    assert watch.usual_s == 1.0
    for _ in range(40):
        watch.heard(2.0)
    assert watch.usual_s == 2.0


def test_a_device_is_unfit_when_its_canary_has_failed_often_enough():
    failures = iter([Dead("killed by SIGSEGV")] * 2 + [None] + [Dead("gone")] * 9)
    asked = []

    def canary():
        asked.append(1)
        failure = next(failures)
        if failure:
            raise failure

    assert unfit(canary) == ""
    assert len(asked) == 3
    assert unfit(canary) == f"its canary failed {CHANCES} times: gone"
    assert len(asked) == 3 + CHANCES
