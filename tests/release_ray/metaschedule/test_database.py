"""MetaSchedule's database as this program keeps it."""

import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tvm
from operators import convolution, dense, task
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

from release_ray.core.errors import InputError
from release_ray.database import RECORDS, WORKLOADS, sole_writer
from release_ray.metaschedule import RayBuilder, RayRunner, ReleaseDatabase

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})
FAILED_S = 1e10


def commit(database, operator, *latencies_s):
    """Records of an operator that was marked, for TVM makes nothing of an empty schedule."""
    workload = database.commit_workload(operator.module)
    block = "conv" if operator.name == "convolution" else operator.name
    for latency_s in latencies_s:
        schedule = Schedule(operator.module)
        schedule.annotate(schedule.get_sblock(block), "mark", 1)
        record = TuningRecord(schedule.trace, workload, [latency_s], TARGET, None)
        database.commit_tuning_record(record)
    return workload


def copied(size):
    """An operator that copies so many numbers."""
    a = te.placeholder((size,), name="a")
    function = te.create_prim_func([a, te.compute(a.shape, lambda i: a[i], name="copy")])
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return SimpleNamespace(name="copy", module=module)


def latencies(records):
    return [float(record.run_secs[0]) for record in records]


@pytest.fixture
def conv():
    return task(convolution)


@pytest.fixture
def product():
    return task(dense)


def test_the_fastest_come_first_and_failures_never(tmp_path, conv, product):
    database = ReleaseDatabase(tmp_path)
    workload = commit(database, conv, 3e-3, FAILED_S, 1e-3, 2e-3)
    commit(database, product, 1e-4)
    assert latencies(database.get_top_k(workload, 2)) == [1e-3, 2e-3]
    assert latencies(database.get_top_k(workload, 9)) == [1e-3, 2e-3, 3e-3]
    assert len(database) == len(database.get_all_tuning_records()) == 5
    assert database.has_workload(conv.module)


def test_tvm_finds_the_best_and_nothing_where_nothing_is(tmp_path, conv, product):
    database = ReleaseDatabase(tmp_path)
    commit(database, conv, 2e-3, 1e-3)
    found = database.query_tuning_record(conv.module, TARGET, "main")
    assert latencies([found]) == [1e-3]
    assert "mark" in database.query_ir_module(conv.module, TARGET, "main").script()
    assert database.query_tuning_record(product.module, TARGET, "main") is None
    commit(database, product, FAILED_S)
    assert database.query_tuning_record(product.module, TARGET, "main") is None


def test_what_was_committed_is_there_again_for_stock_tvm_too(tmp_path, conv, product):
    first = ReleaseDatabase(tmp_path)
    commit(first, conv, 2e-3)
    commit(first, product, 1e-3)
    first.close()
    stock = JSONDatabase(str(tmp_path / WORKLOADS), str(tmp_path / RECORDS))
    assert sorted(latencies(stock.get_all_tuning_records())) == [1e-3, 2e-3]
    again = ReleaseDatabase(tmp_path)
    commit(again, conv, 1e-4)
    assert len(again) == 3
    assert len((tmp_path / WORKLOADS).read_text().splitlines()) == 2


@pytest.mark.parametrize("name", [RECORDS, WORKLOADS])
def test_a_torn_line_is_named_and_the_rest_goes_on(tmp_path, conv, product, name, caplog):
    first = ReleaseDatabase(tmp_path)
    commit(first, conv, 2e-3)
    commit(first, product, 1e-3)
    first.close()
    whole = (tmp_path / name).read_text()
    torn = whole[: len(whole) - 20]
    (tmp_path / name).write_text(torn)
    with caplog.at_level(logging.WARNING, "release_ray"):
        again = ReleaseDatabase(tmp_path)
    assert f"{name}:2" in caplog.text
    assert latencies(again.get_all_tuning_records()) == [2e-3]
    assert (tmp_path / f"{name}.damaged").read_text() == torn
    commit(again, product, 3e-3)
    again.close()
    stock = JSONDatabase(str(tmp_path / WORKLOADS), str(tmp_path / RECORDS))
    assert sorted(latencies(stock.get_all_tuning_records())) == [2e-3, 3e-3]


def test_two_cannot_write_into_one(tmp_path, conv):
    first = ReleaseDatabase(tmp_path)
    with pytest.raises(InputError, match="open elsewhere"):
        ReleaseDatabase(tmp_path)
    first.close()
    commit(ReleaseDatabase(tmp_path), conv, 1e-3)
    # It ended with the last name of it.
    with sole_writer(tmp_path), pytest.raises(InputError, match="open elsewhere"):
        ReleaseDatabase(tmp_path)


def test_what_is_repaired_twice_is_kept_twice(tmp_path, conv):
    for turn in (1, 2):
        database = ReleaseDatabase(tmp_path)
        commit(database, conv, turn * 1e-3)
        database.close()
        with (tmp_path / RECORDS).open("a") as file:
            file.write(f"torn {turn}")
    ReleaseDatabase(tmp_path).close()
    for turn, suffix in ((1, ".damaged"), (2, ".damaged.2")):
        kept = (tmp_path / f"{RECORDS}{suffix}").read_text()
        assert kept.endswith(f"torn {turn}") and len(kept.splitlines()) == turn + 1


def test_what_is_recorded_after_a_repair_is_of_its_own_operator(tmp_path, conv, product):
    operators = [copied(size) for size in (4, 5, 6)]
    first = ReleaseDatabase(tmp_path)
    for number, operator in enumerate(operators, 1):
        commit(first, operator, number * 1e-3)
    first.close()
    lines = (tmp_path / WORKLOADS).read_text().splitlines(keepends=True)
    lines[1] = lines[1][:40] + "\n"
    (tmp_path / WORKLOADS).write_text("".join(lines))
    again = ReleaseDatabase(tmp_path)
    commit(again, operators[1], 1e-6)
    commit(again, product, 1e-7)
    again.close()
    stock = JSONDatabase(str(tmp_path / WORKLOADS), str(tmp_path / RECORDS))
    for database in (ReleaseDatabase(tmp_path), stock):
        found = [
            latencies(database.get_top_k(database.commit_workload(one.module), 9))
            for one in (*operators, product)
        ]
        assert found == [[1e-3], [1e-6], [3e-3], [1e-7]]


@pytest.mark.parametrize("blank", ["\n", "   \n"])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("name", [RECORDS, WORKLOADS])
def test_blank_lines_are_taken_out_and_count_for_nothing(
    tmp_path, conv, product, name, place, blank
):
    first = ReleaseDatabase(tmp_path)
    commit(first, conv, 1e-3)
    commit(first, product, 2e-3)
    first.close()
    lines = (tmp_path / name).read_text().splitlines(keepends=True)
    lines.insert(place, blank)
    (tmp_path / name).write_text("".join(lines))
    again = ReleaseDatabase(tmp_path)
    commit(again, product, 3e-3)
    again.close()
    stock = JSONDatabase(str(tmp_path / WORKLOADS), str(tmp_path / RECORDS))
    for operator, expected in ((conv, [1e-3]), (product, [2e-3, 3e-3])):
        workload = stock.commit_workload(operator.module)
        assert latencies(stock.get_top_k(workload, 9)) == expected


@pytest.mark.parametrize(
    ("old", "new"), [("[0,", "[0.0,"), ("[0,", "[true,"), ("[0,", '["0",'), ("0.002", "NaN")]
)
def test_what_python_reads_and_tvm_does_not_is_a_bad_line(tmp_path, conv, old, new):
    first = ReleaseDatabase(tmp_path)
    commit(first, conv, 1e-3, 2e-3)
    first.close()
    good, bad = (tmp_path / RECORDS).read_text().splitlines(keepends=True)
    assert old in bad
    (tmp_path / RECORDS).write_text(good + bad.replace(old, new, 1))
    assert latencies(ReleaseDatabase(tmp_path).get_all_tuning_records()) == [1e-3]


def test_a_repair_for_which_there_is_no_room_changes_nothing(tmp_path, conv, monkeypatch):
    database = ReleaseDatabase(tmp_path)
    commit(database, conv, 1e-3)
    database.close()
    with (tmp_path / RECORDS).open("a") as file:
        file.write("torn")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        ReleaseDatabase(tmp_path)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert len(ReleaseDatabase(tmp_path)) == 1


def test_a_last_line_without_its_end_stays_a_line(tmp_path, conv):
    database = ReleaseDatabase(tmp_path)
    commit(database, conv, 1e-3)
    database.close()
    text = (tmp_path / RECORDS).read_text()
    (tmp_path / RECORDS).write_text(text.rstrip("\n"))
    again = ReleaseDatabase(tmp_path)
    commit(again, conv, 2e-3)
    again.close()
    assert latencies(ReleaseDatabase(tmp_path).get_all_tuning_records()) == [1e-3, 2e-3]


def test_records_whose_workloads_are_gone_are_not_given_up(tmp_path, conv):
    database = ReleaseDatabase(tmp_path)
    commit(database, conv, 1e-3)
    database.close()
    (tmp_path / WORKLOADS).rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=f"{WORKLOADS}, which says of what, is gone"):
        ReleaseDatabase(tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / WORKLOADS)
    assert len(ReleaseDatabase(tmp_path)) == 1


def test_a_file_in_its_place_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="not a folder"):
        ReleaseDatabase(tmp_path / "file")


def test_a_killed_program_leaves_what_it_had_committed(tmp_path):
    support = Path(sys.modules["operators"].__file__).parent
    program = f"""
import os, sys
sys.path[:0] = [{str(support)!r}, {str(Path(__file__).parent)!r}]
from test_database import ReleaseDatabase, commit, convolution, task
commit(ReleaseDatabase({str(tmp_path)!r}), task(convolution), 1e-3, 2e-3)
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    assert len(ReleaseDatabase(tmp_path)) == 2


def test_tuning_with_it_as_with_any_database(ray_local, tmp_path, product):
    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    logger.handlers.clear()
    logger.propagate = True
    database, builder, runner = ReleaseDatabase(tmp_path), RayBuilder(), RayRunner()
    found = ms.tune_tir(
        product.module,
        product.target,
        str(tmp_path / "logs"),
        8,
        num_trials_per_iter=8,
        database=database,
        builder=builder,
        runner=runner,
        strategy="replay-trace",
        cost_model="random",
        num_tuning_cores=1,
    )
    builder.close()
    runner.close()
    assert found.same_as(database)
    assert len(database) == 8
    assert database.query_schedule(product.module, product.target, "main") is not None
    lines = (tmp_path / RECORDS).read_text().splitlines()
    assert [json.loads(line)[0] for line in lines] == [0] * 8
