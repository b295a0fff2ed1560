"""Walkers: many walks through one design space, all stepped at once.

This is the environment itself; `KnobEnv` (one walker, for stock RLlib) and the batched env runner
(all of them) are two views of it. A step asks the cost model, never the hardware.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from envs.observation import PROGRESS, Observer
from release_ray.core.knobs import ACTIONS, STAY
from release_ray.core.space import KnobSpace, keys

Score = Callable[[np.ndarray], np.ndarray]


class Walkers:
    """`count` walkers over one space, each with all the agents of its sketch.

    `score` maps `n x width` points to `n` predicted fitness values. `measured` (`m x width`) and
    `fitness` (`m`) are what the hardware has said: there the reward follows the measurement, and
    elsewhere the prediction. A walk has `steps` steps. A share of `measured_starts` of the walkers
    start from the `best_starts` best measured, whose neighbourhood the model knows best; a share
    of `scored_starts` from as many best predicted so far, so that short walks climb far; the
    others anywhere.
    """

    def __init__(
        self,
        space: KnobSpace,
        score: Score,
        *,
        count: int,
        steps: int,
        measured: np.ndarray | None = None,
        fitness: np.ndarray | None = None,
        measured_starts: float = 0.5,
        scored_starts: float = 0.25,
        best_starts: int = 8,
    ) -> None:
        self.space = space
        self.count = count
        self.steps = steps
        self._score = score
        self._scored_starts = scored_starts
        self._best_starts = best_starts
        self._observer = Observer(space)
        self._known: dict[bytes, float] = {}
        self._best_measured = np.zeros((0, space.width), np.int32)
        if measured is not None and fitness is not None and len(measured):
            self._known = dict(zip(keys(measured), map(float, fitness), strict=True))
            self._best_measured = best_repeated(
                measured, fitness, best_starts, round(measured_starts * count)
            )
        self._scored: list[tuple[np.ndarray, np.ndarray]] = []
        self.points = np.zeros((count, space.width), np.int32)
        self.fitness = np.zeros(count, np.float32)
        self._start_fitness = self.fitness
        self._step = 0

    @property
    def done(self) -> bool:
        """Whether the walk has had all its steps."""
        return self._step >= self.steps

    def reset(self, rng: np.random.Generator, points: np.ndarray | None = None) -> None:
        """Sends the walkers to their starts, or to the given `count x width` points."""
        if points is None:
            points = self.space.random(rng, self.count)
            self._place(points)
        self.points = np.array(points, np.int32)
        self.fitness = self._evaluate(self.points)
        self._start_fitness = self.fitness
        self._step = 0

    def step(self, actions: np.ndarray) -> np.ndarray:
        """All agents of all walkers act; returns `count` rewards, each shared by its agents.

        `actions` is `count x slots`; a value that is no action counts as stay, and so does any
        in an empty slot. The reward is the fitness gained.
        """
        known = (actions >= 0) & (actions < ACTIONS)
        self.points = self.space.step(self.points, np.where(known, actions, STAY))
        before, self.fitness = self.fitness, self._evaluate(self.points)
        self._step += 1
        return self.fitness - before

    def observe(self) -> np.ndarray:
        """`count x slots x OBSERVATION` float32."""
        progress = np.empty((self.count, PROGRESS), np.float32)
        progress[:, 0] = self.fitness
        progress[:, 1] = self.gained
        progress[:, 2] = 1.0 - self._step / self.steps
        return self._observer.observe(self.points, progress)

    @property
    def gained(self) -> np.ndarray:
        """`count`: the fitness gained since the start of the walk."""
        return self.fitness - self._start_fitness

    def agents(self) -> np.ndarray:
        """`count`: how many agents each walker has; they fill its first slots."""
        of_sketch = np.array([len(agents) for agents in self.space.agents])
        return of_sketch[self.points[:, 0]]

    def scored(self) -> tuple[np.ndarray, np.ndarray]:
        """Every configuration scored since the walkers were made: `n x width`, and `n` scores."""
        if not self._scored:
            return np.zeros((0, self.space.width), np.int32), np.zeros(0, np.float32)
        points, scores = zip(*self._scored, strict=True)
        return np.concatenate(points), np.concatenate(scores)

    def _place(self, points: np.ndarray) -> None:
        """Puts the shares of random `points` that start from good ones there: first, and last."""
        points[: len(self._best_measured)] = self._best_measured
        climbers = round(self._scored_starts * self.count)
        best = self._best_scored()
        if climbers and len(best):
            points[-climbers:] = np.resize(best, (climbers, best.shape[1]))

    def _best_scored(self) -> np.ndarray:
        """Up to `best_starts x width`: the best predicted so far."""
        points, scores = self.scored()
        best: dict[bytes, np.ndarray] = {}
        for row in np.argsort(-scores, kind="stable"):
            if len(best) == self._best_starts:
                break
            best.setdefault(points[row].tobytes(), points[row])
        return np.array(list(best.values()), np.int32).reshape(-1, self.space.width)

    def _evaluate(self, points: np.ndarray) -> np.ndarray:
        predicted = finite(self._score(points))
        self._scored.append((points, predicted))
        if not self._known:
            return predicted
        return np.array(
            [
                self._known.get(key, value)
                for key, value in zip(keys(points), predicted, strict=True)
            ],
            np.float32,
        )


def best_repeated(
    measured: np.ndarray, fitness: np.ndarray, distinct: int, count: int
) -> np.ndarray:
    """`count` rows of the `distinct` best measured, over and over; none where all failed."""
    order = np.argsort(-np.asarray(fitness), kind="stable")
    order = order[np.asarray(fitness)[order] > 0][:distinct]
    if not len(order):
        return measured[:0].astype(np.int32)
    return measured[np.resize(order, count)].astype(np.int32)


def finite(scores: np.ndarray) -> np.ndarray:
    """Scores as float32, 0 where a model says nothing finite."""
    scores = np.asarray(scores, np.float32)
    return np.where(np.isfinite(scores), scores, np.float32(0.0))
