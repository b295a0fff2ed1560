"""Walkers: starts, rewards, and what they collect."""

import numpy as np
import pytest

from envs.walkers import Walkers
from release_ray.core.space import keys
from release_ray.testing import synthetic


def walkers_of(task, count=16, **more):
    return Walkers(task.space, task.fitness, count=count, steps=4, **more)


def test_rewards_are_the_fitness_gained_and_everything_scored_is_kept():
    task = synthetic.bowl()
    rng = np.random.default_rng(0)
    walkers = walkers_of(task)
    walkers.reset(rng)
    start = walkers.fitness.copy()
    rewards = []
    while not walkers.done:
        rewards.append(walkers.step(rng.integers(3, size=(16, task.space.slots))))
    np.testing.assert_allclose(np.sum(rewards, axis=0), walkers.fitness - start, atol=1e-6)
    points, scores = walkers.scored()
    assert len(points) == 16 * 5
    np.testing.assert_allclose(scores, task.fitness(points))


def test_reward_follows_the_measurement_where_there_is_one():
    task = synthetic.bowl()
    here = task.space.random(np.random.default_rng(0), 1)
    there = task.space.step(here, np.full((1, task.space.slots), 2))
    walkers = walkers_of(task, count=1, measured=there, fitness=np.array([0.75]))
    walkers.reset(np.random.default_rng(0), here)
    reward = walkers.step(np.full((1, task.space.slots), 2))
    assert reward[0] == pytest.approx(0.75 - task.fitness(here)[0])


def test_a_share_starts_from_the_best_measured():
    task = synthetic.bowl()
    measured = task.space.random_unvisited(np.random.default_rng(1), 10, set())
    fitness = np.linspace(0.0, 1.0, 10)
    walkers = walkers_of(task, measured=measured, fitness=fitness, best_starts=3)
    walkers.reset(np.random.default_rng(0))
    assert set(keys(walkers.points[:8])) == set(keys(measured[-3:]))
    assert not set(keys(walkers.points[8:])) & set(keys(measured))


def test_a_share_goes_on_from_the_best_scored_so_far():
    task = synthetic.bowl()
    rng = np.random.default_rng(0)
    walkers = walkers_of(task, best_starts=2)
    walkers.reset(rng)
    points, scores = walkers.scored()
    best = points[np.argsort(-scores)[:2]]
    walkers.reset(rng)
    assert set(keys(walkers.points[-4:])) == set(keys(best))
    assert not set(keys(walkers.points[:-4])) & set(keys(best))


def test_failures_are_no_place_to_start():
    task = synthetic.bowl()
    measured = task.space.random_unvisited(np.random.default_rng(1), 10, set())
    walkers = walkers_of(task, measured=measured, fitness=np.zeros(10))
    walkers.reset(np.random.default_rng(0))
    assert not set(keys(walkers.points)) & set(keys(measured))


@pytest.mark.parametrize("action", [-5, 3, 1000])
def test_what_is_no_action_is_a_stay(action):
    task = synthetic.two_sketches()
    walkers = walkers_of(task)
    walkers.reset(np.random.default_rng(0))
    before = walkers.points.copy()
    rewards = walkers.step(np.full((16, task.space.slots), action))
    np.testing.assert_array_equal(walkers.points, before)
    assert not rewards.any()


def test_a_model_that_is_no_help_counts_as_zero():
    task = synthetic.bowl()
    walkers = Walkers(task.space, lambda p: np.full(len(p), np.nan), count=4, steps=2)
    walkers.reset(np.random.default_rng(0))
    assert not walkers.step(np.full((4, task.space.slots), 2)).any()
    assert not walkers.scored()[1].any()


def test_a_space_without_moves_can_be_walked():
    task = synthetic.single()
    walkers = walkers_of(task)
    walkers.reset(np.random.default_rng(0))
    assert walkers.observe().shape[:2] == (16, 0)
    assert not walkers.step(np.zeros((16, 0), int)).any()
