"""What a run has achieved so far, as `result.json` holds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from release_ray.accounting import CpuMeter, Stopwatch
from release_ray.core.errors import InputError
from release_ray.core.settings import TuneSettings
from release_ray.deploy import Deployment
from release_ray.journal import Journal
from release_ray.measure.pool import MeasurePool
from release_ray.result import CpuSeconds, LatencyMs, Result, TaskResult
from release_ray.tuner import TaskState
from release_ray.versions import versions

Status = Literal["running", "done", "interrupted", "failed"]


class Progress:
    """Writes `result.json`, again and again, on top of what earlier calls wrote there."""

    def __init__(
        self,
        path: Path,
        *,
        network: str,
        target: str,
        settings: TuneSettings,
        states: Sequence[TaskState],
        devices: int,
        pool: MeasurePool,
        journal: Journal,
        watch: Stopwatch,
        meter: CpuMeter,
        search_cpu_s: Callable[[], float],
    ) -> None:
        self._path = path
        self._network = network
        self._target = target
        self._settings = settings
        self._states = states
        self.devices = devices
        """How many the pool has, as far as is known; it may grow."""
        self._pool = pool
        self._journal = journal
        self._watch = watch
        self._search_cpu_s = search_cpu_s
        self._meter = meter
        self._standing = _earlier(path)
        self._earlier = self._standing if watch.earlier_s else None
        self._first_measured_s: float | None = None
        self._tuned_s = 0.0
        self._devices_s = 0.0
        self._busy_s = 0.0
        self._cpu = CpuSeconds()
        self.devices_lost: dict[str, str] = {}
        """Devices that were given up, and why."""

    def began(self) -> None:
        """Tells that the devices are up: from here on they ought to be busy."""
        self._tuned_s = self._watch.here_s

    def measured(self) -> None:
        """Tells of a measurement: the first one ends the start-up."""
        if self._first_measured_s is None:
            self._first_measured_s = self._watch.here_s

    def update(self, *, tuning: bool) -> None:
        """Takes stock of the pool and of the CPU time so far.

        `tuning`: whether devices had candidates up to now; idle shares count until then.
        """
        self._meter.update()
        stats = self._pool.stats()
        self.devices_lost = stats.gone
        if tuning:
            self._busy_s = sum(d.run_s + d.build_s for d in stats.devices.values())
            self._devices_s += self.devices * (self._watch.here_s - self._tuned_s)
            self._tuned_s = self._watch.here_s
            self.devices = max(self.devices, len(stats.devices))
        search, build, run = self._search_cpu_s(), stats.build_cpu_s, stats.run_cpu_s
        other = max(0.0, self._meter.total_s - search - build - run)
        self._cpu = CpuSeconds(search=search, build=build, run=run, other=other)

    def write(self, status: Status, deployment: Deployment | None = None) -> Result:
        """Replaces the file and returns its contents."""
        result = self._result(status, deployment)
        result.write(self._path)
        return result

    def _result(self, status: Status, deployment: Deployment | None) -> Result:
        earlier = self._earlier
        start_s = self._first_measured_s
        # Until this call has compared, what an earlier one left as the model still stands.
        latency = self._standing.latency_ms if self._standing else LatencyMs()
        error = self._standing.max_rel_error if self._standing else None
        if deployment is not None:
            latency = LatencyMs(default=deployment.default_ms, tuned=deployment.model_ms)
            error = deployment.max_rel_error
        return Result(
            network=self._network,
            target=self._target,
            seed=self._settings.seed,
            status=status,
            trials=sum(state.trials for state in self._states),
            failures=dict(self._journal.failures()),
            wall_s=round(self._watch.active_s(), 3),
            start_s=earlier.start_s if earlier and earlier.start_s is not None else start_s,
            device_idle_share=self._idle_share(),
            devices_lost=self.devices_lost,
            cpu_s=_sum(earlier.cpu_s, self._cpu) if earlier else self._cpu,
            latency_ms=latency,
            max_rel_error=error,
            tasks=tuple(_task(state, status) for state in self._states),
            versions=dict(versions()),
        )

    def _idle_share(self) -> float | None:
        """1 - busy time / time, both summed over the devices, while this call had them.

        A device is busy while it measures, and while it builds a candidate for itself because no
        artifact is waiting.
        """
        if self._first_measured_s is None:
            return self._earlier.device_idle_share if self._earlier else None
        if self._devices_s <= 0:
            return None
        return round(1 - min(1.0, self._busy_s / self._devices_s), 4)


def _earlier(path: Path) -> Result | None:
    try:
        return Result.read(path)
    except InputError:
        return None


def _sum(a: CpuSeconds, b: CpuSeconds) -> CpuSeconds:
    return CpuSeconds(
        search=a.search + b.search,
        build=a.build + b.build,
        run=a.run + b.run,
        other=a.other + b.other,
    )


def _task(state: TaskState, status: Status) -> TaskResult:
    own = "waiting" if status == "running" and not state.trials else status
    if status == "done" and state.best_s is None:
        own = "failed" if state.trials else "waiting"
    return TaskResult(
        name=state.name,
        weight=state.weight,
        flops=state.flops,
        trials=state.trials,
        best_latency_s=state.best_s,
        best_gflops=state.flops / state.best_s / 1e9 if state.best_s else None,
        status=own,
        curve=tuple(state.curve),
    )
