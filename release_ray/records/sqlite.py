"""The SQLite file behind the records: its tables, its connection, and what can go wrong with it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from release_ray.core.errors import InputError
from release_ray.core.statuses import Purpose, Status

SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 10.0
_COPIES = 10

CANDIDATE = ("workload", "target", "sketch", "decisions")
_METADATA = sa.MetaData()
RUNS = sa.Table(
    "runs",
    _METADATA,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.Text, nullable=False, unique=True),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("settings", sa.Text, nullable=False),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("fresh", sa.Boolean, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("started_at", sa.Text, nullable=False),
    sa.Column("active_s", sa.Float, nullable=False),
    sqlite_autoincrement=True,
)
RECORDS = sa.Table(
    "records",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("workload", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("sketch", sa.Integer, nullable=False),
    sa.Column("decisions", sa.Text, nullable=False),
    sa.Column("purpose", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("latency_s", sa.Float),
    sa.Column("bound_s", sa.Float),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("device", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("measure_settings", sa.Text, nullable=False),
    sa.Column("build_s", sa.Float, nullable=False),
    sa.Column("run_s", sa.Float, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("sampler", sa.Text, nullable=False),
    sa.Column("seed", sa.Integer, nullable=False),
    sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id"), nullable=False),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("tvm_version", sa.Text, nullable=False),
    sa.CheckConstraint("(status = 'ok') = (latency_s IS NOT NULL)"),
    sa.CheckConstraint("latency_s > 0 AND latency_s < 9e999"),
    sa.CheckConstraint("bound_s IS NULL OR status = 'slow'"),
    sa.CheckConstraint(sa.column("status").in_([str(status) for status in Status])),
    sa.CheckConstraint(sa.column("purpose").in_([str(purpose) for purpose in Purpose])),
    sa.Index("records_of_candidate", *CANDIDATE),
    sqlite_autoincrement=True,
)


def connect(path: Path) -> sa.Connection:
    """The one connection to a store.

    Transactions begin where SQLAlchemy says so, not where sqlite3 would: tables too are made in
    one, and a process killed meanwhile leaves nothing half made.
    """

    def opened() -> sqlite3.Connection:
        readable_alone = path.exists() and not os.access(path.parent, os.W_OK)
        return _copied(path) if readable_alone else _connected(path)

    engine = sa.create_engine("sqlite://", creator=opened, poolclass=StaticPool)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine.connect()


def _connected(path: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )


def _copied(path: Path) -> sqlite3.Connection:
    """The records in memory, to be read: SQLite reads no log where it cannot write beside it."""
    copy = _connected(":memory:")
    files = (path, path.with_name(f"{path.name}-wal"))
    with tempfile.TemporaryDirectory() as folder:
        try:
            for _ in range(_COPIES):
                before = _states(files)
                for file in filter(Path.exists, files):
                    shutil.copyfile(file, Path(folder, file.name))
                # Else somebody was writing, and the two may not belong together.
                if _states(files) == before:
                    break
        except OSError as error:
            raise InputError(f"{path} cannot be copied to be read ({error.strerror})") from None
        with closing(_connected(Path(folder, path.name))) as source:
            source.backup(copy)
    copy.execute("PRAGMA query_only = ON")
    return copy


def _states(files: Sequence[Path]) -> list[tuple[int, int]]:
    """Changes whenever one of the files does."""
    stats = [file.stat() for file in files if file.exists()]
    return [(one.st_size, one.st_mtime_ns) for one in stats]


def prepare(path: Path, connection: sa.Connection, *, create: bool) -> None:
    """Checks the file behind a connection, and makes the tables where `create` allows it.

    Raises `InputError` for a newer schema and for another program's file.
    """
    driver = connection.connection.dbapi_connection
    assert driver is not None
    version = driver.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise InputError(
            f"{path} was written by a newer release_ray (schema {version}, this one knows "
            f"{SCHEMA_VERSION}): update release_ray, or choose another --work-dir"
        )
    empty = driver.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if version == 0 and not (empty and create):
        raise InputError(f"{path} is no records database: choose another --work-dir")
    state = driver.execute("PRAGMA quick_check(1)").fetchone()[0]
    if state != "ok":
        raise sqlite3.DatabaseError(state)
    driver.execute("PRAGMA journal_mode = WAL")
    driver.execute("PRAGMA synchronous = NORMAL")
    driver.execute("PRAGMA foreign_keys = ON")
    if version == 0:
        with connection.begin():
            _METADATA.create_all(connection, checkfirst=False)
            connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns what can go wrong with the file into an `InputError` that says what to do."""
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.DatabaseError) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        name = getattr(cause, "sqlite_errorname", "SQLITE_CORRUPT")
        remedy = next((text for start, text in _REMEDIES if name.startswith(start)), None)
        if remedy is None:
            raise
        raise InputError(f"{path}: {cause} ({name}): {remedy}") from error


_DAMAGED = "move the file away, or put back a copy (--storage keeps one)"
_UNWRITABLE = "make it and its folder writable, or choose another --work-dir"
_REMEDIES = (
    ("SQLITE_CORRUPT", _DAMAGED),
    ("SQLITE_NOTADB", _DAMAGED),
    ("SQLITE_FULL", "make room on its disk; everything recorded so far is kept"),
    ("SQLITE_IOERR", "look after its disk; everything recorded so far is kept"),
    ("SQLITE_READONLY", _UNWRITABLE),
    ("SQLITE_CANTOPEN", _UNWRITABLE),
    ("SQLITE_PERM", _UNWRITABLE),
    ("SQLITE_AUTH", _UNWRITABLE),
    ("SQLITE_BUSY", "another process is writing to it: end that one"),
    ("SQLITE_LOCKED", "another process is writing to it: end that one"),
)
