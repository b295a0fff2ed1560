"""A task that is measured without hardware: what was recorded, and a model of it elsewhere.

So a search can be tried with hundreds of seeds. A latency that was recorded is told as it was; any
other is what a model of all that was recorded says, and is marked as such. Models draw everything
to the mean, and no configuration would ever be found that is as good as the best recorded; so what
the model says is stretched, until what it says of records it was not shown is distributed as these
are. Nothing is faster than the fastest recorded; searches differ in how soon they come near it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import xgboost

from policies.base import Policy
from release_ray.core.prior import Prior
from release_ray.core.recorded import RecordedTask
from release_ray.core.settings import TuneSettings
from release_ray.core.space import keys
from release_ray.core.statuses import Status
from release_ray.measure.jobs import Workload
from release_ray.planner import Candidate, Observation, TaskPlanner
from release_ray.sketches import values_to_json
from release_ray.testing.recorded import regressor
from samplers.base import Sampler

# A latency that is never reached stands for a failure where models learn.
_HOPELESS = 20.0
_PARTS = 5
# Rounds under way, as the tuner of one device has them.
_LOOKAHEAD = 2
# Deviation of the logarithm of a measured latency.
_NOISE = 0.03


class Surrogate:
    """Tells latencies of a recorded task's points."""

    def __init__(self, task: RecordedTask) -> None:
        self.task = task
        self._known = dict(zip(keys(task.points), task.latency_s, strict=True))
        self.best_s = float(task.latency_s.min())
        slowdown = np.log(np.minimum(task.latency_s / self.best_s, _HOPELESS))
        rows = task.space.features(task.points)
        # What each part of the records is said to be by a model of the other parts.
        guessed = np.empty(len(rows))
        parts = np.array_split(np.random.default_rng(0).permutation(len(rows)), _PARTS)
        for part in parts:
            rest = np.setdiff1d(np.arange(len(rows)), part)
            guessed[part] = _fit(rows[rest], slowdown[rest]).predict(rows[part])
        self._model = _fit(rows, slowdown)
        self._guesses, self._truths = np.sort(guessed), np.sort(slowdown)

    def latency_s(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of `n x width` points `n` latencies, infinite for failures, and whether recorded."""
        rows = self.task.space.features(points)
        slowdown = np.interp(self._model.predict(rows), self._guesses, self._truths)
        latency = self.best_s * np.exp(slowdown)
        recorded = np.array([key in self._known for key in keys(points)], bool)
        for row in np.flatnonzero(recorded):
            latency[row] = self._known[points[row].tobytes()]
        return latency, recorded

    def fitness(self, points: np.ndarray) -> np.ndarray:
        """`n` true fitness values in [0, 1] of `n x width` points."""
        return self.best_s / self.latency_s(points)[0]


def _fit(rows: np.ndarray, values: np.ndarray) -> xgboost.XGBRegressor:
    return regressor(0.7).fit(rows, values)


@dataclass
class Replay:
    """One search over a surrogate: the planner of the real loop, fed by it.

    As in the real loop a plan knows the rounds before the last two. `curve` holds the
    best true fitness after each measurement.
    """

    surrogate: Surrogate
    settings: TuneSettings
    sampler: Sampler
    prior: Prior = Prior()
    curve: list[float] = field(default_factory=list)
    modelled: int = 0
    """Measurements that a model told."""

    def run(self, policy: Policy, trials: int) -> TaskPlanner:
        """Searches until so many were measured, or nothing is left. Returns the planner."""
        planner = TaskPlanner(
            _as_task(self.surrogate.task),
            self.settings,
            self.sampler,
            make_sketches=lambda task: _Schedules(self.surrogate.task),  # type: ignore[arg-type, return-value]
            prior=lambda: self.prior,
        )
        rng = np.random.default_rng((self.settings.seed, 1))
        under_way: deque[list[Observation]] = deque()
        best = 0.0
        while len(self.curve) < trials:
            if len(under_way) == _LOOKAHEAD:
                planner.absorb(under_way.popleft())
            limit = self.settings.sampler.max_clusters
            if planner.best_s is None:
                limit = min(self.settings.first_batch, trials // 4)
            plan = planner.plan(min(limit, trials - len(self.curve)), policy)
            if not plan.candidates:
                break
            under_way.append(self._measure(plan.candidates, rng))
            for candidate in plan.candidates:
                best = max(best, float(self.surrogate.fitness(candidate.point[None])[0]))
                self.curve.append(best)
        for measured in under_way:
            planner.absorb(measured)
        return planner

    def _measure(
        self, candidates: Sequence[Candidate], rng: np.random.Generator
    ) -> list[Observation]:
        points = np.array([candidate.point for candidate in candidates])
        latency, recorded = self.surrogate.latency_s(points)
        self.modelled += int((~recorded).sum())
        latency = latency * np.exp(_NOISE * rng.standard_normal(len(latency)))
        return [
            Observation(
                candidate.sketch,
                candidate.decisions,
                Status.OK if np.isfinite(seconds) else Status.RUN_ERROR,
                float(seconds) if np.isfinite(seconds) else None,
            )
            for candidate, seconds in zip(candidates, latency, strict=True)
        ]


def _as_task(task: RecordedTask) -> Any:
    """A recorded task where one of a network is asked for."""
    return SimpleNamespace(
        name=task.name, workload=Workload(f"{task.name:>016}", task.name, "{}", "{}", 0.0)
    )


class _Schedules:
    """Takes the place of a compiler's sketches: every point has its schedule."""

    def __init__(self, task: RecordedTask) -> None:
        self.space = task.space

    def apply(self, point: np.ndarray) -> SimpleNamespace:
        return SimpleNamespace(point=point, message="", trace_json="")

    def decisions(self, point: np.ndarray) -> str:
        return values_to_json(self.space.values(point))
