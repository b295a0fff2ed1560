"""What `--devices` means, locks on cores, and the simulated device."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from release_ray.core.errors import InputError
from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Status
from release_ray.measure import devices
from release_ray.measure.devices import cores as cores_module
from release_ray.measure.devices.cores import CoreLocks, free_cores
from release_ray.measure.devices.sim import SimWorker, simulated_latency_s
from release_ray.measure.hosts import Gpu, Host
from release_ray.measure.jobs import Artifact, Job, Workload


def host(cores, *gpus, name="a", processor="p", node=""):
    return Host(name, f"machine {name}", processor, tuple(range(cores)), 2**34, tuple(gpus), node)


def hosts(*counts):
    return [host(n, name=f"h{i}", node=f"n{i}") for i, n in enumerate(counts)]


H100, A100 = Gpu("NVIDIA H100", {"arch": "sm_90"}), Gpu("NVIDIA A100", {"arch": "sm_80"})
WORKLOAD = Workload("key", "conv", "{}", "{}", 1e9)
SETTINGS = MeasureSettings()


@pytest.mark.parametrize(
    ("text", "available", "expected"),
    [
        ("auto", 1, [(0,)]),
        ("auto", 2, [(1,)]),
        ("auto", 4, [(1, 2, 3)]),
        ("auto", 8, [(2, 3, 4, 5, 6, 7)]),
        ("cpu", 2, [(1,)]),
        ("cpu:2x1", 4, [(2,), (3,)]),
        ("cpu:1x4", 4, [(0, 1, 2, 3)]),
    ],
)
def test_cpu_devices_take_cores_from_the_end(text, available, expected):
    specs = devices.expand(text, [host(available)])
    assert [spec.cores for spec in specs] == expected
    assert [spec.name for spec in specs] == [f"cpu:{i}" for i in range(len(expected))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu:3x1", "asks for 3 cores and this process may use 2"),
        ("cpu:4", "cpu:COUNTxCORES"),
        ("cpu:0x1", "cpu:COUNTxCORES"),
        ("cuda", "no GPU here.*--address"),
        ("sim:1?gpus=1", "room for 0"),
        ("rpc://host/key", "write rpc://host:port/key"),
        ("rpc://127.0.0.1:1/key", "no RPC tracker answers at 127.0.0.1:1.*rpc_tracker"),
        ("cppu", "did you mean cpu"),
        ("sim:x", "sim:COUNT"),
        ("sim:2?speed=3", "no option 'speed'"),
        ("sim:2?run_s=fast", "not a number"),
        ("sim:1?gpus=inf", "not from 0 to 64"),
        ("sim:1?gpus=0.5", "not a whole number"),
        ("sim:1?gflops=1e308", "not from 0.001 to 1e"),
        ("sim:1?breaks_after=2.5", "not a whole number"),
        ("auto:4x2", "auto takes no options: write cpu:4x2"),
        ("cuad:A100", "did you mean cuda"),
        ("release_ray.measure.jobs:Job?2", "is no class derived from"),
    ],
)
def test_a_wrong_specification_is_one_line_with_the_remedy(text, message):
    with pytest.raises(InputError, match=message) as error:
        devices.expand(text, [host(2)])
    assert "\n" not in str(error.value)


def placed(text, there, **more):
    return [(spec.node, spec.cores or spec.gpus) for spec in devices.expand(text, there, **more)]


def test_a_cluster_has_a_cpu_device_a_machine_all_alike():
    assert placed("cpu", hosts(4, 8)) == [("n0", (1, 2, 3)), ("n1", (5, 6, 7))]
    other = host(4, name="b", processor="q", node="n2")
    assert placed("auto", [*hosts(4), other]) == [("n0", (1, 2, 3))]
    # A second node on the same machine has the same cores.
    again = replace(hosts(4)[0], node="n9")
    assert placed("cpu", [*hosts(4), again]) == [("n0", (1, 2, 3))]


def test_counted_cpu_devices_go_where_most_cores_are_left():
    assert placed("cpu:3x2", hosts(4, 6)) == [("n0", (2, 3)), ("n1", (2, 3)), ("n1", (4, 5))]
    with pytest.raises(InputError, match="may use 4, 6"):
        devices.expand("cpu:6x2", hosts(4, 6))


def test_every_gpu_of_one_model_is_a_device():
    there = [host(4, H100, H100, node="n0"), host(4, name="b", node="n1"), host(4, A100, node="n2")]
    specs = devices.expand("cuda:h100", there)
    assert [(spec.name, spec.node, spec.gpus) for spec in specs] == [
        ("cuda:0", "n0", 1),
        ("cuda:1", "n0", 1),
    ]
    assert (specs[0].model, specs[0].target) == ("NVIDIA H100", {"arch": "sm_90"})
    assert placed("auto", there[2:], target="cuda") == [("n2", 1)]
    with pytest.raises(InputError, match="do not mix: 1 x NVIDIA A100, 2 x NVIDIA H100; .*MODEL"):
        devices.expand("cuda", there)
    with pytest.raises(InputError, match="no GPU is a v100; there are 1 x NVIDIA A100, 2 x"):
        devices.expand("cuda:v100", there)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("cuda", True),
        ("cuda -arch=sm_90", True),
        ("nvidia/nvidia-h100", True),
        ('{"kind": "cuda"}', True),
        ('{"tag": "nvidia/rtx4090"}', True),
        ("native", False),
        ("llvm -mcpu=skylake", False),
        ('{"kind": "llvm"', False),
    ],
)
def test_what_auto_means_follows_from_the_target(target, expected):
    assert devices.is_cuda(target) == expected


def test_simulated_devices_are_spread_and_take_gpus_where_they_are_to():
    assert placed("sim:3", hosts(2, 2)) == [("n0", 0), ("n1", 0), ("n0", 0)]
    there = [host(2, node="n0"), host(2, *[H100] * 4, node="n1")]
    assert placed("sim:2?gpus=2", there) == [("n1", 2), ("n1", 2)]
    assert placed("sim:?gpus=1", there) == [("n1", 1)] * 4
    assert placed("sim", there) == [("n0", 0), ("n1", 0)]


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("cpu", "native", "cpu"),
        ("cpu:1x1", "native", ""),
        ("auto", "cuda", "cuda:NVIDIA H100"),
        ("cuda:h", "cuda", "cuda:NVIDIA H100"),
        ("sim:1?gpus=1", "native", ""),
        ("sim:?gpus=1", "native", "sim:?gpus=1"),
    ],
)
def test_what_finds_more_of_them_on_nodes_that_join_later(text, target, expected):
    there = [host(2, H100)]
    specs = devices.expand(text, there, target=target)
    assert devices.grows(specs, text, target=target) == expected


def test_the_rest_of_the_cores_is_for_everything_else():
    assert free_cores(devices.expand("cpu:2x1", [host(4)]), range(4)) == (0, 1)
    assert free_cores(devices.expand("cpu:1x2", [host(2)]), range(2)) == (0, 1)


def test_a_core_is_one_processs_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(cores_module, "GRACE_S", 0.0)
    program = (
        "import sys, pathlib; from release_ray.measure.devices.cores import CoreLocks\n"
        "locks = CoreLocks([3], pathlib.Path(sys.argv[1])); print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(InputError, match=rf"core 3 .*pid {holder.pid}"):
            CoreLocks([2, 3], tmp_path)
        CoreLocks([2], tmp_path).release()  # the failure let go of what it had
        holder.kill()
    locks = CoreLocks([3], tmp_path)
    assert (tmp_path / "core-3.lock").read_text() == str(os.getpid())
    locks.release()


def job(decisions="[[1,2,4],3]", best_s=None, key="key"):
    workload = Workload(key, "conv", "{}", "{}", 1e9)
    return Job(0, workload, "[]", decisions, best_s)


def worker(query=""):
    (spec,) = devices.expand(f"sim:1{query}")
    return SimWorker(spec)


def measure(query="", **of_job):
    return worker(query).measure(job(**of_job), Artifact("sim", b"", ()))


def test_the_simulated_latency_is_the_same_each_time_and_never_beats_the_peak():
    one = measure("?noise=0.05")
    assert one == measure("?noise=0.05")
    assert one.status is Status.OK
    assert measure().latency_s >= 1e9 / 100e9
    assert measure(decisions="[[8,1,1],3]").latency_s != measure().latency_s
    assert measure(key="other").latency_s != measure().latency_s


def test_the_simulated_latency_is_smooth_in_the_decisions():
    near = simulated_latency_s(WORKLOAD, "[[4,2,8,2],64]", 100)
    moved = simulated_latency_s(WORKLOAD, "[[2,4,8,2],64]", 100)
    assert abs(near - moved) < 0.7 * near


def test_a_simulated_slow_one_has_a_bound_and_no_latency():
    latency_s = measure().latency_s
    slow = measure(best_s=latency_s / 4)
    assert (slow.status, slow.latency_s, slow.bound_s) == (Status.SLOW, None, latency_s)


def test_simulated_failures_come_as_often_as_asked():
    sim = worker("?crash=0.2&build_error=0.1")
    outcomes = [sim.build_and_measure(job(f"[[{i}]]")).status for i in range(1, 1001)]
    assert 60 < outcomes.count(Status.BUILD_ERROR) < 140
    assert 130 < outcomes.count(Status.CRASH) < 230


def test_a_simulated_device_runs_no_programs():
    with pytest.raises(InputError, match="simulated"):
        worker().call("os:getpid", (), 1.0)


def test_a_kind_of_ones_own_by_module_and_class():
    (spec,) = devices.expand("release_ray.measure.devices.cpu:CpuKind?1x1", [host(2)])
    assert (spec.name, spec.cores) == ("cpu:0", (1,))
