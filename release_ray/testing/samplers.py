"""What every sampler must do. Derive a test class from `SamplerSuite` and say how to make one::

class TestMine(SamplerSuite):
    def make(self, settings: SamplerSettings) -> Sampler:
        return Mine(settings)
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pytest

from release_ray.core.settings import SamplerSettings
from release_ray.core.space import keys
from release_ray.testing import synthetic
from release_ray.testing.synthetic import SyntheticTask
from samplers.base import Candidates, Sampler, Selection

TASKS = {
    "bowl": synthetic.bowl(),
    "two_sketches": synthetic.two_sketches(),
    "tiny": synthetic.tiny(),
    "single": synthetic.single(),
}


def propose(task: SyntheticTask, count: int, seed: int = 0) -> Candidates:
    """Random candidates with their true fitness, best first; they may repeat each other."""
    return ranked(task, task.space.random(np.random.default_rng(seed), count))


def ranked(task: SyntheticTask, points: np.ndarray) -> Candidates:
    """The points as candidates, best first."""
    fitness = task.fitness(points)
    order = np.argsort(-fitness, kind="stable")
    return Candidates(points[order], fitness[order])


def check(selection: Selection, task: SyntheticTask, visited: set[bytes], limit: int) -> None:
    """Asserts what holds of every selection."""
    points = selection.points
    assert points.dtype == np.int32
    assert points.shape == (len(selection.origins), task.space.width)
    assert len(points) <= max(0, limit)
    chosen = keys(points)
    assert len(set(chosen)) == len(chosen), "the same configuration twice"
    assert not visited & set(chosen), "a visited configuration"
    assert set(selection.origins) <= {"policy", "synthesis", "random"}
    for point in points:
        knobs = task.space.sketches[point[0]]
        assert all(0 <= i < k.cardinality for i, k in zip(point[1:], knobs, strict=False))
        assert not point[1 + len(knobs) :].any(), "columns past the last knob are not 0"


def check_origins(selection: Selection, candidates: Candidates) -> None:
    """Asserts that the origins are true, as far as that can be seen."""
    proposed = set(keys(candidates.points))
    for point, origin in zip(selection.points, selection.origins, strict=True):
        if origin == "policy":
            assert point.tobytes() in proposed
        if origin == "synthesis":
            peers = candidates.points[candidates.points[:, 0] == point[0]]
            assert (peers == point).any(axis=0).all(), "a value that no candidate has"


class SamplerSuite:
    """The contract of `samplers.Sampler`, as tests."""

    @abstractmethod
    def make(self, settings: SamplerSettings) -> Sampler:
        """The sampler under test."""

    @pytest.fixture(params=TASKS)
    def task(self, request: pytest.FixtureRequest) -> SyntheticTask:
        return TASKS[request.param]

    def select(
        self,
        task: SyntheticTask,
        candidates: Candidates,
        visited: set[bytes],
        limit: int = 64,
        seed: int = 0,
        **settings: object,
    ) -> Selection:
        """A checked selection of a fresh sampler."""
        sampler = self.make(SamplerSettings.model_validate(settings))
        before, shown = set(visited), candidates.points.copy()
        rng = np.random.default_rng(seed)
        selection = sampler.select(candidates, task.space, visited, limit, rng)
        assert visited == before, "the set of visited points was changed"
        assert np.array_equal(candidates.points, shown), "the candidates were changed"
        check(selection, task, visited, limit)
        check_origins(selection, candidates)
        return selection

    @pytest.mark.parametrize("count", [0, 1, 5, 64])
    @pytest.mark.parametrize("limit", [0, 1, 3, 64])
    def test_any_number_of_candidates_under_any_limit(
        self, task: SyntheticTask, count: int, limit: int
    ) -> None:
        selection = self.select(task, propose(task, count), set(), limit)
        assert (len(selection.points) > 0) == (limit > 0)

    def test_identical_candidates(self, task: SyntheticTask) -> None:
        same = np.repeat(task.optimum[None], 64, axis=0)
        selection = self.select(task, ranked(task, same), set(), epsilon=0.0)
        assert task.optimum.tobytes() in keys(selection.points)

    def test_visited_candidates_are_replaced(self, task: SyntheticTask) -> None:
        candidates = propose(task, 64)
        visited = set(keys(candidates.points))
        selection = self.select(task, candidates, visited)
        assert (len(selection.points) > 0) == (len(visited) < task.space.size)

    @pytest.mark.parametrize(
        "small", [synthetic.tiny(), synthetic.single()], ids=["tiny", "single"]
    )
    def test_ends_when_the_space_is_exhausted(self, small: SyntheticTask) -> None:
        visited: set[bytes] = set()
        for seed in range(small.space.size):
            selection = self.select(small, propose(small, 16, seed), visited, limit=1)
            assert len(selection.points) == 1
            visited |= set(keys(selection.points))
        for count in (0, 16):
            assert len(self.select(small, propose(small, count), visited).points) == 0

    def test_a_space_is_covered_in_the_end(self) -> None:
        task = synthetic.tiny()
        visited: set[bytes] = set()
        for seed in range(task.space.size):
            selection = self.select(task, propose(task, 64, seed), visited, seed=seed)
            visited |= set(keys(selection.points))
        assert len(visited) == task.space.size

    def test_a_seed_decides(self, task: SyntheticTask) -> None:
        candidates = propose(task, 64)
        visited = set(keys(candidates.points[::2]))
        once, again = (self.select(task, candidates, visited, seed=3) for _ in range(2))
        assert np.array_equal(once.points, again.points)
        assert once.origins == again.origins

    def test_the_order_of_calls_does_not_matter(self, task: SyntheticTask) -> None:
        sampler = self.make(SamplerSettings())
        candidates = propose(task, 64)
        first = sampler.select(candidates, task.space, set(), 64, np.random.default_rng(1))
        other = TASKS["bowl"]
        sampler.select(propose(other, 64), other.space, set(), 64, np.random.default_rng(2))
        later = sampler.select(candidates, task.space, set(), 64, np.random.default_rng(1))
        assert np.array_equal(first.points, later.points)

    def test_a_share_is_random(self) -> None:
        task = synthetic.bowl()
        drawn = [
            self.select(task, propose(task, 64), set(), seed=s, epsilon=0.25).origins
            for s in range(20)
        ]
        share = np.mean([origin == "random" for origins in drawn for origin in origins])
        assert 0.15 < share < 0.35

    def test_without_a_random_share_candidates_alone_are_measured(self) -> None:
        task = synthetic.bowl()
        selection = self.select(task, propose(task, 64), set(), epsilon=0.0)
        assert set(selection.origins) == {"policy"}
