"""release_ray's search as a search strategy of MetaSchedule."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import (
    MeasureCandidate,
    PySearchStrategy,
)
from tvm.s_tir.schedule import Schedule

import policies
import samplers
from policies.base import Policy
from release_ray import tvm_setup
from release_ray.configuration import check_search, load_settings
from release_ray.core.settings import TuneSettings
from release_ray.core.statuses import Status
from release_ray.database import latency_of
from release_ray.metaschedule.connection import closed_with, connected
from release_ray.planner import Candidate, Observation, TaskPlanner
from release_ray.sketches import Sketches, plain
from release_ray.targets import target_json
from release_ray.tasks import Task, flops_of

_RECALLED = 256
"""So many of the fastest records of a database are learnt from."""


@derived_object
class ReleaseSearch(PySearchStrategy):
    """The agent, the cost model and the sampler, proposing for MetaSchedule's own loop.

    Of MetaSchedule's cost model it makes no use: with `cost_model="random"` none is trained. What
    it learns of one task it uses for the next. A round has as many candidates as the sampler finds
    worth measuring, 16 at most by default, whatever `num_trials_per_iter` allows.
    """

    def __init__(self, *, address: str | None = None, **settings: Any) -> None:
        """Starts nothing.

        Args:
            address: of a Ray cluster, which the agent needs; default: `RAY_ADDRESS`, else one is
                started.
            settings: of the search, as `release_ray.tune` takes them: `policy="genetic"`,
                `sampler={"max_clusters": 32}`, `seed=1`.

        Raises:
            InputError: there is no such setting, policy or sampler.
        """
        super().__init__()
        # Else whoever imports the builders waits 20 s for intrinsics of other back ends.
        tvm_setup.prepare()
        chosen = load_settings(None, settings)
        check_search(chosen)
        self._search = _Search(chosen, address)
        self._operator: _Operator | None = None
        self._task: _TaskUnderWay | None = None

    def _initialize_with_tune_context(self, context: Any) -> None:
        # Not the context itself: it holds this strategy, and neither would ever be freed.
        name = str(context.task_name)
        self._operator = _Operator(context.mod, context.target, name, context.space_generator)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Gets ready for one task, with what `database` knows of it."""
        if self._operator is None:
            raise RuntimeError("ReleaseSearch: it belongs to no TuneContext")
        self._task = _TaskUnderWay(
            self._search, self._operator, list(design_spaces), max_trials, num_trials_per_iter
        )
        if database is not None:
            self._task.recall(database)

    def post_tuning(self) -> None:
        """Ends the task; what was learnt of it stays."""
        self._task = None

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The next round; None when the budget is spent or nothing is left."""
        return self._current.propose()

    def notify_runner_results(
        self, measure_candidates: list[MeasureCandidate], results: list[RunnerResult]
    ) -> None:
        """Learns what became of the round."""
        self._current.learn(results)

    def clone(self) -> ReleaseSearch:
        """A strategy for another task, which learns from the same search."""
        cloned = ReleaseSearch()
        cloned._search = self._search
        return cloned

    def close(self) -> None:
        """Frees the agent, and leaves a Ray that was started for it."""
        self._search.close()

    @property
    def _current(self) -> _TaskUnderWay:
        if self._task is None:
            raise RuntimeError("ReleaseSearch: pre_tuning comes first")
        return self._task


class _Search:
    """What all tasks share: the policy, the sampler, and each other's measurements."""

    def __init__(self, settings: TuneSettings, address: str | None) -> None:
        self.settings = settings
        self.sampler = samplers.create(settings.sampler.name, settings.sampler)
        self.planners: list[TaskPlanner] = []
        self._opening = policies.opening(settings.policy, settings.agent, settings.seed)
        self._address = address
        self._stack = closed_with(self)
        self._policy: Policy | None = None
        self._preparing: threading.Thread | None = None

    def policy(self, *, first: bool) -> tuple[str | None, Policy]:
        """Name, where it is not that of the settings, and policy for a round.

        While a first round is measured the agent gets ready, which takes seconds.
        """
        if self._policy is None:
            self._policy = self._create()
            self._preparing = threading.Thread(target=self._policy.prepare, daemon=True)
            self._preparing.start()
        if self._preparing is not None:
            if first and self._preparing.is_alive():
                return self._opening
            self._preparing.join()
        return None, self._policy

    def _create(self) -> Policy:
        settings = self.settings
        self._stack.enter_context(connected(self._address))
        made = policies.create(settings.policy, settings.agent, settings.seed)
        self._stack.callback(made.close)
        return made

    def close(self) -> None:
        """Frees the policy; the next round makes it anew."""
        if self._preparing is not None:
            self._preparing.join()
        self._policy = self._preparing = None
        self._stack.close()


@dataclass(frozen=True)
class _Operator:
    """What a `TuneContext` says of its task."""

    module: Any
    target: Any
    name: str
    generator: Any
    """Of the space: its postprocessors belong to each schedule."""


class _TaskUnderWay:
    """One task, round by round."""

    def __init__(
        self,
        search: _Search,
        operator: _Operator,
        spaces: Sequence[Schedule],
        trials: int,
        at_once: int,
    ) -> None:
        self._search = search
        self._left, self._at_once = trials, at_once
        flops = flops_of(operator.module, operator.name)
        task = Task(operator.name, 1, flops, operator.module, operator.target)
        self._planner = TaskPlanner(
            task,
            search.settings,
            search.sampler,
            make_sketches=lambda task: Sketches(task, spaces, operator.generator.postprocs),
        )
        search.planners.append(self._planner)
        self._proposed: tuple[Candidate, ...] = ()

    def recall(self, database: Any) -> None:
        """Learns what a database has measured of the task, as far as its sketches know it."""
        module = self._planner.task.module
        if not database.has_workload(module):
            return
        records = database.get_top_k(database.commit_workload(module), _RECALLED)
        seen = (self._seen(record) for record in records)
        self._planner.absorb(one for one in seen if one is not None)

    def _seen(self, record: TuningRecord) -> Observation | None:
        own = self._planner.task.workload.target_json
        if record.target is not None and target_json(record.target) != own:
            return None
        try:
            sketch, decisions = self._planner.sketches.recognise(plain(record.trace.as_json()))
        except ValueError:
            return None  # of another space, or another version of TVM
        latency_s = latency_of(record)
        status = Status.OK if latency_s is not None else Status.RUN_ERROR
        return Observation(sketch, decisions, status, latency_s)

    def propose(self) -> list[MeasureCandidate] | None:
        """As `ReleaseSearch.generate_measure_candidates`."""
        first = self._planner.best_s is None
        settings = self._search.settings
        most = settings.first_batch if first else settings.sampler.max_clusters
        limit = min(self._left, self._at_once, most)
        if limit < 1:
            return None
        label, policy = self._search.policy(first=first)
        others = [planner for planner in self._search.planners if planner is not self._planner]
        plan = self._planner.plan(limit, policy, others, label=label)
        self._planner.absorb(
            Observation(refused.sketch, refused.decisions, Status.INVALID, None)
            for refused in plan.refused
        )
        self._proposed = plan.candidates
        self._left -= len(plan.candidates)
        found = [self._planner.sketches.apply(c.point).schedule for c in plan.candidates]
        return [_candidate(schedule) for schedule in found] or None

    def learn(self, results: Sequence[RunnerResult]) -> None:
        """As `ReleaseSearch.notify_runner_results`."""
        self._planner.absorb(
            _observation(candidate, result)
            for candidate, result in zip(self._proposed, results, strict=True)
        )


def _candidate(schedule: Schedule) -> MeasureCandidate:
    arguments = ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    return MeasureCandidate(schedule, arguments)


def _observation(candidate: Candidate, result: RunnerResult) -> Observation:
    seconds = [float(value) for value in result.run_secs or ()]
    if not seconds:
        return Observation(candidate.sketch, candidate.decisions, Status.RUN_ERROR, None)
    latency_s = sum(seconds) / len(seconds)
    return Observation(candidate.sketch, candidate.decisions, Status.OK, latency_s)
