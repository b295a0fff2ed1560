"""What `result.json` says of a run while it goes on, in the end, and over several calls."""

import json
from types import SimpleNamespace

import pytest
from search_fakes import planner, settings

from release_ray.accounting import CpuMeter, Stopwatch
from release_ray.core.statuses import Status
from release_ray.deploy import Deployment
from release_ray.measure.pool_actor import DeviceStats
from release_ray.progress import Progress
from release_ray.result import CpuSeconds, Result
from release_ray.testing import synthetic
from release_ray.tuner import TaskState


class Watch(Stopwatch):
    """A stopwatch that tests set."""

    here = 0.0

    @property
    def here_s(self):
        return self.here


class Call:
    """One call's progress over two tasks, with everything it looks at in a test's hands."""

    def __init__(self, path, *, earlier_s=0.0, devices=2):
        self.path = path
        self.watch = Watch(earlier_s)
        self.states = [
            TaskState(planner(synthetic.bowl(), settings(), name=f"t{i}"), i + 1, 1e6)
            for i in range(2)
        ]
        self.busy = {f"d{i}": (0.0, 0.0) for i in range(devices)}
        self.build_cpu_s = self.run_cpu_s = self.search_cpu_s = 0.0
        self.failures, self.gone = {}, {}
        self.progress = Progress(
            path,
            network="net",
            target="{}",
            settings=settings(seed=3),
            states=self.states,
            devices=devices,
            pool=SimpleNamespace(stats=self.stats),
            journal=SimpleNamespace(failures=lambda: self.failures),
            watch=self.watch,
            meter=CpuMeter(),
            search_cpu_s=lambda: self.search_cpu_s,
        )

    def stats(self):
        return SimpleNamespace(
            devices={
                n: DeviceStats(True, 1, run, build, "here", "", 0)
                for n, (run, build) in self.busy.items()
            },
            build_cpu_s=self.build_cpu_s,
            run_cpu_s=self.run_cpu_s,
            gone=self.gone,
        )


@pytest.fixture
def call(tmp_path):
    return Call(tmp_path / "result.json")


def test_before_anything_is_measured(call):
    result = call.progress.write("running")
    assert result == Result.read(call.path)
    assert (result.trials, result.start_s, result.device_idle_share) == (0, None, None)
    assert [t.status for t in result.tasks] == ["waiting", "waiting"]
    assert result.tasks[0].best_latency_s is None and result.tasks[0].best_gflops is None
    assert result.latency_ms.default is None and result.max_rel_error is None
    assert result.versions["apache-tvm"]


def test_while_it_goes_on(call):
    call.watch.here = 8.0
    call.progress.began()
    call.progress.measured()
    call.watch.here = 9.0
    call.progress.measured()
    call.states[0].count(Status.OK, 2e-3, "", 9.0)
    call.states[0].count(Status.CRASH, None, "boom", 9.5)
    call.failures = {Status.CRASH: 1, Status.INVALID: 4}
    call.busy = {"d0": (5.0, 1.0), "d1": (3.0, 0.0)}
    call.watch.here = 18.0
    call.progress.update(tuning=True)
    result = call.progress.write("running")
    assert (result.status, result.seed, result.trials, result.wall_s) == ("running", 3, 2, 18.0)
    assert result.start_s == 8.0
    # Of twice 10 s since the devices were up, they were busy for 9 s.
    assert result.device_idle_share == pytest.approx(1 - 9 / 20)
    assert result.failures == {"crash": 1, "invalid": 4}
    task = result.tasks[0]
    assert (task.trials, task.best_latency_s, task.status) == (2, 2e-3, "running")
    assert task.best_gflops == pytest.approx(0.5)
    assert task.curve == ((1, 9.0, 2e-3),)
    assert result.tasks[1].status == "waiting"
    assert json.loads(call.path.read_text())["failures"] == {"crash": 1, "invalid": 4}


def test_devices_that_join_count_from_when_they_are_seen(call):
    call.progress.began()
    call.progress.measured()
    for here, busy in ((10.0, {"d0": (5.0, 0.0)}), (20.0, {"d0": (5.0, 0.0), "d1": (4.0, 0.0)})):
        call.watch.here, call.busy = here, {**busy, "d2": (1.0, 0.0)}
        call.progress.update(tuning=True)
    assert call.progress.devices == 3
    call.watch.here, call.busy = 30.0, {"d0": (20.0, 0.0), "d1": (10.0, 0.0), "d2": (5.0, 0.0)}
    call.progress.update(tuning=True)
    assert call.progress.write("running").device_idle_share == pytest.approx(1 - 35 / 70)


def test_the_end(call):
    call.progress.measured()
    call.states[0].count(Status.OK, 2e-3, "", 9.0)
    call.busy = {"d0": (5.0, 0.0), "d1": (5.0, 0.0)}
    call.watch.here = 10.0
    call.progress.update(tuning=True)
    call.watch.here = 30.0
    call.progress.update(tuning=False)
    result = call.progress.write("done", Deployment(4.0, 1.0, 2e-6))
    # What follows tuning is no idling of devices.
    assert result.device_idle_share == 0.5
    assert result.wall_s == 30.0
    assert (result.latency_ms.default, result.latency_ms.tuned) == (4.0, 1.0)
    assert result.max_rel_error == 2e-6
    # A task that this call was not to tune has not failed.
    assert [t.status for t in result.tasks] == ["done", "waiting"]


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_an_end_before_its_time(call, status):
    result = call.progress.write(status)
    assert result.status == status
    assert [t.status for t in result.tasks] == [status, status]


def test_what_an_earlier_call_left_stands_until_this_one_has_compared(tmp_path):
    path = tmp_path / "result.json"
    Call(path).progress.write("done", Deployment(4.0, 1.0, 2e-6))
    interrupted = Call(path).progress.write("interrupted")
    assert (interrupted.latency_ms.default, interrupted.latency_ms.tuned) == (4.0, 1.0)
    assert interrupted.max_rel_error == 2e-6


def test_the_model_is_never_slower_than_the_default(call):
    assert call.progress.write("done", Deployment(4.0, 5.0, 0.0)).latency_ms.tuned == 4.0


def test_devices_that_are_given_up_are_named(call):
    call.progress.update(tuning=True)
    assert call.progress.write("running").devices_lost == {}
    call.gone = {"d0": "its canary failed 3 times"}
    call.progress.update(tuning=True)
    assert call.progress.write("done").devices_lost == call.gone


def test_cpu_time_is_split(call):
    call.search_cpu_s, call.build_cpu_s, call.run_cpu_s = 1.0, 2.0, 3.0
    call.progress._meter = SimpleNamespace(update=lambda: None, total_s=10.0)
    call.progress.update(tuning=True)
    cpu = call.progress.write("running").cpu_s
    assert cpu == CpuSeconds(search=1, build=2, run=3, other=4)


def test_a_later_call_adds_to_the_earlier_one(tmp_path):
    path = tmp_path / "result.json"
    first = Call(path)
    first.watch.here = 5.0
    first.progress.began()
    first.progress.measured()
    first.progress._meter = SimpleNamespace(update=lambda: None, total_s=10.0)
    first.watch.here = 15.0
    first.busy["d0"] = (10.0, 0.0)
    first.progress.update(tuning=True)
    first.progress.write("done")
    second = Call(path, earlier_s=15.0)
    second.progress._meter = SimpleNamespace(update=lambda: None, total_s=4.0)
    second.watch.here = 3.0
    second.progress.update(tuning=True)
    result = second.progress.write("done")
    assert result.wall_s == 18.0
    assert result.start_s == 5.0
    assert result.device_idle_share == 0.5
    assert result.cpu_s.other == 14.0


def test_a_fresh_call_starts_from_nothing(tmp_path):
    path = tmp_path / "result.json"
    first = Call(path)
    first.progress.measured()
    first.progress._meter = SimpleNamespace(update=lambda: None, total_s=10.0)
    first.progress.update(tuning=True)
    first.progress.write("done")
    fresh = Call(path)
    assert fresh.progress.write("running").cpu_s == CpuSeconds()


def test_a_damaged_result_is_replaced(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("{torn")
    call = Call(path, earlier_s=5.0)
    assert call.progress.write("running").wall_s == 5.0
