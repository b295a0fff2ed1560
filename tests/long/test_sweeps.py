"""Sweeps on real and on simulated devices that are killed in the middle, and gone on with."""

import json
import signal

import pytest
import torch
import yaml
from program import Program, records, trials

pytestmark = pytest.mark.long

WHAT_WAS_FOUND = "task, round, sketch, decisions, status, purpose, latency_s"


@pytest.fixture
def sweep(tmp_path):
    """Starts `release-ray sweep` of a file; ends whatever is left of it."""
    programs = []

    def start(work, **content):
        file = tmp_path / f"{work.name}.yaml"
        file.write_text(yaml.safe_dump({**content, "work_dir": str(work)}))
        programs.append(Program("sweep", file, cwd=tmp_path))
        return programs[-1]

    yield start
    for program in programs:
        program.clear()


def runs(work):
    return {path.name: path for path in sorted((work / "runs").glob("*"))}


def over(work):
    """Runs that the sweep says are over, with how."""
    if not (work / "sweep.json").exists():
        return {}
    found = json.loads((work / "sweep.json").read_text())["runs"]
    return {
        name: run["status"] for name, run in found.items() if run["status"] in ("done", "stopped")
    }


def in_the_middle(work):
    """Whether a run is over and another has begun to measure."""
    begun = [name for name, path in runs(work).items() if len(trials(path)) >= 3]
    return bool(over(work)) and bool(set(begun) - set(over(work)))


def state(folder):
    """Every file with its time and its contents, but what SQLite keeps beside a database."""
    return {
        path.relative_to(folder): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


def small_network(folder):
    """Two convolutions that `tiny` does not have, as an archive of `torch.export`."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2),
        torch.nn.ReLU(),
    ).eval()
    path = folder / "small.pt2"
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, 24, 24),)), path)
    return path


def test_a_killed_sweep_with_asha_on_this_machines_cores(sweep, tmp_path):
    work = tmp_path / "work"
    content = {
        "networks": ["tiny", str(small_network(tmp_path))],
        "budget": {"trials": 12},
        "tasks": ["conv*"],
        "space": {
            "policy": {"grid": ["ppo", "random"]},
            "sampler": {"grid": ["adaptive", "greedy"]},
        },
        "scheduler": {"asha": {"grace_rounds": 1, "reduction_factor": 2}},
        "max_concurrent": 2,
    }
    killed = sweep(work, **content)
    killed.until(lambda: in_the_middle(work), timeout_s=300)
    killed.process.kill()
    assert killed.ends() == -signal.SIGKILL
    assert killed.leaves_nothing(within_s=15) == []
    finished = {name: state(runs(work)[name]) for name in over(work)}
    tunes = {name: state(work / "tune" / name) for name in finished}
    measured = {name: trials(path) for name, path in runs(work).items()}
    assert finished and len(finished) < 8

    resumed = sweep(work, **content)
    assert resumed.ends(600) == 0, resumed.err
    assert {name: state(runs(work)[name]) for name in finished} == finished
    assert {name: state(work / "tune" / name) for name in tunes} == tunes
    assert len(over(work)) == 8 and set(over(work).values()) <= {"done", "stopped"}
    for name, path in runs(work).items():
        found = trials(path)
        assert found[: len(measured.get(name, []))] == measured.get(name, [])
        assert len(found) == len(set(found)) <= 12
    assert "best " in resumed.out and (work / "best.yaml").exists()
    assert resumed.leaves_nothing() == []


def test_a_killed_sweep_finds_what_an_unbroken_one_finds(sweep, tmp_path):
    content = {
        "networks": ["tiny"],
        "devices": "sim:2?run_s=0.2",
        "budget": {"trials_per_task": 12},
        "space": {
            "policy": {"grid": ["ppo", "random"]},
            "agent.lr": {"loguniform": [1.0e-3, 1.0e-2]},
        },
        "num_samples": 2,
    }
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    whole = sweep(unbroken, **content)
    assert whole.ends(600) == 0, whole.err
    for _ in range(2):
        killed = sweep(broken, **content)
        before = sum(len(trials(path)) for path in runs(broken).values())

        def some_more(before=before):
            return sum(len(trials(path)) for path in runs(broken).values()) > before + 40

        killed.until(some_more, timeout_s=300)
        killed.process.kill()
        killed.ends()
        killed.leaves_nothing(within_s=15)
    resumed = sweep(broken, **content)
    assert resumed.ends(600) == 0, resumed.err
    assert len(runs(broken)) == 4
    for name, path in runs(broken).items():
        expected = sorted(records(runs(unbroken)[name], WHAT_WAS_FOUND), key=str)
        assert sorted(records(path, WHAT_WAS_FOUND), key=str) == expected
    for name in ("best.yaml", "untuned.json"):
        first, second = (folder / name for folder in (unbroken, broken))
        assert lines(first) == lines(second)
    assert without_seconds(broken) == without_seconds(unbroken)


def lines(path):
    """Of a file those that do not name the sweep's own."""
    return [line for line in path.read_text().splitlines() if not line.startswith("# Setting")]


def without_seconds(work):
    """The last report of each run, but how long it took."""
    found = json.loads((work / "sweep.json").read_text())["runs"]
    return {
        name: {key: value for key, value in run["reports"][-1].items() if key != "wall_s"}
        for name, run in found.items()
    }
