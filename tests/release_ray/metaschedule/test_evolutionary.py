"""MetaSchedule's search as a policy, on a real operator."""

from dataclasses import replace

import numpy as np
import pytest
from operators import convolution, task

import policies
from policies.base import SearchState
from release_ray.core.settings import AgentSettings
from release_ray.core.space import keys
from release_ray.sketches import Sketches
from release_ray.testing.policies import check


@pytest.fixture(scope="module")
def sketches():
    return Sketches(task(convolution))


@pytest.fixture(scope="module")
def state(sketches):
    """Sixteen schedules are known; the fitness of half of them, the later ones, is 0."""
    rng = np.random.default_rng(0)
    drawn = [sketches.apply(point).point for point in sketches.space.random(rng, 60)]
    points = np.unique([point for point in drawn if point is not None], axis=0)[:16]
    fitness = np.where(np.arange(16) < 8, np.linspace(1.0, 0.2, 16), 0.0).astype(np.float32)
    return SearchState(
        space=sketches.space,
        score=lambda asked: np.zeros(len(asked), np.float32),
        measured=points.astype(np.int32),
        fitness=fitness,
        visited=set(keys(points)),
        rng=rng,
        schedules=sketches,
    )


@pytest.mark.long
def test_proposes_batches_until_they_are_measured(state):
    policy = policies.create("evolutionary", AgentSettings(model_calls=100), seed=0)
    first = policy.propose(state, 16)
    check(first, state, 16)
    assert len(first.points) > 4
    for point in first.points[:3]:
        np.testing.assert_array_equal(state.schedules.apply(point).point, point)
    # With some of the batch measured the rest is proposed again, in the same order.
    some = first.points[:4]
    known = replace(
        state,
        measured=np.concatenate([state.measured, some]),
        fitness=np.concatenate([state.fitness / 2, [1.0, 0.5, 0.5, 0.0]]).astype(np.float32),
        visited=state.visited | set(keys(some)),
    )
    np.testing.assert_array_equal(policy.propose(known, 16).points, first.points[4:])
    # With nearly all of it measured there is another one.
    most = first.points[:-1]
    known = replace(
        state,
        measured=np.concatenate([state.measured, most]),
        fitness=np.concatenate([state.fitness / 2, np.linspace(1, 0.1, len(most))]).astype(
            np.float32
        ),
        visited=state.visited | set(keys(most)),
    )
    second = policy.propose(known, 16)
    check(second, known, 16)
    assert len(second.points) > 1


def test_a_space_without_schedules_is_not_its_business(state):
    policy = policies.create("evolutionary", AgentSettings(model_calls=100))
    with pytest.raises(RuntimeError, match="TVM's schedules"):
        policy.propose(replace(state, schedules=None), 16)
