"""A layer that was measured at length: search without hardware, and with the truth known.

The truth of a configuration that was never measured is what a model of all measurements says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from policies.base import SearchState
from release_ray.core.cost_model import CostModel
from release_ray.core.knobs import ChoiceKnob, Knob, TileKnob
from release_ray.core.settings import CostModelSettings
from release_ray.core.space import KnobSpace, keys


@dataclass(frozen=True)
class RecordedLayer:
    """`n x width` points of a space that were measured, and their `n` fitness values in [0, 1]."""

    space: KnobSpace
    points: np.ndarray
    fitness: np.ndarray

    @staticmethod
    def load(path: Path) -> RecordedLayer:
        """Reads the JSON that holds the knobs, and of each measurement the point and latency."""
        content = json.loads(path.read_text())
        knobs = tuple(_knob(knob) for knob in content["knobs"])
        points, latencies = zip(*content["measurements"], strict=True)
        latency_s = np.array(latencies)
        return RecordedLayer(
            KnobSpace((knobs,) * content["sketches"]),
            np.array(points, np.int32),
            (latency_s.min() / latency_s).astype(np.float32),
        )

    def truth(self) -> Oracle:
        """What all measurements together say of any configuration."""
        model = xgboost.XGBRegressor(
            n_estimators=400,
            max_depth=6,
            learning_rate=0.05,
            subsample=0.8,
            colsample_bytree=0.8,
            n_jobs=1,
        )
        model.fit(self._plain(self.points), self.fitness)
        return Oracle(self, model)

    def search_state(self, measured: int, *, sample: int, seed: int) -> SearchState:
        """A task of which `measured` configurations, drawn by `sample`, are known.

        The cost model has learnt from them alone; `seed` is that of the search.
        """
        rows = np.random.default_rng(sample).permutation(len(self.points))[:measured]
        points, fitness = self.points[rows], self.fitness[rows]
        model = CostModel(CostModelSettings())
        model.fit(self.space.features(points), fitness)
        return SearchState(
            space=self.space,
            score=lambda asked: model.predict(self.space.features(asked)),
            measured=points,
            fitness=fitness,
            visited=set(keys(points)),
            rng=np.random.default_rng(seed),
        )

    def _plain(self, points: np.ndarray) -> np.ndarray:
        # Without the sums that the cost model gets, so that the truth does not share its bias.
        plain = sum(knob.features.shape[1] for knob in self.space.sketches[0])
        return self.space.features(points)[:, : len(self.space.sketches) + plain]


@dataclass(frozen=True)
class Oracle:
    """Tells `n` fitness values of `n x width` points."""

    layer: RecordedLayer
    model: xgboost.XGBRegressor

    def __call__(self, points: np.ndarray) -> np.ndarray:
        return self.model.predict(self.layer._plain(points))


def _knob(content: dict[str, Any]) -> Knob:
    if "tile" in content:
        return TileKnob(**content["tile"])
    choice = content["choice"]
    return ChoiceKnob(**{**choice, "choices": tuple(choice["choices"])})
