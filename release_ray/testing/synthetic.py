"""Design spaces whose best configuration is known, with a fitness that costs nothing to compute.

They stand in for a task and its hardware wherever search is tested: policies, samplers, the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from release_ray.core.knobs import ChoiceKnob, Knob, TileKnob
from release_ray.core.space import KnobSpace

MINOR_PEAK = 0.7


@dataclass(frozen=True)
class Landscape:
    """The fitness of a space: a hill in each sketch, around that sketch's peak.

    Distance is Euclidean in the knobs' features, log2 of tile factors and places of choices, so
    that a move of a prime factor is a small step. Being a dataclass, it travels between processes.
    """

    space: KnobSpace
    peaks: tuple[tuple[int, ...], ...]
    heights: tuple[float, ...]
    spread: float
    ripple: float = 0.0
    cliff: float = np.inf

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """`n` float32 in [0, 1] of `n x width` points; 1 at the optimum and nowhere else.

        `ripple` is the share of the height taken by valleys that depend on all knobs together.
        `cliff` is how much further out (in log2) the tile factors of a sketch may weigh than at
        its peak before the fitness is 0, as where a compiler refuses a schedule.
        """
        fitness = np.zeros(len(points))
        for sketch, (knobs, peak) in enumerate(zip(self.space.sketches, self.peaks, strict=True)):
            rows = np.flatnonzero(points[:, 0] == sketch)
            offsets = self._offsets(knobs, points[rows, 1:], peak)
            hill = self.heights[sketch] * np.exp(-((offsets / self.spread) ** 2).sum(axis=1))
            valleys = self.ripple * np.sin(np.pi / 2 * offsets.sum(axis=1) * 1.3) ** 2
            innermost = self._innermost(knobs, points[rows, 1:]) - self._innermost(
                knobs, np.array([peak])
            )
            fitness[rows] = np.where(innermost > self.cliff, 0.0, hill * (1.0 - valleys))
        return fitness.astype(np.float32)

    @staticmethod
    def _offsets(knobs: Sequence[Knob], indices: np.ndarray, peak: Sequence[int]) -> np.ndarray:
        offsets = [
            knob.features[indices[:, column]] - knob.features[peak[column]]
            for column, knob in enumerate(knobs)
        ]
        return np.concatenate([np.zeros((len(indices), 1)), *offsets], axis=1)

    @staticmethod
    def _innermost(knobs: Sequence[Knob], indices: np.ndarray) -> np.ndarray:
        total = np.zeros(len(indices))
        for column, knob in enumerate(knobs):
            if isinstance(knob, TileKnob):
                total += knob.features[indices[:, column], -1]
        return total


@dataclass(frozen=True)
class SyntheticTask:
    """A space, its fitness (`n x width` points to `n` float32 in [0, 1]), and where that is 1."""

    space: KnobSpace
    fitness: Landscape
    optimum: np.ndarray


def bowl(seed: int = 0) -> SyntheticTask:
    """One smooth hill over 5 million configurations: every knob can be tuned by itself."""
    return _task((_CONVOLUTION,), seed, spread=3.0)


def rugged(seed: int = 0) -> SyntheticTask:
    """The same space with many local optima, and with regions that are refused (fitness 0)."""
    return _task((_CONVOLUTION,), seed, spread=3.0, ripple=0.4, cliff=2.0)


def two_sketches(seed: int = 0) -> SyntheticTask:
    """A sketch of seven knobs beside one of three; either, by the seed, holds the optimum."""
    return _task((_CONVOLUTION, _REDUCTION), seed, spread=3.0)


def tiny(seed: int = 0) -> SyntheticTask:
    """Six configurations: fewer than one plan wants to measure."""
    return _task(((TileKnob("tile", 4, 2, 4), ChoiceKnob("unroll", (0, 16))),), seed, spread=2.0)


def single() -> SyntheticTask:
    """One configuration and no moves, as of an operator that leaves nothing to choose."""
    return _task(((ChoiceKnob("unroll", (0,)),),), 0, spread=1.0)


_CONVOLUTION: tuple[Knob, ...] = (
    TileKnob("tile_f", 64, 4, 64),
    TileKnob("tile_y", 28, 3, 64),
    TileKnob("tile_x", 28, 3, 64),
    TileKnob("tile_rc", 32, 2, 64),
    TileKnob("tile_ry", 3, 2, 64),
    ChoiceKnob("unroll", (0, 16, 64, 512)),
    ChoiceKnob("place", (-1, 4, 5, 6), role="location"),
)
_REDUCTION: tuple[Knob, ...] = (
    TileKnob("tile_f", 64, 4, 64),
    TileKnob("tile_rc", 32, 3, 64),
    ChoiceKnob("unroll", (0, 16, 64, 512)),
)


def _task(
    sketches: tuple[tuple[Knob, ...], ...],
    seed: int,
    *,
    spread: float,
    ripple: float = 0.0,
    cliff: float = np.inf,
) -> SyntheticTask:
    space = KnobSpace(sketches)
    rng = np.random.default_rng(seed)
    peaks = tuple(
        tuple(int(rng.integers(knob.cardinality)) for knob in knobs) for knobs in sketches
    )
    best = int(rng.integers(len(sketches)))
    heights = tuple(1.0 if s == best else MINOR_PEAK for s in range(len(sketches)))
    optimum = np.zeros(space.width, np.int32)
    optimum[0] = best
    optimum[1 : 1 + len(peaks[best])] = peaks[best]
    return SyntheticTask(space, Landscape(space, peaks, heights, spread, ripple, cliff), optimum)
