"""TensorBoard's file of a run: how agent, cost model and search did, over the trials of a task."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from release_ray.events import Event, Measured, RoundFinished, RoundPlanned, RunStarted


class Scalars:
    """A listener that writes `TASK/NAME` over the trials of the task, for `tensorboard --logdir`.

    Names are the policy's metrics (the agent's losses, entropy and reward), `foresight` (rank
    correlation of what the cost model predicted with what was then measured), `clusters`,
    `search_cpu_s` and `best_ms`. A file that cannot be written ends with what it has: the records
    are what counts.
    """

    def __init__(self, folder: Path) -> None:
        """Writes nothing yet: the format takes a moment to import, and at the start each counts."""
        self._folder = folder
        self._trials: dict[str, int] = {}
        self._best_s: dict[str, float | None] = {}
        self._waiting: list[tuple[str, int, Mapping[str, float]]] = []
        self._file: Any = None

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._trials = {task.name: task.trials for task in event.tasks}
            case Measured():
                self._trials[event.task] = event.trials
                self._best_s[event.task] = event.best_s
            case RoundPlanned():
                searched = {"clusters": event.clusters, "search_cpu_s": event.search_cpu_s}
                self._note(event.task, {**event.metrics, **searched})
            case RoundFinished():
                best_s = self._best_s.get(event.task)
                if best_s is not None:
                    self._note(event.task, {"best_ms": best_s * 1e3})
                with suppress(OSError):
                    self._write()

    def close(self) -> None:
        """Writes what is left and ends the file."""
        with suppress(OSError):
            if self._waiting:
                self._write()
            if self._file is not None:
                self._file.close()

    def _note(self, task: str, values: Mapping[str, float]) -> None:
        self._waiting.append((task, self._trials.get(task, 0), values))

    def _write(self) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event as Entry
        from tensorboardX.summary import scalar

        if self._file is None:
            self._file = EventsWriter(str(self._folder / "events"))
        for task, step, values in self._waiting:
            for name, value in values.items():
                summary = scalar(f"{task}/{name}", float(value))
                self._file.write_event(Entry(wall_time=time.time(), step=step, summary=summary))
        self._waiting.clear()
        self._file.flush()
