"""Recorded tasks: what was measured of design spaces, in a file that needs no compiler to read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from release_ray.core.knobs import ChoiceKnob, Knob, TileKnob
from release_ray.core.space import KnobSpace


@dataclass(frozen=True)
class RecordedTask:
    """`n x width` points of a space that were measured, and their `n` latencies in s.

    The latency of a failure is infinite; that of a `slow` one is its lower bound.
    """

    name: str
    space: KnobSpace
    points: np.ndarray
    latency_s: np.ndarray

    @property
    def fitness(self) -> np.ndarray:
        """`n` float32 in [0, 1]: the best latency over each one's; 0 for failures."""
        worked = np.isfinite(self.latency_s)
        fitness = np.zeros(len(self.latency_s), np.float32)
        fitness[worked] = self.latency_s[worked].min(initial=inf) / self.latency_s[worked]
        return fitness


def load(path: Path) -> list[RecordedTask]:
    """Reads what `save` wrote."""
    content = json.loads(gzip.decompress(path.read_bytes()))
    return [_task(task) for task in content["tasks"]]


def save(path: Path, tasks: Sequence[RecordedTask], about: str) -> None:
    """Writes tasks as compressed JSON, `about` beside them: where and how they were measured.

    The same tasks give the same bytes.
    """
    content = {"about": about, "tasks": [_plain(task) for task in tasks]}
    text = json.dumps(content, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _plain(task: RecordedTask) -> dict[str, Any]:
    return {
        "name": task.name,
        "sketches": [[_knob_as_json(knob) for knob in knobs] for knobs in task.space.sketches],
        "points": task.points.tolist(),
        # In ns, with the digits that a measurement has; JSON knows no infinity.
        "latency_ns": [None if s == inf else float(f"{s * 1e9:.4g}") for s in task.latency_s],
    }


def _task(content: dict[str, Any]) -> RecordedTask:
    space = KnobSpace(tuple(tuple(_knob(knob) for knob in knobs) for knobs in content["sketches"]))
    return RecordedTask(
        content["name"],
        space,
        np.array(content["points"], np.int32).reshape(-1, space.width),
        np.array([inf if ns is None else ns * 1e-9 for ns in content["latency_ns"]]),
    )


def _knob_as_json(knob: Knob) -> list:
    if isinstance(knob, TileKnob):
        return ["tile", knob.name, knob.extent, knob.levels, knob.max_innermost]
    assert isinstance(knob, ChoiceKnob)
    return [knob.role, knob.name, *knob.choices]


def _knob(content: list) -> Knob:
    kind, name, *rest = content
    return TileKnob(name, *rest) if kind == "tile" else ChoiceKnob(name, tuple(rest), kind)
