"""The whole pipeline on the smallest built-in network: from its name to a checked library."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest
from program import trials

import release_ray
from release_ray import networks
from release_ray.core.errors import InputError, WorkFailed
from release_ray.events import Measured, RoundFinished, RoundPlanned, RunStarted, Stage
from release_ray.records import Records
from release_ray.result import Result

TRIALS = 24
LOAD = """
import sys
import numpy as np
import tvm
from tvm import relax

machine = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
(output,) = machine["main"](tvm.runtime.tensor(np.load(sys.argv[2])))
np.save(sys.argv[3], output.numpy())
assert not any(name.partition(".")[0] == "release_ray" for name in sys.modules)
"""


def rows(work_dir, columns="*"):
    with closing(sqlite3.connect(work_dir / "records.db")) as connection:
        return connection.execute(f"SELECT {columns} FROM records ORDER BY id").fetchall()


@pytest.fixture(scope="module")
def tuned(ray_local, tmp_path_factory):
    """The work dir of one call, its result, and the events of it."""
    work_dir = tmp_path_factory.mktemp("tiny") / "work"
    events = []
    result = release_ray.tune("tiny", work_dir=work_dir, trials=TRIALS, listener=events.append)
    return work_dir, result, events


def test_it_leaves_what_it_promises(tuned):
    work_dir, _, _ = tuned
    promised = """records.db result.json database_workload.json database_tuning_record.json
    model.so checkpoints logs"""
    assert {path.name for path in work_dir.iterdir()} >= set(promised.split())
    assert not [path for path in work_dir.iterdir() if "scratch" in path.name]
    assert list((work_dir / "logs").glob("events.out.tfevents.*"))
    models = [path.stem for path in (work_dir / "checkpoints" / "cost_model").glob("*.json")]
    assert set(models) <= {task.name for task in tuned[1].tasks} and models


def test_the_result_is_complete(tuned):
    work_dir, tuning, _ = tuned
    result = Result.read(work_dir / "result.json")
    assert result == tuning.result
    assert (result.network, result.status, result.seed) == ("tiny", "done", 0)
    assert result.trials == TRIALS == sum(task.trials for task in result.tasks)
    assert json.loads(result.target)["kind"] == "llvm"
    assert len(result.tasks) == 7
    for task in result.tasks:
        assert task.trials >= 1
        if task.best_latency_s is not None:
            assert task.status == "done"
            assert task.curve[-1][2] == task.best_latency_s
            assert task.best_gflops == pytest.approx(task.flops / task.best_latency_s / 1e9)
            assert 0 < task.curve[0][1] <= result.wall_s
    assert result.latency_ms.default >= result.latency_ms.tuned > 0
    assert result.max_rel_error <= 1e-4
    assert 0 < result.start_s < result.wall_s
    assert 0 <= result.device_idle_share <= 1
    assert min(result.cpu_s.build, result.cpu_s.run, result.cpu_s.other) > 0
    assert result.versions["apache-tvm"]
    failed = sum(result.failures.values())
    assert failed == sum(status not in ("ok", "slow") for (status,) in rows(work_dir, "status"))


def test_records_are_distinct_and_complete(tuned):
    work_dir, tuning, _ = tuned
    measured = trials(work_dir)
    assert len(measured) == len(set(measured)) == TRIALS
    canaries = 0
    for status, latency_s, device, policy, purpose, sketch in rows(
        work_dir, "status, latency_s, device, policy, purpose, sketch"
    ):
        assert (latency_s is not None) == (status == "ok")
        assert device == "" if status == "invalid" else device.startswith("cpu:")
        # Nobody proposes a canary, or the operator untuned among the finalists.
        unproposed = purpose == "canary" or (purpose, sketch) == ("remeasure", -1)
        assert policy in ([""] if unproposed else ["random", "genetic", "ppo"])
        canaries += purpose == "canary"
    assert 1 <= canaries <= len({device for (device,) in rows(work_dir, "device")}) * 2
    bests = dict(
        sqlite3.connect(work_dir / "records.db").execute(
            "SELECT task, min(latency_s) FROM records"
            " WHERE status = 'ok' AND purpose = 'trial' GROUP BY task"
        )
    )
    assert bests == {t.name: t.best_latency_s for t in tuning.tasks if t.best_latency_s}


def test_events_tell_the_story(tuned):
    _, tuning, events = tuned
    (started,) = (e for e in events if isinstance(e, RunStarted))
    assert started.network == "tiny" and len(started.tasks) == 7
    assert started.trials_planned == TRIALS
    assert sum(isinstance(e, Measured) for e in events) == TRIALS
    assert sum(e.candidates for e in events if isinstance(e, RoundPlanned)) == TRIALS
    assert any(isinstance(e, RoundFinished) for e in events)
    stages = [e.name for e in events if isinstance(e, Stage)]
    assert stages[0].startswith("loading tiny") and any("compiling" in s for s in stages)


def test_the_library_needs_only_tvm(tuned, tmp_path):
    work_dir, tuning, _ = tuned
    network = networks.load("tiny", seed=0)
    (image,) = network.example_inputs(5)
    np.save(tmp_path / "input.npy", image)
    subprocess.run(
        [sys.executable, "-c", LOAD, work_dir / "model.so", "input.npy", "output.npy"],
        check=True,
        cwd=tmp_path,
    )
    output = np.load(tmp_path / "output.npy")
    (expected,) = network.reference([image])
    assert np.abs(output - expected).max() <= 1e-4 * np.abs(expected).max()
    assert tuning.executable is not None


def test_going_on_with_a_budget_that_is_spent(tuned):
    work_dir, first, _ = tuned
    before = rows(work_dir)
    events = []
    again = release_ray.tune("tiny", work_dir=work_dir, trials=TRIALS, listener=events.append)
    assert rows(work_dir) == before
    assert not any(isinstance(e, Measured) for e in events)
    assert [(t.name, t.trials, t.best_latency_s) for t in again.tasks] == [
        (t.name, t.trials, t.best_latency_s) for t in first.tasks
    ]
    assert again.result.wall_s > first.result.wall_s
    assert again.result.start_s == first.result.start_s
    assert again.tuned_latency_ms > 0 and again.result.max_rel_error <= 1e-4


def test_another_network_or_target_is_refused(tuned):
    work_dir, _, _ = tuned
    with pytest.raises(InputError, match="belongs to the target"):
        release_ray.tune("tiny", work_dir=work_dir, target="llvm -mcpu=core2", devices="sim:1")


SIMULATED = "workload, sketch, decisions, status, latency_s, bound_s, round, policy"


def test_simulated_devices_give_the_same_run_twice(ray_local, tmp_path):
    settings = {
        "tasks": ["conv*"],
        "devices": "sim:2?crash=0.2&build_error=0.2&noise=0.02",
        "policy": "random",
        "seed": 3,
    }
    found = []
    for name in ("first", "second"):
        result = release_ray.tune("tiny", work_dir=tmp_path / name, trials_per_task=12, **settings)
        found.append(sorted(rows(tmp_path / name, SIMULATED), key=str))
        assert result.executable is None and result.tuned_latency_ms is None
        assert not (tmp_path / name / "database_workload.json").exists()
        assert {"crash", "build_error"} <= set(result.result.failures)
    assert found[0] == found[1]
    assert len([row for row in found[0] if row[3] != "invalid"]) == 36
    # A larger budget measures only the difference.
    before = rows(tmp_path / "first")
    more = release_ray.tune(
        "tiny", work_dir=tmp_path / "first", trials_per_task=16, **{**settings, "seed": 4}
    )
    measured = trials(tmp_path / "first")
    assert rows(tmp_path / "first")[: len(before)] == before
    assert len(measured) == len(set(measured)) == 48 == more.result.trials
    for task, earlier in zip(more.tasks, result.tasks, strict=True):
        if task.name.startswith("conv"):
            assert task.best_latency_s <= earlier.best_latency_s
        else:
            assert (task.trials, task.best_latency_s) == (0, None)


def test_simulated_and_real_records_never_mix(tuned, tmp_path):
    work_dir, _, _ = tuned
    before = len(trials(work_dir))
    simulated = release_ray.tune(
        "tiny", work_dir=work_dir, trials=7, devices="sim:1", policy="random"
    )
    assert simulated.result.trials == 7
    assert len(trials(work_dir)) == before + 7
    with Records.open(work_dir / "records.db") as records:
        assert sum(records.history(simulated=False).trials().values()) == before


def test_a_network_that_does_not_fit_into_memory_is_one_line(ray_local, tmp_path):
    from onnx import TensorProto, helper, save

    shape = [1 << 40]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "huge", ends[:1], ends[1:])
    save(helper.make_model(graph, ir_version=8), tmp_path / "huge.onnx")
    with pytest.raises(InputError, match="'.*huge.onnx' does not fit into memory"):
        release_ray.tune(tmp_path / "huge.onnx", work_dir=tmp_path / "work", devices="sim:1")


def test_a_damaged_checkpoint_is_one_line_and_nothing_is_lost(ray_local, tmp_path):
    work = tmp_path / "work"
    settings = {"tasks": ["conv2d_add_relu"], "devices": "sim:1", "work_dir": work}
    release_ray.tune("tiny", trials_per_task=8, **settings)
    for path in (work / "checkpoints-simulated" / "agent").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    with pytest.raises(
        InputError, match=r"checkpoints-simulated cannot be taken up \(.+\): delete it"
    ):
        release_ray.tune("tiny", trials_per_task=32, **settings)
    assert len(trials(work)) >= 8
    assert Result.read(work / "result.json").status == "failed"
    shutil.rmtree(work / "checkpoints-simulated")
    assert release_ray.tune("tiny", trials_per_task=32, **settings).result.trials == 32


def test_what_hardware_has_measured_is_no_opening_on_simulated_devices(ray_local, tmp_path):
    settings = {"tasks": ["conv2d_add_relu"], "policy": "genetic", "devices": "sim:1"}
    release_ray.tune("tiny", work_dir=tmp_path / "work", trials_per_task=24, **settings)
    policies = rows(tmp_path / "work", "round, policy")
    assert {policy for number, policy in policies if number == 0} == {"random"}
    assert {policy for _, policy in policies} == {"random", "genetic"}


def test_nothing_measurable_is_a_failure_that_says_why(ray_local, tmp_path):
    with pytest.raises(WorkFailed, match=r"nothing is called best: \d+x simulated build error"):
        release_ray.tune(
            "tiny",
            work_dir=tmp_path,
            trials_per_task=100,
            devices="sim:2?build_error=1",
            policy="random",
        )
    result = Result.read(tmp_path / "result.json")
    assert result.status == "failed"
    assert {task.best_latency_s for task in result.tasks} == {None}
    assert 48 <= result.failures["build_error"] < 200
