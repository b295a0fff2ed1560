"""MetaSchedule's database in its own two files, which neither a kill nor a torn line can spoil."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.database import JSONDatabase, PyDatabase, TuningRecord, Workload

from release_ray import tvm_setup
from release_ray.core.errors import InputError
from release_ray.database import RECORDS, WORKLOADS, latency_of, repair_database
from release_ray.workdir import require_folder


@derived_object
class ReleaseDatabase(PyDatabase):
    """Tuning records in MetaSchedule's JSON files, with what `JSONDatabase` does badly done well.

    One torn line, as a killed run leaves it, makes a `JSONDatabase` unreadable. Here it is left
    out, with a warning that names it; the files as they were are kept, with `.damaged` at the end
    of their names. Two programs cannot write into one database. Failed candidates, which
    MetaSchedule records as 1e10 s, are kept but are nobody's best.

    The folder may be a work dir of `release-ray tune`, whose best schedules are then found.
    """

    def __init__(self, directory: str | Path) -> None:
        """Opens a folder's database, or makes it.

        Raises:
            InputError: another program has it open, or it cannot be read or written.
        """
        super().__init__()
        # Else what reads the records waits 20 s for intrinsics of other back ends.
        tvm_setup.prepare()
        folder = Path(directory)
        require_folder(folder, "name another")
        files = [folder / WORKLOADS, folder / RECORDS]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder)
            for file in files:
                file.touch()
        except OSError as error:
            raise InputError(
                f"database {str(directory)!r} cannot be written ({error.strerror}): name another"
            ) from None
        repair_database(folder)
        self._stock = JSONDatabase(*map(str, files), allow_missing=False)

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
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None


def _locked(folder: Path) -> int | None:
    """A lock that the system takes back when the process ends, however it does."""
    lock = os.open(folder / ".database.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise InputError(
            f"database {str(folder)!r} is open elsewhere: name another, or wait"
        ) from None
    return lock
