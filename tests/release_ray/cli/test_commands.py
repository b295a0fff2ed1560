"""Commands that need no cluster: help, settings, and what they print where."""

import csv
import io
import json
from dataclasses import replace

import pytest
import yaml
from made_records import a_record

from release_ray import __version__, cli
from release_ray.core.errors import Interrupted, WorkFailed
from release_ray.core.settings import TuneSettings
from release_ray.core.statuses import Purpose, Status
from release_ray.records import COLUMNS, Records
from release_ray.result import Result
from release_ray.workdir import Identity, WorkDir

COMMANDS = [
    ["tune"],
    ["tasks"],
    ["devices"],
    ["compile"],
    ["bench"],
    ["report"],
    ["doctor"],
    ["records", "show"],
    ["records", "export"],
    ["records", "import"],
    ["records", "prune"],
]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def run(capfd, *arguments):
    """Exit status, stdout and stderr."""
    status = cli.run([str(a) for a in arguments])
    return (status, *capfd.readouterr())


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help(capfd, command, flag):
    status, out, err = run(capfd, *command, flag)
    assert (status, err) == (0, "")
    assert " ".join(["release-ray", *command]) in out
    assert "--help" in out


@pytest.mark.parametrize(
    "command", COMMANDS[:6] + [["report"], ["sweep"], ["doctor"]], ids=" ".join
)
def test_help_shows_how_it_is_used(capfd, command):
    _, out, _ = run(capfd, *command, "--help")
    assert "Examples" in out and f"release-ray {command[0]}" in out.partition("Examples")[2]


@pytest.mark.parametrize("group", [[], ["records"]], ids=["program", "records"])
def test_no_command_shows_the_help(capfd, group):
    status, out, err = run(capfd, *group)
    assert (status, err) == (2, "")
    _, helped, _ = run(capfd, *group, "--help")
    assert out.split() == helped.split()
    if not group:
        assert all(command[0] in out for command in COMMANDS)


def test_help_lists_every_option_of_tune(capfd):
    _, out, _ = run(capfd, "tune", "--help")
    options = """--target --work-dir --trials --trials-per-task --time-budget --policy --sampler
    --tasks --devices --builders --seed --config --print-config --address --storage --fresh --json
    --verbose --quiet"""
    assert all(option in out for option in options.split())


def test_version(capfd):
    assert run(capfd, "--version") == (0, f"release-ray {__version__}\n", "")


def test_settings_are_printed_and_read_back(capfd, tmp_path):
    arguments = [
        "--policy",
        "random",
        "--sampler",
        "greedy",
        "--seed",
        "7",
        "--trials",
        "12",
        "--time-budget",
        "10m",
    ]
    arguments += ["--tasks", "conv*", "--tasks", "dense", "--target", "llvm -mcpu=znver3"]
    status, out, err = run(capfd, "tune", "tiny", *arguments, "--print-config")
    assert (status, err) == (0, "")
    loaded = yaml.safe_load(out)
    assert loaded["policy"] == "random" and loaded["sampler"]["name"] == "greedy"
    assert loaded["budget"] == {"trials": 12, "trials_per_task": None, "time_budget": 600.0}
    assert loaded["tasks"] == ["conv*", "dense"]
    (tmp_path / "settings.yaml").write_text(out)
    again = run(capfd, "tune", "tiny", "--config", "settings.yaml", "--print-config")
    assert again == (0, out, "")
    # The command line wins.
    _, changed, _ = run(
        capfd, "tune", "x", "--config", "settings.yaml", "--seed", "8", "--print-config"
    )
    assert yaml.safe_load(changed) == {**loaded, "seed": 8}


def test_defaults_are_those_of_the_settings(capfd):
    _, out, _ = run(capfd, "tune", "tiny", "--print-config")
    printed = TuneSettings.model_validate(yaml.safe_load(out))
    assert printed.budget.trials_per_task == 64
    assert printed == TuneSettings(budget=printed.budget)


RESULT = Result(network="tiny", target="{}", seed=0, status="interrupted", trials=5)


@pytest.mark.parametrize(
    ("ended", "status", "says"),
    [
        (WorkFailed("nothing could be measured: 3x boom"), 1, "3x boom"),
        (Interrupted(RESULT), 130, "interrupted; everything measured is kept"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_run_that_does_not_end_well(capfd, monkeypatch, ended, status, says):
    def ends(*_, **__):
        if isinstance(ended, WorkFailed):
            ended.result = RESULT
        raise ended

    monkeypatch.setattr("release_ray.session.run_tuning", ends)
    got, out, err = run(capfd, "tune", "tiny", "--json")
    assert got == status
    assert err.startswith("release-ray: ") and says in err and err.count("\n") == 1
    if type(ended) is not KeyboardInterrupt:
        assert Result.model_validate_json(out) == RESULT
        assert out.count("\n") == 1
    else:
        assert out == ""


def test_json_is_one_line_on_stdout_and_quiet_is_quiet(capfd, monkeypatch):
    monkeypatch.setattr("release_ray.session.run_tuning", lambda *_, **__: RESULT)
    status, out, err = run(capfd, "tune", "tiny", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["network"] == "tiny"
    assert out.count("\n") == 1
    assert run(capfd, "tune", "tiny", "--quiet") == (0, "", "")
    status, out, err = run(capfd, "tune", "tiny")
    assert (status, err) == (0, "")
    assert "5 trials" in out and "tuning/tiny/records.db" in out


def test_a_message_of_several_lines_becomes_one(capfd, monkeypatch):
    def fails(*_, **__):
        raise WorkFailed("3x first line\n  second line; 1x other")

    monkeypatch.setattr("release_ray.session.run_tuning", fails)
    _, _, err = run(capfd, "tune", "tiny")
    assert err == "release-ray: 3x first line second line; 1x other\n"


def test_tasks(capfd):
    status, out, err = run(capfd, "tasks", "tiny", "--json", "--tasks", "conv*")
    assert (status, err) == (0, "")
    (line,) = out.splitlines()
    rows = json.loads(line)
    assert [row["name"] for row in rows] == [
        "conv2d_add_relu",
        "conv2d_add_relu_2",
        "conv2d_add_relu_3",
    ]
    assert all(row["weight"] == 1 and row["flops"] > 1e5 for row in rows)
    assert all(row["knobs"] >= 8 and row["size"] > 1000 for row in rows)
    status, out, err = run(capfd, "tasks", "tiny")
    assert (status, err) == (0, "")
    assert "tiny: 7 tasks" in out and "matmul_add" in out


def test_doctor(capfd):
    status, out, err = run(capfd, "doctor", "--json")
    assert err == ""
    findings = json.loads(out)
    assert status == int(any(f["level"] == "error" for f in findings))
    assert {f["level"] for f in findings} <= {"ok", "warning", "error"}
    assert {"versions", "pins", "ray", "host"} <= {f["subject"] for f in findings}
    _, out, err = run(capfd, "doctor")
    assert err == ""
    assert len(out.splitlines()) == len(findings)


@pytest.fixture
def measured(tmp_path):
    """A work dir with a fast, a slow and two failed candidates of one task."""

    def record(run_id, number, status, latency_s, message):
        return a_record(
            run_id,
            decisions=f"[{number}]",
            status=status,
            latency_s=latency_s,
            bound_s=0.5 if status is Status.SLOW else None,
            message=message,
        )

    path = tmp_path / "work"
    with (
        WorkDir.locked(path, Identity("net", "f" * 40, "{}")) as workdir,
        Records.open(workdir.records) as records,
    ):
        run_id = records.begin_run("tune", "{}")
        for number, row in enumerate(
            [
                (Status.OK, 2e-3, ""),
                (Status.OK, 1e-3, ""),
                (Status.SLOW, None, ""),
                (Status.CRASH, None, "killed by SIGSEGV"),
                (Status.CRASH, None, "killed by SIGSEGV"),
                (Status.BUILD_ERROR, None, "no such register"),
            ]
        ):
            records.append(record(run_id, number, *row))
    return path


def test_records_show(capfd, measured):
    status, out, err = run(capfd, "records", "show", "--work-dir", measured)
    assert (status, err) == (0, "")
    for text in ("conv", "1.0000", "crash: killed by SIGSEGV"):
        assert text in out
    _, out, _ = run(capfd, "records", "show", "--work-dir", measured, "--task", "dense*")
    assert "conv" not in out


@pytest.mark.parametrize("message", ["no such [register]", "[/dev/shm] is full", "[red]"])
def test_what_failures_say_is_shown_as_it_is(capfd, measured, message):
    with Records.open(WorkDir.existing(measured).records, create=False) as records:
        failure = records.history(simulated=False).all()[-1]
        records.extend([replace(failure, id=None, message=message)] * 3)
    status, out, err = run(capfd, "records", "show", "--work-dir", measured)
    assert (status, err) == (0, "")
    assert f"build_error: {message}" in out


def test_records_show_tells_the_search_s_best_as_the_result_does(capfd, measured):
    with Records.open(WorkDir.existing(measured).records, create=False) as records:
        trial = records.history(simulated=False).all()[1]
        final = replace(trial, id=None, purpose=Purpose.REMEASURE, latency_s=0.9e-3)
        records.append(final)
    _, out, _ = run(capfd, "records", "show", "--work-dir", measured)
    assert "1.0000" in out and "0.9000" not in out


def test_records_show_csv(capfd, measured):
    status, out, err = run(capfd, "records", "show", "--work-dir", measured, "--csv")
    assert (status, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == ["id", *COLUMNS]
    assert [row["status"] for row in rows] == ["ok", "ok", "slow", "crash", "crash", "build_error"]
    assert [row["latency_s"] for row in rows[:3]] == ["0.002", "0.001", ""]


def test_records_prune(capfd, measured):
    prune = ("records", "prune", "--work-dir", measured)
    assert run(capfd, *prune, "--failures") == (0, "3 records deleted\n", "")
    assert run(capfd, *prune, "--keep-best", "1") == (0, "2 records deleted\n", "")
    _, out, _ = run(capfd, "records", "show", "--work-dir", measured, "--csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["latency_s"] == "0.001"


def test_a_reader_that_goes_away_is_no_error(capfd, measured, monkeypatch):
    def gone(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr("release_ray.records.write_csv", gone)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert cli.run(["records", "show", "--work-dir", str(measured), "--csv"]) == 0
