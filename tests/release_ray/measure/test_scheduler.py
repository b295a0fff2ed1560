"""The scheduler: nothing is lost or done twice, and its rules hold."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from release_ray.core.statuses import Status
from release_ray.measure.jobs import Job, Workload
from release_ray.measure.scheduler import (
    NOTHING_DONE,
    Build,
    BuildAndMeasure,
    Finish,
    Measure,
    Scheduler,
)
from release_ray.measure.virtual import Loss, simulate

WORKLOAD = Workload("key", "conv", "{}", "{}", 1e9)


def jobs(count):
    return [Job(i, WORKLOAD, "[]", "[]", None) for i in range(count)]


def outcome(job_id, status=Status.OK):
    return replace(NOTHING_DONE, job_id=job_id, status=status)


def pool(*, builders=1, devices=1, can_build=True, max_waiting=4):
    scheduler = Scheduler(max_waiting=max_waiting)
    for i in range(builders):
        scheduler.expect_builder(f"b{i}")
    for i in range(devices):
        scheduler.expect_device(f"d{i}", can_build=can_build)
    for name in [f"b{i}" for i in range(builders)] + [f"d{i}" for i in range(devices)]:
        assert scheduler.joined(name) == []
    return scheduler


def test_a_starving_device_builds_the_next_candidate_itself():
    first, second, third = jobs(3)
    scheduler = pool()
    assert scheduler.submit([first, second, third]) == [
        Build("b0", first),
        BuildAndMeasure("d0", second),
    ]
    assert scheduler.built("b0", 0, "artifact") == [
        Measure("d0", first, "artifact"),
        Build("b0", third),
    ]
    assert scheduler.measured("d0", outcome(1)) == [Finish(outcome(1))]


def test_a_device_that_cannot_build_waits_for_the_builder():
    scheduler = pool(can_build=False)
    assert scheduler.submit(jobs(2)) == [Build("b0", jobs(1)[0])]


def test_builders_stop_while_artifacts_wait():
    scheduler = pool(max_waiting=1)
    commands = scheduler.submit(jobs(9))
    built = 0
    while builds := [c for c in commands if isinstance(c, Build)]:
        commands = scheduler.built("b0", builds[0].job.id, "artifact")
        built += 1
    # One candidate the device builds, one it has waiting, one that waits in the pool.
    assert built == 2
    assert scheduler.waiting == {"pending": 6, "building": 0, "ready": 1}


def test_a_failed_build_is_finished_and_the_builder_goes_on():
    first, second = jobs(2)
    scheduler = pool(can_build=False)
    scheduler.submit([first, second])
    failed = outcome(0, Status.BUILD_ERROR)
    assert scheduler.build_failed("b0", failed) == [Finish(failed), Build("b0", second)]


def test_artifacts_go_to_the_least_busy_device():
    scheduler = pool(devices=2, can_build=False, builders=3)
    scheduler.submit(jobs(3))
    targets = [scheduler.built(f"b{i}", i, "artifact")[0].device for i in range(3)]
    assert targets == ["d0", "d1", "d0"]


def test_a_lost_job_runs_elsewhere_once_and_then_is_lost():
    (job,) = jobs(1)
    scheduler = pool(builders=0, devices=2)
    assert scheduler.submit([job]) == [BuildAndMeasure("d0", job)]
    assert scheduler.lost("d0", "crashed", returns=True) == [BuildAndMeasure("d1", job)]
    (finish,) = scheduler.lost("d1", "crashed", returns=True)
    assert finish.outcome.status is Status.DEVICE_LOST
    assert (finish.outcome.device, finish.outcome.message) == ("d1", "crashed")


def test_what_a_lost_device_had_not_begun_is_not_counted_against_it():
    scheduler = pool(builders=1, devices=2)
    scheduler.submit(jobs(3))  # 0 goes to the builder, 1 to d0, 2 to d1
    scheduler.built("b0", 0, "artifact")  # and then waits behind 1
    assert scheduler.load("d0") == 2
    scheduler.lost("b0", "crashed", returns=False)
    scheduler.measured("d1", outcome(2))
    assert scheduler.lost("d0", "crashed", returns=False) == [BuildAndMeasure("d1", jobs(2)[1])]
    (finish,) = scheduler.lost("d1", "crashed", returns=True)
    assert finish.outcome.job_id == 1
    assert scheduler.joined("d1") == [BuildAndMeasure("d1", jobs(1)[0])]


def test_without_devices_everything_is_lost_and_it_says_why():
    scheduler = pool()
    scheduler.submit(jobs(5))
    # The builder still works on one.
    commands = scheduler.lost("d0", "node died", returns=False)
    finished = [c.outcome for c in commands if isinstance(c, Finish)]
    finished += [c.outcome for c in scheduler.built("b0", 0, "artifact")]
    assert sorted(o.job_id for o in finished) == list(range(5))
    assert {o.status for o in finished} == {Status.DEVICE_LOST}
    assert "no device is left" in finished[0].message and "node died" in finished[0].message
    (late,) = scheduler.submit([replace(jobs(1)[0], id=9)])
    assert late.outcome.status is Status.DEVICE_LOST
    assert scheduler.unfinished == 0


def test_without_builders_devices_that_cannot_build_get_nothing():
    scheduler = pool(can_build=False)
    scheduler.lost("b0", "node died", returns=False)
    (finish,) = scheduler.submit(jobs(1))
    assert "no builder is left" in finish.outcome.message


def test_a_held_device_gets_nothing_until_it_is_released():
    scheduler = pool(builders=0)
    scheduler.hold("d0")
    assert scheduler.submit(jobs(1)) == []
    assert scheduler.release("d0") == [BuildAndMeasure("d0", jobs(1)[0])]


def test_an_answer_nobody_asked_for_is_a_programming_error():
    with pytest.raises(ValueError, match="job 3"):
        pool().built("b0", 3, "artifact")


@given(
    count=st.integers(0, 30),
    builders=st.integers(0, 4),
    devices=st.integers(1, 4),
    device_builds=st.booleans(),
    times=st.lists(st.integers(0, 5), min_size=1, max_size=7),
    losses=st.lists(
        st.tuples(
            st.sampled_from(["builder", "device"]),
            st.integers(0, 3),
            st.integers(0, 30),
            st.one_of(st.none(), st.integers(0, 10)),
        ),
        max_size=12,
    ),
)
@settings(max_examples=150, deadline=None)
def test_no_job_is_lost_or_done_twice_whatever_goes_away(
    count, builders, devices, device_builds, times, losses
):
    timeline = simulate(
        jobs(count),
        builders=builders,
        devices=devices,
        build_s=lambda job: times[job.id % len(times)],
        run_s=lambda job: times[job.id // 2 % len(times)],
        device_builds=device_builds,
        losses=[
            Loss(f"{kind}:{index}", at, back)
            for kind, index, at, back in losses
            if index < (builders if kind == "builder" else devices)
        ],
    )
    assert sorted(o.job_id for o in timeline.outcomes) == list(range(count))
    if not losses and (builders or device_builds):
        assert all(o.status is Status.OK for o in timeline.outcomes)
        assert timeline.most_waiting <= 4 * devices


def test_runs_have_equally_many_jobs_under_way():
    scheduler = pool(builders=0, devices=4)
    mine, theirs = jobs(10)[:6], jobs(10)[6:]
    begun = scheduler.submit(mine, "mine")
    assert [command.job.id for command in begun] == [0, 1, 2, 3]
    assert scheduler.submit(theirs, "theirs") == []
    order = []
    for done in range(6):
        finish, begin = scheduler.measured(
            next(c.device for c in begun if c.job.id == done), outcome(done)
        )
        begun.append(begin)
        order.append(begin.job.id)
    # The second run catches up before the first has another turn.
    assert order == [6, 7, 4, 5, 8, 9]


def test_a_run_withdraws_its_own_jobs_alone():
    scheduler = pool(builders=1, devices=1, can_build=False)
    scheduler.submit(jobs(3), "mine")
    scheduler.submit(jobs(6)[3:], "theirs")
    assert sorted(scheduler.withdraw("mine")) == [1, 2]
    assert scheduler.waiting == {"pending": 3, "building": 1, "ready": 0}
    commands = scheduler.built("b0", 0, "artifact")
    assert commands[0] == Measure("d0", jobs(1)[0], "artifact")
    assert commands[1] == Build("b0", jobs(6)[3])
    assert scheduler.withdraw("mine") == []
    assert scheduler.unfinished == 4


def test_a_thousand_devices_cost_no_more_an_event_than_ten():
    """Who is free is kept, not looked for: operations are counted, for no test may time them."""
    import sys

    def calls(devices):
        count = 0

        def profile(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call")

        scheduler = pool(builders=4, devices=devices)
        scheduler.submit(jobs(3000))
        sys.setprofile(profile)
        try:
            for _ in range(50):
                device = next(name for name, p in scheduler._devices.items() if p.queue)
                scheduler.measured(device, outcome(scheduler._devices[device].queue[0].job.id))
        finally:
            sys.setprofile(None)
        return count

    assert calls(1000) < 1.5 * calls(10)
