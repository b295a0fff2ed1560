"""What was measured of other operators, before: where a search begins that knows nothing yet.

A schedule that is good for one convolution is seldom bad for the next. So a cost model that has
learnt from many shapes proposes a task's first candidates, where chance would have to. To learn
once, over many shapes, what each search would learn anew is AIRCHITECT's idea (Samajdar et al.
2021, arXiv 2108.08295); here it is where the search starts, not where it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from release_ray.core import recorded
from release_ray.core.recorded import RecordedTask
from release_ray.core.space import KnobSpace

SHIPPED = Path(__file__).parents[1] / "data" / "prior.json.gz"
"""Made by `scripts/prior`: operators of random shapes, none of them in a built-in network."""


@dataclass(frozen=True)
class Prior:
    """Recorded tasks, of which a search takes those that are like its own."""

    tasks: tuple[RecordedTask, ...] = ()

    def of(self, space: KnobSpace, at_most: int) -> tuple[np.ndarray, np.ndarray]:
        """Features (`n x f`) and fitness (`n`) of what was measured of like spaces.

        Evenly chosen where there is more than `at_most`.
        """
        if not at_most:
            return space.features(np.zeros((0, space.width), np.int32)), np.zeros(0, np.float32)
        like = [task for task in self.tasks if task.space.family == space.family]
        return thinned(
            [task.space.features(task.points) for task in like],
            [task.fitness for task in like],
            space,
            at_most,
        )


def thinned(
    features: list[np.ndarray], fitness: list[np.ndarray], space: KnobSpace, at_most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Several tasks' features and fitness as one; evenly chosen where there are too many."""
    if not features:
        return space.features(np.zeros((0, space.width), np.int32)), np.zeros(0, np.float32)
    known = np.concatenate(fitness)
    chosen = np.linspace(0, len(known) - 1, min(len(known), at_most)).round().astype(int)
    return np.concatenate(features)[chosen], known[chosen]


@lru_cache(maxsize=1)
def shipped() -> Prior:
    """The measurements that come with the program."""
    return Prior(tuple(recorded.load(SHIPPED)))
