"""From a record back to its schedule."""

from __future__ import annotations

import logging

from release_ray.database import Entry
from release_ray.records import Record
from release_ray.sketches import Applied, Sketches
from release_ray.tasks import Task

_log = logging.getLogger(__name__)


def replayed(task: Task, sketches: Sketches, record: Record) -> Entry | None:
    """The schedule of a record; None, with a warning, where this TVM does not make it."""
    try:
        applied = sketches.apply_decisions(record.sketch, record.decisions)
    except ValueError as error:
        applied = Applied(None, message=str(error))
    if applied.point is None or record.latency_s is None:
        _log.warning("%s: a record cannot be replayed: %s", task.name, applied.message)
        return None
    return Entry(task, applied.trace_json, record.latency_s)
