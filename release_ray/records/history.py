"""What the runs of one kind have measured: the questions that a search asks of its past."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from datetime import datetime
from math import inf
from typing import Any

import sqlalchemy as sa

from release_ray.core.statuses import Purpose, Status
from release_ray.records.record import Record, Run
from release_ray.records.sqlite import CANDIDATE, RECORDS, RUNS

FINALISTS = 5
"""So many of a task's fastest are measured once more before one of them is called best."""

NEAR = 1.25
"""Up to so many times the best latency of a search a candidate may turn out to be the best."""

UNTUNED = (-1, "[]")
"""Sketch and decisions of the operator as TVM compiles it untuned, where finals included it."""

Finals = Mapping[tuple[int, str], float | None]
"""(sketch, decisions) to seconds; None for a candidate that failed."""

Transaction = Callable[[], AbstractContextManager[sa.Connection]]


class History:
    """The records one kind of run may use: since the last fresh run, real or simulated alone.

    `visible` is that as a condition on the table of records. Without a kind, everything.
    """

    def __init__(self, transaction: Transaction, simulated: bool | None) -> None:
        self._transaction = transaction
        if simulated is None:
            self._runs: sa.ColumnElement[bool] = sa.true()
        else:
            kind = RUNS.c.simulated == simulated
            first = sa.select(sa.func.coalesce(sa.func.max(RUNS.c.number), 0))
            first_seen = first.where(RUNS.c.fresh, kind).scalar_subquery()
            self._runs = sa.and_(kind, RUNS.c.number >= first_seen)
        self.visible: sa.ColumnElement[bool] = RECORDS.c.run_id.in_(
            sa.select(RUNS.c.run_id).where(self._runs)
        )

    def all(self) -> list[Record]:
        """Every record, oldest first."""
        return self._read(self._select().order_by(RECORDS.c.id))

    def of_task(self, workload: str, target: str) -> list[Record]:
        """Every record of a task, oldest first."""
        return self._read(self._select(workload, target).order_by(RECORDS.c.id))

    def of_candidate(self, workload: str, target: str, sketch: int, decisions: str) -> list[Record]:
        """Every record of a candidate, oldest first."""
        mine = sa.and_(RECORDS.c.sketch == sketch, RECORDS.c.decisions == decisions)
        return self._read(self._select(workload, target).where(mine).order_by(RECORDS.c.id))

    def best(self, workload: str, target: str, count: int = 1) -> list[Record]:
        """The best candidates of a task, best first; fewer where fewer stand.

        A candidate stands as its newest record says, so a retry replaces what was before, and one
        that failed since is out. Canaries and lost devices say nothing of a candidate.

        The finalists are in the order of the last finals, which compare them fairly, unless one
        of them was found since.
        """
        held = self._last_finals(workload, target)
        standing, finals_s = self._standing(workload, target, max(count, FINALISTS), held)
        if finals_s is not None:
            order = sorted(finals_s, key=lambda record: finals_s[record])
            standing = [*order, *(record for record in standing if record not in finals_s)]
        return standing[:count]

    def finalists(self, workload: str, target: str) -> list[Record]:
        """Candidates of a task of which any may be the best: the fastest, and those close to it."""
        held = self._last_finals(workload, target)
        return _near(self._standing(workload, target, FINALISTS, held)[0])

    def _standing(
        self, workload: str, target: str, count: int, held: tuple[Finals, list[Record]]
    ) -> tuple[list[Record], dict[Record, float] | None]:
        """Candidates that stand, by their latency in the search; and the finalists' in the finals.

        The second is None where the finals do not compare those of now: one was found since, or an
        interrupt came first. Who moved up because another dropped out was not invited, and is left
        out of it. `held` is as `_last_finals` gives it.
        """
        finals, last = held
        out = {candidate for candidate, seconds in finals.items() if seconds is None}
        fastest = self._fastest(workload, target, count + len(out))
        standing = [record for record in fastest if record.candidate not in out]
        near = _near(standing)
        absent = [record for record in near if record.candidate not in finals]
        if absent:
            ended = max((row.id or 0 for row in last), default=0)
            out_before = out - {row.candidate for row in last}
            invited = _near([record for record in fastest if record.candidate not in out_before])
            # Outputs are checked after the finals: then these were held to their end.
            complete = any(row.status is Status.WRONG_RESULT for row in last)
            if any((r.id or 0) > ended or (r in invited and not complete) for r in absent):
                return standing, None
        times_s = ((record, finals.get(record.candidate)) for record in near)
        return standing, {record: seconds for record, seconds in times_s if seconds is not None}

    def _fastest(self, workload: str, target: str, count: int) -> list[Record]:
        """Candidates by their latency in the search, whatever the finals said."""
        newest = (
            sa.select(sa.func.max(RECORDS.c.id))
            .where(self.visible)
            .where(RECORDS.c.purpose.not_in([Purpose.CANARY, Purpose.REMEASURE]))
            .where(RECORDS.c.status != Status.DEVICE_LOST)
            .group_by(*(RECORDS.c[name] for name in CANDIDATE))
        )
        return self._read(
            self._select(workload, target)
            .where(RECORDS.c.id.in_(newest), RECORDS.c.status == Status.OK)
            .order_by(RECORDS.c.latency_s, RECORDS.c.id)
            .limit(count)
        )

    def finals(self, workload: str, target: str) -> Finals:
        """What the last finals of a task gave: (sketch, decisions) to seconds; None for a failure.

        Of a candidate's passes the fastest counts, for noise only adds. These latencies are with
        cold caches: they compare with each other alone. A failure in earlier finals stays one.
        """
        return self._last_finals(workload, target)[0]

    def _last_finals(self, workload: str, target: str) -> tuple[Finals, list[Record]]:
        """`finals`, and the records of the last ones."""
        rows = self._read(
            self._select(workload, target)
            .where(RECORDS.c.purpose == Purpose.REMEASURE)
            .where(RECORDS.c.status != Status.DEVICE_LOST)
            .order_by(RECORDS.c.id)
        )
        last = [row for row in rows if row.run_id == rows[-1].run_id]
        finals: dict[tuple[int, str], float | None] = {
            row.candidate: None for row in rows if row.latency_s is None
        }
        for row in last:
            before_s = finals.get(row.candidate, inf)
            if before_s is not None and row.latency_s is not None:
                finals[row.candidate] = min(before_s, row.latency_s)
        return finals, last

    def untuned_won(self, workload: str, target: str) -> bool:
        """Whether a task was fastest untuned in its last finals, so that no schedule helps it.

        Only against all finalists of now: what was found since, or not measured to the end, counts.
        """
        held = self._last_finals(workload, target)
        untuned_s = held[0].get(UNTUNED)
        if untuned_s is None:
            return False
        _, finals_s = self._standing(workload, target, FINALISTS, held)
        return bool(finals_s and untuned_s <= min(finals_s.values()))

    def best_of_each_task(self, count: int = 1) -> list[Record]:
        """`best` of every task that has records, task after task."""
        return [r for key in self.trials() for r in self.best(*key, count)]

    def trials(self) -> Mapping[tuple[str, str], int]:
        """Trials of every (workload, target) with records: what was sent to be measured."""
        counts = RECORDS.c.purpose.in_([p for p in Purpose if p.counts])
        sent = sa.and_(counts, RECORDS.c.status != Status.INVALID)
        task = (RECORDS.c.workload, RECORDS.c.target)
        query = sa.select(*task, sa.func.count().filter(sent)).where(self.visible)
        query = query.where(RECORDS.c.purpose != Purpose.CANARY).group_by(*task)
        with self._transaction() as connection:
            return {(w, t): count for w, t, count in connection.execute(query)}

    def failures(self) -> Mapping[Status, int]:
        """How often each status other than `ok` and `slow` occurred, canaries apart."""
        query = (
            sa.select(RECORDS.c.status, sa.func.count())
            .where(self.visible, RECORDS.c.status.not_in([Status.OK, Status.SLOW]))
            .where(RECORDS.c.purpose != Purpose.CANARY)
            .group_by(RECORDS.c.status)
        )
        with self._transaction() as connection:
            return {Status(status): count for status, count in connection.execute(query)}

    def active_s(self) -> float:
        """Seconds worked, over all runs."""
        query = sa.select(sa.func.coalesce(sa.func.sum(RUNS.c.active_s), 0.0)).where(self._runs)
        with self._transaction() as connection:
            return float(connection.execute(query).scalar_one())

    def runs(self) -> list[Run]:
        """The runs themselves, oldest first."""
        query = sa.select(RUNS).where(self._runs).order_by(RUNS.c.number)
        with self._transaction() as connection:
            return [_run(row) for row in connection.execute(query).mappings()]

    def seconds(self) -> Callable[[Record], float]:
        """When each record was made: a function to active seconds, over all the runs."""
        offset_s, begun = 0.0, {}
        for run in self.runs():
            begun[run.run_id] = (datetime.fromisoformat(run.started_at), offset_s)
            offset_s += run.active_s

        def seconds(record: Record) -> float:
            started, earlier_s = begun[record.run_id]
            at = datetime.fromisoformat(record.created_at)
            return earlier_s + max(0.0, (at - started).total_seconds())

        return seconds

    def _read(self, query: sa.Select[Any]) -> list[Record]:
        with self._transaction() as connection:
            return [_record(row) for row in connection.execute(query).mappings()]

    def _select(self, workload: str | None = None, target: str | None = None) -> sa.Select[Any]:
        query = sa.select(RECORDS).where(self.visible)
        if workload is not None:
            query = query.where(RECORDS.c.workload == workload, RECORDS.c.target == target)
        return query


def _near(fastest: list[Record]) -> list[Record]:
    """Of candidates, fastest first, the finalists."""
    first = [record for record in fastest[:FINALISTS] if record.latency_s is not None]
    return [r for r in first if (r.latency_s or inf) <= NEAR * (first[0].latency_s or inf)]


def _record(row: Mapping[Any, Any]) -> Record:
    values = dict(row)
    values["purpose"] = Purpose(values["purpose"])
    values["status"] = Status(values["status"])
    return Record(**values)


def _run(row: Mapping[Any, Any]) -> Run:
    return Run(**{field.name: row[field.name] for field in fields(Run)})
