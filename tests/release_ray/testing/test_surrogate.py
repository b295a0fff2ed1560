"""Searches without hardware: as told by records, and by a model of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import policies
import samplers
from release_ray.configuration import validate
from release_ray.core import recorded
from release_ray.core.prior import Prior
from release_ray.testing.surrogate import Replay, Surrogate

RECORDED = Path(__file__).parents[2] / "data" / "recorded_conv2d_64x56x56.json.gz"


@pytest.fixture(scope="module")
def halves():
    """A layer's measurements, two thirds of them and the rest."""
    (whole,) = recorded.load(RECORDED)
    _, once = np.unique(whole.points, axis=0, return_index=True)
    rows = np.random.default_rng(0).permutation(once)
    return [
        replace(whole, points=whole.points[some], latency_s=whole.latency_s[some])
        for some in (rows[:400], rows[400:])
    ]


@pytest.fixture(scope="module")
def task(halves):
    latency = halves[0].latency_s.copy()
    latency[7] = np.inf
    return replace(halves[0], latency_s=latency)


@pytest.fixture(scope="module")
def surrogate(task):
    return Surrogate(task)


def test_what_was_recorded_is_told_as_it_was(task, surrogate):
    latency, was_recorded = surrogate.latency_s(task.points)
    np.testing.assert_array_equal(latency, task.latency_s)
    assert was_recorded.all()


def test_the_rest_is_told_by_a_model_and_said_to_be(halves, surrogate):
    unknown = halves[1]
    latency, was_recorded = surrogate.latency_s(unknown.points)
    assert not was_recorded.any()
    assert (latency >= surrogate.best_s).all()
    ranks = np.argsort(np.argsort(latency)), np.argsort(np.argsort(unknown.latency_s))
    assert np.corrcoef(*ranks)[0, 1] > 0.6
    # Of the same task, so distributed alike: not drawn to the mean.
    shares = (0.05, 0.25, 0.5, 0.75)
    spread = np.quantile(unknown.latency_s, shares)
    np.testing.assert_allclose(np.quantile(latency, shares), spread, rtol=0.4)


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
