"""The Ray cluster of a run: the one that was named, or one of its own, started and stopped."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from pathlib import Path

import psutil

from release_ray import guard
from release_ray.core.errors import InputError
from release_ray.measure.hosts import Host, answers, cluster_hosts, this_host

_REMEDY = "start one with `ray start --head`, or leave --address out to use this host alone"
_OBJECT_STORE_BYTES = 256 * 2**20
_REACH_S = 5.0


Connect = Callable[[str | None], AbstractContextManager[None]]


def hosts(stack: ExitStack, address: str | None, connect: Connect | None = None) -> list[Host]:
    """The hosts of a run, this process's own first.

    A cluster that is there already is asked for its nodes, and so joined, until the stack is left.
    Where `connected` will start one there is only this machine.

    Args:
        connect: joins it; default: `connected`.
    """
    import ray

    if not ray.is_initialized() and _existing(address) is None:
        return [this_host()]
    stack.enter_context((connect or connected)(address))
    return cluster_hosts()


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connects to the cluster at `address` (else `RAY_ADDRESS`), or starts one on this host.

    A cluster started here ends with the context, and is never the one that happens to run on the
    host already. Within another such context it changes nothing.

    Raises `InputError` for a cluster that cannot be reached or joined.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Without it Ray hides the GPUs of every actor that asks for none by rewriting its environment.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    # Ray sets its own level when it is imported; its notices are of no use to whoever tunes.
    for name in ("ray", "ray.rllib", "ray.tune"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if ray.is_initialized():
        yield
        return
    existing = _existing(address)
    if existing is not None:
        # Before anything that would have to be undone.
        _require_answer(existing)
    with _silent_daemons(), _Guard() if existing is None else nullcontext() as own:
        try:
            with _signals_kept():
                if existing is None:
                    _start_local(len(os.sched_getaffinity(0)))
                else:
                    _join(existing)
            if own is not None:
                own.watch()
            yield
        finally:
            if own is not None:
                # Also what a start that was interrupted has left.
                own.watch()
            # The last workers die here, and that is reported too.
            ray.shutdown()


def stage(address: str | None) -> str:
    """What `connected` will be busy with, for people."""
    return "starting Ray" if _existing(address) is None else "joining the Ray cluster"


def _existing(address: str | None) -> str | None:
    """The address of the cluster to be joined; None where one is to be started."""
    address = address or os.environ.get("RAY_ADDRESS") or None
    return None if address == "local" else address


class _Guard:
    """Sees to the end of a Ray that this program has started, be the program killed.

    Two of Ray's agents would outlive it by a minute. See `release_ray.guard`.
    """

    def __init__(self) -> None:
        self._marks: dict[int, str] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-I", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            # A Ctrl-C at the terminal is not for it.
            start_new_session=True,
        )

    def __enter__(self) -> _Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        guard.end(self._marks)

    def watch(self) -> None:
        """Tells it of all processes of Ray that there are by now."""
        assert self._process.stdin is not None
        for pid in _ray_processes():
            if pid not in self._marks:
                with suppress(OSError):
                    self._marks[pid] = guard.started(pid)
                    self._process.stdin.write(f"{pid} {self._marks[pid]}\n")
        with suppress(OSError):
            self._process.stdin.flush()


def _ray_processes() -> list[int]:
    """What this process has started, directly or not, and is Ray's own."""
    import ray

    home = str(Path(ray.__file__).parent)
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            words = child.cmdline()
            if any(word.startswith(("ray::", home)) for word in words):
                found.append(child.pid)
    return found


@contextmanager
def _silent_daemons() -> Iterator[None]:
    """Keeps what Ray's daemons report, as a worker that died, off stdout: it carries results.

    Ray prints it there in each driver, and has no option for it. Those concerned are told anyway.
    """
    from ray._private import worker

    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = True


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes signals for itself when it starts; here whoever handled them has them back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except SystemExit:
        # Out of Ray's own handler of SIGTERM.
        raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            if handler not in (None, signal.SIG_DFL):
                signal.signal(number, handler)


def _start_local(cores: int) -> None:
    import ray

    ray.init(
        # Without this, Ray joins whatever cluster runs on the host.
        address="local",
        num_cpus=max(2, cores),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        configure_logging=False,
        object_store_memory=_OBJECT_STORE_BYTES,
    )


def _join(address: str) -> None:
    import ray

    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
        # What of the versions differs is told in the lines after the first.
        reason = " ".join(str(error).split())[:400] or type(error).__name__
        raise InputError(
            f"cannot join the Ray cluster at {address} ({reason}): {_REMEDY}"
        ) from None


def _require_answer(address: str) -> None:
    """Raises `InputError` where nobody listens, or no Ray does; Ray itself would wait for minutes.

    A client's address, `ray://...`, and `auto` are left to Ray.
    """
    if "://" in address or ":" not in address:
        return
    if not answers(address) or not _speaks_grpc(address):
        raise InputError(f"no Ray cluster answers at {address}: {_REMEDY}")


def _speaks_grpc(address: str) -> bool:
    """Whether who listens there speaks as a Ray does; taken for granted of an encrypted one."""
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return True
    import grpc

    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(_REACH_S)
        except grpc.FutureTimeoutError:
            return False
    return True
