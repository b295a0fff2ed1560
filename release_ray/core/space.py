"""The design space of a task: sketches of knobs, for all walkers at once.

A batch of configurations ("points") is an `n x width` int32 array. Column 0 is the sketch, the
others index its knobs; columns past a sketch's last knob are 0. So a configuration is a row, a
set of visited ones a set of rows' bytes, and no operation loops over walkers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from release_ray.core.knobs import ACTIONS, STAY, Knob, TileKnob, Value


@dataclass(frozen=True)
class Agent:
    """One agent of a sketch: it walks `move` of the knob in column `1 + knob` of a point."""

    knob: int
    move: int


@dataclass(frozen=True)
class KnobSpace:
    """The sketches of one task, each a tuple of knobs (possibly none)."""

    sketches: tuple[tuple[Knob, ...], ...]

    def __post_init__(self) -> None:
        if not self.sketches:
            raise ValueError("a design space needs at least one sketch")

    @property
    def width(self) -> int:
        """Columns of a point: the sketch and the knobs of the widest sketch."""
        return 1 + max(len(knobs) for knobs in self.sketches)

    @cached_property
    def size(self) -> int:
        """How many configurations there are, exactly."""
        return sum(math.prod(knob.cardinality for knob in knobs) for knobs in self.sketches)

    @cached_property
    def agents(self) -> tuple[tuple[Agent, ...], ...]:
        """The agents of each sketch, in the order of its knobs."""
        return tuple(
            tuple(
                Agent(column, move)
                for column, knob in enumerate(knobs)
                for move in range(knob.moves)
            )
            for knobs in self.sketches
        )

    @property
    def slots(self) -> int:
        """Agents of the sketch that has most; the others leave slots empty."""
        return max(len(agents) for agents in self.agents)

    # -- points ---------------------------------------------------------------------------------

    def random(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """`count x width`: uniform over sketches, then over each knob's values."""
        points = np.zeros((count, self.width), np.int32)
        points[:, 0] = rng.integers(len(self.sketches), size=count)
        uniform = rng.random((count, self.width - 1))
        for rows, knobs in self._by_sketch(points):
            for column, knob in enumerate(knobs):
                points[rows, 1 + column] = (uniform[rows, column] * knob.cardinality).astype(
                    np.int32
                )
        return points

    def random_unvisited(
        self, rng: np.random.Generator, count: int, visited: set[bytes]
    ) -> np.ndarray:
        """Up to `count` distinct points whose keys are not in `visited`; fewer if few are left."""
        seen = set(visited)
        picked: list[np.ndarray] = []
        for _ in range(64):
            if len(picked) == count:
                break
            for point in self.random(rng, 2 * (count - len(picked)) + 8):
                key = point.tobytes()
                if key not in seen and len(picked) < count:
                    seen.add(key)
                    picked.append(point)
        if len(picked) < count and self.size <= 100_000:
            rest = [p for p in self.enumerate() if p.tobytes() not in seen]
            order = rng.permutation(len(rest))[: count - len(picked)]
            picked.extend(rest[i] for i in order)
        return np.array(picked, np.int32).reshape(len(picked), self.width)

    def enumerate(self) -> np.ndarray:
        """`size x width`: every point. Meant for small spaces."""
        blocks = []
        for sketch, knobs in enumerate(self.sketches):
            counts = [knob.cardinality for knob in knobs]
            grid = np.indices(counts).reshape(len(knobs), math.prod(counts)).T
            block = np.zeros((len(grid), self.width), np.int32)
            block[:, 0] = sketch
            block[:, 1 : 1 + len(knobs)] = grid
            blocks.append(block)
        return np.concatenate(blocks)

    def point(self, sketch: int, values: Sequence[Value]) -> np.ndarray:
        """`width`: the point of a sketch's knob values. Raises `KeyError` for an unknown value."""
        point = np.zeros(self.width, np.int32)
        point[0] = sketch
        for column, (knob, value) in enumerate(zip(self.sketches[sketch], values, strict=True)):
            point[1 + column] = knob.index_of(value)
        return point

    def values(self, point: np.ndarray) -> tuple[Value, ...]:
        """The knob values of one point, in the order of its sketch's knobs."""
        knobs = self.sketches[int(point[0])]
        return tuple(knob.values[int(i)] for knob, i in zip(knobs, point[1:], strict=False))

    # -- moves ----------------------------------------------------------------------------------

    def legal(self, points: np.ndarray) -> np.ndarray:
        """`n x slots x 3` bool: which actions of each agent change something; stay always may.

        Empty slots may only stay.
        """
        mask = np.zeros((len(points), self.slots, ACTIONS), bool)
        mask[:, :, STAY] = True
        for sketch, rows in self._rows(points):
            for slot, agent in enumerate(self.agents[sketch]):
                here = points[rows, 1 + agent.knob]
                reached = self.sketches[sketch][agent.knob].transitions[agent.move][:, here]
                mask[rows, slot, 0] = reached[0] != here
                mask[rows, slot, 2] = reached[2] != here
        return mask

    def step(self, points: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The points reached when all agents act, in slot order. Actions are `n x slots` in 0..2.

        A move that an earlier agent of the same knob has made impossible is a stay.
        """
        moved = points.copy()
        for sketch, rows in self._rows(points):
            for slot, agent in enumerate(self.agents[sketch]):
                table = self.sketches[sketch][agent.knob].transitions[agent.move]
                column = 1 + agent.knob
                moved[rows, column] = table[actions[rows, slot], moved[rows, column]]
        return moved

    def redraw(self, points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The points with one knob of each, drawn at random, at a value drawn at random."""
        drawn = points.copy()
        for rows, knobs in self._by_sketch(points):
            free = np.array([c for c, knob in enumerate(knobs) if knob.cardinality > 1], int)
            if not len(free):
                continue
            cardinality = np.array([knob.cardinality for knob in knobs])
            column = free[rng.integers(len(free), size=len(rows))]
            drawn[rows, 1 + column] = rng.integers(cardinality[column])
        return drawn

    # -- numbers for a model --------------------------------------------------------------------

    def features(self, points: np.ndarray) -> np.ndarray:
        """`n x f` float32: the sketch (one-hot), each knob's value, and sums over tile levels.

        Knobs of several sketches that mean the same share columns, so that what is measured of
        one sketch informs the others. The sums are logarithms of products: the footprint of the
        innermost tiles, of those and the next, and so on, which decide locality and registers.
        """
        layout = self._layout
        matrix = np.zeros((len(points), layout.width), np.float32)
        matrix[np.arange(len(points)), points[:, 0]] = 1.0
        for sketch, rows in self._rows(points):
            for column, knob in enumerate(self.sketches[sketch]):
                start = layout.columns[sketch][column]
                table = knob.features
                matrix[rows, start : start + table.shape[1]] = table[points[rows, 1 + column]]
        for target, sources in layout.sums:
            matrix[:, target] = matrix[:, sources].sum(axis=1)
        return matrix

    @cached_property
    def family(self) -> tuple:
        """Equal for spaces whose features mean the same, column by column: one model fits both."""
        kinds = tuple(
            tuple((knob.kind, knob.features.shape[1]) for knob in knobs) for knobs in self.sketches
        )
        return (kinds, self._layout.columns)

    @cached_property
    def _layout(self) -> _FeatureLayout:
        return _FeatureLayout.of(self.sketches)

    def _by_sketch(self, points: np.ndarray) -> Iterable[tuple[np.ndarray, tuple[Knob, ...]]]:
        for sketch, rows in self._rows(points):
            yield rows, self.sketches[sketch]

    def _rows(self, points: np.ndarray) -> Iterable[tuple[int, np.ndarray]]:
        for sketch in range(len(self.sketches)):
            rows = np.flatnonzero(points[:, 0] == sketch)
            if len(rows):
                yield sketch, rows


@dataclass(frozen=True)
class _FeatureLayout:
    columns: tuple[tuple[int, ...], ...]
    sums: tuple[tuple[int, list[int]], ...]
    width: int

    @staticmethod
    def of(sketches: tuple[tuple[Knob, ...], ...]) -> _FeatureLayout:
        place: dict[tuple, int] = {}
        width = len(sketches)
        columns: list[tuple[int, ...]] = []
        levels: dict[tuple[int, int], list[int]] = {}
        for knobs in sketches:
            seen: dict[tuple, int] = {}
            mine = []
            for knob in knobs:
                occurrence = seen.get(knob.signature, 0)
                seen[knob.signature] = occurrence + 1
                key = (*knob.signature, occurrence)
                if key not in place:
                    place[key] = width
                    if isinstance(knob, TileKnob):
                        for level in range(knob.levels):
                            levels.setdefault((knob.levels, level), []).append(width + level)
                    width += knob.features.shape[1]
                mine.append(place[key])
            columns.append(tuple(mine))
        sums: list[tuple[int, list[int]]] = []
        inner: list[int] = []
        for count in sorted({count for count, _ in levels}):
            nested: list[int] = []
            for level in reversed(range(count)):
                nested = nested + levels[count, level]
                sums.append((width, list(nested)))
                width += 1
            inner += levels[count, count - 1]
        sums.append((width, inner))
        return _FeatureLayout(tuple(columns), tuple(sums), width + 1)


def keys(points: np.ndarray) -> list[bytes]:
    """A hashable key of each row, the one that sets of visited points hold."""
    return [row.tobytes() for row in np.ascontiguousarray(points, np.int32)]


def unvisited(points: np.ndarray, visited: set[bytes]) -> np.ndarray:
    """`n` bool: rows that are not in `visited` and are the first of their kind in the batch."""
    seen = set(visited)
    fresh = np.zeros(len(points), bool)
    for row, key in enumerate(keys(points)):
        fresh[row] = key not in seen
        seen.add(key)
    return fresh
