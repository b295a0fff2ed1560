"""MetaSchedule's database in its own two files, which neither a kill nor a torn line can spoil."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.database import JSONDatabase, PyDatabase, TuningRecord, Workload

from release_ray import tvm_setup
from release_ray.core.errors import InputError
from release_ray.database import (
    RECORDS,
    WORKLOADS,
    latency_of,
    lock_database,
    repair_database,
)
from release_ray.workdir import explained, require_folder


@derived_object
class ReleaseDatabase(PyDatabase):
    """Tuning records in MetaSchedule's JSON files, with what `JSONDatabase` does badly done well.

    One torn line, as a killed run leaves it, makes a `JSONDatabase` unreadable. Here it is left
    out, with a warning that names it; the files as they were are kept, with `.damaged` at the end
    of their names. Two programs cannot write into one database. Failed candidates, which
    MetaSchedule records as 1e10 s, are kept but are nobody's best.

    The folder may be a work dir of `release-ray tune`, whose best schedules are then found. Commit
    into another: the next `tune` there replaces both files.
    """

    def __init__(self, directory: str | Path) -> None:
        """Opens a folder's database, or makes it.

        Raises:
            InputError: another program has it open, half of it is missing, or it cannot be read
                or written.
        """
        super().__init__()
        # Else what reads the records waits 20 s for intrinsics of other back ends.
        tvm_setup.prepare()
        folder = Path(directory)
        require_folder(folder, "name another")
        files = [folder / WORKLOADS, folder / RECORDS]
        self._unlock = weakref.finalize(self, os.close, lock_database(folder))
        try:
            self._stock = _opened(folder, *files)
        except BaseException:
            # Whoever has the traceback has this too, and would keep the lock with it.
            self.close()
            raise

    def has_workload(self, mod: IRModule) -> bool:
        """Whether it was committed."""
        return bool(self._stock.has_workload(mod))

    def commit_workload(self, mod: IRModule) -> Workload:
        """The database's object of a module; the same one for the same module."""
        return self._stock.commit_workload(mod)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Records a measurement; whatever ends the program later, it is kept."""
        self._stock.commit_tuning_record(record)

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The fastest records of a workload, the fastest first; no failures."""
        found = self._stock.get_top_k(workload, len(self._stock))
        return [record for record in found if latency_of(record) is not None][:top_k]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """All records, failures too."""
        return list(self._stock.get_all_tuning_records())

    def __len__(self) -> int:
        return len(self._stock)

    def close(self) -> None:
        """Lets other programs have the files. Nothing is to be committed afterwards."""
        self._unlock()


def _opened(folder: Path, workloads: Path, records: Path) -> JSONDatabase:
    if records.exists() and records.stat().st_size and not workloads.exists():
        raise InputError(
            f"database {str(folder)!r} has records, but {WORKLOADS}, which says of what, is gone: "
            "put it back, or name another"
        )
    with explained(folder):
        for file in (workloads, records):
            file.touch()
    repair_database(folder)
    return JSONDatabase(str(workloads), str(records), allow_missing=False)
