"""The virtual clock: what it says about pools of some size."""

from release_ray.measure.jobs import Job, Workload
from release_ray.measure.virtual import simulate

WORKLOAD = Workload("key", "conv", "{}", "{}", 1e9)


def run(count, **pool):
    jobs = [Job(i, WORKLOAD, "[]", "[]", None) for i in range(count)]
    return simulate(jobs, build_s=lambda _: 0.4, run_s=lambda _: 0.25, **pool)


def test_the_same_arguments_give_the_same_timeline():
    assert run(50, builders=2, devices=3) == run(50, builders=2, devices=3)


def test_starving_devices_that_build_raise_the_throughput():
    with_it = run(96, builders=1, devices=1)
    without = run(96, builders=1, devices=1, device_builds=False)
    assert without.wall_s > 1.2 * with_it.wall_s


def test_enough_builders_keep_every_device_measuring():
    for devices in (1, 8, 64):
        timeline = run(40 * devices, builders=2 * devices, devices=devices)
        assert timeline.utilisation > 0.9


def test_jobs_come_out_in_order_from_a_single_device():
    timeline = run(20, builders=4, devices=1, device_builds=False)
    assert [o.job_id for o in timeline.outcomes] == list(range(20))
