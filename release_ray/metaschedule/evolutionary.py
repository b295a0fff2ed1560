"""MetaSchedule's evolutionary search as a policy: a rival on the same pool and records.

The search, its population and mutators, and its cost model on per-store features are TVM's, with
TVM's defaults. What it is told are this run's measurements; what it proposes is measured as any
policy's candidates are.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from policies.base import Policy, SearchState, enumerate_all
from release_ray.core.settings import AgentSettings
from release_ray.core.space import KnobSpace, keys
from release_ray.sketches import Sketches, plain, values_from_json
from samplers.base import Candidates

# What TVM's database and models take for the latency of a failure.
_NEVER_S = 1e10
_NO_END = 2**30


class EvolutionaryPolicy(Policy):
    """Proposes batches as stock MetaSchedule does: a new one when the last has been measured.

    `model_calls` and the agent's other settings mean nothing to it. A batch takes up to a minute,
    for every individual of every generation is a schedule that TVM makes.
    """

    def __init__(self, settings: AgentSettings, seed: int = 0) -> None:
        super().__init__(settings, seed)
        self._searches: dict[KnobSpace, _Search] = {}

    def propose(self, state: SearchState, count: int) -> Candidates:
        if state.space.size <= self.settings.model_calls:
            return enumerate_all(state, count)
        if not isinstance(state.schedules, Sketches):
            raise RuntimeError("evolutionary searches TVM's schedules, and there are none here")
        if state.space not in self._searches:
            self._searches[state.space] = _Search(state.schedules, self.seed)
        search = self._searches[state.space]
        search.learn(state.measured, state.fitness)
        candidates = search.waiting(state.visited)
        if len(candidates.points) < max(1, count // 4):
            search.generate(count)
            candidates = search.waiting(state.visited)
        return Candidates(candidates.points[:count], candidates.scores[:count])


class _Search:
    """Stock search of one task, with its database and its cost model."""

    def __init__(self, sketches: Sketches, seed: int) -> None:
        from tvm.s_tir import meta_schedule as ms

        # It reports each fit at length.
        logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.ERROR)
        task = sketches.task
        self._ms = ms
        self._sketches = sketches
        self._context = ms.TuneContext(
            mod=task.module,
            target=task.target,
            space_generator="post-order-apply",
            search_strategy="evolutionary",
            task_name=task.name,
            num_threads=1,
            rand_state=seed + 1,
        )
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(task.module)
        self._model = ms.cost_model.XGBModel(num_tuning_cores=1)
        self._started = False
        self._known: dict[bytes, float] = {}
        # The first measured is the yardstick: what is told are multiples of its latency.
        self._yardstick: bytes | None = None
        self._batch = np.zeros((0, sketches.space.width), np.int32)

    def learn(self, points: np.ndarray, fitness: np.ndarray) -> None:
        """Tells database and model what has been measured since the last call."""
        by_key = dict(zip(keys(points), map(float, fitness), strict=True))
        if self._yardstick is None:
            self._yardstick = next((key for key, value in by_key.items() if value > 0), None)
        if self._yardstick is None:
            return
        unit = by_key[self._yardstick]
        candidates, results = [], []
        for key, point in zip(keys(points), points, strict=True):
            if key in self._known:
                continue
            self._known[key] = unit / by_key[key] if by_key[key] > 0 else inf
            applied = self._sketches.apply(point)
            if applied.schedule is None:
                continue
            candidate = self._candidate(applied.schedule)
            seconds = [min(self._known[key], _NEVER_S)]
            self._database.commit_tuning_record(
                self._ms.database.TuningRecord(
                    applied.schedule.trace,
                    self._workload,
                    seconds,
                    self._context.target,
                    candidate.args_info,
                )
            )
            candidates.append(candidate)
            results.append(self._ms.runner.RunnerResult(seconds, None))
        if candidates:
            self._model.update(self._context, candidates, results)
            if self._started:
                self._context.search_strategy.notify_runner_results(candidates, results)

    def generate(self, count: int) -> None:
        """Searches for `count` candidates; they wait, the best first, as far as they are ours."""
        strategy = self._context.search_strategy
        if not self._started:
            spaces = self._context.generate_design_space()
            strategy.pre_tuning(_NO_END, count, spaces, self._database, self._model)
            self._started = True
        found = strategy.generate_measure_candidates() or []
        self._batch = self._recognised(found)

    def waiting(self, visited: set[bytes]) -> Candidates:
        """Those of the last batch that were not visited, with ranks for scores."""
        first: dict[bytes, int] = {}
        for row, key in enumerate(keys(self._batch)):
            if key not in visited:
                first.setdefault(key, row)
        points = self._batch[list(first.values())]
        return Candidates(points, np.linspace(1.0, 0.0, len(points), dtype=np.float32))

    def _recognised(self, found: Sequence[Any]) -> np.ndarray:
        scores = self._model.predict(self._context, found) if len(found) else np.zeros(0)
        points = []
        for row in np.argsort(-np.asarray(scores), kind="stable"):
            try:
                trace = plain(found[int(row)].sch.trace.as_json())
                sketch, decisions = self._sketches.recognise(trace)
            except ValueError:
                continue
            points.append(self._sketches.space.point(sketch, values_from_json(decisions)))
        return np.array(points, np.int32).reshape(-1, self._sketches.space.width)

    def _candidate(self, schedule: Any) -> Any:
        arguments = self._ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        return self._ms.MeasureCandidate(schedule, arguments)
