"""What was planned in each round, a JSON line each: for the page, and for whoever asks why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from release_ray.events import Event, RoundPlanned

FILE = "rounds.jsonl"
SIMULATED = "rounds.simulated.jsonl"


class Rounds:
    """A listener that appends to a folder's file of its kind; a `fresh` one begins it anew.

    A file that cannot be written goes without the round: the records are what counts.
    """

    def __init__(self, folder: Path, *, simulated: bool = False, fresh: bool = False) -> None:
        self._path = _file(folder, simulated)
        self._mode = "w" if fresh else "a"
        # What a killed run left torn is to be a line of its own.
        self._before = "" if fresh else "\n"

    def __call__(self, event: Event) -> None:
        if isinstance(event, RoundPlanned):
            mode, before = self._mode, self._before
            # Until it is known to be there.
            self._mode, self._before = "a", "\n"
            with suppress(OSError):
                with self._path.open(mode) as file:
                    file.write(f"{before if file.tell() else ''}{json.dumps(_plain(event))}\n")
                self._before = ""


def read_rounds(folder: Path, *, simulated: bool = False) -> Iterator[Mapping[str, Any]]:
    """The lines of a folder's file; none without one. What a killed run left torn is out."""
    try:
        lines = _file(folder, simulated).read_text().splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and "task" in entry and "round" in entry:
                yield entry


def _file(folder: Path, simulated: bool) -> Path:
    return folder / (SIMULATED if simulated else FILE)


def _plain(event: RoundPlanned) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "task": event.task,
        "round": event.round,
        "candidates": event.candidates,
        "refused": event.refused,
        "clusters": event.clusters,
        "search_cpu_s": round(event.search_cpu_s, 4),
        "metrics": {name: round(value, 6) for name, value in event.metrics.items()},
    }
    if event.map is not None:
        plain["map"] = {"candidates": event.map.candidates, "chosen": event.map.chosen}
    return plain
