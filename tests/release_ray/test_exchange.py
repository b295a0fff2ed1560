"""Records to MetaSchedule's database and back, and the best ones into a network."""

import json
import shutil

import numpy as np
import pytest
from made_records import a_record
from operators import two_layers
from tvm import relax
from tvm.s_tir.meta_schedule.database import JSONDatabase

from release_ray import database, targets, tasks
from release_ray.core.errors import InputError, WorkFailed
from release_ray.core.statuses import Purpose, Status
from release_ray.database import RECORDS, WORKLOADS
from release_ray.deploy import choose_winners
from release_ray.exchange import export_database, import_database
from release_ray.measure.process import Raised
from release_ray.networks.pipeline import prepare_graph
from release_ray.rebuild import best_entries
from release_ray.records import FINALISTS, Records
from release_ray.sketches import Sketches
from release_ray.workdir import Identity, WorkDir

FASTEST = 1e-6


@pytest.fixture(scope="module")
def target():
    return targets.resolve("native", 1)


@pytest.fixture(scope="module")
def module(target):
    return prepare_graph(two_layers(), target)


@pytest.fixture(scope="module")
def network_tasks(module, target):
    return tasks.extract(module, target)


@pytest.fixture(scope="module")
def configurations(network_tasks):
    """(task, sketch, decisions, trace) of four distinct configurations of each task."""
    rng = np.random.default_rng(0)
    found = []
    for task in network_tasks:
        sketches = Sketches(task)
        distinct = {}
        while len(distinct) < 4:
            (point,) = sketches.space.random(rng, 1)
            applied = sketches.apply(point)
            if applied.point is not None:
                distinct[applied.point.tobytes()] = applied
        found += [
            (task, int(a.point[0]), sketches.decisions(a.point), a.trace_json)
            for a in distinct.values()
        ]
    return found


def record(task, sketch, decisions, run_id, latency_s=1e-3, status=Status.OK, **more):
    fields = {
        "task": task.name,
        "workload": task.workload.key,
        "target": task.workload.target_json,
        "sketch": sketch,
        "decisions": decisions,
        "status": status,
        "latency_s": latency_s if status is Status.OK else None,
        "build_s": 0.0,
        "run_s": 0.0,
        "policy": "random",
        "sampler": "greedy",
    }
    return a_record(run_id, **{**fields, **more})


def make_work_dir(path, network_tasks, rows=lambda run_id: []):
    with WorkDir.locked(path, Identity("net", "f" * 40, "{}")) as workdir:
        workdir.tasks.write_text(tasks.dump_tasks(network_tasks))
        with Records.open(workdir.records) as records:
            records.extend(rows(records.begin_run("tune", "{}")))
    return path


@pytest.fixture
def tuned(tmp_path, network_tasks, configurations):
    """A work dir in which each task's configurations took 1, 2, 3 and 4 microseconds."""

    def rows(run_id):
        return [
            record(task, sketch, decisions, run_id, (1 + index % 4) * FASTEST)
            for index, (task, sketch, decisions, _) in enumerate(configurations)
        ]

    return make_work_dir(tmp_path / "tuned", network_tasks, rows)


def bests(path, network_tasks):
    with Records.open(path / "records.db", create=False) as records:
        history = records.history(simulated=False)
        return [
            [
                (r.sketch, r.decisions, r.latency_s)
                for r in history.best(task.workload.key, task.workload.target_json)
            ]
            for task in network_tasks
        ]


def test_out_accepted_by_stock_tvm_and_in_again(tuned, tmp_path, network_tasks, module, target):
    assert export_database(tuned, tmp_path / "out") == len(network_tasks) == 2
    with target, JSONDatabase(work_dir=str(tmp_path / "out")) as stock:
        applied = relax.transform.MetaScheduleApplyDatabase(enable_warning=True)(module)
        assert len(stock.get_all_tuning_records()) == 2
    scheduled = [
        f
        for _, f in applied.functions_items()
        if f.attrs is not None and f.attrs.get("tirx.is_scheduled")
    ]
    assert len(scheduled) == 2
    empty = make_work_dir(tmp_path / "empty", network_tasks)
    imported = import_database(empty, tmp_path / "out")
    assert (imported.count, imported.skipped) == (2, ())
    assert bests(empty, network_tasks) == bests(tuned, network_tasks)
    with Records.open(empty / "records.db", create=False) as records:
        rows = records.everything().all()
        trials = records.history(simulated=False).trials()
    assert {r.purpose for r in rows} == {Purpose.REUSED}
    assert sum(trials.values()) == 2


def test_what_has_been_measured_here_is_not_imported_again(tuned, tmp_path, network_tasks):
    export_database(tuned, tmp_path / "out")
    empty = make_work_dir(tmp_path / "empty", network_tasks)
    for path, counts in ((tuned, [0, 0]), (empty, [2, 0])):
        for count in counts:
            imported = import_database(path, tmp_path / "out")
            assert imported.count == count
            assert len(imported.skipped) == 2 - count
            assert all("measured here already" in line for line in imported.skipped)


def test_lines_that_are_of_no_use_are_named(tuned, tmp_path, network_tasks):
    out = tmp_path / "out"
    export_database(tuned, out)
    path = out / database.RECORDS
    first, second = path.read_text().splitlines()
    other_target = json.loads(second)
    other_target[1][2]["num-cores"] = 64
    changed_trace = json.loads(second)
    changed_trace[1][0][0] = changed_trace[1][0][0][:3]
    changed_trace[1][0][1] = []
    lines = [first[:100], json.dumps(other_target), json.dumps(changed_trace), second]
    path.write_text("\n".join(lines) + "\n")
    empty = make_work_dir(tmp_path / "empty", network_tasks)
    imported = import_database(empty, out)
    assert imported.count == 1
    torn, elsewhere, unknown = imported.skipped
    assert torn.startswith(f"{database.RECORDS}:1: ")
    assert elsewhere.startswith("record 1: it is of the target") and '"num-cores":64' in elsewhere
    assert unknown == "record 2: no sketch of the task has such a trace"


def test_an_operator_of_another_network_is_named(tuned, tmp_path, network_tasks):
    export_database(tuned, tmp_path / "out")
    half = make_work_dir(tmp_path / "half", network_tasks[:1])
    imported = import_database(half, tmp_path / "out")
    assert imported.count == 1
    assert imported.skipped == ("record 2: it is of an operator that this network does not have",)


def test_no_database_and_no_work_dir(tuned, tmp_path):
    with pytest.raises(InputError, match="database_workload.json"):
        import_database(tuned, tmp_path)
    for function in (export_database, import_database):
        with pytest.raises(InputError, match="no work dir"):
            function(tmp_path / "nothing", tmp_path)


def test_a_work_dir_in_use_takes_no_imports(tuned, tmp_path):
    export_database(tuned, tmp_path / "out")
    with (
        WorkDir.locked(tuned, WorkDir.existing(tuned).identity),
        pytest.raises(InputError, match="in use by the run with pid"),
    ):
        import_database(tuned, tmp_path / "out")


def test_records_that_cannot_be_replayed_give_way_to_the_next(
    tmp_path, network_tasks, configurations, caplog
):
    """As after a change of TVM's version."""

    def rows(run_id):
        task, sketch, decisions, _ = configurations[0]
        return [
            record(task, 0, "[1,2]", run_id, 1e-9),
            record(task, 99, decisions, run_id, 1e-8),
            record(task, sketch, decisions, run_id, 1e-6),
        ]

    path = make_work_dir(tmp_path / "mixed", network_tasks, rows)
    # Whatever a quiet program in this process has set.
    caplog.set_level("WARNING")
    with Records.open(path / "records.db", create=False) as records:
        entries = best_entries(network_tasks, records)
    assert [(e.task.name, e.latency_s) for e in entries] == [(network_tasks[0].name, 1e-6)]
    assert caplog.text.count("cannot be replayed") == 2


class Judge:
    """A pool that has an opinion of each candidate's output: an error, or a failure."""

    def __init__(self, opinions):
        self.opinions = opinions
        self.checked = []

    def check(self, job):
        self.checked.append(job.decisions)
        opinion = self.opinions.get(job.decisions, 0.0)
        if isinstance(opinion, Exception):
            raise opinion
        return opinion


def winners(path, network_tasks, opinions):
    from search_fakes import settings

    from release_ray.accounting import Stopwatch
    from release_ray.journal import Journal
    from release_ray.planner import TaskPlanner
    from release_ray.tuner import TaskState

    judge = Judge(opinions)
    with Records.open(path / "records.db") as records:
        journal = Journal(records, settings(), simulated=False, fresh=False, watch=Stopwatch())
        states = [TaskState(TaskPlanner(t, settings(), None), 1, 1.0) for t in network_tasks]
        journal.restore(states)
        chosen = choose_winners(states, journal, judge)
        failures = journal.failures()
    return chosen, states, failures, judge


def test_the_fastest_right_candidate_of_each_task_wins(tuned, network_tasks, configurations):
    decisions = [c[2] for c in configurations]
    opinions = {
        decisions[0]: 0.5,
        decisions[1]: float("nan"),
        decisions[2]: Raised("it died"),
    }
    chosen, states, failures, judge = winners(tuned, network_tasks, opinions)
    assert [e.latency_s for e in chosen] == [4 * FASTEST, FASTEST]
    # What could not be checked is passed over, but nothing is said against its output.
    assert [s.best_s for s in states] == [3 * FASTEST, FASTEST]
    assert chosen[0].trace_json == configurations[3][3]
    assert failures == {Status.WRONG_RESULT: 2}
    assert judge.checked == decisions[:5]
    with Records.open(tuned / "records.db", create=False) as records:
        wrong = [r for r in records.everything().all() if r.status is Status.WRONG_RESULT]
    assert [r.latency_s for r in wrong] == [None] * 2
    assert wrong[0].message == "its output differs from the unscheduled operator's by 0.5"


def test_a_task_of_which_nothing_is_right_is_left_out(tuned, network_tasks, configurations):
    opinions = {decisions: 1.0 for _, _, decisions, _ in configurations[:4]}
    chosen, states, _, judge = winners(tuned, network_tasks, opinions)
    assert [e.task.name for e in chosen] == [network_tasks[1].name]
    assert states[0].best_s is None and states[0].curve == []
    assert len(judge.checked) <= FINALISTS + 1


def test_with_nothing_right_in_any_task_there_is_no_network(tuned, network_tasks, configurations):
    opinions = {decisions: 1.0 for _, _, decisions, _ in configurations}
    with pytest.raises(WorkFailed, match="no candidate of any task"):
        winners(tuned, network_tasks, opinions)


def test_a_file_where_the_database_is_to_go(tuned, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(InputError, match="out is not a folder: name another with -o"):
        export_database(tuned, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_nothing_measured_is_no_database(tmp_path, network_tasks):
    empty = make_work_dir(tmp_path / "empty", network_tasks)
    with pytest.raises(InputError, match="holds no real measurement of this network: tune it"):
        export_database(empty, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_database_that_holds_more_than_an_export_is_not_replaced(tuned, tmp_path, network_tasks):
    out = tmp_path / "out"
    assert export_database(tuned, out) == export_database(tuned, out) == 2
    files = [out / name for name in (WORKLOADS, RECORDS)]
    exported = [file.read_text() for file in files]
    lines = exported[1].splitlines(keepends=True)
    elsewhere = exported[1].replace('"num-cores":1', '"num-cores":2')
    assert elsewhere != exported[1]
    other = make_work_dir(tmp_path / "other", network_tasks[1:])
    import_database(other, out)
    for records, work_dir in (
        ("".join([*lines, lines[0]]), tuned),  # a candidate more of one operator
        (exported[1] + "torn", tuned),
        (exported[1], other),  # an operator more
        (elsewhere, tuned),
    ):
        files[1].write_text(records)
        with pytest.raises(InputError, match="was not exported from here: name another with -o"):
            export_database(work_dir, out)
        assert [file.read_text() for file in files] == [exported[0], records]
    files[0].unlink()
    with pytest.raises(InputError, match="was not exported from here"):
        export_database(tuned, out)


def test_a_moved_work_dir_still_exports(tuned, tmp_path):
    moved = tmp_path / "moved"
    shutil.move(tuned, moved)
    assert export_database(moved, tmp_path / "out") == 2
