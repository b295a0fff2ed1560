"""The child process: whatever it does, the caller gets a value or a typed failure, and goes on."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from release_ray.measure.process import Child, Dead, Raised, TimedOut

HERE = os.path.dirname(__file__)
BAD = "misbehaviour:"


@pytest.fixture(scope="module", autouse=True)
def _importable():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", HERE)
        yield


@pytest.fixture(scope="module")
def child():
    made = Child(cores=[], threads=1, kinds=[], jobs_per_worker=1000, memory_bytes=300 * 2**20)
    yield made
    made.close()


def call(child, function, *arguments, timeout_s=20.0):
    return child.call(BAD + function, *arguments, timeout_s=timeout_s)


def test_a_call_returns_its_value_and_what_it_took(child):
    reply = call(child, "echo", b"x" * 3_000_000)
    assert len(reply.value) == 3_000_000
    assert reply.cpu_s >= 0 and reply.wall_s > 0


def test_calls_share_a_worker_until_something_goes_wrong(child):
    assert call(child, "pid").value == call(child, "pid").value


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGKILL])
def test_a_signal_is_named_with_the_last_that_was_said(child, number):
    before = call(child, "pid").value
    with pytest.raises(Dead, match=rf"killed by {number.name}.*: at the end"):
        call(child, "say_and_die", "at the end", number)
    assert call(child, "pid").value != before


def test_an_exit_is_named(child):
    with pytest.raises(Dead, match="exited with status 3"):
        call(child, "exit_with", 3)


def test_a_hang_ends_at_its_time_out_and_leaves_no_process(child):
    pid = call(child, "pid").value
    with pytest.raises(TimedOut, match=r"no answer in 0\.2 s"):
        child.call("time:sleep", 1000, timeout_s=0.2)
    assert not psutil.pid_exists(pid)
    assert call(child, "echo", 1).value == 1


def test_a_worker_that_reads_nothing_is_no_longer_waited_for_than_one_that_answers_nothing(child):
    os.kill(call(child, "pid").value, signal.SIGSTOP)
    # More than a socket holds.
    with pytest.raises(TimedOut):
        call(child, "echo", b"x" * 10_000_000, timeout_s=0.5)
    assert call(child, "echo", 1).value == 1


def test_an_answer_that_cannot_be_read_is_the_worker_s_end(child):
    with pytest.raises(Dead, match="its answer cannot be read"):
        call(child, "answer_like_no_other")
    assert call(child, "echo", 1).value == 1


def test_a_memory_hog_is_killed_for_it(child):
    with pytest.raises(Dead, match="out of memory: more than 300 MiB"):
        call(child, "eat_memory")
    assert call(child, "echo", 1).value == 1


def test_a_flood_of_output_blocks_nobody(child):
    assert call(child, "flood", 20).value == 20
    with pytest.raises(TimedOut):
        call(child, "flood_for_ever", timeout_s=0.3)
    assert call(child, "echo", 1).value == 1


def test_an_exception_is_its_last_line_and_the_worker_lives(child):
    before = call(child, "pid").value
    with pytest.raises(Raised, match=r"^RuntimeError: the reason$"):
        call(child, "raise_like_tvm")
    with pytest.raises(Raised, match="No module named 'nowhere'"):
        child.call("nowhere:f", timeout_s=5)
    with pytest.raises(Raised, match="does not pickle"):
        call(child, "unpicklable")
    assert call(child, "pid").value == before


def test_a_worker_is_replaced_after_its_share_of_jobs():
    child = Child(cores=[], threads=1, kinds=[], jobs_per_worker=2)
    pids = []
    for _ in range(4):
        pids.append(call(child, "pid").value)
        child.end_job()
    child.close()
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_pinned_to_its_cores_with_as_many_threads_as_told():
    core = max(os.sched_getaffinity(0))
    child = Child(cores=[core], threads=3, kinds=[], jobs_per_worker=2)
    assert call(child, "affinity").value == ([core], "3")
    child.close()


def test_another_clean_parent_takes_over_when_one_is_killed():
    child = Child(cores=[], threads=1, kinds=[], jobs_per_worker=2)
    pid = call(child, "pid").value
    psutil.Process(pid).parent().kill()
    with pytest.raises(Dead):
        child.call("time:sleep", 10, timeout_s=5)
    assert call(child, "echo", 1).value == 1
    child.close()


def test_a_parent_that_cannot_start_says_why():
    child = Child(cores=[], threads=1, kinds=[], jobs_per_worker=2)
    child.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHOME", "/nowhere")
        child = Child(cores=[], threads=1, kinds=[], jobs_per_worker=2)
        with pytest.raises(Dead, match="did not start"):
            child.wait_ready()
        child.close()


def test_children_die_with_a_killed_owner():
    program = (
        "from release_ray.measure.process import Child; import time\n"
        "c = Child(cores=[], threads=1, kinds=[], jobs_per_worker=9)\n"
        "print(c.call('misbehaviour:pid', timeout_s=20).value, flush=True)\n"
        "c.call('time:sleep', 1000, timeout_s=1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        worker = psutil.Process(int(owner.stdout.readline()))
        family = [worker, worker.parent()]
        owner.kill()
    deadline = time.monotonic() + 10
    while any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family):
        assert time.monotonic() < deadline, "the children outlived their owner"
        time.sleep(0.02)
