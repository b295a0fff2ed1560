"""What a knob agent sees: a vector of one width for every slot of every task.

One module serves all tasks only if its input never changes shape. So an observation is the agent's
own knob (kind, place, legal moves), which slot it fills, and the whole configuration: sums over
tile levels, which mean the same whatever the number of knobs, and the knobs one by one as far as
`CONTEXT` columns go. Everything of it but the fitness is a table look-up by knob index.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from release_ray.core.knobs import ACTIONS, DECREMENT, INCREMENT, STAY, Knob, TileKnob
from release_ray.core.space import KnobSpace

KINDS, SLOTS, SKETCHES, LEVELS, CONTEXT, PROGRESS = 3, 32, 8, 4, 48, 3
"""Widths of the one-hot codes (larger numbers wrap around) and of the padded parts."""

POOLED = 2 * LEVELS
OWN = ACTIONS + KINDS + LEVELS + 2 + SLOTS
OBSERVATION = OWN + SKETCHES + POOLED + CONTEXT + PROGRESS
LEGAL = slice(0, ACTIONS)
"""Where an observation holds its mask of legal moves (1 legal, 0 not)."""

_LOG_SCALE = 8.0


@dataclass(frozen=True)
class _SketchTables:
    """Rows to look up by a knob's index: one table a slot, one a knob; and the slots' columns."""

    own: tuple[np.ndarray, ...]
    slot_columns: tuple[int, ...]
    shared: tuple[np.ndarray, ...]


class Observer:
    """Computes the observations of all slots of a batch of points of one space."""

    def __init__(self, space: KnobSpace) -> None:
        self._slots = space.slots
        self._sketches = tuple(
            _sketch_tables(sketch, knobs, space) for sketch, knobs in enumerate(space.sketches)
        )

    def observe(self, points: np.ndarray, progress: np.ndarray) -> np.ndarray:
        """`n x slots x OBSERVATION` float32, of `n x width` points.

        `progress` is `n x PROGRESS`: numbers about the walk itself. An empty slot sees zeros, but
        for a mask in which only stay is legal.
        """
        seen = np.zeros((len(points), self._slots, OBSERVATION), np.float32)
        seen[:, :, STAY] = 1.0
        for sketch, tables in enumerate(self._sketches):
            rows = np.flatnonzero(points[:, 0] == sketch)
            if not len(rows) or not tables.own:
                continue
            here = points[rows]
            filled = len(tables.own)
            block = np.empty((len(rows), filled, OBSERVATION), np.float32)
            for slot, (table, column) in enumerate(
                zip(tables.own, tables.slot_columns, strict=True)
            ):
                block[:, slot, :OWN] = table[here[:, column]]
            shared = np.zeros((len(rows), OBSERVATION - OWN), np.float32)
            shared[:, sketch % SKETCHES] = 1.0
            for column, table in enumerate(tables.shared, start=1):
                shared[:, SKETCHES:-PROGRESS] += table[here[:, column]]
            shared[:, -PROGRESS:] = progress[rows]
            block[:, :, OWN:] = shared[:, None]
            seen[rows, :filled] = block
        return seen


def _sketch_tables(sketch: int, knobs: tuple[Knob, ...], space: KnobSpace) -> _SketchTables:
    shared = []
    start = 0
    for knob in knobs:
        shared.append(_shared_table(knob, start))
        start += knob.features.shape[1]
    agents = space.agents[sketch]
    return _SketchTables(
        own=tuple(
            _own_table(knobs[agent.knob], agent.move, slot) for slot, agent in enumerate(agents)
        ),
        slot_columns=tuple(1 + agent.knob for agent in agents),
        shared=tuple(shared),
    )


def _own_table(knob: Knob, move: int, slot: int) -> np.ndarray:
    """`cardinality x OWN`: what the agent in `slot` sees of the knob that it walks."""
    here = np.arange(knob.cardinality)
    table = np.zeros((knob.cardinality, OWN), np.float32)
    table[:, DECREMENT] = knob.transitions[move, DECREMENT] != here
    table[:, STAY] = 1.0
    table[:, INCREMENT] = knob.transitions[move, INCREMENT] != here
    start = ACTIONS
    table[:, start + knob.kind % KINDS] = 1.0
    start += KINDS
    # Counted from the innermost level, so that the same loops of tiles of unequal depth agree.
    table[:, start + min(knob.moves - 1 - move, LEVELS - 1)] = 1.0
    start += LEVELS
    table[:, start : start + 2] = knob.positions[move]
    table[:, start + 2 + slot % SLOTS] = 1.0
    return table


def _shared_table(knob: Knob, start: int) -> np.ndarray:
    """`cardinality x (POOLED + CONTEXT)`: what every agent of the sketch sees of a knob.

    `start` is the knob's first column of the context; what lies beyond its width is left out.
    """
    table = np.zeros((knob.cardinality, POOLED + CONTEXT), np.float32)
    if isinstance(knob, TileKnob):
        features = knob.features / _LOG_SCALE
        # Reductions are split in two, spatial loops in more: their levels are different loops.
        pool = 0 if knob.levels > 2 else LEVELS
        for inner in range(knob.levels):
            table[:, pool + min(inner, LEVELS - 1)] += features[:, -1 - inner] / 2
    else:
        features = knob.features / max(1, knob.cardinality - 1)
    room = table[:, POOLED + start : POOLED + start + features.shape[1]]
    room[:] = features[:, : room.shape[1]]
    return table
