"""Copies of the work dir at a storage URL: whatever fsspec can reach, from `file:` to `s3:`.

A copy made while a run is going on can be restored and resumed: the records are copied as of one
moment, and each file appears there under its name only when it is whole.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from release_ray.core.errors import InputError
from release_ray.workdir import LOCK, RECORDS, TEMPORARY

log = logging.getLogger(__name__)

_PARTIAL = ".partial"
_PROBE = ".release-ray-probe"


class Storage:
    """Keeps the copy of one work dir at one URL."""

    def __init__(self, url: str) -> None:
        """Raises `InputError` where the URL is not understood or cannot be written to."""
        self._url = url
        self._copied: dict[str, tuple[int, int]] = {}
        self._told: str | None = None
        self._fs, self._root = _opened(url)
        probe = f"{self._root}/{_PROBE}"
        try:
            self._fs.makedirs(self._root, exist_ok=True)
            self._fs.pipe_file(probe, b"")
            self._fs.rm_file(probe)
        except Exception as error:
            raise InputError(f"--storage {url} cannot be written to: {_told(error)}") from error

    def require_apart(self, workdir: Path) -> None:
        """Raises `InputError` where the copy of a work dir would lie in the work dir itself."""
        protocols = self._fs.protocol
        local = "file" in ([protocols] if isinstance(protocols, str) else protocols)
        if local and Path(self._root).resolve().is_relative_to(workdir.resolve()):
            raise InputError(
                f"--storage {self._url} is in the work dir {workdir}, which it is to be a copy of:"
                " choose a folder elsewhere"
            )

    def sync(self, workdir: Path, leave_out: Sequence[str] = ()) -> bool:
        """Copies what has changed since the last call; says whether all of it got there.

        `leave_out` are folders of the work dir that stay as they are there.
        A copy that fails is logged, once a reason, and made good by the next call that succeeds:
        the run goes on, for its records are safe in the work dir.
        """
        try:
            self._copy_changed(workdir, leave_out)
        except Exception as error:
            if _told(error) != self._told:
                self._told = _told(error)
                log.warning("copying %s to %s failed: %s", workdir, self._url, self._told)
            return False
        if self._told is not None:
            log.warning("copying %s to %s works again", workdir, self._url)
            self._told = None
        return True

    def _copy_changed(self, workdir: Path, leave_out: Sequence[str]) -> None:
        found = {path.relative_to(workdir).as_posix(): path for path in _files(workdir, leave_out)}
        for name, path in sorted(found.items()):
            state = _state(path)
            if self._copied.get(name) == state:
                continue
            if path.name == RECORDS:
                self._put_records(path, name)
            else:
                self._put(path, name)
            self._copied[name] = state
        copied = {name for name in self._copied if name.partition("/")[0] not in leave_out}
        for name in sorted(copied - found.keys()):
            self._fs.rm_file(f"{self._root}/{name}")
            del self._copied[name]

    def _put_records(self, path: Path, name: str) -> None:
        """The file alone would miss what is still in the write-ahead log."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / RECORDS
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
            self._put(copy, name)

    def _put(self, path: Path, name: str) -> None:
        target = f"{self._root}/{name}"
        self._fs.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
        self._fs.put_file(str(path), target + _PARTIAL)
        self._fs.mv(target + _PARTIAL, target)


def restore(url: str, workdir: Path, mark: str = RECORDS) -> bool:
    """Copies a work dir back from `url`, and says whether there was one. Call it before `claim`.

    `mark` is the file with which the work dir counts as one. Raises `InputError` where `workdir`
    has it already, and where the copy cannot be read.
    """
    if (workdir / mark).exists():
        raise InputError(f"{workdir} has {mark} already: restore into an empty --work-dir")
    fs, root = _opened(url)
    try:
        names = [name for name in fs.find(root) if not name.endswith((_PARTIAL, _PROBE))]
        relative = {str(PurePosixPath(name).relative_to(root)): name for name in names}
        if mark not in relative:
            return False
        # That comes last: with it the work dir counts as one, so all else must be there.
        for path in sorted(relative, key=lambda path: (path == mark, path)):
            target = workdir / path
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f"{TEMPORARY}{target.name}")
            fs.get_file(relative[path], str(partial))
            os.replace(partial, target)
    except Exception as error:
        raise InputError(f"--storage {url} cannot be restored: {_told(error)}") from error
    return True


def _opened(url: str) -> tuple[Any, str]:
    try:
        fs, root = fsspec.core.url_to_fs(url)
    except Exception as error:
        raise InputError(f"--storage {url} is no usable URL: {_told(error)}") from error
    return fs, root.rstrip("/")


def _files(workdir: Path, leave_out: Sequence[str]) -> list[Path]:
    """What is worth a copy: no locks, no files in the making, no log of the database."""
    tops = [path for path in workdir.iterdir() if path.name not in leave_out]
    return [
        path
        for top in tops
        for path in (top, *top.rglob("*"))
        if path.is_file()
        and path.name != LOCK
        and not path.name.startswith(TEMPORARY)
        and not path.name.startswith(f"{RECORDS}-")
    ]


def _state(path: Path) -> tuple[int, int]:
    """Changes whenever the file does; of records, whenever their write-ahead log does, too."""
    parts = [path, path.with_name(f"{path.name}-wal")] if path.name == RECORDS else [path]
    stats = [part.stat() for part in parts if part.exists()]
    return sum(s.st_size for s in stats), max(s.st_mtime_ns for s in stats)


def _told(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
