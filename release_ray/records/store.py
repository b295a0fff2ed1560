"""The store of all records: opening, writing, pruning."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from release_ray.core.errors import InputError
from release_ray.core.statuses import Purpose, Status
from release_ray.records.history import UNTUNED, History
from release_ray.records.record import COLUMNS, Record
from release_ray.records.sqlite import CANDIDATE, RECORDS, RUNS, connect, explained, prepare


class Records:
    """The store. Safe to use from several threads; close it, or use it as a context manager."""

    def __init__(self, path: Path, connection: sa.Connection) -> None:
        self._path = path
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> Records:
        """Opens the store at `path`; makes one if there is none and `create` allows it.

        Raises `InputError` where the file is missing, damaged, of a newer version, another
        program's, or cannot be written.
        """
        if not create and not path.is_file():
            raise InputError(f"{path} does not exist: name the --work-dir of an earlier run")
        with explained(path):
            connection = connect(path)
            try:
                prepare(path, connection, create=create)
            except BaseException:
                connection.close()
                connection.engine.dispose()
                raise
        return cls(path, connection)

    def close(self) -> None:
        """Closes the file. Committed rows need no closing."""
        with self._lock:
            self._connection.close()
            self._connection.engine.dispose()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- runs -----------------------------------------------------------------------------------

    def begin_run(
        self,
        command: str,
        settings: str,
        *,
        simulated: bool = False,
        fresh: bool = False,
        already_s: float = 0.0,
    ) -> str:
        """Starts a run and returns its id.

        `settings` is JSON; `already_s` are seconds that the run has worked by now.
        """
        run_id = uuid.uuid4().hex[:12]
        started = datetime.now(UTC) - timedelta(seconds=already_s)
        with self._transaction() as connection:
            connection.execute(
                RUNS.insert().values(
                    run_id=run_id,
                    command=command,
                    settings=settings,
                    simulated=simulated,
                    fresh=fresh,
                    status="running",
                    started_at=started.isoformat(timespec="microseconds"),
                    active_s=0.0,
                )
            )
        return run_id

    def update_run(self, run_id: str, active_s: float, status: str = "running") -> None:
        """Notes how long a run has worked. What was noted last counts after a killed run."""
        with self._transaction() as connection:
            _note_active(connection, run_id, active_s, status)

    # -- writing --------------------------------------------------------------------------------

    def append(self, record: Record, *, active_s: float | None = None) -> int:
        """Writes one record and returns its id; notes the run's `active_s` in the same breath."""
        with self._transaction() as connection:
            row = connection.execute(RECORDS.insert(), _row(record)).inserted_primary_key
            if active_s is not None:
                _note_active(connection, record.run_id, active_s, "running")
        assert row is not None
        return int(row[0])

    def extend(self, records: Iterable[Record]) -> int:
        """Writes all of them or, if that fails, none. Returns how many."""
        rows = [_row(record) for record in records]
        if rows:
            with self._transaction() as connection:
                connection.execute(RECORDS.insert(), rows)
        return len(rows)

    def mark_wrong(self, record_id: int, message: str) -> int:
        """Turns a record whose output proved wrong into `wrong_result`, and with it every other
        measurement of that candidate in runs of its kind. Returns how many."""
        that, mine = RECORDS.alias(), RUNS.alias()
        same = [RECORDS.c[name] == that.c[name] for name in CANDIDATE]
        kind = sa.select(mine.c.simulated).where(mine.c.run_id == that.c.run_id).scalar_subquery()
        peers = sa.select(RUNS.c.run_id).where(RUNS.c.simulated == kind)
        with self._transaction() as connection:
            ids = connection.execute(
                sa.select(RECORDS.c.id)
                .join(that, sa.and_(*same))
                .where(that.c.id == record_id)
                .where(RECORDS.c.status.in_([Status.OK, Status.SLOW]))
                .where(RECORDS.c.run_id.in_(peers))
            ).scalars()
            return connection.execute(
                RECORDS.update()
                .where(RECORDS.c.id.in_(list(ids)))
                .values(status=Status.WRONG_RESULT, latency_s=None, bound_s=None, message=message)
            ).rowcount

    def prune(
        self, *, superseded: bool = False, failures: bool = False, keep_best: int | None = None
    ) -> int:
        """Deletes records for good, and returns how many.

        `superseded` are those that a fresh run has hidden, `failures` those of candidates without
        any measurement; `keep_best` leaves that many candidates a task. What is deleted no longer
        counts as a trial, and may be measured again.
        """
        histories = [self.history(simulated=simulated) for simulated in (False, True)]
        visible = sa.or_(*(history.visible for history in histories))
        doomed = []
        candidate = sa.tuple_(*(RECORDS.c[name] for name in CANDIDATE))
        if superseded:
            doomed.append(sa.not_(visible))
        if failures:
            # Of one that was measured too, the failure is why it is not the best.
            was_measured = RECORDS.c.status.in_([Status.OK, Status.SLOW])
            told = sa.select(*(RECORDS.c[name] for name in CANDIDATE)).where(was_measured)
            untold = sa.or_(RECORDS.c.status == Status.DEVICE_LOST, candidate.not_in(told))
            doomed.append(sa.and_(sa.not_(was_measured), untold))
        if keep_best is not None:
            kept = [r for h in histories for r in h.best_of_each_task(keep_best)]
            of_kept = [tuple(getattr(record, name) for name in CANDIDATE) for record in kept]
            # Canaries, and operators untuned, are no candidates.
            candidates = sa.and_(visible, RECORDS.c.purpose != Purpose.CANARY)
            candidates = sa.and_(candidates, RECORDS.c.sketch != UNTUNED[0])
            doomed.append(sa.and_(candidates, candidate.not_in(of_kept)))
        if not doomed:
            return 0
        with self._transaction() as connection:
            deleted = connection.execute(RECORDS.delete().where(sa.or_(*doomed))).rowcount
        with self._lock, explained(self._path):
            driver = self._connection.connection.dbapi_connection
            assert driver is not None
            driver.execute("VACUUM")
        return deleted

    # -- reading --------------------------------------------------------------------------------

    def history(self, *, simulated: bool) -> History:
        """What real or simulated runs have measured since the last fresh one of their kind."""
        return History(self._transaction, simulated)

    def everything(self) -> History:
        """All that is in the file: what fresh runs have hidden, real and simulated together."""
        return History(self._transaction, None)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        with self._lock, explained(self._path), self._connection.begin():
            yield self._connection


def _note_active(connection: sa.Connection, run_id: str, active_s: float, status: str) -> None:
    connection.execute(
        RUNS.update().where(RUNS.c.run_id == run_id).values(active_s=active_s, status=status)
    )


def _row(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in COLUMNS}
