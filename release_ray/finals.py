"""The finals: the fastest candidates of each task once more, side by side, before one is the best.

The smallest of many noisy latencies is one that noise has made too small. And a search times a
kernel again and again on the same data, so that its weights lie in the caches; in a network they
come from memory, and another schedule may be the best. So finalists are measured in turns, with
cold caches, more than once. The operator untuned is among them where it is about as fast: after few
trials, or where there is little to gain, it may win.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Purpose, Status
from release_ray.database import Entry
from release_ray.journal import Journal
from release_ray.measure.jobs import Job
from release_ray.measure.pool import MeasurePool
from release_ray.measure.scheduler import NOTHING_DONE
from release_ray.records import NEAR, UNTUNED, Record
from release_ray.replay import replayed
from release_ray.tasks import Task
from release_ray.tuner import TaskState

PASSES = 2
_STAYS = 1.1
"""Up to so many times the best of a pass a candidate is measured in the next one."""
_NOT_REPLAYED = replace(
    NOTHING_DONE, status=Status.INVALID, message="this TVM does not make its schedule"
)
_POLL_S = 1.0


@dataclass(frozen=True)
class _Finalist:
    task: Task
    record: Record
    entry: Entry | None
    """None for the operator untuned."""

    def job(self, number: int, settings: MeasureSettings) -> Job:
        if self.entry is None:
            cold = settings.model_copy(update={"flush_cache": True})
            return Job.untuned(number, self.task.workload, cold)
        return Job(
            number,
            self.task.workload,
            self.entry.trace_json,
            self.record.decisions,
            self.record.latency_s,
            Purpose.REMEASURE,
            settings,
        )


def hold_finals(
    states: Sequence[TaskState],
    journal: Journal,
    pool: MeasurePool,
    settings: MeasureSettings,
    first_job: int,
) -> None:
    """Measures the finalists of each task and writes the records that `Journal.best` goes by.

    A task whose finalists were compared before, or that has only one, is left alone. Whether the
    operator is better left untuned `Journal.untuned_won` says.

    Args:
        settings: how candidates are measured.
        first_job: the pool has had jobs with all ids below it, and no others.
    """
    ids = itertools.count(first_job)
    field = [finalist for state in states for finalist in _invited(state, journal)]
    for _ in range(PASSES):
        _measure(field, journal, pool, settings, ids)
        field = _remaining(field, journal)


def _invited(state: TaskState, journal: Journal) -> list[_Finalist]:
    task = state.planner.task
    near = journal.finalists(task)
    finalists = _untuned(state, near)
    compared = journal.finals(task)
    contest = [*near, *(finalist.record for finalist in finalists)]
    if len(contest) < 2 or all(record.candidate in compared for record in contest):
        return []
    for record in near:
        entry = replayed(task, state.planner.sketches, record)
        if entry is None:
            journal.write_final(record, _NOT_REPLAYED)
        else:
            finalists.append(_Finalist(task, record, entry))
    return finalists


def _untuned(state: TaskState, near: Sequence[Record]) -> list[_Finalist]:
    """The operator untuned, if it is about as fast as the fastest of `near`; else none."""
    best_s = near[0].latency_s if near else None
    if best_s is None or state.untuned_s is None or state.untuned_s > NEAR * best_s:
        return []
    sketch, decisions = UNTUNED
    record = replace(near[0], sketch=sketch, decisions=decisions, policy="", sampler="")
    return [_Finalist(state.planner.task, record, None)]


def _measure(
    field: Sequence[_Finalist],
    journal: Journal,
    pool: MeasurePool,
    settings: MeasureSettings,
    ids: itertools.count[int],
) -> None:
    waiting = {next(ids): finalist for finalist in field}
    pool.submit([finalist.job(job_id, settings) for job_id, finalist in waiting.items()])
    while waiting:
        for outcome in pool.wait(_POLL_S):
            # What the search had called off too late may still come.
            finalist = waiting.pop(outcome.job_id, None)
            if finalist is not None:
                journal.write_final(finalist.record, outcome)


def _remaining(field: Sequence[_Finalist], journal: Journal) -> list[_Finalist]:
    """Those that may still win."""
    remaining = []
    for _, group in itertools.groupby(field, key=lambda finalist: finalist.task.name):
        finalists = list(group)
        finals = journal.finals(finalists[0].task)
        times_s = [finals.get(finalist.record.candidate) or inf for finalist in finalists]
        near = [
            finalist
            for finalist, seconds in zip(finalists, times_s, strict=True)
            if seconds <= _STAYS * min(times_s) and seconds < inf
        ]
        remaining += near if len(near) > 1 else []
    return remaining
