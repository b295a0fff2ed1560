"""What the page tells of a work dir, as plain values that JSON can hold."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from release_ray.core.statuses import Purpose, Status
from release_ray.records import Record, Records
from release_ray.report.importance import importance
from release_ray.result import Result, TaskResult
from release_ray.rounds import read_rounds
from release_ray.workdir import WorkDir

_MESSAGES = 8
_BINS = 80
_OF_A_ROUND = ("round", "clusters", "candidates", "map")
_SEARCHED = (Purpose.TRIAL, Purpose.RETRY, Purpose.REUSED)


def facts_of(workdir: WorkDir) -> dict[str, Any]:
    """Everything that the page shows of one work dir.

    Raises `InputError` where it has no result yet, or a damaged one.
    """
    result = Result.read(workdir.result)
    with Records.open(workdir.records, create=False) as records:
        # Real and made-up latencies never mix: `result.json` is of the last run.
        runs = records.everything().runs()
        simulated = bool(runs) and runs[-1].simulated
        history = records.history(simulated=simulated)
        rows, active_s = history.all(), history.seconds()
    searched = [row for row in rows if row.purpose in _SEARCHED]
    return {
        "name": workdir.path.resolve().name,
        "path": str(workdir.path),
        "network": result.network,
        "target": _shortened(result.target),
        "status": result.status,
        "seed": result.seed,
        "trials": result.trials,
        "wall_s": result.wall_s,
        "start_s": result.start_s,
        "idle": result.device_idle_share,
        "cpu_s": result.cpu_s.model_dump(),
        "latency_ms": result.latency_ms.model_dump(),
        "error": result.max_rel_error,
        "failures": {str(status): count for status, count in result.failures.items()},
        "messages": _messages(searched),
        "tasks": _tasks(result, searched),
        "rounds": _rounds(workdir, simulated),
        "devices": _devices(rows, active_s, result.wall_s),
        "versions": result.versions,
    }


def _tasks(result: Result, rows: Sequence[Record]) -> list[dict[str, Any]]:
    """The tasks, those first that the network spends most of its time in."""
    of_task: dict[str, list[Record]] = defaultdict(list)
    for row in rows:
        of_task[row.task].append(row)
    spent_s = sum(task.weight * (task.best_latency_s or 0.0) for task in result.tasks)

    def facts(task: TaskResult) -> dict[str, Any]:
        best_s = task.best_latency_s
        return {
            "name": task.name,
            "weight": task.weight,
            "mflops": task.flops / 1e6,
            "trials": task.trials,
            "best_ms": best_s and best_s * 1e3,
            "gflops": task.best_gflops,
            "share": task.weight * best_s / spent_s if best_s and spent_s else 0.0,
            "curve": [[trials, seconds, best * 1e3] for trials, seconds, best in task.curve],
            "importance": importance(of_task[task.name]),
        }

    return sorted((facts(task) for task in result.tasks), key=lambda task: -task["share"])


def _messages(rows: Sequence[Record]) -> list[dict[str, Any]]:
    """What failures said, the most frequent first."""
    said = Counter(
        (str(row.status), row.message.strip())
        for row in rows
        if row.status not in (Status.OK, Status.SLOW)
    )
    return [
        {"count": count, "status": status, "message": message}
        for (status, message), count in said.most_common(_MESSAGES)
    ]


def _rounds(workdir: WorkDir, simulated: bool) -> dict[str, list[Mapping[str, Any]]]:
    """The rounds of each task in which a policy proposed something, in order."""
    entries = read_rounds(workdir.logs, simulated=simulated)
    newest = {(entry["task"], entry["round"]): entry for entry in entries}
    rounds: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for (task, _), entry in sorted(newest.items()):
        if "map" in entry:
            rounds[task].append({name: entry[name] for name in _OF_A_ROUND})
    return rounds


def _devices(
    rows: Sequence[Record], active_s: Callable[[Record], float], wall_s: float
) -> dict[str, Any]:
    """How busy each device was with measuring, and how many processes with building, over time.

    A record says when a measurement ended and how long it and its build took; where a candidate
    waited between the two, its build was a little earlier than it is drawn.
    """
    ends = [(row, active_s(row)) for row in rows if row.purpose is not Purpose.CANARY]
    last_s = max([wall_s, *(end_s for _, end_s in ends)], default=0.0)
    if not ends or last_s <= 0:
        return {"edges_s": [], "busy": {}, "building": []}
    edges = np.linspace(0.0, last_s, _BINS + 1)
    width = last_s / _BINS

    def covered(start_s: float, end_s: float) -> np.ndarray:
        return np.clip(np.minimum(end_s, edges[1:]) - np.maximum(start_s, edges[:-1]), 0, None)

    busy: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(_BINS))
    building = np.zeros(_BINS)
    for row, end_s in ends:
        began_s = end_s - row.run_s
        if row.device and row.purpose is not Purpose.REUSED:
            busy[f"{row.device} on {row.host}"] += covered(began_s, end_s)
            building += covered(began_s - row.build_s, began_s)
    return {
        "edges_s": [round(float(edge), 2) for edge in edges[:-1]],
        "busy": {
            name: [round(float(min(1.0, part / width)), 3) for part in parts]
            for name, parts in sorted(busy.items())
        },
        "building": [round(float(part / width), 3) for part in building],
    }


def _shortened(target: str) -> str:
    """`llvm, znver4, 1 core` of a target's JSON; the JSON where it is none."""
    try:
        values = json.loads(target)
        kind = values.get("kind", "")
    except (ValueError, AttributeError):
        return target
    model = values.get("mcpu") or values.get("arch") or values.get("tag") or ""
    cores = values.get("num-cores")
    parts = [kind, model, f"{cores} core{'s' if cores > 1 else ''}" if cores else ""]
    return ", ".join(part for part in parts if part) or target
