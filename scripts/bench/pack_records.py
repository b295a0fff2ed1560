"""Packs the measurements of work dirs of one network into a file that a search can replay.

A configuration that several work dirs measured has the median of its latencies. Failures stay.
"""

from __future__ import annotations

import argparse
import fnmatch
from collections import defaultdict
from math import inf
from pathlib import Path
from statistics import median

import numpy as np

from release_ray.core import recorded
from release_ray.core.statuses import Purpose, Status
from release_ray.records import Record, Records
from release_ray.sketches import Sketches, values_from_json
from release_ray.tasks import Task, load_tasks
from release_ray.workdir import WorkDir


def main() -> None:
    """Says what each task holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work_dirs", type=Path, nargs="+")
    parser.add_argument("--tasks", default="*", help="a glob of task names")
    parser.add_argument(
        "--least", type=int, default=1, help="points; tasks with fewer are left out"
    )
    parser.add_argument("--about", required=True, help="where and how they were measured")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    found: dict[str, list[Record]] = defaultdict(list)
    tasks: dict[str, Task] = {}
    for path in arguments.work_dirs:
        work_dir = WorkDir.existing(path)
        with Records.open(work_dir.records, create=False) as records:
            for record in records.history(simulated=False).all():
                found[record.workload].append(record)
        for task in load_tasks(work_dir.tasks):
            if fnmatch.fnmatchcase(task.name, arguments.tasks):
                tasks[task.workload.key] = task
    packed = [pack(task, found[key]) for key, task in tasks.items()]
    packed = [task for task in packed if len(task.points) >= arguments.least]
    recorded.save(arguments.out, packed, arguments.about)
    for task in packed:
        print(f"{task.name}: {len(task.points)} points, best {task.latency_s.min() * 1e3:.3f} ms")


def pack(task: Task, records: list[Record]) -> recorded.RecordedTask:
    """A task's configurations in the order in which they were first measured."""
    space = Sketches(task).space
    latencies: dict[bytes, list[float]] = {}
    for record in records:
        if record.purpose is Purpose.CANARY or record.status is Status.DEVICE_LOST:
            continue
        try:
            point = space.point(record.sketch, values_from_json(record.decisions))
        except (KeyError, ValueError, IndexError):
            continue  # of a trace that the sketches of this version do not make
        latency = record.latency_s or record.bound_s or inf
        latencies.setdefault(point.tobytes(), []).append(latency)
    points = np.array([np.frombuffer(key, np.int32) for key in latencies], np.int32)
    return recorded.RecordedTask(
        task.name,
        space,
        points.reshape(-1, space.width),
        np.array([median(values) for values in latencies.values()]),
    )


if __name__ == "__main__":
    main()
