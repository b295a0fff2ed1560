"""Where a run's CPU time went, over all of its processes."""

from __future__ import annotations

import time

import psutil


class CpuMeter:
    """CPU-seconds of this process and all that it has started, also of those that have ended.

    The operating system adds a child's time to its parent's only when the parent waits for it, so
    processes are looked at now and then, and each counts with the most that was seen of it.
    """

    def __init__(self) -> None:
        self._root = psutil.Process()
        self._seen: dict[tuple[int, float], float] = {}
        self._baseline = 0.0
        self.update()
        self._baseline = sum(self._seen.values())

    def update(self) -> None:
        """Looks at every process now. A few milliseconds."""
        for process in (self._root, *self._root.children(recursive=True)):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    key = (process.pid, process.create_time())
            except psutil.Error:
                continue
            spent = times.user + times.system
            self._seen[key] = max(self._seen.get(key, 0.0), spent)

    @property
    def total_s(self) -> float:
        """CPU-seconds since the meter was made, as of the last update."""
        return sum(self._seen.values()) - self._baseline


class Stopwatch:
    """Active seconds of a run: what earlier calls worked, and this one so far."""

    def __init__(self, earlier_s: float = 0.0) -> None:
        self._started = time.monotonic()
        self.earlier_s = earlier_s

    @property
    def here_s(self) -> float:
        """Seconds of this call."""
        return time.monotonic() - self._started

    def active_s(self) -> float:
        """Seconds of all calls."""
        return self.earlier_s + self.here_s
