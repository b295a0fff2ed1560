"""What a user can do to a run, and what hardware can do: kill it, interrupt it, starve it."""

import os
import signal
from contextlib import suppress

import psutil
import pytest
from program import Program, records, result, run, trials

KEPT = "interrupted; everything measured is kept, the same command goes on from there"

pytestmark = pytest.mark.long

BUDGET = 40
STOP_S = 3.0
"""What `ray job stop` leaves a job before it is killed."""


@pytest.fixture
def started(tmp_path):
    """Starts programs, and ends whatever is left of them."""
    programs = []

    def start(*arguments, **options):
        programs.append(Program(*arguments, cwd=tmp_path, **options))
        return programs[-1]

    yield start
    for program in programs:
        program.clear()


def test_a_killed_run_goes_on_where_it_was(started, tmp_path):
    work = tmp_path / "work"
    tune = ("tune", "tiny", "--work-dir", work, "--trials", BUDGET)
    killed = started(*tune)
    killed.until(lambda: len(trials(work)) >= BUDGET // 2)
    # Ray's daemons, the actors and the processes that build and measure are all found.
    assert len(killed.processes()) > 8
    killed.process.kill()
    assert killed.ends() == -signal.SIGKILL
    assert killed.leaves_nothing(within_s=10) == []
    before = trials(work)
    assert BUDGET // 2 <= len(before) < BUDGET
    assert result(work)["status"] == "running"

    resumed = started(*tune)
    assert resumed.ends() == 0, resumed.err
    measured = trials(work)
    assert measured[: len(before)] == before
    assert len(measured) == len(set(measured)) == BUDGET
    ended = result(work)
    assert (ended["status"], ended["trials"]) == ("done", BUDGET)
    assert ended["max_rel_error"] <= 1e-4
    assert (work / "model.so").exists()
    assert resumed.leaves_nothing() == []


def ctrl_c(program):
    program.interrupt_as_a_terminal()


def interrupt(program):
    program.process.send_signal(signal.SIGINT)


def terminate(program):
    program.process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("stop", [ctrl_c, interrupt, terminate])
def test_an_interrupted_run_keeps_everything(started, tmp_path, stop):
    work = tmp_path / "work"
    program = started("tune", "tiny", "--work-dir", work, "--trials", BUDGET, "--json")
    program.until(lambda: len(trials(work)) >= 8)
    stop(program)
    assert program.ends(timeout_s=20) == 130, program.err
    assert program.leaves_nothing() == []
    assert program.err.splitlines()[-1] == f"release-ray: {KEPT}"
    assert "Traceback" not in program.err and "WARNING" not in program.err
    ended = result(work)
    assert ended["status"] == "interrupted"
    assert 8 <= ended["trials"] == len(trials(work)) < BUDGET
    assert program.out.count("\n") == 1


def test_three_seconds_are_enough_to_stop_as_ray_stops_a_job(started, tmp_path):
    """SIGTERM to the run, whose Ray is not its own, and SIGKILL to all that is left 3 s later."""
    work = tmp_path / "work"
    program = started("tune", "tiny", "--work-dir", work, "--trials", BUDGET)
    program.until(lambda: len(trials(work)) >= 8)
    workers = [process for process in program.processes() if is_worker(process)]
    assert workers
    terminate(program)
    gone, _ = psutil.wait_procs(workers, timeout=STOP_S)
    ended = result(work)
    program.clear()
    assert set(gone) == set(workers)
    assert ended["status"] == "interrupted"
    assert 8 <= ended["trials"] == len(trials(work)) < BUDGET
    assert "Traceback" not in program.err


def test_a_shutdown_that_ends_ray_at_the_same_time_keeps_everything(started, tmp_path):
    """SIGTERM to every process, as a batch system or a host going down sends it."""
    work = tmp_path / "work"
    program = started("tune", "tiny", "--work-dir", work, "--trials", BUDGET)
    program.until(lambda: len(trials(work)) >= 8)
    for process in program.processes():
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    program.ends(timeout_s=20)
    assert program.leaves_nothing() == []
    ended = result(work)
    assert ended["status"] == "interrupted"
    assert 8 <= ended["trials"] <= len(trials(work)) < BUDGET
    assert "Traceback" not in program.err


def is_worker(process):
    """Whether a process builds or measures."""
    with suppress(psutil.Error):
        return "release_ray.measure.child" in process.cmdline()
    return False


def test_an_interrupt_before_anything_is_measured(started, tmp_path):
    program = started("tune", "tiny", "--work-dir", "work")
    program.until(lambda: "loading tiny" in program.err)
    program.interrupt_as_a_terminal()
    assert program.ends(timeout_s=30) == 130, program.err
    assert program.err.splitlines()[-1] == f"release-ray: {KEPT}"
    assert "Traceback" not in program.err
    assert program.leaves_nothing() == []


def test_an_ignored_interrupt_stays_ignored(started, tmp_path):
    """As in a shell's background job, or under nohup."""
    work = tmp_path / "work"
    program = started(
        *("tune", "tiny", "--work-dir", work, "--trials", 30),
        *("--devices", "sim:1?run_s=0.3", "--policy", "random"),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    program.until(lambda: len(trials(work)) >= 5)
    program.interrupt_as_a_terminal()
    assert program.ends() == 0, program.err
    assert result(work)["status"] == "done"
    assert len(trials(work)) == 30


def test_a_second_run_at_once_is_told_the_pid_of_the_first(started, tmp_path):
    work = tmp_path / "work"
    simulated = ("--devices", "sim:1?run_s=0.5", "--policy", "random", "--work-dir", work)
    first = started("tune", "tiny", *simulated)
    first.until(lambda: (work / ".lock").exists() and (work / ".lock").read_text().strip() != "")
    second = started("tune", "tiny", *simulated)
    assert second.ends() == 2
    assert second.err == (
        f"release-ray: {work} is in use by the run with pid {first.pid}: wait for it, or choose "
        "another --work-dir\n"
    )
    assert first.process.poll() is None


def test_kernels_that_this_processor_cannot_run(started, tmp_path):
    """The reasons are told, the most frequent first; the driver lives; nothing is called best."""
    work = tmp_path / "work"
    # FMA4 was only ever built into AMD's Bulldozer and Piledriver.
    program = started(
        *("tune", "tiny", "--work-dir", work, "--trials", 100, "--policy", "random", "--json"),
        *("--tasks", "conv*", "--target", "llvm -mcpu=bdver4"),
    )
    assert program.ends() == 1, program.err
    last = program.err.splitlines()[-1]
    assert last.startswith("release-ray: nothing could be measured, so nothing is called best: ")
    assert "SIGILL" in last
    assert "Traceback" not in program.err
    ended = result(work)
    assert ended["status"] == "failed"
    assert {task["best_latency_s"] for task in ended["tasks"]} == {None}
    assert ended["failures"]["crash"] == len(trials(work))
    assert not (work / "model.so").exists()
    assert program.leaves_nothing() == []


def test_kernels_of_another_architecture(started, tmp_path):
    work = tmp_path / "work"
    program = started(
        *("tune", "tiny", "--work-dir", work, "--trials", 100, "--policy", "random"),
        *("--tasks", "conv*", "--target", "llvm -mtriple=aarch64-linux-gnu"),
    )
    assert program.ends() == 1, program.err
    assert "nothing is called best" in program.err.splitlines()[-1]
    statuses = {status for (status,) in records(work, "status")}
    assert not statuses & {"ok", "slow"}
    assert result(work)["status"] == "failed"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_work_dir_without_permission(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    program = run("tune", "tiny", "--work-dir", tmp_path / "locked", cwd=tmp_path)
    assert program.ends() == 2
    assert program.err.count("\n") == 1
