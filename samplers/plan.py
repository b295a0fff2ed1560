"""A plan under construction: distinct, unvisited points, at most so many of them."""

from __future__ import annotations

import numpy as np

from release_ray.core.space import KnobSpace
from samplers.base import Origin, Selection


class Plan:
    """Collects the points of one selection."""

    def __init__(self, space: KnobSpace, visited: set[bytes], limit: int) -> None:
        self._space = space
        self._taken = set(visited)
        self._limit = limit
        self._points: list[np.ndarray] = []
        self._origins: list[Origin] = []

    def __len__(self) -> int:
        return len(self._points)

    def offer(self, point: np.ndarray, origin: Origin) -> bool:
        """Takes a point (`width`) if it is new and there is room; says whether it did."""
        key = np.ascontiguousarray(point, np.int32).tobytes()
        if len(self) >= self._limit or key in self._taken:
            return False
        self._taken.add(key)
        self._points.append(np.asarray(point, np.int32))
        self._origins.append(origin)
        return True

    def add_random(self, count: int, rng: np.random.Generator) -> None:
        """Takes up to `count` random points: fewer where there is no room or nothing left."""
        count = min(count, self._limit - len(self))
        for point in self._space.random_unvisited(rng, max(0, count), self._taken):
            self.offer(point, "random")

    def selection(self, clusters: int = 0, losses: tuple[float, ...] = ()) -> Selection:
        """The points taken, in the order in which they came."""
        points = np.array(self._points, np.int32).reshape(len(self), self._space.width)
        return Selection(points, tuple(self._origins), clusters, losses)


def random_share(epsilon: float, count: int, rng: np.random.Generator) -> int:
    """How many of `count` are left to chance: `epsilon * count`, its fraction being a chance too.

    So 0.05 of 12 is one random point in 6 plans of 10, and small plans are not robbed of it.
    """
    whole, fraction = divmod(epsilon * count, 1.0)
    return int(whole) + int(rng.random() < fraction)
