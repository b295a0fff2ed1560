"""A task that was measured at length: search without hardware, and with the truth known.

The truth of a configuration that was never measured is what a model of all measurements says.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xgboost

from policies.base import SearchState
from release_ray.core import recorded
from release_ray.core.cost_model import CostModel
from release_ray.core.recorded import RecordedTask
from release_ray.core.settings import CostModelSettings
from release_ray.core.space import keys


def regressor(share: float) -> xgboost.XGBRegressor:
    """Learns a truth, slower than a search's own model; a tree sees a `share` of the data."""
    return xgboost.XGBRegressor(
        n_estimators=400,
        max_depth=6,
        learning_rate=0.05,
        subsample=share,
        colsample_bytree=share,
        n_jobs=1,
    )


@dataclass(frozen=True)
class RecordedLayer:
    """One recorded task, as a search comes upon it when a part of it is known."""

    task: RecordedTask

    @staticmethod
    def load(path: Path) -> RecordedLayer:
        """The only task of a file of `release_ray.core.recorded`."""
        (task,) = recorded.load(path)
        return RecordedLayer(task)

    def truth(self) -> Oracle:
        """What all measurements together say of any configuration."""
        model = regressor(0.8)
        model.fit(self._plain(self.task.points), self.task.fitness)
        return Oracle(self, model)

    def search_state(self, measured: int, *, sample: int, seed: int) -> SearchState:
        """A task of which `measured` configurations, drawn by `sample`, are known.

        The cost model has learnt from them alone; `seed` is that of the search.
        """
        space = self.task.space
        rows = np.random.default_rng(sample).permutation(len(self.task.points))[:measured]
        points, fitness = self.task.points[rows], self.task.fitness[rows]
        model = CostModel(CostModelSettings())
        model.fit(space.features(points), fitness)
        return SearchState(
            space=space,
            score=lambda asked: model.predict(space.features(asked)),
            measured=points,
            fitness=fitness,
            visited=set(keys(points)),
            rng=np.random.default_rng(seed),
        )

    def _plain(self, points: np.ndarray) -> np.ndarray:
        # Without the sums that the cost model gets, so that the truth does not share its bias.
        space = self.task.space
        plain = sum(knob.features.shape[1] for knob in space.sketches[0])
        return space.features(points)[:, : len(space.sketches) + plain]


@dataclass(frozen=True)
class Oracle:
    """Tells `n` fitness values of `n x width` points."""

    layer: RecordedLayer
    model: xgboost.XGBRegressor

    def __call__(self, points: np.ndarray) -> np.ndarray:
        return self.model.predict(self.layer._plain(points))
