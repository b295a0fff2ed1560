"""From random schedules through MetaSchedule's database to a library that gives right results."""

import json

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.database import JSONDatabase

from release_ray import benchmark, database, networks, targets, tasks, verify
from release_ray.compile import compile_network, export
from release_ray.core.errors import InputError
from release_ray.database import Entry
from release_ray.networks.pipeline import prepare_graph
from release_ray.sketches import Sketches


@pytest.fixture(scope="module")
def target():
    return targets.resolve("native", 1)


@pytest.fixture(scope="module")
def network():
    return networks.load("tiny", seed=0)


@pytest.fixture(scope="module")
def module(network, target):
    return prepare_graph(network.module, target)


@pytest.fixture(scope="module")
def entries(module, target):
    """A random legal schedule of each task."""
    rng = np.random.default_rng(0)
    found = []
    for task in tasks.extract(module, target):
        sketches = Sketches(task)
        applied = next(
            a for p in sketches.space.random(rng, 100) if (a := sketches.apply(p)).point is not None
        )
        found.append(Entry(task, applied.trace_json, 1e-3))
    return found


def test_tuned_and_default_give_the_reference(network, module, target, entries, tmp_path):
    default, tuned = tmp_path / "default.so", tmp_path / "tuned.so"
    export(compile_network(network.module, target), default)
    database.write_database(tmp_path, entries)
    executable = compile_network(module, target, database.open_database(tmp_path))
    export(executable, tuned)
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == sorted(
        ["default.so", "tuned.so", database.WORKLOADS, database.RECORDS]
    )
    # A Relax machine of stock TVM needs the inputs alone: the packed weights are in the library.
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(tuned)), tvm.cpu())
    inputs = network.example_inputs(3)
    (output,) = machine["main"](*[tvm.runtime.tensor(x) for x in inputs])
    reference = network.reference(inputs)
    assert verify.max_rel_error([output.numpy()], reference) < 1e-5
    compared = benchmark.compare(str(default), str(tuned), inputs, turns=3, min_turn_ms=1)
    assert verify.max_rel_error(compared.default_outputs, reference) < 1e-5
    assert verify.max_rel_error(compared.tuned_outputs, reference) < 1e-5
    assert compared.default_ms > 0 and compared.tuned_ms > 0


def test_stock_tvm_applies_every_record(module, target, entries, tmp_path):
    database.write_database(tmp_path, entries)
    with target, JSONDatabase(work_dir=str(tmp_path)) as stock:
        applied = relax.transform.MetaScheduleApplyDatabase(enable_warning=True)(module)
    assert len(stock.get_all_tuning_records()) == len(entries)
    functions = [f for _, f in applied.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    assert functions and all(f.attrs["tirx.is_scheduled"] for f in functions)


def test_a_network_without_records_compiles_untuned(network, module, target, tmp_path):
    database.write_database(tmp_path, [])
    assert compile_network(module, target, database.open_database(tmp_path)) is not None
    assert database.read_database(tmp_path).records == ()


def test_records_come_back(entries, tmp_path):
    database.write_database(tmp_path, [*entries, Entry(entries[1].task, entries[1].trace_json, 2)])
    foreign = database.read_database(tmp_path)
    assert not foreign.skipped
    assert [(r.key, r.latency_s) for r in foreign.records] == [
        *((e.task.workload.key, e.latency_s) for e in entries),
        (entries[1].task.workload.key, 2.0),
    ]
    assert [json.loads(r.trace_json) for r in foreign.records[:-1]] == [
        json.loads(e.trace_json) for e in entries
    ]
    assert {r.target_json for r in foreign.records} == {entries[0].task.workload.target_json}


def test_bad_lines_are_named_and_skipped_and_failures_left_out(entries, tmp_path, caplog):
    failed = Entry(entries[2].task, entries[2].trace_json, 1e10)
    database.write_database(tmp_path, [entries[0], entries[1], failed])
    records = tmp_path / database.RECORDS
    first, *rest = records.read_text().splitlines()
    torn = first[: len(first) // 2]
    lost = json.dumps([99, json.loads(first)[1]])
    records.write_text("\n".join([torn, *rest, "", "[]", lost, "\xff"]))
    foreign = database.read_database(tmp_path)
    assert [r.key for r in foreign.records] == [entries[1].task.workload.key]
    named = [message.split(": ")[0] for message in foreign.skipped]
    assert named == [f"{database.RECORDS}:{line}" for line in (1, 5, 6, 7)]
    assert all(message in caplog.text for message in foreign.skipped)


def test_a_bad_workload_takes_its_records_along(entries, tmp_path):
    database.write_database(tmp_path, entries[:2])
    workloads = tmp_path / database.WORKLOADS
    workloads.write_text("{}\n" + workloads.read_text().splitlines()[1])
    foreign = database.read_database(tmp_path)
    assert [r.key for r in foreign.records] == [entries[1].task.workload.key]
    assert [m.split(": ")[0] for m in foreign.skipped] == [
        f"{database.WORKLOADS}:1",
        f"{database.RECORDS}:1",
    ]


def test_a_database_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="database_workload.json"):
        database.read_database(tmp_path)


def test_gpu_operators_without_a_record_get_a_default_schedule(network):
    cuda = targets.resolve("cuda", 1)
    module = prepare_graph(network.module, cuda)
    with cuda:
        lowered = relax.get_default_pipeline(cuda)(module)
    operators = [f for _, f in lowered.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    assert operators and all("threadIdx.x" in f.script() for f in operators)
