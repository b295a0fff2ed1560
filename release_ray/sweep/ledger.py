"""What a sweep remembers between calls: which runs are over, and what each has reported."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from release_ray.core.errors import InputError
from release_ray.workdir import write_atomic

Status = Literal["waiting", "running", "done", "stopped", "failed"]
OVER: tuple[Status, ...] = ("done", "stopped", "failed")

LEDGER = "sweep.json"


@dataclass(frozen=True)
class Report:
    """What a run has achieved when all its tasks have had another round.

    `speedup` is the network's default latency over its present one, both the weighted sums over
    its tasks, where one that has no measurement yet counts as untuned.
    """

    round: int
    speedup: float
    latency_ms: float
    trials: int
    wall_s: float


@dataclass
class Entry:
    """A run: how it stands, what it reported, and why it failed if it has."""

    status: Status = "waiting"
    reports: list[Report] = field(default_factory=list)
    message: str = ""

    @property
    def last(self) -> Report | None:
        return self.reports[-1] if self.reports else None


class Ledger:
    """The file that holds it. The sweep's driver alone writes, at every change."""

    def __init__(self, path: Path, identity: Mapping[str, Any], runs: Sequence[str]) -> None:
        """Takes up what an earlier call has left there.

        Raises `InputError` where that was another sweep, and where the file is damaged.
        """
        self._path = path
        self._identity = dict(identity)
        self.entries = {name: Entry() for name in runs}
        if path.exists():
            self._take_up(*_read(path))

    def begin(self, run: str) -> None:
        self.entries[run].status = "running"
        self._write()

    def report(self, run: str, report: Report) -> None:
        self.entries[run].reports.append(report)
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

    def _take_up(self, identity: Any, entries: Mapping[str, Entry]) -> None:
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
        for name, entry in entries.items():
            if entry.status == "failed":
                entry.status = "running"
            self.entries[name] = entry

    def _write(self) -> None:
        runs = {name: asdict(entry) for name, entry in self.entries.items()}
        write_atomic(self._path, json.dumps({"sweep": self._identity, "runs": runs}) + "\n")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Entry]]:
    try:
        found = json.loads(path.read_text())
        entries = {
            name: Entry(e["status"], [Report(**r) for r in e["reports"]], e["message"])
            for name, e in found["runs"].items()
        }
        return dict(found["sweep"]), entries
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged ({error}): put back a copy, or choose another work_dir"
        ) from error
