"""Calls into a child process that may crash, hang, flood or eat the memory, and a new child after.

`Child` is what builders and devices use. Beneath it are `CleanParent`, the subprocess that has the
compiler loaded (`release_ray.measure.child`), and `Worker`, a fork of it that answers calls.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from release_ray.measure import child

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 60.0
"""Of the clean parent, which may be swapped out, but never works for long."""
KEPT_STDERR = 8192
"""Bytes of a worker's output that are kept: the last ones."""

_WATCH_S = 0.05
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ROOT = str(Path(__file__).resolve().parents[2])


class ChildFailure(Exception):
    """A call that gave no value. `cpu_s` and `wall_s` are what it spent all the same."""

    def __init__(self, message: str, wall_s: float = 0.0, cpu_s: float = 0.0) -> None:
        super().__init__(message, wall_s, cpu_s)
        self.message = message
        self.wall_s = wall_s
        self.cpu_s = cpu_s

    def __str__(self) -> str:
        return self.message


class Raised(ChildFailure):
    """The function raised; the worker lives on."""


class Dead(ChildFailure):
    """The worker died: the message names the signal, the exit code or the lack of memory."""


class TimedOut(ChildFailure):
    """The call took longer than it may; the worker was killed."""


@dataclass(frozen=True)
class Reply:
    """What a call returned, and what it took in the worker."""

    value: Any
    wall_s: float
    cpu_s: float


class Child:
    """One worker at a time, always there: replaced when it died or has done its share of jobs."""

    def __init__(
        self,
        *,
        cores: Sequence[int],
        threads: int,
        kinds: Sequence[str],
        jobs_per_worker: int,
        memory_bytes: int | None = None,
    ) -> None:
        """
        Args:
            cores: what the processes are pinned to; empty leaves them where this process is.
            threads: how many a kernel may use (TVM, OpenMP, BLAS).
            kinds: TVM target kinds to prepare; empty for a child without TVM.
            jobs_per_worker: after so many `end_job` the worker is replaced, for it grows.
            memory_bytes: resident memory at which a worker is killed; default: `memory_cap()`.
        """
        self._arguments = (tuple(cores), threads, tuple(kinds))
        self._jobs_per_worker = jobs_per_worker
        self._memory_bytes = memory_bytes or memory_cap()
        self._parent = CleanParent(*self._arguments)
        self._worker: Worker | None = None
        self._jobs = 0
        self._ended_parents_cpu_s = 0.0

    def wait_ready(self) -> None:
        """Returns when the compiler is loaded. Raises `Dead` where it cannot be."""
        self._parent.wait_ready()

    def call(self, function: str, *arguments: Any, timeout_s: float) -> Reply:
        """Runs `package.module:function` in the worker. Raises a `ChildFailure`."""
        worker = self._worker or self._fork()
        self._worker = worker
        try:
            return worker.call(function, *arguments, timeout_s=timeout_s)
        except (Dead, TimedOut):
            self._drop_worker()
            raise

    def renew(self) -> None:
        """Ends the worker; the next call has a new one."""
        self._drop_worker()

    def end_job(self) -> None:
        """Marks the end of a job: state that calls leave in the worker is not needed any more."""
        self._jobs += 1
        if self._jobs >= self._jobs_per_worker:
            self._drop_worker()

    def parent_cpu_s(self) -> float:
        """CPU-seconds of the clean parents so far: imports and forks."""
        return self._ended_parents_cpu_s + self._parent.cpu_s()

    def close(self) -> None:
        self._drop_worker()
        self._parent.close()

    def _drop_worker(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None
        self._jobs = 0

    def _fork(self) -> Worker:
        try:
            return self._parent.fork(self._memory_bytes)
        except (Dead, OSError, EOFError) as error:
            logger.warning("the clean parent is gone (%s); starting another", error)
        self._ended_parents_cpu_s += self._parent.cpu_s()
        self._parent.close()
        self._parent = CleanParent(*self._arguments)
        return self._parent.fork(self._memory_bytes)


class CleanParent:
    """The subprocess `python -m release_ray.measure.child`. It starts at once, `fork` waits."""

    def __init__(self, cores: Sequence[int], threads: int, kinds: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    child.__name__,
                    str(theirs.fileno()),
                    str(os.getpid()),
                    ",".join(map(str, cores)),
                    ",".join(kinds),
                ],
                pass_fds=[theirs.fileno()],
                env=_environment(threads),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                # A Ctrl-C at the terminal is for the program, which ends this in its own time.
                start_new_session=True,
            )
        self._control = ours
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Returns when it can fork. Raises `Dead` where it could not start."""
        if self._ready:
            return
        self._control.settimeout(START_TIMEOUT_S)
        try:
            child.receive(self._control)
        except (EOFError, OSError) as error:
            self._process.kill()
            _, stderr = self._process.communicate()
            last = stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
            reason = last or f"{type(error).__name__} while it started"
            raise Dead(f"the compiler process did not start: {reason}") from error
        # It answers within milliseconds; one that does not is of no use any more.
        self._control.settimeout(ANSWER_TIMEOUT_S)
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        self._ready = True

    def fork(self, memory_bytes: int) -> Worker:
        """A new worker. Raises `Dead`, `EOFError` or `OSError` where the parent is gone."""
        self.wait_ready()
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        try:
            socket.send_fds(self._control, [child.FORK], [theirs.fileno(), write_end])
            pid = child.receive(self._control)
        except BaseException:
            ours.close()
            os.close(read_end)
            raise
        finally:
            theirs.close()
            os.close(write_end)
        os.set_blocking(read_end, False)
        return Worker(self, pid, ours, read_end, memory_bytes)

    def reap(self, pid: int) -> tuple[int, float]:
        """Wait status and CPU-seconds of a worker that ends; waits for that."""
        self._control.sendall(child.REAP)
        child.send(self._control, pid)
        return child.receive(self._control)

    def cpu_s(self) -> float:
        """CPU-seconds of the parent itself, without the workers'; 0 when it is gone."""
        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return times.user + times.system

    def close(self) -> None:
        """Ends it; its workers end with it."""
        self._control.close()
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


class Worker:
    """A fork of the clean parent that answers one call at a time."""

    def __init__(
        self,
        parent: CleanParent,
        pid: int,
        connection: socket.socket,
        stderr: int,
        memory_bytes: int,
    ) -> None:
        self.pid = pid
        self._parent = parent
        self._connection = connection
        self._stderr = stderr
        self._tail = bytearray()
        self._memory_bytes = memory_bytes
        self._answered_cpu_s = 0.0

    def call(self, function: str, *arguments: Any, timeout_s: float) -> Reply:
        """Runs `package.module:function`. Raises a `ChildFailure`; `Raised` leaves it alive."""
        started = time.perf_counter()
        deadline = started + timeout_s
        self._tail.clear()
        try:
            # A worker that reads nothing must not keep us.
            self._connection.settimeout(timeout_s)
            child.send(self._connection, (function, arguments))
            self._connection.settimeout(None)
            data = self._wait_for_answer(deadline)
        except TimeoutError:
            cpu_s = self._kill()[1]
            raise TimedOut(
                f"no answer in {timeout_s:g} s", time.perf_counter() - started, cpu_s
            ) from None
        except MemoryError:
            cpu_s = self._kill()[1]
            raise Dead(
                f"out of memory: more than {self._memory_bytes / 2**20:.0f} MiB",
                time.perf_counter() - started,
                cpu_s,
            ) from None
        except (EOFError, OSError):
            message, cpu_s = self._post_mortem()
            raise Dead(message, time.perf_counter() - started, cpu_s) from None
        try:
            succeeded, value, wall_s, cpu_s = pickle.loads(data)
        except Exception as error:  # untrusted code may have written anything
            cpu_s = self._kill()[1]
            raise Dead(
                f"its answer cannot be read ({type(error).__name__})",
                time.perf_counter() - started,
                cpu_s,
            ) from None
        self._answered_cpu_s += cpu_s
        if not succeeded:
            raise Raised(value, wall_s, cpu_s)
        return Reply(value, wall_s, cpu_s)

    def close(self) -> None:
        """Ends the worker; harmless where it has ended."""
        if self._connection.fileno() != -1:
            self._kill()

    def _wait_for_answer(self, deadline: float) -> bytes:
        """The answer's bytes, while its output is drained and its memory watched.

        Raises `EOFError` or `OSError` when it has died, `TimeoutError`, or `MemoryError` when it
        has grown too large.
        """
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        poll.register(self._stderr, select.POLLIN)
        data = bytearray()
        while True:
            left_s = deadline - time.perf_counter()
            if left_s <= 0:
                raise TimeoutError
            events = dict(poll.poll(min(left_s, _WATCH_S) * 1000))
            if self._connection.fileno() in events:
                chunk = self._connection.recv(1 << 20)
                if not chunk:
                    raise EOFError
                data += chunk
                if len(data) >= 8 and len(data) == 8 + struct.unpack_from("<Q", data)[0]:
                    self._drain()
                    return bytes(data[8:])
            elif self._stderr in events and not self._drain():
                poll.unregister(self._stderr)
            if self._resident_bytes() > self._memory_bytes:
                raise MemoryError

    def _drain(self) -> bool:
        """Keeps the end of what the worker has written; False when it has closed its output."""
        with contextlib.suppress(BlockingIOError):
            # A pipe holds 64 kB: a flood must not keep us here past the deadline.
            chunk = os.read(self._stderr, 1 << 16)
            self._tail += chunk
            del self._tail[:-KEPT_STDERR]
            return bool(chunk)
        return True

    def _resident_bytes(self) -> int:
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * _PAGE
        except (OSError, IndexError):
            return 0  # it has just died; the socket tells

    def _post_mortem(self) -> tuple[str, float]:
        """How a worker that hung up came to its end, with the last it said; and CPU-seconds.

        Its sockets close only after its wait status is settled, so the kill does not change that.
        """
        self._drain()
        tail = self._last_line()
        status, cpu_s = self._kill()
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            reason = f"killed by {signal.Signals(number).name}"
            if number == signal.SIGKILL:
                reason += ", perhaps out of memory"
        else:
            reason = f"exited with status {os.waitstatus_to_exitcode(status)}"
        if any(sign in self._tail for sign in (b"std::bad_alloc", b"LLVM ERROR: out of memory")):
            reason = f"out of memory, {reason}"
        return (f"{reason}: {tail}" if tail else reason), cpu_s

    def _last_line(self) -> str:
        lines = self._tail.decode(errors="replace").split("\n")
        told = [line.strip() for line in lines if line.strip()]
        # A native backtrace comes after what it is the backtrace of.
        reasons = [line for line in told if not line.startswith('File "')] or told
        return reasons[-1][-500:] if reasons else ""

    def _kill(self) -> tuple[int, float]:
        """Ends the process; wait status, and CPU-seconds of calls that gave no answer."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._connection.close()
        os.close(self._stderr)
        try:
            status, cpu_s = self._parent.reap(self.pid)
        except (OSError, EOFError):
            return signal.SIGKILL, 0.0  # the clean parent has died, and its workers with it
        return status, max(0.0, cpu_s - self._answered_cpu_s)


def memory_cap() -> int:
    """Bytes a worker may hold: a quarter of the host's memory, at least 1 GiB."""
    return max(psutil.virtual_memory().total // 4, 2**30)


def _environment(threads: int) -> dict[str, str]:
    """The environment of a clean parent: set before TVM or a BLAS is loaded, read only then."""
    environment = dict(os.environ)
    # Ray preloads its allocator; a kernel's timing should not depend on that.
    environment.pop("LD_PRELOAD", None)
    environment.update(
        TVM_NUM_THREADS=str(threads),
        # TVM binds its threads by itself and so undoes the pin of the process.
        TVM_BIND_THREADS="0",
        OMP_NUM_THREADS=str(threads),
        OPENBLAS_NUM_THREADS="1",
        MKL_NUM_THREADS=str(threads),
        PYTHONPATH=os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")])),
    )
    return environment
