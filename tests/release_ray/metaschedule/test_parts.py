"""RayBuilder, RayRunner and ReleaseSearch in MetaSchedule's own loop, each alone and together."""

import logging
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import ray
import tvm
from operators import convolution, dense, task, two_layers
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import TensorInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.builder.local_builder import default_build, default_export
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerInput, RunnerResult

from release_ray.core.errors import InputError
from release_ray.metaschedule import RayBuilder, RayRunner, ReleaseSearch
from release_ray.networks.pipeline import prepare_graph
from release_ray.sketches import Sketches, plain

TRIALS = 24


@pytest.fixture(autouse=True)
def first_tuning_of_the_process():
    """TVM keeps its logger to itself, whereupon pytest joins it, which the next tuning dislikes."""
    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    logger.handlers.clear()
    logger.propagate = True


@pytest.fixture(scope="module")
def operator():
    return task(dense)


@pytest.fixture(scope="module")
def builder(ray_local):
    made = RayBuilder()
    yield made
    made.close()


@pytest.fixture(scope="module")
def runner(ray_local):
    made = RayRunner()
    yield made
    made.close()


def arguments(operator):
    return ms.arg_info.ArgInfo.from_entry_func(operator.module, remove_preproc=True)


def result(operator, library):
    """The product by a library of the operator, and by numpy."""
    a, b = (
        np.random.default_rng(i).random(s, np.float32) for i, s in enumerate(((4, 16), (16, 8)))
    )
    c = tvm.runtime.tensor(np.zeros((4, 8), np.float32))
    library["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
    return c.numpy(), a @ b


def test_what_is_built_is_a_library_in_a_folder_of_its_own(builder, operator):
    built = builder.build([BuilderInput(operator.module, operator.target)] * 3)
    paths = [Path(one.artifact_path) for one in built]
    assert len({path.parent for path in paths}) == 3
    got, expected = result(operator, tvm.runtime.load_module(str(paths[0])))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_what_cannot_be_built_costs_only_itself(builder, operator):
    foreign = tvm.target.Target({"kind": "llvm", "mtriple": "nonsense-unknown"})
    good, bad, also_good = builder.build(
        [BuilderInput(operator.module, t) for t in (operator.target, foreign, operator.target)]
    )
    assert bad.artifact_path is None and bad.error_msg.startswith("RayBuilder: build_error: ")
    assert good.artifact_path and also_good.artifact_path


@pytest.mark.parametrize(
    "settings", [{"builders": 0}, {"builders": -1}, {"builders": "x"}, {"timeout_sec": 0}]
)
def test_a_builder_that_would_build_nothing_is_refused(settings):
    with pytest.raises(InputError, match=f"RayBuilder: {next(iter(settings))}="):
        RayBuilder(**settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"devices": "sim:2"}, "sim:2 are simulated"),
        ({"address": "10.9.9.9:6379"}, "cannot be 10.9.9.9:6379 too"),
    ],
)
def test_what_no_part_can_work_with(builder, operator, settings, says):
    given = BuilderInput(operator.module, operator.target)
    builder.build([given])
    with pytest.raises(InputError, match=says):
        RayBuilder(**settings)._start("x86")
    with pytest.raises(InputError, match=says):
        RayRunner(**settings)._start("x86")


def test_a_lost_builder_costs_no_candidate(ray_local, operator):
    mine = RayBuilder(builders=2)
    given = [BuilderInput(operator.module, operator.target)]
    mine.build(given)
    ray.kill(mine._actors[0])
    assert [one.error_msg for one in mine.build(given * 4)] == [None] * 4
    # The next build has as many as before.
    mine.build(given)
    for actor in mine._actors:
        ray.kill(actor)
    built = mine.build(given * 4)
    assert [one.error_msg.partition(":")[0] for one in built] == ["RayBuilder"] * 4
    assert mine.build(given)[0].artifact_path
    mine.close()


def test_a_runner_times_what_our_builder_and_the_stock_one_leave(
    builder, runner, operator, tmp_path
):
    ours = builder.build([BuilderInput(operator.module, operator.target)])[0].artifact_path
    stock = default_export(default_build(operator.module, operator.target, None))
    damaged = tmp_path / "kernel.so"
    damaged.write_bytes(b"no library")
    futures = runner.run(
        [RunnerInput(str(p), "llvm", arguments(operator)) for p in (ours, damaged, stock)]
    )
    first, failed, last = (future.result() for future in futures)
    assert all(future.done() for future in futures)
    for timed in (first, last):
        assert timed.error_msg is None and 0 < timed.run_secs[0] < 1e-3
    assert failed.run_secs is None and failed.error_msg.startswith("RayRunner: run_error: ")


def test_this_process_leaves_the_devices_cores_while_something_is_measured(
    builder, runner, operator
):
    ours = builder.build([BuilderInput(operator.module, operator.target)])[0].artifact_path
    kernel = RunnerInput(ours, "llvm", arguments(operator))
    every = os.sched_getaffinity(0)
    for _ in range(2):
        futures = runner.run([kernel] * 3)
        assert os.sched_getaffinity(0) < every
        assert all(future.result().run_secs for future in futures)
        assert os.sched_getaffinity(0) == every


def test_who_waits_for_a_runner_that_is_closed_is_told(builder, operator):
    ours = builder.build([BuilderInput(operator.module, operator.target)])[0].artifact_path
    closed = RayRunner()
    futures = closed.run([RunnerInput(ours, "llvm", arguments(operator))] * 40)
    closed.close()
    # TVM makes it an error of its own.
    with pytest.raises(RuntimeError, match="RayRunner was closed"):
        futures[-1].result()


def test_arguments_are_those_that_metaschedule_names(builder, runner, operator):
    """With others than the kernel's its check of shapes fails."""
    ours = builder.build([BuilderInput(operator.module, operator.target)])[0].artifact_path
    wrong = [TensorInfo("float32", (2, 2))] * 3
    (future,) = runner.run([RunnerInput(ours, "llvm", wrong)])
    assert future.result().run_secs is None


def context(operator, strategy):
    return ms.TuneContext(
        mod=operator.module,
        target=operator.target,
        space_generator="post-order-apply",
        search_strategy=strategy,
        task_name="conv",
        num_threads=1,
        rand_state=1,
    )


def test_the_search_proposes_learns_and_ends(ray_local):
    operator = task(convolution)
    strategy = ReleaseSearch(policy="genetic", seed=1)
    tuned = context(operator, strategy)
    tuned.pre_tuning(40, num_trials_per_iter=64)
    sketches, seen, rounds = Sketches(operator), [], []
    while (candidates := tuned.generate_measure_candidates()) is not None:
        rounds.append(len(candidates))
        for candidate in candidates:
            seen.append(sketches.recognise(plain(candidate.sch.trace.as_json())))
        results = [
            RunnerResult(None, "crashed") if i % 4 == 0 else RunnerResult([1e-3 / (i + 1)], None)
            for i in range(len(candidates))
        ]
        tuned.notify_runner_results(candidates, results)
    tuned.post_tuning()
    assert sum(rounds) == 40 == len(set(seen))
    assert max(rounds) <= 16 and len(rounds) >= 3


def test_a_wrong_setting_of_the_search_is_named():
    with pytest.raises(InputError, match="did you mean 'genetic'"):
        ReleaseSearch(policy="genetik")
    with pytest.raises(InputError, match=r"agent\.lr"):
        ReleaseSearch(agent={"lr": -1})


@pytest.mark.long
def test_a_network_in_the_stock_loop(builder, runner, tmp_path):
    """Two tasks: what is measured of one while the other is searched comes to its own."""
    target = task(dense).target
    database = ms.relax_integration.tune_relax(
        prepare_graph(two_layers(), target, "auto"),
        {},
        target,
        str(tmp_path),
        max_trials_global=48,
        max_trials_per_task=24,
        builder=builder,
        runner=runner,
        strategy=ReleaseSearch(policy="genetic"),
        cost_model="random",
        seed=0,
    )
    by_workload = Counter(str(record.workload.mod) for record in database.get_all_tuning_records())
    assert sorted(by_workload.values()) == [24, 24]


def test_all_three_in_the_stock_loop(builder, runner, operator, tmp_path):
    strategy = ReleaseSearch(seed=0)
    database = ms.tune_tir(
        operator.module,
        operator.target,
        str(tmp_path),
        max_trials_global=TRIALS,
        builder=builder,
        runner=runner,
        strategy=strategy,
        cost_model="random",
        num_tuning_cores=1,
        seed=0,
    )
    strategy.close()
    records = database.get_all_tuning_records()
    assert len(records) == TRIALS
    assert len({str(record.trace) for record in records}) == TRIALS
    schedule = ms.tir_integration.compile_tir(database, operator.module, operator.target)
    assert isinstance(schedule, Schedule)
    got, expected = result(operator, tvm.compile(schedule.mod, operator.target).jit())
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    # MetaSchedule has removed the artifacts.
    assert not any("release_ray-" in name for name in os.listdir(tmp_path))


@pytest.mark.parametrize("recorded_for", ["its own", "another"])
def test_what_a_database_holds_of_a_task_is_known_to_the_search(ray_local, recorded_for):
    operator = task(convolution)
    target = operator.target
    if recorded_for == "another":
        target = tvm.target.Target({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2})
    first = context(operator, ReleaseSearch(policy="genetic", seed=1))
    first.pre_tuning(16, num_trials_per_iter=64)
    database = ms.database.MemoryDatabase()
    workload = database.commit_workload(operator.module)
    known = first.generate_measure_candidates()
    for number, candidate in enumerate(known):
        latency_s = 1e10 if number % 4 == 0 else 1e-3 / (1 + number)
        record = TuningRecord(candidate.sch.trace, workload, [latency_s], target, None)
        database.commit_tuning_record(record)

    strategy = ReleaseSearch(policy="genetic", seed=1)
    second = context(operator, strategy)
    second.pre_tuning(16, num_trials_per_iter=64, database=database)
    proposed = second.generate_measure_candidates()
    decided = [{str(one.sch.trace) for one in candidates} for candidates in (known, proposed)]
    assert len(known) == 16 and proposed
    planner = strategy._current._planner
    if recorded_for == "another":
        assert decided[0] == decided[1]
        assert planner.best_s is None
    else:
        assert not decided[0] & decided[1]
        assert planner.best_s == pytest.approx(1e-3 / 16)
