"""A sweep on simulated devices, by the real Ray Tune, from its file to its results."""

import csv
import json
import sqlite3
from contextlib import closing

import pytest
import yaml

from release_ray.core.errors import InputError
from release_ray.result import Result
from release_ray.sweep import load_sweep
from release_ray.sweep.baseline import Baselines
from release_ray.sweep.driver import run_sweep
from release_ray.sweep.ledger import Report
from release_ray.workdir import Identity, WorkDir

CONTENT = {
    "networks": ["tiny"],
    "devices": "sim:2",
    "budget": {"trials_per_task": 6},
    "space": {
        "policy": {"choice": ["random"]},
        "seed": {"grid": [1, 2, 1]},
        "sampler": {"choice": ["greedy"]},
    },
    "scheduler": {"asha": {"grace_rounds": 1}},
    "reuse": True,
    "max_concurrent": 1,
}


def spec(folder, **more):
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump({**CONTENT, "work_dir": str(folder / "work"), **more}))
    return load_sweep(file)


@pytest.fixture(scope="module")
def swept(ray_local, tmp_path_factory):
    """The folder, the outcome, and what a listener was told."""
    folder = tmp_path_factory.mktemp("sweep")
    told = []
    outcome = run_sweep(spec(folder), storage=str(folder / "copy"), listener=told.append)
    return folder, outcome, told


def trials(folder, run):
    with closing(sqlite3.connect(folder / "work" / "runs" / run / "records.db")) as connection:
        return connection.execute(
            "SELECT purpose, run_s, task, sketch, decisions FROM records"
            " WHERE status != 'invalid' AND purpose IN ('trial', 'reused')"
        ).fetchall()


def test_every_run_is_over_and_has_reported(swept):
    folder, outcome, _ = swept
    assert [row.run.name for row in outcome.rows] == ["tiny-00", "tiny-01", "tiny-02"]
    for row in outcome.rows:
        assert row.entry.status in ("done", "stopped")
        rounds = [report.round for report in row.entry.reports]
        assert rounds == sorted(set(rounds))
        last = row.entry.last
        assert last.trials == len(trials(folder, row.run.name)) > 0
        # Half of a tiny network's time is untuned operators' at first, and some is saved.
        assert last.speedup > 1 and last.latency_ms > 0 and last.wall_s > 0
    assert outcome.rows[0].entry.status == "done"


def test_the_speed_up_is_untuned_over_tuned(swept):
    folder, outcome, _ = swept
    untuned = json.loads((folder / "work" / "untuned.json").read_text())
    ((baseline),) = untuned.values()
    result = Result.read(folder / "work" / "runs" / "tiny-00" / "result.json")
    assert result.status == "done"
    tuned_s = sum(task.weight * task.best_latency_s for task in result.tasks)
    assert len(baseline["latency_s"]) == len(result.tasks)
    last = outcome.rows[0].entry.last
    assert last.latency_ms == pytest.approx(tuned_s * 1e3)
    assert last.speedup == pytest.approx(baseline["total_s"] / tuned_s)


def test_what_the_same_run_has_measured_is_reused(swept):
    folder, outcome, _ = swept
    first, again = (trials(folder, name) for name in ("tiny-00", "tiny-02"))
    assert {purpose for purpose, *_ in first} == {"trial"}
    assert {(purpose, run_s) for purpose, run_s, *_ in again} == {("reused", 0.0)}
    if outcome.rows[2].entry.status == "done":
        assert sorted(row[2:] for row in first) == sorted(row[2:] for row in again)


def test_tunes_own_files_are_there(swept):
    folder, outcome, _ = swept
    for row in outcome.rows:
        mine = folder / "work" / "tune" / row.run.name
        assert list(mine.glob("events.out.tfevents.*"))
        with (mine / "progress.csv").open() as file:
            reported = [float(line["speedup"]) for line in csv.DictReader(file)]
        assert reported[-1] == pytest.approx(row.entry.last.speedup)
        parameters = json.loads((mine / "params.json").read_text())
        assert parameters["run"] == row.run.name and parameters["seed"] == row.run.values["seed"]


def test_the_listener_hears_of_every_run(swept):
    _, outcome, told = swept
    ended = [t for t in told if not isinstance(t, str) and t.entry.status in ("done", "stopped")]
    assert {update.run.name for update in ended} == {row.run.name for row in outcome.rows}
    assert ended[-1].over == ended[-1].total == 3
    assert any(isinstance(line, str) and "untuned" in line for line in told)


def test_another_call_has_nothing_left_to_do(swept):
    folder, outcome, _ = swept
    files = [p for p in (folder / "work" / "runs").rglob("*") if p.is_file()]
    before = {path: path.stat().st_mtime_ns for path in files}
    told = []
    again = run_sweep(spec(folder), listener=told.append)
    assert again == outcome and told == []
    assert {path: path.stat().st_mtime_ns for path in files} == before


def test_the_copy_can_be_gone_on_with(swept, tmp_path):
    folder, outcome, _ = swept
    copy = folder / "copy"
    assert {path.name for path in copy.iterdir()} >= {"sweep.csv", "best.yaml", "sweep.json"}
    told = []
    elsewhere = run_sweep(
        spec(folder), work_dir=tmp_path / "else", storage=str(copy), listener=told.append
    )
    assert elsewhere.rows == outcome.rows and told == []
    assert (tmp_path / "else" / "runs" / "tiny-00" / "records.db").exists()


def test_a_run_that_fails_is_named_and_the_others_go_on(ray_local, tmp_path):
    # Every kernel crashes; and then a network that no run can make anything of.
    broken = spec(tmp_path, devices="sim:1?crash=1", space={"policy": {"grid": ["random"]}})
    with pytest.raises(Exception, match="cannot be measured untuned"):
        run_sweep(broken)
    globs = {"tasks": {"grid": [["conv*"], ["no such task"]]}}
    half = spec(tmp_path / "..", devices="sim:2", space=globs, policy="random")
    outcome = run_sweep(half, work_dir=tmp_path / "half")
    assert [row.entry.status for row in outcome.rows] == ["done", "failed"]
    assert outcome.rows[1].entry.message.startswith("no task matches no such task")
    assert outcome.best.setting == 0


def test_a_network_s_work_dir_is_no_sweep_s(tmp_path):
    with WorkDir.locked(tmp_path / "work", Identity("tiny", "0", "{}")) as owned:
        owned.records.touch()
    with pytest.raises(InputError, match="work dir of a network"):
        run_sweep(spec(tmp_path))


def test_a_sweep_s_folder_is_no_network_s(swept, tmp_path):
    folder, _, _ = swept
    with (
        pytest.raises(InputError, match="is the work dir of a sweep"),
        WorkDir.locked(folder / "work", Identity("tiny", "0", "{}")),
    ):
        pass


@pytest.mark.parametrize("place", ["work", "work/copy"])
def test_a_copy_in_the_work_dir_itself_is_refused(tmp_path, place):
    with pytest.raises(InputError, match="which it is to be a copy of"):
        run_sweep(spec(tmp_path), storage=str(tmp_path / place))
    assert not (tmp_path / "work" / "sweep.json").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"space": {"target": {"grid": ["native", "llvn"]}}}, "did you mean llvm?"),
        ({"devices": "sim:0"}, "sim:0"),
    ],
)
def test_what_can_be_known_at_once_is_told_before_anything_starts(tmp_path, more, message):
    told = []
    with pytest.raises(InputError, match=message):
        run_sweep(spec(tmp_path, **more), listener=told.append)
    assert told == []


@pytest.mark.parametrize(
    "content",
    ["{", "[1]", '{"a": {"latency_s": {}, "total_s": 1}}', '{"a": {"latency_s": {"b": 0}}}'],
)
def test_damaged_baselines_are_named(tmp_path, content):
    (tmp_path / "untuned.json").write_text(content)
    with pytest.raises(InputError, match=r"untuned\.json is damaged"):
        Baselines(tmp_path / "untuned.json")


def test_reports_are_plain_numbers():
    assert Report(**{"round": 1, "speedup": 2.0, "latency_ms": 1.0, "trials": 3, "wall_s": 1.0})
