"""A genetic search on the cost model: what MetaSchedule and AutoTVM's GATuner do, in our space."""

from __future__ import annotations

import numpy as np

from policies.base import (
    Policy,
    SearchState,
    best_unvisited,
    enumerate_all,
    safe_scores,
    starts,
)
from release_ray.core.knobs import ACTIONS, STAY
from samplers.base import Candidates

ELITE = 0.25
"""Share of a generation that the next one keeps."""
CROSSED = 0.5
"""Share of the children that have two parents."""
MOVED = 0.7
"""Share of the children that take one small move; the others have one knob drawn anew."""


class GeneticPolicy(Policy):
    """`walkers` individuals, as many generations as `model_calls` allow."""

    def propose(self, state: SearchState, count: int) -> Candidates:
        if state.space.size <= self.settings.model_calls:
            return enumerate_all(state, count)
        size = min(self.settings.walkers, self.settings.model_calls)
        points = starts(state, size, self.settings)
        scores = safe_scores(state, points)
        seen, seen_scores = evolve(state, points, scores, self.settings.model_calls - size)
        return best_unvisited(
            state, np.concatenate([points, seen]), np.concatenate([scores, seen_scores]), count
        )


def evolve(
    state: SearchState, points: np.ndarray, scores: np.ndarray, calls: int
) -> tuple[np.ndarray, np.ndarray]:
    """Breeds a population of `n x width` points and their `n` scores, with `calls` model calls.

    The best stay; the others make room for children of parents drawn by their rank. Parents of one
    sketch exchange knobs, each by a coin; then a child moves by one legal action of one agent, or
    has a knob drawn anew. Returns every child, `calls x width`, and its score.
    """
    elite = round(ELITE * len(points))
    bred, bred_scores = [points[:0]], [scores[:0]]
    while calls > 0:
        order = np.argsort(-scores, kind="stable")
        points, scores = points[order], scores[order]
        children = _children(state, points, min(calls, len(points) - elite))
        child_scores = safe_scores(state, children)
        calls -= len(children)
        bred.append(children)
        bred_scores.append(child_scores)
        points = np.concatenate([points[:elite], children])
        scores = np.concatenate([scores[:elite], child_scores])
    return np.concatenate(bred), np.concatenate(bred_scores)


def _children(state: SearchState, points: np.ndarray, count: int) -> np.ndarray:
    """`count` children of `n x width` parents that come the best first."""
    rng, space = state.rng, state.space
    share = np.arange(len(points), 0, -1, dtype=float)
    parents = rng.choice(len(points), (2, count), p=share / share.sum())
    children, other = points[parents[0]], points[parents[1]]
    crossed = (rng.random(count) < CROSSED) & (children[:, 0] == other[:, 0])
    taken = crossed[:, None] & (rng.random(children.shape) < 0.5)
    children = np.where(taken, other, children)
    moves = space.legal(children)
    moves[:, :, STAY] = False
    drawn = np.where(moves, rng.random(moves.shape), 0.0).reshape(count, -1)
    choice = drawn.argmax(axis=1)
    movable = drawn.any(axis=1)
    actions = np.full((count, space.slots), STAY)
    rows = np.flatnonzero(movable)
    actions[rows, choice[rows] // ACTIONS] = choice[rows] % ACTIONS
    moved = movable & (rng.random(count) < MOVED)
    return np.where(
        moved[:, None], space.step(children, actions), space.redraw(children, rng)
    ).astype(np.int32)
