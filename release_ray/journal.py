"""Between a run and its records: writes what happens, and restores what happened before."""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

from release_ray.accounting import Stopwatch
from release_ray.core.settings import TuneSettings
from release_ray.core.statuses import Purpose, Status
from release_ray.measure.jobs import Outcome
from release_ray.measure.scheduler import NOTHING_DONE
from release_ray.planner import Observation
from release_ray.recall import Recall
from release_ray.records import Record, Records, now
from release_ray.tasks import Task
from release_ray.tuner import Recorded, TaskState

CANARY_EVERY = 16
"""After so many of a device's measurements its canary is recorded again."""


class Journal:
    """The records of one run, and of those that it goes on from."""

    def __init__(
        self,
        records: Records,
        settings: TuneSettings,
        *,
        simulated: bool,
        fresh: bool,
        watch: Stopwatch,
        shared: Records | None = None,
    ) -> None:
        """`shared`: a store of several runs, which gets what this one measures too."""
        self._shared = shared
        self._records = records
        self._settings = settings
        self._watch = watch
        self._host = socket.gethostname()
        self._canaries: Counter[str] = Counter()
        self._measure_settings = settings.measure.model_dump_json()
        self._tvm_version = metadata.version("apache-tvm")
        self._run_id = records.begin_run(
            " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
            settings.model_dump_json(),
            simulated=simulated,
            fresh=fresh,
            already_s=watch.here_s,
        )
        self._history = records.history(simulated=simulated)
        watch.earlier_s = self._history.active_s()
        self._recall: Recall | None = None
        if shared is not None:
            self._shared_id = shared.begin_run("", "{}", simulated=simulated)

    def restore(self, states: Sequence[TaskState]) -> None:
        """Gives tasks what earlier calls measured of them: trials, bests, curves, rounds."""
        for state in states:
            records = self._count(state)
            state.rounds = state.planner.rounds = max(
                (record.round + 1 for record in records), default=0
            )
            state.planner.absorb(
                Observation(r.sketch, r.decisions, r.status, r.latency_s or r.bound_s)
                for r in records
                if r.purpose not in (Purpose.CANARY, Purpose.REMEASURE)
            )

    def recall(self) -> Recall:
        """For a run that is to search anew, and to measure only what it has not yet."""
        self._recall = Recall(self._history, self._shared, self._measure_settings)
        return self._recall

    def _count(self, state: TaskState) -> list[Record]:
        """Counts all trials of a task into a state that has none; returns all its records."""
        active_s = self._history.seconds()
        task = state.planner.task
        records = self._history.of_task(task.workload.key, task.workload.target_json)
        for record in records:
            if record.purpose.counts and record.status is not Status.INVALID:
                state.count(record.status, record.latency_s, record.message, active_s(record))
        return records

    def write(self, recorded: Recorded) -> None:
        """Writes one outcome, or one refusal; it is on disk when this returns."""
        task, candidate = recorded.state.planner.task, recorded.candidate
        if self._is_written(recorded):
            return
        outcome = recorded.outcome or replace(
            NOTHING_DONE, status=Status.INVALID, message=recorded.reason, host=self._host
        )
        trial = Record(
            task=task.name,
            workload=task.workload.key,
            target=task.workload.target_json,
            sketch=candidate.sketch,
            decisions=candidate.decisions,
            purpose=Purpose.REUSED if recorded.recalled else Purpose.TRIAL,
            round=recorded.round,
            policy=candidate.policy,
            sampler=self._settings.sampler.name,
            seed=self._settings.seed,
            **self._measured(outcome),
        )
        self._append(trial)
        if self._shared is not None and trial.purpose is Purpose.TRIAL:
            self._shared.append(replace(trial, run_id=self._shared_id))
        if outcome.canary_s is not None:
            if self._canaries[outcome.device] % CANARY_EVERY == 0:
                self._append(_canary(trial, outcome.canary_s))
            self._canaries[outcome.device] += 1

    def _is_written(self, recorded: Recorded) -> bool:
        """Whether it is what an earlier call has written, in a run that searches anew."""
        if recorded.recalled is not None:
            return recorded.recalled.own
        candidate, workload = recorded.candidate, recorded.state.planner.task.workload
        return (
            recorded.outcome is None
            and self._recall is not None
            and self._recall.knows_refusal(workload, candidate.sketch, candidate.decisions)
        )

    def write_final(self, trial: Record, outcome: Outcome) -> None:
        """Writes what a finalist's measurement gave; `trial` is the record that made it one."""
        self._append(replace(trial, id=None, purpose=Purpose.REMEASURE, **self._measured(outcome)))

    def _append(self, record: Record) -> None:
        self._records.append(record, active_s=self._watch.here_s)

    def _measured(self, outcome: Outcome) -> dict[str, Any]:
        """The columns that say what this run has measured, and how."""
        return {
            "status": outcome.status,
            "latency_s": outcome.latency_s,
            "bound_s": outcome.bound_s,
            "message": outcome.message,
            "device": outcome.device,
            "host": outcome.host,
            "measure_settings": self._measure_settings,
            "build_s": outcome.build_s,
            "run_s": outcome.run_s,
            "run_id": self._run_id,
            "created_at": now(),
            "tvm_version": self._tvm_version,
        }

    def best(self, task: Task, count: int) -> list[Record]:
        """The best candidates of a task, best first."""
        return self._history.best(task.workload.key, task.workload.target_json, count)

    def finalists(self, task: Task) -> list[Record]:
        """Candidates of a task of which any may be the best, as `History.finalists`."""
        return self._history.finalists(task.workload.key, task.workload.target_json)

    def finals(self, task: Task) -> Mapping[tuple[int, str], float | None]:
        """What the last finals of a task gave, as `History.finals`."""
        return self._history.finals(task.workload.key, task.workload.target_json)

    def untuned_won(self, task: Task) -> bool:
        """Whether a task is better left untuned, as `History.untuned_won`."""
        return self._history.untuned_won(task.workload.key, task.workload.target_json)

    def mark_wrong(self, record: Record, message: str) -> None:
        """A record's output is wrong: it is no result any more."""
        assert record.id is not None
        self._records.mark_wrong(record.id, message)

    def recount(self, state: TaskState) -> None:
        """Sets a task's best, curve and failures anew, after some of its records proved wrong."""
        state.forget()
        self._count(state)

    def failures(self) -> Mapping[Status, int]:
        """How often each failure occurred, over all calls."""
        return self._history.failures()

    def end(self, status: str) -> None:
        """Notes how the run ended."""
        self._records.update_run(self._run_id, self._watch.here_s, status)


def _canary(trial: Record, canary_s: float) -> Record:
    """The record of the canary around a trial. It is of a device, and of no task."""
    return replace(
        trial,
        task="",
        workload="",
        sketch=0,
        decisions="[]",
        purpose=Purpose.CANARY,
        status=Status.OK,
        latency_s=canary_s,
        bound_s=None,
        build_s=0.0,
        run_s=0.0,
        policy="",
        sampler="",
    )
