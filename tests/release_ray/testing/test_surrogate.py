"""Searches without hardware: as told by records, and by a model of them."""

import numpy as np
import pytest

import policies
import samplers
from release_ray.configuration import validate
from release_ray.core.prior import Prior
from release_ray.core.recorded import RecordedTask
from release_ray.testing import synthetic
from release_ray.testing.surrogate import Replay, Surrogate


@pytest.fixture(scope="module")
def task():
    made = synthetic.two_sketches()
    points = made.space.random_unvisited(np.random.default_rng(0), 400, set())
    latency = 1e-4 / np.maximum(made.fitness(points), 0.01)
    latency[7] = np.inf
    return RecordedTask("task", made.space, points, latency)


@pytest.fixture(scope="module")
def surrogate(task):
    return Surrogate(task)


def test_what_was_recorded_is_told_as_it_was(task, surrogate):
    latency, recorded = surrogate.latency_s(task.points)
    np.testing.assert_array_equal(latency, task.latency_s)
    assert recorded.all()


def test_the_rest_is_told_by_a_model_and_said_to_be(task, surrogate):
    known = {point.tobytes() for point in task.points}
    others = task.space.random_unvisited(np.random.default_rng(1), 300, known)
    latency, recorded = surrogate.latency_s(others)
    assert not recorded.any()
    assert (latency >= surrogate.best_s).all()
    truth = synthetic.two_sketches().fitness(others)
    ranks = np.argsort(np.argsort(1 / latency)), np.argsort(np.argsort(truth))
    assert np.corrcoef(*ranks)[0, 1] > 0.3
    # Drawn from the same distribution, so distributed alike.
    recorded_spread = np.quantile(task.latency_s, (0.1, 0.5, 0.9))
    np.testing.assert_allclose(np.quantile(latency, (0.1, 0.5, 0.9)), recorded_spread, rtol=0.25)


def replay(surrogate, *, seed=0, prior=None, trials=64):
    settings = validate(
        {"policy": "genetic", "seed": seed, "agent": {"model_calls": 500}}, "a test"
    )
    made = Replay(
        surrogate,
        settings,
        samplers.create(settings.sampler.name, settings.sampler),
        prior or Prior(),
    )
    planner = made.run(policies.create("genetic", settings.agent, seed), trials)
    return made, planner


def test_a_search_is_replayed_to_the_end_of_its_budget(surrogate):
    made, planner = replay(surrogate)
    assert len(made.curve) == 64
    assert made.curve == sorted(made.curve)
    assert made.curve[-1] > made.curve[15]
    assert 0 < made.modelled <= 64
    assert planner.best_s == pytest.approx(surrogate.best_s / made.curve[-1], rel=0.15)


def test_a_seed_gives_the_same_search(surrogate):
    assert replay(surrogate)[0].curve == replay(surrogate)[0].curve
    assert replay(surrogate)[0].curve != replay(surrogate, seed=1)[0].curve


def test_a_search_that_knows_like_tasks_begins_better(task, surrogate):
    knowing = replay(surrogate, prior=Prior((task,)))[0].curve
    assert knowing[15] > replay(surrogate)[0].curve[15]
