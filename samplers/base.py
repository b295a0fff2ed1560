"""What a sampler is: it decides which of a policy's candidates are worth a measurement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from release_ray.core.settings import SamplerSettings
from release_ray.core.space import KnobSpace

Origin = Literal["policy", "synthesis", "random"]


@dataclass(frozen=True)
class Candidates:
    """What a policy proposes: `n x width` int32 points, best first, and `n` predicted fitness."""

    points: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class Selection:
    """What is to be measured, in this order: `m x width` points.

    `origins` says of each point whether a policy proposed it, synthesis put it together or chance
    drew it. `clusters` is the number of clusters settled on, 0 where none were formed; `losses`
    the k-means loss of each number of clusters tried; `labels` each candidate's cluster, or empty.
    """

    points: np.ndarray
    origins: tuple[Origin, ...]
    clusters: int = 0
    losses: tuple[float, ...] = ()
    labels: tuple[int, ...] = ()


class Sampler(ABC):
    """Base of all samplers. One sampler serves every task, so it keeps no state between calls."""

    def __init__(self, settings: SamplerSettings) -> None:
        self.settings = settings

    @abstractmethod
    def select(
        self,
        candidates: Candidates,
        space: KnobSpace,
        visited: set[bytes],
        limit: int,
        rng: np.random.Generator,
    ) -> Selection:
        """Chooses at most `limit` points, distinct and none of them in `visited`.

        `visited` holds row keys (`release_ray.core.space.keys`); candidates may be in it, and may
        repeat each other. Always ends; the selection is empty only if `limit` is below one or
        nothing unvisited can be found in the space. The choice depends on the arguments alone.
        """
