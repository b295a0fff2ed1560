"""The clean parent: imports the compiler once and forks a worker whenever it is asked to.

    python -m release_ray.measure.child CONTROL_FD PARENT_PID CORES KINDS

A worker runs untrusted native code and may crash, hang or eat the memory; another costs a fork of
some milliseconds and not an import of seconds. The parent itself never runs a kernel and never
starts a thread, because children forked after either of these hang. It dies with the process that
started it, and the workers die with it, however that process came to its end.

`release_ray.measure.process` is the other side of the control socket.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import time
from typing import Any

FORK, REAP = b"F", b"R"
"""Requests: fork a worker (sent with its socket and its stderr), and tell how one ended."""

PRELOADED = "release_ray.measure.handlers"
_PR_SET_PDEATHSIG = 1
_LENGTH = struct.Struct("<Q")


def main(arguments: list[str]) -> None:
    control_fd, parent, cores, kinds = arguments
    die_with_parent(int(parent))
    if cores:
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    control = socket.socket(fileno=int(control_fd))
    if kinds:
        _load_compiler(kinds.split(","))
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"{threads} threads run before the first fork; workers would hang")
    # What is collected in a worker would be copied page by page; freeze it here, once.
    gc.collect()
    gc.freeze()
    send(control, "ready")
    _serve_requests(control)


def _load_compiler(kinds: list[str]) -> None:
    """Imports TVM without torch, which it takes along where there is one: 2 s and 200 MB less."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    from release_ray import tvm_setup

    tvm_setup.prepare(kinds)
    importlib.import_module(PRELOADED)
    del sys.modules["torch"]


def die_with_parent(parent: int) -> None:
    """Asks the kernel to kill this process when `parent` ends, and ends it if it has already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)


def send(connection: socket.socket, value: Any) -> None:
    """Sends a value; it must pickle."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """Waits for a value. Raises `EOFError` when the other side is gone."""
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    return pickle.loads(_receive_exactly(connection, length))


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = connection.recv(min(1 << 20, count - len(data)))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def _serve_requests(control: socket.socket) -> None:
    here = os.getpid()
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if request == FORK:
            connection, stderr = descriptors
            pid = os.fork()
            if pid == 0:
                _work(control, here, connection, stderr)
            os.close(connection)
            os.close(stderr)
            send(control, pid)
        elif request == REAP:
            # Nothing is reaped unasked, so that a pid the other side knows is never another's.
            _, status, usage = os.wait4(receive(control), 0)
            send(control, (status, usage.ru_utime + usage.ru_stime))
        else:
            return


def _work(control: socket.socket, parent: int, connection: int, stderr: int) -> None:
    """A worker's life: answers calls until the other side hangs up. Never returns."""
    code = 1
    try:
        die_with_parent(parent)
        control.close()
        os.dup2(stderr, 1)
        os.dup2(stderr, 2)
        os.close(stderr)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _answer_calls(socket.socket(fileno=connection))
        code = 0
    finally:
        os._exit(code)


def _answer_calls(connection: socket.socket) -> None:
    while True:
        try:
            function, arguments = receive(connection)
        except EOFError:
            return
        cpu_before, before = _cpu_s(), time.perf_counter()
        try:
            answer = (True, _resolve(function)(*arguments))
        except Exception as error:
            answer = (False, _describe(error))
        spent = (time.perf_counter() - before, _cpu_s() - cpu_before)
        try:
            send(connection, (*answer, *spent))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            send(connection, (False, f"{function} returned what does not pickle: {error}", *spent))


def _resolve(function: str) -> Any:
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def _describe(error: Exception) -> str:
    """One line. TVM puts its backtrace first and what went wrong on the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def _cpu_s() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    linkers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + linkers.ru_utime + linkers.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:])
