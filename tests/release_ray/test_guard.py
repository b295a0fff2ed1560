"""What ends the rest of a killed program's Ray."""

import subprocess
import sys

from release_ray import guard


def sleeper():
    return subprocess.Popen(["sleep", "60"])


def test_what_is_still_the_process_that_was_marked_is_killed():
    mine, others = sleeper(), sleeper()
    try:
        # Another process has got the second one's id since it was marked.
        guard.end({mine.pid: guard.started(mine.pid), others.pid: "1", 2**22 + 1: "1"})
        assert mine.wait(10) == -9
        assert others.poll() is None
    finally:
        others.kill()
        others.wait()


def test_it_waits_for_the_end_of_the_program_and_then_a_moment():
    left = sleeper()
    process = subprocess.Popen([sys.executable, "-I", guard.__file__], stdin=subprocess.PIPE)
    process.stdin.write(f"{left.pid} {guard.started(left.pid)}\n".encode())
    process.stdin.flush()
    assert left.poll() is None
    process.stdin.close()
    assert left.wait(30) == -9
    assert process.wait(10) == 0
