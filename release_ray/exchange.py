"""Records in and out of MetaSchedule's database."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tvm.s_tir.meta_schedule.database import TuningRecord

from release_ray.core.errors import InputError
from release_ray.core.statuses import Purpose, Status
from release_ray.database import (
    RECORDS,
    WORKLOADS,
    ForeignRecord,
    load_database,
    read_database,
    sole_writer,
    write_database,
)
from release_ray.rebuild import entries_of
from release_ray.records import Record, Records, now
from release_ray.sketches import Sketches
from release_ray.targets import target_json
from release_ray.tasks import Task, load_tasks, workload_key
from release_ray.workdir import WorkDir, require_folder

POLICY = "import"
"""What the records say where other records name their search policy."""


@dataclass(frozen=True)
class Imported:
    """How many records were taken, and of each other line where it stands and what is wrong."""

    count: int
    skipped: tuple[str, ...]


def export_database(work_dir: Path, directory: Path) -> int:
    """Writes a work dir's best records as MetaSchedule's two files; returns their number.

    Raises:
        InputError: nothing real was measured there, or the folder holds another database.
    """
    workdir = WorkDir.existing(work_dir)
    require_folder(directory, "name another with -o")
    tasks = load_tasks(workdir.tasks)
    entries = entries_of(workdir, tasks)
    with sole_writer(directory):
        _require_replaceable(directory, tasks)
        write_database(directory, entries)
    return len(entries)


def _require_replaceable(directory: Path, tasks: Sequence[Task]) -> None:
    """Raises `InputError` where the files there hold more than an export of these tasks would."""
    records = directory / RECORDS
    if not records.is_file() or not records.stat().st_size:
        return
    mine = {(task.workload.key, task.workload.target_json) for task in tasks}
    foreign = True
    if (directory / WORKLOADS).is_file():
        loaded = load_database(directory)
        found = [_of(record) for _, record in loaded.records]
        foreign = bool(loaded.skipped) or len(set(found)) < len(found) or not set(found) <= mine
    if foreign:
        raise InputError(
            f"{directory} holds a database that was not exported from here: name another with -o"
        )


def _of(record: TuningRecord) -> tuple[str, str]:
    """Workload and target of another's record."""
    target = "" if record.target is None else target_json(record.target)
    return workload_key(record.workload.mod), target


def import_database(work_dir: Path, directory: Path) -> Imported:
    """Takes what a MetaSchedule database measured of a work dir's tasks into its records.

    They count as trials (`purpose` `reused`). Left out, and named, are broken lines, other
    operators and targets, schedules of sketches that this TVM does not make, and candidates that
    the work dir has measured already.
    """
    workdir = WorkDir.existing(work_dir)
    tasks = {task.workload.key: task for task in load_tasks(workdir.tasks)}
    foreign = read_database(directory)
    skipped = list(foreign.skipped)
    with (
        WorkDir.locked(work_dir, workdir.identity),
        Records.open(workdir.records, create=False) as records,
    ):
        run_id = records.begin_run(f"records import {directory}", "{}")
        known = {
            _candidate(record)
            for record in records.history(simulated=False).all()
            if record.status is not Status.DEVICE_LOST
        }
        sketches: dict[str, Sketches] = {}
        rows = []
        for number, record in enumerate(foreign.records, 1):
            try:
                row = _row(record, tasks, sketches, run_id)
                if _candidate(row) in known:
                    raise ValueError("that candidate has been measured here already")
            except ValueError as error:
                skipped.append(f"record {number}: {error}")
                continue
            known.add(_candidate(row))
            rows.append(row)
        records.extend(rows)
        records.update_run(run_id, 0.0, "done")
    return Imported(len(rows), tuple(skipped))


def _candidate(record: Record) -> tuple[str, str, int, str]:
    return record.workload, record.target, record.sketch, record.decisions


def _row(
    foreign: ForeignRecord,
    tasks: Mapping[str, Task],
    sketches: dict[str, Sketches],
    run_id: str,
) -> Record:
    """Raises `ValueError` where the record is of no use here."""
    task = tasks.get(foreign.key)
    if task is None:
        raise ValueError("it is of an operator that this network does not have")
    workload = task.workload
    if foreign.target_json not in (None, workload.target_json):
        raise ValueError(f"it is of the target {foreign.target_json}")
    if workload.key not in sketches:
        sketches[workload.key] = Sketches(task)
    sketch, decisions = sketches[workload.key].recognise(json.loads(foreign.trace_json))
    return Record(
        task=task.name,
        workload=workload.key,
        target=workload.target_json,
        sketch=sketch,
        decisions=decisions,
        purpose=Purpose.REUSED,
        status=Status.OK,
        latency_s=foreign.latency_s,
        bound_s=None,
        message="",
        device="",
        host=socket.gethostname(),
        measure_settings="{}",
        build_s=0.0,
        run_s=0.0,
        round=0,
        policy=POLICY,
        sampler="",
        seed=0,
        run_id=run_id,
        created_at=now(),
        tvm_version=metadata.version("apache-tvm"),
    )
