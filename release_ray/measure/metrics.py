"""The pool's figures as Ray metrics, which every Ray node exports in Prometheus' form."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Mapping

from ray.util.metrics import Counter, Gauge

from release_ray.core.statuses import Status


class PoolMetrics:
    """`ray_release_ray_*` at the metrics port of the node where the pool is."""

    def __init__(self) -> None:
        # Kept here in between: Ray's counters are too slow to be asked for every candidate.
        self._finished: Counts[tuple[str, str]] = Counts()
        self._kept: Counts[str] = Counts()
        self._measurements = Counter(
            "release_ray_measurements",
            "Candidates that were measured or have failed, by device and status.",
            tag_keys=("device", "status"),
        )
        self._disturbed = Counter(
            "release_ray_disturbed",
            "Measurements kept although their device was disturbed.",
            tag_keys=("device",),
        )
        self._queue = Gauge(
            "release_ray_queue_length",
            "Jobs not begun (pending), being built (building), and waiting artifacts (ready).",
            tag_keys=("queue",),
        )
        self._utilisation = Gauge(
            "release_ray_device_utilisation",
            "Share of the last seconds in which a device measured.",
            tag_keys=("device",),
        )

    def finished(self, device: str, status: Status) -> None:
        """Counts an outcome."""
        self._finished[device or "none", status.value] += 1

    def disturbed(self, device: str) -> None:
        """Counts a measurement that was kept although it was disturbed."""
        self._kept[device] += 1

    def show(self, queues: Mapping[str, int], utilisation: Mapping[str, float]) -> None:
        """Hands over what was counted since the last time, and what the pool is like now."""
        for (device, status), count in self._finished.items():
            self._measurements.inc(count, tags={"device": device, "status": status})
        for device, count in self._kept.items():
            self._disturbed.inc(count, tags={"device": device})
        self._finished.clear()
        self._kept.clear()
        for queue, length in queues.items():
            self._queue.set(length, tags={"queue": queue})
        for device, share in utilisation.items():
            self._utilisation.set(share, tags={"device": device})
