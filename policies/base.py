"""What a search policy is: from a cost model and what was measured, to what to measure next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from envs.walkers import best_repeated, finite
from release_ray.core.settings import AgentSettings
from release_ray.core.space import KnobSpace, keys
from samplers.base import Candidates


@dataclass(frozen=True)
class SearchState:
    """All that a policy may know of a task in one round.

    `score` maps `n x width` points to `n` float32, the fitness that the cost model predicts.
    `measured` (`m x width`) and `fitness` (`m`: best latency over this one's, 0 for a failure)
    stand in a canonical order. `visited` holds the keys of all points that were ever proposed,
    under whatever alias. `rng` is keyed by seed, task and round. `schedules` makes a compiler's
    schedules of points (`release_ray.sketches.Sketches`); None where there is no compiler.
    """

    space: KnobSpace
    score: Callable[[np.ndarray], np.ndarray]
    measured: np.ndarray
    fitness: np.ndarray
    visited: set[bytes]
    rng: np.random.Generator
    schedules: object | None = None


class Policy(ABC):
    """Proposes configurations worth measuring.

    One policy serves all tasks of a run, round after round, and may carry over what it has learnt.
    The same calls in the same order give the same proposals.
    """

    slow_start: ClassVar[bool] = False
    """Whether `prepare` takes seconds, in which another policy should propose."""

    def __init__(self, settings: AgentSettings, seed: int = 0) -> None:
        self.settings = settings
        self.seed = seed
        self._metrics: dict[str, float] = {}

    @abstractmethod
    def propose(self, state: SearchState, count: int) -> Candidates:
        """At most `count` points, distinct and unvisited, the best predicted first.

        Fewer only where the space has no more; always ends. May call `state.score` for about
        `settings.model_calls` points.
        """

    def prepare(self) -> None:  # noqa: B027
        """Does ahead what the first `propose` would otherwise do first, from any thread."""

    def save(self, directory: Path) -> None:  # noqa: B027
        """Writes what was learnt into an existing directory, for `restore`."""

    def restore(self, directory: Path) -> None:  # noqa: B027
        """Takes up what `save` wrote there; nothing where there is nothing."""

    def close(self) -> None:  # noqa: B027
        """Frees what the policy holds; it proposes no more."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Figures of the last `propose`, by name."""
        return self._metrics


def enumerate_all(state: SearchState, count: int) -> Candidates:
    """The best of the whole space, every unvisited point of it scored. Meant for small spaces."""
    points = state.space.enumerate()
    fresh = np.array([key not in state.visited for key in keys(points)], bool)
    points = points[fresh]
    return best_unvisited(state, points, safe_scores(state, points), count)


def best_unvisited(
    state: SearchState, points: np.ndarray, scores: np.ndarray, count: int
) -> Candidates:
    """The `count` best of the points scored that are new; topped up at random if too few are."""
    chosen: list[int] = []
    taken = set(state.visited)
    order = np.argsort(-scores, kind="stable")
    for row, key in zip(order, keys(points[order]), strict=True):
        if len(chosen) == count:
            break
        if key not in taken:
            taken.add(key)
            chosen.append(int(row))
    points, scores = points[chosen], scores[chosen]
    if len(chosen) < count:
        more = state.space.random_unvisited(state.rng, count - len(chosen), taken)
        points = np.concatenate([points, more])
        scores = np.concatenate([scores, safe_scores(state, more)])
        order = np.argsort(-scores, kind="stable")
        points, scores = points[order], scores[order]
    return Candidates(points.astype(np.int32), scores.astype(np.float32))


def starts(state: SearchState, count: int, settings: AgentSettings) -> np.ndarray:
    """`count x width` points to start from: a share of the best measured, the others at random."""
    points = state.space.random(state.rng, count)
    best = best_repeated(
        state.measured,
        state.fitness,
        settings.best_starts,
        round(settings.measured_starts * count),
    )
    points[: len(best)] = best
    return points


def safe_scores(state: SearchState, points: np.ndarray) -> np.ndarray:
    """`n` float32: the predicted fitness, 0 where the model says nothing finite."""
    if not len(points):
        return np.zeros(0, np.float32)
    return finite(state.score(points))
