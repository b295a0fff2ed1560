"""What every policy must do. Derive a test class from `PolicySuite` and say how to make one::

    class TestMine(PolicySuite):
        def make(self, settings: AgentSettings, seed: int) -> Policy:
            return Mine(settings, seed)

The suite asks for few model calls, which some policies spend on less than they are made for; what
a policy claims of its proposals' worth is tested with its own settings by `check_beats_random`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from policies.base import Policy, SearchState
from release_ray.core.settings import AgentSettings
from release_ray.core.space import keys
from release_ray.testing import synthetic
from release_ray.testing.synthetic import SyntheticTask
from samplers.base import Candidates

TASKS = {
    "bowl": synthetic.bowl(),
    "rugged": synthetic.rugged(),
    "two_sketches": synthetic.two_sketches(),
    "tiny": synthetic.tiny(),
    "single": synthetic.single(),
}
COUNT = 16


def search_state(task: SyntheticTask, *, measured: int = 16, seed: int = 0) -> SearchState:
    """A state in which the cost model is right and `measured` random points are known."""
    points = task.space.random_unvisited(np.random.default_rng(seed), measured, set())
    return SearchState(
        space=task.space,
        score=task.fitness,
        measured=points,
        fitness=task.fitness(points),
        visited=set(keys(points)),
        rng=np.random.default_rng([seed, 1]),
    )


def check(candidates: Candidates, state: SearchState, count: int) -> None:
    """Asserts what holds of every proposal."""
    points, scores = candidates.points, candidates.scores
    assert points.dtype == np.int32
    assert points.shape == (len(scores), state.space.width)
    assert len(points) <= count
    proposed = keys(points)
    assert len(set(proposed)) == len(proposed), "the same configuration twice"
    assert not state.visited & set(proposed), "a visited configuration"
    assert np.isfinite(scores).all()
    assert (np.diff(scores) <= 0).all(), "not the best first"
    for point in points:
        knobs = state.space.sketches[point[0]]
        assert all(0 <= i < k.cardinality for i, k in zip(point[1:], knobs, strict=False))
        assert not point[1 + len(knobs) :].any(), "columns past the last knob are not 0"


def check_beats_random(policy: Policy, task: SyntheticTask, *, seed: int = 0) -> None:
    """Asserts that the proposals are better than the best of as many random configurations."""
    state = search_state(task, seed=seed)
    mean = float(task.fitness(policy.propose(state, COUNT).points).mean())
    drawn = task.space.random(np.random.default_rng(seed), policy.settings.model_calls)
    best = np.sort(task.fitness(drawn))[-COUNT:]
    assert mean > float(best.mean())


class PolicySuite:
    """The contract of `Policy`, over spaces with many, few and no choices."""

    calls = 400
    """Model calls a proposal; spaces larger than that are searched, not enumerated."""

    @abstractmethod
    def make(self, settings: AgentSettings, seed: int) -> Policy:
        """A fresh policy."""

    @contextmanager
    def policy(self, seed: int = 0) -> Iterator[Policy]:
        """A fresh policy, closed afterwards."""
        made = self.make(AgentSettings(model_calls=self.calls, walkers=16), seed)
        try:
            yield made
        finally:
            made.close()

    @pytest.mark.parametrize("name", TASKS)
    def test_proposals_are_distinct_unvisited_and_ordered(self, name: str) -> None:
        with self.policy() as policy:
            state = search_state(TASKS[name])
            check(policy.propose(state, COUNT), state, COUNT)

    @pytest.mark.parametrize("name", ["bowl", "two_sketches", "tiny"])
    def test_same_calls_same_proposals(self, name: str) -> None:
        twice = []
        for _ in range(2):
            with self.policy() as policy:
                rounds = [policy.propose(search_state(TASKS[name], seed=s), COUNT) for s in (0, 1)]
                twice.append(np.concatenate([candidates.points for candidates in rounds]))
        np.testing.assert_array_equal(twice[0], twice[1])

    def test_goes_from_task_to_task(self) -> None:
        with self.policy() as policy:
            for name in ("bowl", "two_sketches", "tiny", "single", "bowl"):
                state = search_state(TASKS[name])
                candidates = policy.propose(state, COUNT)
                check(candidates, state, COUNT)
                assert len(candidates.points) == min(
                    COUNT, state.space.size - len(state.visited)
                ), "fewer than the space has"

    @pytest.mark.parametrize("name", ["tiny", "single"])
    def test_ends_when_the_space_is_exhausted(self, name: str) -> None:
        task = TASKS[name]
        with self.policy() as policy:
            state = search_state(task, measured=0)
            everything = policy.propose(state, COUNT)
            check(everything, state, COUNT)
            assert len(everything.points) == task.space.size
            state.visited.update(keys(everything.points))
            assert not len(policy.propose(state, COUNT).points)

    def test_asked_for_nothing_proposes_nothing(self) -> None:
        with self.policy() as policy:
            assert not len(policy.propose(search_state(TASKS["bowl"]), 0).points)

    def test_works_before_anything_is_measured(self) -> None:
        with self.policy() as policy:
            state = search_state(TASKS["bowl"], measured=0)
            check(policy.propose(state, COUNT), state, COUNT)

    @pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
    def test_bears_a_model_that_knows_nothing(self, value: float) -> None:
        task = TASKS["bowl"]
        known = search_state(task)
        state = SearchState(
            space=task.space,
            score=lambda points: np.full(len(points), value, np.float32),
            measured=known.measured,
            fitness=np.zeros(len(known.measured), np.float32),
            visited=known.visited,
            rng=known.rng,
        )
        with self.policy() as policy:
            check(policy.propose(state, COUNT), state, COUNT)

    def test_does_not_touch_what_it_is_told(self) -> None:
        state = search_state(TASKS["bowl"])
        measured, visited = state.measured.copy(), set(state.visited)
        with self.policy() as policy:
            policy.propose(state, COUNT)
        np.testing.assert_array_equal(state.measured, measured)
        assert state.visited == visited

    def test_keeps_near_its_budget_of_model_calls(self) -> None:
        task = TASKS["bowl"]
        known = search_state(task)
        asked: list[int] = []

        def score(points: np.ndarray) -> np.ndarray:
            asked.append(len(points))
            return task.fitness(points)

        state = SearchState(
            space=task.space,
            score=score,
            measured=known.measured,
            fitness=known.fitness,
            visited=known.visited,
            rng=known.rng,
        )
        with self.policy() as policy:
            policy.propose(state, COUNT)
        assert 0 < sum(asked) <= self.calls + COUNT

    def test_reports_finite_figures(self) -> None:
        with self.policy() as policy:
            policy.propose(search_state(TASKS["bowl"]), COUNT)
            assert all(np.isfinite(value) for value in policy.metrics.values())

    def test_saves_and_restores(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        learnt = Path("learnt")  # relative, as work dirs are by default
        learnt.mkdir()
        first, second = search_state(TASKS["bowl"], seed=0), search_state(TASKS["bowl"], seed=1)
        with self.policy() as policy:
            policy.propose(first, COUNT)
            policy.save(learnt)
            went_on = policy.propose(second, COUNT)
        with self.policy() as policy:
            policy.restore(learnt)
            taken_up = policy.propose(search_state(TASKS["bowl"], seed=1), COUNT)
        np.testing.assert_array_equal(went_on.points, taken_up.points)

    def test_restores_from_nothing(self, tmp_path: Path) -> None:
        with self.policy() as policy:
            policy.restore(tmp_path)
            state = search_state(TASKS["tiny"])
            check(policy.propose(state, COUNT), state, COUNT)
