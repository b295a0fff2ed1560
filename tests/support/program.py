"""The program as its users run it: a process with a process tree of its own."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil

MARK = "RELEASE_RAY_TEST"


class Program:
    """`release-ray ARGUMENTS`, or another `python` program, in a session of its own.

    All that it starts inherits a mark in the environment, by which `processes` finds it, whoever
    its parent is by then. Some of Ray's daemons overwrite theirs when they change their title, so
    its descendants are also looked at while it runs.
    """

    def __init__(
        self,
        *arguments: object,
        cwd: Path,
        python: tuple[str, ...] = ("-m", "release_ray"),
        **options: Any,
    ) -> None:
        self._mark = uuid.uuid4().hex
        self._seen: set[psutil.Process] = set()
        self._cwd = cwd
        self._out, self._err = cwd / f"{self._mark}.out", cwd / f"{self._mark}.err"
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, *python, *map(str, arguments)],
                cwd=cwd,
                env={**environment, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                **options,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def ends(self, timeout_s: float = 300.0) -> int:
        """Waits for the exit status."""
        return self.process.wait(timeout_s)

    def interrupt_as_a_terminal(self) -> None:
        """Ctrl-C: SIGINT to the whole foreground group."""
        os.killpg(self.pid, signal.SIGINT)

    def until(self, condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
        """Waits for a condition while the program runs."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.processes()
            if self.process.poll() is not None:
                raise AssertionError(f"it ended with {self.process.returncode}: {self.err}")
            if time.monotonic() > deadline:
                raise AssertionError(f"{condition} took too long: {self.err}")
            time.sleep(0.1)

    def processes(self) -> list[psutil.Process]:
        """Everything it started, and itself, that still runs."""
        with suppress(psutil.Error):
            self._seen.update(psutil.Process(self.pid).children(recursive=True))
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self._mark:
                    self._seen.add(process)
        return [process for process in self._seen if _runs(process)]

    def leaves_nothing(self, within_s: float = 10.0) -> list[str]:
        """Waits until no process is left; the command lines of those that stay all the same."""
        deadline = time.monotonic() + within_s
        while left := self.processes():
            if time.monotonic() > deadline:
                return [_described(process) for process in left]
            time.sleep(0.2)
        return []

    def clear(self) -> None:
        """Ends whatever is left, so that a failed test disturbs no other."""
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()
        self.process.wait()


def _described(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid} (of {process.ppid()}) {' '.join(process.cmdline())}"[:400]
    return str(process)


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def run(*arguments: object, cwd: Path) -> Program:
    """A program that has ended."""
    program = Program(*arguments, cwd=cwd)
    program.ends()
    return program


def records(work_dir: Path, columns: str) -> list[tuple]:
    """Rows of `records.db`, oldest first; none where there is no file yet."""
    if not (work_dir / "records.db").exists():
        return []
    with closing(sqlite3.connect(work_dir / "records.db", timeout=30)) as connection:
        try:
            return connection.execute(f"SELECT {columns} FROM records ORDER BY id").fetchall()
        except sqlite3.OperationalError:  # the tables are still being made
            return []


def trials(work_dir: Path) -> list[tuple]:
    """(workload, sketch, decisions) of everything that was sent to be measured."""
    rows = records(work_dir, "workload, sketch, decisions, status, purpose")
    return [row[:3] for row in rows if row[3] != "invalid" and row[4] == "trial"]


def result(work_dir: Path) -> dict[str, Any]:
    return json.loads((work_dir / "result.json").read_text())
