"""The learned cost model: gradient-boosted trees from a configuration's features to its fitness.

Fitness is the best latency over a configuration's own, in [0, 1]; a failure counts as 0. A
regression, not a ranking, because the agent's reward needs values (paper's code).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xgboost

from release_ray.core.settings import CostModelSettings


class CostModel:
    """XGBoost on one core. Before the first `fit` it predicts 0 for everything."""

    def __init__(self, settings: CostModelSettings, *, seed: int = 0) -> None:
        self._settings = settings
        self._seed = seed
        self._booster: xgboost.Booster | None = None

    def fit(self, features: np.ndarray, fitness: np.ndarray) -> None:
        """Learns anew from `n x f` features and `n` fitness values, in the order given.

        Callers pass measurements in a canonical order: the subsample drawn depends on it.
        """
        settings = self._settings
        self._booster = xgboost.train(
            {
                "objective": "reg:squarederror",
                "max_depth": settings.depth,
                "eta": settings.eta,
                "gamma": settings.gamma,
                "min_child_weight": settings.min_child_weight,
                "subsample": settings.subsample,
                "colsample_bytree": settings.colsample,
                "lambda": settings.reg_lambda,
                "nthread": 1,
                "seed": self._seed,
            },
            xgboost.DMatrix(features, fitness, nthread=1),
            num_boost_round=settings.trees,
        )

    def predict(self, features: np.ndarray) -> np.ndarray:
        """`n` float32: the fitness expected of `n x f` features."""
        if self._booster is None:
            return np.zeros(len(features), np.float32)
        self._booster.set_param({"nthread": 1})
        return self._booster.inplace_predict(features)

    def save(self, path: Path) -> None:
        """Writes the trees as XGBoost's JSON; nothing where nothing was learnt."""
        if self._booster is not None:
            self._booster.save_model(path)
