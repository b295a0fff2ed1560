"""The work dir: its layout, its lock, whom it belongs to, and files that are never half written."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from release_ray.core.errors import InputError

RECORDS = "records.db"
LOCK = ".lock"
TEMPORARY = ".writing-"
SCRATCH = ".scratch-"
SWEEP = "sweep.json"
"""With it a folder is a sweep's."""
_IDENTITY = "workdir.json"


@dataclass(frozen=True)
class Identity:
    """What a work dir belongs to. The names are for people, the rest is compared.

    `fingerprint` tells networks apart whatever they are called; `target` is the target's
    canonical JSON.
    """

    network: str
    fingerprint: str
    target: str


class WorkDir:
    """One directory, in which one network is tuned for one target."""

    def __init__(self, path: Path, *, simulated: bool = False) -> None:
        """`simulated`: for runs on simulated devices, which learn apart from real ones."""
        self.path = path
        self._simulated = simulated

    @classmethod
    def existing(cls, path: Path) -> WorkDir:
        """The work dir at `path`. Raises `InputError` where nothing was ever tuned there."""
        if not (path / _IDENTITY).is_file():
            raise InputError(f"{path} is no work dir: name the --work-dir of an earlier `tune`")
        return cls(path)

    @classmethod
    @contextmanager
    def locked(
        cls, path: Path, identity: Identity | None = None, *, simulated: bool = False
    ) -> Iterator[WorkDir]:
        """The work dir at `path`, made if need be, for one run alone until the block is left.

        Without an identity `claim` must follow before anything is put there. Raises `InputError`
        where another run is going on there (with its pid) and where it cannot be written, and as
        `claim` does.
        """
        with explained(path):
            require_folder(path, "choose another --work-dir")
            path.mkdir(parents=True, exist_ok=True)
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _take(lock, path)
            workdir = cls(path, simulated=simulated)
            with explained(path):
                # Its own folders alone: another work dir may lie inside this one.
                for folder in (path, workdir.checkpoints, workdir.logs):
                    for leftover in folder.glob(f"{TEMPORARY}*"):
                        leftover.unlink()
                for leftover in path.glob(f"{SCRATCH}*"):
                    shutil.rmtree(leftover, ignore_errors=True)
            if identity is not None:
                workdir.claim(identity)
            yield workdir
        finally:
            os.close(lock)

    # -- layout ---------------------------------------------------------------------------------

    @property
    def records(self) -> Path:
        return self.path / RECORDS

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def database_workload(self) -> Path:
        return self.path / "database_workload.json"

    @property
    def database_tuning_record(self) -> Path:
        return self.path / "database_tuning_record.json"

    @property
    def model(self) -> Path:
        return self.path / "model.so"

    @property
    def tasks(self) -> Path:
        """The network's tasks, so that records can be read without the network."""
        return self.path / "tasks.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def checkpoints(self) -> Path:
        """What the agent and the cost model have learnt."""
        return self.path / ("checkpoints-simulated" if self._simulated else "checkpoints")

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    # -- contents -------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        """Whom it belongs to. Raises `InputError` where the file that says so is damaged."""
        file = self.path / _IDENTITY
        try:
            identity = Identity(**json.loads(file.read_text()))
            if not all(isinstance(text, str) for text in asdict(identity).values()):
                raise ValueError("what ought to be text is none")
            return identity
        except (ValueError, TypeError, OSError) as error:
            raise InputError(
                f"{file} is damaged ({error}): choose another --work-dir, or put back a copy"
            ) from error

    def require(self, identity: Identity) -> None:
        """Raises `InputError` where the work dir belongs to another network or target."""
        owner = self.identity
        if owner.fingerprint != identity.fingerprint:
            raise InputError(
                f"{self.path} belongs to the network {_told_apart(owner, identity)}: choose "
                "another --work-dir"
            )
        if owner.target != identity.target:
            raise InputError(
                f"{self.path} belongs to the target {owner.target}, not {identity.target}: choose "
                "another --work-dir"
            )

    def forget_learning(self) -> None:
        """Deletes the checkpoints, as a fresh run must: they come from records it ignores.

        The records stay; a run that begins `fresh` does not see them (`release_ray.records`).
        """
        with explained(self.checkpoints):
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            self.checkpoints.mkdir()

    @contextmanager
    def new_checkpoints(self) -> Iterator[Path]:
        """A copy of the checkpoints to write into; it takes their place when the block is left.

        So that a run which is killed meanwhile leaves the old ones, or none, but no broken ones.
        """
        with explained(self.checkpoints):
            scratch = Path(tempfile.mkdtemp(dir=self.path, prefix=SCRATCH))
            old, new = scratch / "old", scratch / "new"
            try:
                shutil.copytree(self.checkpoints, new)
                yield new
                self.checkpoints.replace(old)
                new.replace(self.checkpoints)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

    def claim(self, identity: Identity) -> None:
        """Makes it that network's and target's, if it is nobody's, and makes its folders.

        Raises `InputError` where it belongs to another network or target.
        """
        file = self.path / _IDENTITY
        if (self.path / SWEEP).exists():
            raise InputError(f"{self.path} is the work dir of a sweep: choose another --work-dir")
        if file.exists():
            self.require(identity)
            if self.result.exists() and self.records.exists() and not self.records.stat().st_size:
                raise InputError(
                    f"{self.records} is empty, and {self.result.name} tells of measurements: put "
                    "back a copy, delete it to begin anew, or choose another --work-dir"
                )
        elif self.records.exists():
            raise InputError(
                f"{self.path} holds records, but {_IDENTITY}, which says of what network, is "
                "gone: choose another --work-dir, or put back a copy"
            )
        else:
            write_atomic(file, json.dumps(asdict(identity), indent=1) + "\n")
        with explained(self.path):
            for folder in (self.checkpoints, self.logs):
                folder.mkdir(exist_ok=True)


def require_file(path: Path) -> None:
    """Raises `InputError` where something stands that no file is to replace, such as a device."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no file, and is not replaced by one: name another")


def require_folder(path: Path, remedy: str) -> None:
    """Raises `InputError` where something stands that is no folder."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is not a folder: {remedy}")


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replaces a file by another in one step: a reader, or a crash, sees the old or the new.

    Raises `InputError` where it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with explained(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(name)
            raise
        _sync_folder(path.parent)


def _take(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        raise InputError(
            f"{path} is in use by the run with pid {holder}: wait for it, or choose another "
            "--work-dir"
        ) from None
    with explained(path):
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def _told_apart(owner: Identity, other: Identity) -> str:
    if owner.network != other.network:
        return f"{owner.network!r}, not {other.network!r}"
    return (
        f"{owner.network!r} with the contents {owner.fingerprint[:12]}, not "
        f"{other.fingerprint[:12]}"
    )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns what the system says of a path that cannot be written into an `InputError`."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}): make room or mend its "
            "permissions, or choose another --work-dir"
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
