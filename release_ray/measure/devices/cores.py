"""CPU cores that belong to one device: who gets which, and a lock that holds them."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from release_ray.core.errors import InputError
from release_ray.measure.jobs import DeviceSpec

GRACE_S = 3.0
"""How long a lock is waited for: a pool that has just been shut down lets go of its own."""


def free_cores(devices: Iterable[DeviceSpec], cores: Sequence[int]) -> tuple[int, ...]:
    """Those of `cores` that no device has, for everything that is not a measurement.

    All of them where devices have every one: then there is nothing to keep apart.
    """
    taken = {core for device in devices for core in device.cores}
    return tuple(core for core in cores if core not in taken) or tuple(cores)


def leave_cores(devices: Iterable[DeviceSpec]) -> tuple[int, ...]:
    """Moves this process, and what it will start, off the cores that devices have.

    Returns the cores that are left to it.
    """
    free = free_cores(devices, sorted(os.sched_getaffinity(0)))
    _move(os.getpid(), free)
    return free


class Aside:
    """Keeps this process and all that it has started off the cores that devices have.

    That is the driver and the Ray of its own. What runs on nothing but the devices' cores belongs
    to a device, and stays there.
    """

    def __init__(self, devices: Iterable[DeviceSpec]) -> None:
        """Moves everything that runs now; what it starts later goes where it is."""
        self._before = tuple(sorted(os.sched_getaffinity(0)))
        self._free = free_cores(devices, self._before)
        for pid in _tree():
            _move(pid, self._free)

    def end(self) -> None:
        """Gives back all cores."""
        for pid in _tree():
            _move(pid, self._before, only_from=self._free)


def _tree() -> list[int]:
    this = psutil.Process()
    return [this.pid, *(child.pid for child in this.children(recursive=True))]


def _move(pid: int, cores: Sequence[int], only_from: Sequence[int] | None = None) -> None:
    """Moves the threads that may run on any of `cores`, or that run on `only_from` alone.

    Each thread has an affinity of its own; new ones take that of whichever starts them.
    """
    try:
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except FileNotFoundError:
        return
    for thread in threads:
        # Threads and processes come and go meanwhile.
        with suppress(ProcessLookupError):
            now = os.sched_getaffinity(thread)
            if now == set(only_from) if only_from is not None else now & set(cores):
                os.sched_setaffinity(thread, cores)


class CoreLocks:
    """Locks on cores of this host, one file each. They are gone when the process is.

    The files lie in a folder of the user's under the system's folder for temporary ones.
    """

    def __init__(self, cores: Iterable[int], folder: Path | None = None) -> None:
        """Takes all of `cores`.

        Raises:
            InputError: another process has one; the message names the core and the process.
        """
        self._folder = folder or Path(tempfile.gettempdir(), f"release_ray-{os.getuid()}", "cores")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._files: list[IO[str]] = []
        try:
            for core in cores:
                self._files.append(self._take(core))
        except InputError:
            self.release()
            raise

    def release(self) -> None:
        """Lets go of them; a second time does nothing."""
        for file in self._files:
            file.close()
        self._files.clear()

    def _take(self, core: int) -> IO[str]:
        file = open(self._folder / f"core-{core}.lock", "a+")  # noqa: SIM115 - open while held
        deadline = time.monotonic() + GRACE_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.seek(0)
                    holder = file.read().strip() or "unknown"
                    file.close()
                    raise InputError(
                        f"devices: CPU core {core} is in use by another pool (pid {holder});"
                        " wait for it, use other cores (--devices cpu:COUNTxCORES), or share it:"
                        " runs with the same --devices and --address have one pool"
                    ) from None
                time.sleep(0.05)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        return file
