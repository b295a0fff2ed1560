"""The pool over Ray: jobs in, outcomes out, whatever happens to candidates, actors and drivers."""

import json
import os
import signal
import time
from collections import Counter
from dataclasses import replace

import psutil
import pytest

from release_ray.core.errors import InputError, WorkFailed
from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Status
from release_ray.measure import devices
from release_ray.measure.jobs import Job, Workload
from release_ray.measure.pool import MeasurePool
from release_ray.measure.process import Dead, Raised, TimedOut

SIMULATED = Workload("key", "conv", "{}", "{}", 1e9)
SETTINGS = MeasureSettings(min_repeat_ms=2, build_timeout_s=30)


def simulated_jobs(count):
    return [Job(i, SIMULATED, "[]", f"[[{i + 1},2],3]", None) for i in range(count)]


def outcomes_of(pool, jobs, timeout_s=60.0):
    """The outcomes of jobs by id; waits until each has one."""
    pool.submit(jobs)
    outcomes = []
    deadline = time.monotonic() + timeout_s
    while len(outcomes) < len(jobs):
        assert time.monotonic() < deadline, f"only {len(outcomes)} of {len(jobs)} outcomes came"
        outcomes += pool.wait(1.0)
    assert len({o.job_id for o in outcomes}) == len(outcomes)
    return {o.job_id: o for o in outcomes}


def gone(pids, timeout_s=10.0):
    """Whether none of the processes is left within a while."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not any(
            psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE
            for p in pids
        ):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def cpu_pool(ray_local):
    pool = MeasurePool.start(devices.expand("cpu:1x1"), 1, SETTINGS)
    pool.ready()
    yield pool
    pool.shutdown()


@pytest.fixture
def sim_pool(ray_local):
    pool = MeasurePool.start(devices.expand("sim:2?build_s=0.005&run_s=0.01"), 1, SETTINGS)
    yield pool
    pool.shutdown()


def test_simulated_devices_share_the_work_and_give_the_same_results_twice(sim_pool):
    sim_pool.ready()
    first = outcomes_of(sim_pool, simulated_jobs(30))
    again = outcomes_of(sim_pool, [replace(j, id=100 + j.id) for j in simulated_jobs(30)])
    assert [again[100 + i].latency_s for i in range(30)] == [first[i].latency_s for i in range(30)]
    assert {o.device for o in first.values()} == {"sim:0", "sim:1"}
    stats = sim_pool.stats()
    assert stats.statuses == {Status.OK: 60}
    assert sum(device.jobs for device in stats.devices.values()) == 60
    assert stats.queues == {"pending": 0, "building": 0, "ready": 0}
    assert stats.overhead_cpu_s > 0


def test_a_wait_for_nothing_ends(sim_pool):
    assert sim_pool.wait(0.05) == []


def test_outcomes_of_an_interrupted_wait_come_again(sim_pool):
    sim_pool.ready()
    sim_pool.submit(simulated_jobs(1))
    # A call whose answer never reaches the driver:
    sim_pool._pool.next_outcomes.remote(sim_pool._run, 0, 5.0)
    assert [o.job_id for o in sim_pool.wait(10)] == [0]
    assert sim_pool.wait(0.05) == []


def test_a_killed_device_comes_back_and_no_job_is_lost(ray_local):
    pool = MeasurePool.start(devices.expand("sim:2?run_s=0.05"), 1, SETTINGS)
    pool.ready()
    pids = pool.stats().pids
    pool.submit(simulated_jobs(40))
    outcomes = pool.wait(10)
    os.kill(pids["sim:0"], signal.SIGKILL)
    os.kill(pids["builder:0"], signal.SIGKILL)
    while len(outcomes) < 40:
        got = pool.wait(20)
        assert got, "jobs were lost"
        outcomes += got
    assert sorted(o.job_id for o in outcomes) == list(range(40))
    assert {o.status for o in outcomes} == {Status.OK}
    pool.ready()
    stats = pool.stats()
    assert set(stats.losses) == {"sim:0", "builder:0"}
    assert stats.devices["sim:0"].up and stats.pids["sim:0"] != pids["sim:0"]
    pool.shutdown()


def test_a_broken_device_is_given_up_and_its_work_goes_on_elsewhere(ray_local):
    good, broken = devices.expand("sim:2?run_s=0.01")
    broken = replace(broken, options={**broken.options, "breaks_after": 5})
    pool = MeasurePool.start([good, broken], 1, SETTINGS)
    pool.ready()
    outcomes = outcomes_of(pool, simulated_jobs(60))
    assert {o.status for o in outcomes.values()} == {Status.OK}
    assert Counter(o.device for o in outcomes.values()) == {"sim:0": 55, "sim:1": 5}
    stats = pool.stats()
    assert not stats.devices["sim:1"].up
    assert stats.losses == {"sim:1": "its canary failed 3 times: killed by SIGSEGV (simulated)"}
    pool.shutdown()


def test_the_end_of_a_pool_is_nothing_that_ray_reports(ray_local, capfd):
    """Ray prints on every driver's stdout that a worker has gone by itself."""
    for _ in range(2):
        pool = MeasurePool.start(devices.expand("sim:1?gflops=7"), 0, SETTINGS)
        pool.ready()
        pids = pool.stats().pids.values()
        pool.shutdown()
        assert gone(pids)
    # A report would be there within a second.
    time.sleep(1.5)
    assert "worker died" not in capfd.readouterr().out


def test_when_the_last_device_is_gone_every_job_is_lost_and_says_why(ray_local):
    pool = MeasurePool.start(devices.expand("sim:1?run_s=0.01&breaks_after=3"), 1, SETTINGS)
    outcomes = outcomes_of(pool, simulated_jobs(10))
    assert Counter(o.status for o in outcomes.values()) == {Status.OK: 3, Status.DEVICE_LOST: 7}
    assert {o.message for o in outcomes.values() if o.status is not Status.OK} == {
        "no device is left; the last to go was sim:0: its canary failed 3 times: killed by SIGSEGV"
        " (simulated)"
    }
    pool.shutdown()


def test_runs_that_ask_for_the_same_devices_share_them_fairly(ray_local):
    wanted = devices.expand("sim:2?run_s=0.02")
    first, second = (MeasurePool.start(wanted, 1, SETTINGS) for _ in range(2))
    first.submit(simulated_jobs(60))
    second.submit(simulated_jobs(30))
    mine, theirs = [], []
    while len(theirs) < 30:
        theirs += second.wait(10)
    mine += first.wait(10)
    # The first has asked for twice as much and earlier, and is no further.
    assert 24 <= len(mine) <= 40
    assert second.stats().runs == 2
    assert second.stats().statuses == {Status.OK: 30}
    while len(mine) < 60:
        mine += first.wait(10)
    for run in (mine, theirs):
        assert sorted(o.job_id for o in run) == list(range(len(run)))
    pids = first.stats().pids.values()
    first.shutdown()
    assert second.stats().runs == 1
    outcomes_of(second, [replace(job, id=100 + job.id) for job in simulated_jobs(4)])
    second.shutdown()
    assert gone(pids)


def test_a_run_that_leaves_takes_its_jobs_along(ray_local):
    wanted = devices.expand("sim:1?run_s=0.05")
    first, second = (MeasurePool.start(wanted, 0, SETTINGS) for _ in range(2))
    first.submit(simulated_jobs(1000))
    second.submit(simulated_jobs(3))
    first.shutdown()
    outcomes = []
    while len(outcomes) < 3:
        outcomes += second.wait(10)
    assert sum(second.stats().queues.values()) == 0
    second.shutdown()


def test_devices_that_compile_for_something_else_are_refused(ray_local):
    wanted = devices.expand("sim:1?run_s=0.04")
    pool = MeasurePool.start(wanted, 0, SETTINGS)
    with pytest.raises(InputError, match="compiles for llvm, not cuda"):
        MeasurePool.start(wanted, 0, SETTINGS, "cuda")
    pool.shutdown()


def test_real_and_simulated_devices_do_not_mix(ray_local):
    mixed = [*devices.expand("cpu:1x1"), *devices.expand("sim:1")]
    with pytest.raises(InputError, match="do not mix"):
        MeasurePool.start(mixed, 1, SETTINGS)


def test_real_candidates_good_and_bad_have_their_statuses(cpu_pool, matmul):
    workload, traces = matmul
    # LLVM crashes on this one: a segmentation fault in native code.
    crashing = json.dumps({"kind": "llvm", "mtriple": "nonsense-none"})
    jobs = [Job(i, workload, trace, "[]", None) for i, trace in enumerate(traces)]
    jobs += [
        Job(10, workload, "[[],[]", "[]", None),
        Job(11, replace(workload, target_json='{"kind": "no_such_kind"}'), traces[0], "[]", None),
        Job(12, replace(workload, target_json=crashing), traces[0], "[]", None),
        Job(13, replace(workload, target_json=crashing), traces[1], "[]", None),
        Job(14, workload, traces[0], "[]", 1e-9),
        Job(15, workload, traces[0], "[]", None),
    ]
    outcomes = outcomes_of(cpu_pool, jobs)
    statuses = {i: o.status for i, o in outcomes.items()}
    assert all(statuses[i] is Status.OK for i in [*range(6), 15])
    assert [statuses[i] for i in range(10, 15)] == [
        Status.BUILD_ERROR,
        Status.BUILD_ERROR,
        Status.CRASH,
        Status.CRASH,
        Status.SLOW,
    ]
    assert "no_such_kind" in outcomes[11].message
    assert "SIGSEGV" in outcomes[12].message
    assert outcomes[14].bound_s > 0 and outcomes[14].latency_s is None
    good = outcomes[0]
    assert 0 < good.latency_s < 0.1 and good.device == "cpu:0" and good.host
    assert min(good.build_s, good.build_cpu_s, good.run_s, good.run_cpu_s) > 0


def test_a_device_can_be_had_alone(cpu_pool, matmul):
    assert cpu_pool.call_on_device("operator:add", (1, 2), 5) == 3
    with pytest.raises(Dead, match="SIGSEGV"):
        cpu_pool.call_on_device("signal:raise_signal", (int(signal.SIGSEGV),), 5)
    with pytest.raises(TimedOut):
        cpu_pool.call_on_device("time:sleep", (100,), 0.2)
    with pytest.raises(Raised, match="ZeroDivisionError"):
        cpu_pool.call_on_device("operator:floordiv", (1, 0), 5)
    workload, traces = matmul
    assert cpu_pool.check(Job(0, workload, traces[0], "[]", None)) < 1e-5
    assert cpu_pool.canary("cpu:0").gflops > 0.1


def test_a_core_in_use_is_refused_with_the_holder(cpu_pool):
    holder = cpu_pool.stats().pids["cpu:0"]
    # Not expanded anew: this process keeps off the cores of a pool that is up.
    second = MeasurePool.start([replace(cpu_pool.devices[0], name="cpu:9")], 0, SETTINGS)
    with pytest.raises(InputError, match=rf"pid {holder}\)"):
        second.ready()
    second.shutdown()


def test_a_shut_down_pool_leaves_no_process(ray_local):
    pool = MeasurePool.start(devices.expand("sim:2"), 1, SETTINGS)
    pool.ready()
    pids = pool.stats().pids.values()
    pool.shutdown()
    assert gone(pids)


def test_misuse_is_told_and_breaks_nothing(sim_pool):
    with pytest.raises(InputError, match=r"use expand\('cpu'\)"):
        MeasurePool.start("cpu", 0, SETTINGS)
    with pytest.raises(TypeError, match="cannot do that"):
        sim_pool.submit([42])
    with pytest.raises(InputError, match="sim:99 is none of the pool's: there are sim:0"):
        sim_pool.canary("sim:99")
    assert sim_pool.canary("sim:0").gflops > 0


def test_a_pool_that_was_shut_down_says_so(ray_local):
    pool = MeasurePool.start(devices.expand("sim:1?run_s=0.001"), 0, SETTINGS)
    pool.shutdown()
    with pytest.raises(WorkFailed, match="was shut down"):
        pool.submit([])
    with pytest.raises(WorkFailed, match="was shut down"):
        pool.wait(0.1)
