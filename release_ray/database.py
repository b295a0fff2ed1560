"""MetaSchedule's JSON database: how best records leave for stock TVM, and come from it.

It is a format of exchange. One torn line makes it unloadable for MetaSchedule, so the files are
replaced as a whole, and what is read here may have bad lines: they are named and left out.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord, Workload
from tvm.target import Target

from release_ray.core.errors import InputError
from release_ray.targets import target_json
from release_ray.tasks import Task, workload_key
from release_ray.workdir import explained, write_atomic

logger = logging.getLogger(__name__)

WORKLOADS: Final = "database_workload.json"
RECORDS: Final = "database_tuning_record.json"
DAMAGED: Final = ".damaged"
"""Added to the name of a file that was repaired."""
_LOCK: Final = ".database.lock"

FAILED_S: Final = 1e9
"""MetaSchedule stores a failure as 1e10 s."""


@dataclass(frozen=True)
class Entry:
    """A task's schedule that is to be written."""

    task: Task
    trace_json: str = field(repr=False)
    """The whole trace, postprocessors included."""
    latency_s: float


@dataclass(frozen=True)
class ForeignRecord:
    """A measurement as somebody's database holds it."""

    key: str
    """Of the workload: `tasks.workload_key`."""
    module: IRModule = field(repr=False)
    trace_json: str = field(repr=False)
    latency_s: float
    target_json: str | None
    """Canonical; None where the database does not say it."""


@dataclass(frozen=True)
class Foreign:
    """What could be read from a database."""

    records: tuple[ForeignRecord, ...]
    skipped: tuple[str, ...]
    """`file:line: why` for each line that could not be read."""


def lock_database(directory: Path) -> int:
    """Takes a folder's database for its only writer, and returns what is to be closed in the end.

    The folder is made if need be. The system gives it back when the process ends, however it does.

    Raises:
        InputError: another writer has it, or the folder cannot be written.
    """
    with explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise InputError(
            f"database {str(directory)!r} is open elsewhere: name another, or wait"
        ) from None
    except BaseException:
        os.close(lock)
        raise
    return lock


@contextmanager
def sole_writer(directory: Path) -> Iterator[None]:
    """`lock_database` for a block."""
    lock = lock_database(directory)
    try:
        yield
    finally:
        os.close(lock)


def write_database(directory: Path, entries: Iterable[Entry]) -> None:
    """Replace both files of a directory by these records, each file atomically.

    Where others may write, whoever calls it is the `sole_writer`.
    """
    workloads: dict[str, int] = {}
    workload_lines, record_lines = [], []
    for entry in entries:
        module = entry.task.module
        key = workload_key(module)
        if key not in workloads:
            workloads[key] = len(workloads)
            workload_lines.append(_dump(Workload(module).as_json()))
        arguments = [info.as_json() for info in ArgInfo.from_prim_func(module["main"])]
        target = json.loads(target_json(entry.task.target))
        record = [json.loads(entry.trace_json), [entry.latency_s], target, arguments]
        record_lines.append(_dump([workloads[key], record]))
    directory.mkdir(parents=True, exist_ok=True)
    # Workloads first: a record may not point to one that is not there.
    write_atomic(directory / WORKLOADS, _text(workload_lines))
    write_atomic(directory / RECORDS, _text(record_lines))


def open_database(directory: Path) -> JSONDatabase:
    """The database of a directory as MetaSchedule's own object, as `compile_network` takes it."""
    return JSONDatabase(str(directory / WORKLOADS), str(directory / RECORDS), allow_missing=False)


@dataclass(frozen=True)
class Loaded:
    """A database's contents as MetaSchedule's objects, without what could not be read."""

    workloads: Mapping[int, Any]
    """Each line's content by its number, which is how records refer to it."""
    records: tuple[tuple[Any, TuningRecord], ...]
    """Each line's content, [number of the workload, [trace, ...]], and what it says."""
    skipped: tuple[str, ...]
    """`file:line: why`."""


def load_database(directory: Path) -> Loaded:
    """Everything that can be read of a database; bad lines are named.

    Raises:
        InputError: one of the two files is not there or cannot be read.
    """
    skipped: list[str] = []
    contents: dict[int, Any] = {}
    workloads: dict[int, Workload] = {}
    for index, where, line in _lines(directory / WORKLOADS):
        try:
            contents[index] = _parsed(line)
            workloads[index] = Workload.from_json(contents[index])
        except Exception as error:  # foreign data: JSON, base64 and TVM's own errors alike
            skipped.append(_bad(where, error))
    records = []
    for _, where, line in _lines(directory / RECORDS):
        try:
            index, content = whole = _parsed(line)
            if type(index) is not int or index not in workloads:
                raise ValueError(f"there is no workload {index}")
            records.append((whole, TuningRecord.from_json(content, workloads[index])))
        except Exception as error:  # as above
            skipped.append(_bad(where, error))
    for message in skipped:
        logger.warning("skipped %s", message)
    kept = {index: contents[index] for index in workloads}
    return Loaded(kept, tuple(records), tuple(skipped))


def repair_database(directory: Path) -> tuple[str, ...]:
    """Leaves out of a database's files what cannot be read; says what, and keeps them as they were.

    Whoever calls it holds the lock. In a bad workload's place there is then one that nobody has:
    the records refer to workloads by their numbers, which stay.

    Raises:
        InputError: they cannot be read or written. Each file is whole at any time.
    """
    loaded = load_database(directory)
    records = [content for content, _ in loaded.records]
    numbers = range(1 + max(loaded.workloads, default=-1))
    workloads = [loaded.workloads.get(number) or _nobodys(number) for number in numbers]
    # Records first: with those of bad workloads gone, no other has them.
    for name, lines in ((RECORDS, records), (WORKLOADS, workloads)):
        file = directory / name
        if _has_blank_lines(file) or any(m.startswith(f"{name}:") for m in loaded.skipped):
            write_atomic(_unused(file.with_name(name + DAMAGED)), file.read_bytes())
            write_atomic(file, _text(_dump(line) for line in lines))
        else:
            _end_line(file)
    return loaded.skipped


def _nobodys(number: int) -> Any:
    """A workload to stand for one that is lost. All are different, for TVM counts only those."""
    lost = te.placeholder((number + 1,), name="lost")
    function = te.create_prim_func([lost, te.compute(lost.shape, lambda i: lost[i])])
    return Workload(IRModule({"main": function.with_attr("global_symbol", "main")})).as_json()


def _has_blank_lines(file: Path) -> bool:
    """They crash TVM."""
    return any(not line.strip() for line in file.read_bytes().split(b"\n")[:-1])


def _end_line(file: Path) -> None:
    """Ends a file's last line, or what is appended next would be part of it."""
    with explained(file), file.open("rb+") as stream:
        if stream.seek(0, os.SEEK_END):
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")


def _unused(path: Path) -> Path:
    """That path, or the first with a number behind it that there is not yet."""
    names = itertools.chain([path.name], (f"{path.name}.{n}" for n in itertools.count(2)))
    return next(free for name in names if not (free := path.with_name(name)).exists())


def latency_of(record: TuningRecord) -> float | None:
    """Seconds, the mean of its runs; None for a failure, which MetaSchedule stores as 1e10 s."""
    seconds = [float(value) for value in record.run_secs or ()]
    mean_s = sum(seconds) / len(seconds) if seconds else math.nan
    return mean_s if 0 < mean_s < FAILED_S else None


def read_database(directory: Path) -> Foreign:
    """Every measurement of a database; failures are left out, and bad lines are named.

    Raises:
        InputError: one of the two files is not there or cannot be read.
    """
    loaded = load_database(directory)
    measured = (
        (content, record, latency_s)
        for (_, content), record in loaded.records
        if (latency_s := latency_of(record)) is not None
    )
    return Foreign(tuple(_foreign(*one) for one in measured), loaded.skipped)


def _foreign(content: Any, record: TuningRecord, latency_s: float) -> ForeignRecord:
    target: Target | None = record.target
    return ForeignRecord(
        key=workload_key(record.workload.mod),
        module=record.workload.mod,
        trace_json=json.dumps(content[0]),
        latency_s=latency_s,
        target_json=None if target is None else target_json(target),
    )


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    """(index, `file:line`, text) of the lines that hold something; blank ones do not count."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"database {str(path)!r} cannot be read: {error.strerror}") from None
    numbered = ((n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip())
    for index, (number, line) in enumerate(numbered):
        yield index, f"{path.name}:{number}", line


def _parsed(line: str) -> Any:
    """The JSON of a line, as strict as TVM's: no NaN, no infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number")

    return json.loads(line, parse_constant=refuse)


def _bad(where: str, error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if line != "(not rendered)"]
    return f"{where}: {lines[-1] if lines else type(error).__name__}"


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _dump(content: Any) -> str:
    return json.dumps(content, default=_plain, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """TVM's containers and numbers as Python's."""
    if hasattr(value, "items"):
        return dict(value.items())
    if isinstance(value, Iterable):
        return list(value)
    return int(value)
