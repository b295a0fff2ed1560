"""What a sweep remembers between calls: which runs are over, and what each has reported."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from release_ray.core.errors import InputError
from release_ray.workdir import write_atomic

Status = Literal["waiting", "running", "done", "stopped", "failed"]
OVER: tuple[Status, ...] = ("done", "stopped", "failed")


Finite = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Report:
    """What a run has achieved when all its tasks have had another round.

    `speedup` is the network's default latency over its present one, both the weighted sums over
    its tasks, where one that has no measurement yet counts as untuned.
    """

    round: Annotated[int, Field(ge=0)]
    speedup: Positive
    latency_ms: Positive
    trials: Annotated[int, Field(ge=0)]
    wall_s: Finite


@dataclass
class Entry:
    """A run: how it stands, what it reported, and why it failed if it has."""

    status: Status = "waiting"
    reports: list[Report] = field(default_factory=list)
    message: str = ""

    @property
    def last(self) -> Report | None:
        return self.reports[-1] if self.reports else None


@dataclass
class _File:
    sweep: dict[str, Any]
    runs: dict[str, Entry]
    devices: int = 0


class Ledger:
    """The file that holds it. The sweep's driver alone writes, at every change."""

    def __init__(self, path: Path, identity: Mapping[str, Any], runs: Sequence[str]) -> None:
        """Takes up what an earlier call has left there.

        Raises `InputError` where that was another sweep, and where the file is damaged.
        """
        self._path = path
        self._identity = dict(identity)
        self.entries = {name: Entry() for name in runs}
        self.devices = 0
        """How many there were at the first call."""
        if path.exists():
            self._take_up(_read(path))

    def begin(self, run: str) -> None:
        self.entries[run].status = "running"
        self._write()

    def settle(self, devices: int) -> None:
        """Notes how many devices there are, the first time: for so many runs plan ahead."""
        self.devices = self.devices or devices
        self._write()

    def report(self, run: str, report: Report, *, stopped: bool = False) -> None:
        """Notes a report, and whether the run is stopped for it.

        A second one of the same round takes the first one's place.
        """
        if stopped:
            self.entries[run].status = "stopped"
        reports = self.entries[run].reports
        if reports and reports[-1].round == report.round:
            reports.pop()
        reports.append(report)
        self._write()

    def end(self, run: str, status: Status, message: str = "") -> None:
        """Notes how a run ended; a failed one is tried again by the next call."""
        entry = self.entries[run]
        entry.status, entry.message = status, message
        self._write()

    @property
    def unfinished(self) -> list[str]:
        """Runs that have anything left to do, those that are begun first."""
        left = [name for name, entry in self.entries.items() if entry.status not in OVER]
        return sorted(left, key=lambda name: self.entries[name].status == "waiting")

    def _take_up(self, found: _File) -> None:
        identity, self.devices = found.sweep, found.devices
        if identity != self._identity:
            changed = [
                name
                for name in sorted({*identity, *self._identity})
                if identity.get(name) != self._identity.get(name)
            ]
            raise InputError(
                f"{self._path.parent} belongs to a sweep with other settings ({', '.join(changed)}"
                " differ): put them back, or choose another work_dir"
            )
        for name, entry in found.runs.items():
            if entry.status == "failed":
                entry.status = "running"
            self.entries[name] = entry

    def _write(self) -> None:
        runs = {name: asdict(entry) for name, entry in self.entries.items()}
        content = {"sweep": self._identity, "devices": self.devices, "runs": runs}
        write_atomic(self._path, json.dumps(content) + "\n")


def _read(path: Path) -> _File:
    try:
        found = TypeAdapter(_File).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise damaged(path, error) from error
    for name, entry in found.runs.items():
        if entry.status == "done" and not entry.reports:
            raise damaged(path, f"{name} is done and has not reported")
    return found


def damaged(path: Path, error: object) -> InputError:
    """What is raised where a sweep's file cannot be read."""
    reason = " ".join(str(error).split())[:200]
    return InputError(f"{path} is damaged ({reason}): put back a copy, or choose another work_dir")
