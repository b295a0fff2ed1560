"""Knobs: the free choices of a schedule, as tables of integers.

A knob lists every value it may take, in an order in which neighbours resemble each other. A
configuration holds an index into that table for each knob. Nothing here knows what a knob does to
a kernel; `release_ray.sketches` maps knobs to a compiler's sampling instructions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

Value = int | tuple[int, ...]
DECREMENT, STAY, INCREMENT = 0, 1, 2
ACTIONS = 3


class Knob(ABC):
    """One choice of a sketch: a table of values, and the moves between them.

    A knob is walked by `moves` agents. An agent decrements, stays or increments; `transitions`
    says where that leads from every value. A move that does not exist leads to where it started.
    """

    name: str

    @property
    @abstractmethod
    def kind(self) -> int:
        """A small integer that tells the kinds of knobs apart (an input of the shared agent)."""

    @property
    @abstractmethod
    def values(self) -> tuple[Value, ...]:
        """Every value, in the order of the index."""

    @property
    @abstractmethod
    def moves(self) -> int:
        """How many agents walk this knob; 0 where it has a single value."""

    @property
    @abstractmethod
    def transitions(self) -> np.ndarray:
        """`moves x 3 x cardinality`: the index reached by an action of an agent."""

    @property
    @abstractmethod
    def features(self) -> np.ndarray:
        """`cardinality x f` float32: what a cost model is told of each value."""

    @property
    @abstractmethod
    def positions(self) -> np.ndarray:
        """`moves x cardinality x 2` float32 in [0, 1]: what an agent sees of its own knob.

        For a tile the sizes of the two levels between which it moves factors, else the place.
        """

    @property
    def cardinality(self) -> int:
        return len(self.values)

    @property
    @abstractmethod
    def signature(self) -> tuple:
        """Equal for knobs of two sketches whose values mean the same: they share features."""

    def index_of(self, value: Value) -> int:
        """The index of a value. Raises `KeyError` where the knob has no such value."""
        return self._index[value]

    @cached_property
    def _index(self) -> dict[Value, int]:
        return {value: index for index, value in enumerate(self.values)}


@dataclass(frozen=True)
class TileKnob(Knob):
    """All ways to split a loop of `extent` into `levels` nested loops, outermost first.

    The innermost factor is at most `max_innermost`. Each of the `levels - 1` agents moves one
    prime factor between two neighbouring levels: increment makes the inner one larger. This
    keeps a step a small change of the schedule, which a step in the list of splits is not.
    """

    name: str
    extent: int
    levels: int
    max_innermost: int

    @property
    def kind(self) -> int:
        return 0

    @property
    def values(self) -> tuple[Value, ...]:
        return self.splits

    @cached_property
    def splits(self) -> tuple[tuple[int, ...], ...]:
        """The values: factors of each level, outermost first."""
        return factorizations(self.extent, self.levels, self.max_innermost)

    @property
    def moves(self) -> int:
        return self.levels - 1 if self.cardinality > 1 else 0

    @cached_property
    def transitions(self) -> np.ndarray:
        table = np.tile(np.arange(self.cardinality, dtype=np.int32), (self.moves, ACTIONS, 1))
        for index, factors in enumerate(self.splits):
            for agent in range(self.moves):
                for action, source, sink in (
                    (DECREMENT, agent + 1, agent),
                    (INCREMENT, agent, agent + 1),
                ):
                    moved = self._moved(factors, source, sink)
                    table[agent, action, index] = self._index.get(moved, index)
        return table

    @staticmethod
    def _moved(factors: tuple[int, ...], source: int, sink: int) -> tuple[int, ...]:
        prime = smallest_prime_factor(factors[source])
        moved = list(factors)
        moved[source] //= prime
        moved[sink] *= prime
        return tuple(moved)

    @cached_property
    def features(self) -> np.ndarray:
        return np.log2(np.array(self.values, np.float32)).reshape(self.cardinality, self.levels)

    @cached_property
    def positions(self) -> np.ndarray:
        scaled = self.features / max(1.0, float(np.log2(self.extent)))
        pairs = [scaled[:, agent : agent + 2] for agent in range(self.moves)]
        return np.array(pairs, np.float32).reshape(self.moves, self.cardinality, 2)

    @property
    def signature(self) -> tuple:
        return ("tile", self.extent, self.levels, self.max_innermost)


@dataclass(frozen=True)
class ChoiceKnob(Knob):
    """One of a list of ordered integers: an unrolling depth, a place to compute a block at."""

    name: str
    choices: tuple[int, ...]
    role: str = "choice"

    @property
    def kind(self) -> int:
        return 1 if self.role == "choice" else 2

    @property
    def values(self) -> tuple[Value, ...]:
        return self.choices

    @property
    def moves(self) -> int:
        return 1 if self.cardinality > 1 else 0

    @cached_property
    def transitions(self) -> np.ndarray:
        here = np.arange(self.cardinality, dtype=np.int32)
        steps = np.stack([here - 1, here, here + 1]).clip(0, self.cardinality - 1)
        return steps[None][: self.moves]

    @cached_property
    def features(self) -> np.ndarray:
        place = np.arange(self.cardinality, dtype=np.float32)
        return place[:, None]

    @cached_property
    def positions(self) -> np.ndarray:
        place = np.arange(self.cardinality, dtype=np.float32) / max(1, self.cardinality - 1)
        return np.stack([place, 1.0 - place], axis=-1)[None][: self.moves]

    @property
    def signature(self) -> tuple:
        return (self.role, self.choices)


@lru_cache(maxsize=1024)
def factorizations(extent: int, levels: int, max_innermost: int) -> tuple[tuple[int, ...], ...]:
    """Every ordered split of `extent` into `levels` factors, the innermost changing slowest.

    Raises `ValueError` for an extent or a number of levels below one.
    """
    if extent < 1 or levels < 1:
        raise ValueError(f"cannot split a loop of {extent} into {levels} levels")
    splits = [
        (*outer, inner)
        for inner in _divisors(extent)
        if inner <= max_innermost
        for outer in _all_splits(extent // inner, levels - 1)
    ]
    return tuple(sorted(splits, key=lambda split: split[::-1]))


def _all_splits(extent: int, levels: int) -> list[tuple[int, ...]]:
    if levels == 0:
        return [()] if extent == 1 else []
    if levels == 1:
        return [(extent,)]
    return [
        (first, *rest)
        for first in _divisors(extent)
        for rest in _all_splits(extent // first, levels - 1)
    ]


@lru_cache(maxsize=4096)
def _divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(small + [number // d for d in reversed(small) if d * d != number])


@lru_cache(maxsize=4096)
def smallest_prime_factor(number: int) -> int:
    """The smallest prime that divides `number`; 1 for 1."""
    return next((d for d in _divisors(number) if d > 1), 1)
