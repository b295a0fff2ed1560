"""Recorded tasks as files."""

import gzip
import json

import numpy as np

from release_ray.core import recorded
from release_ray.core.recorded import RecordedTask
from release_ray.testing import synthetic


def recorded_task(count=20, seed=0):
    """Some points of two sketches, the last of which failed."""
    task = synthetic.two_sketches()
    points = task.space.random_unvisited(np.random.default_rng(seed), count, set())
    latency = 1e-4 / np.maximum(task.fitness(points), 0.01)
    latency[-1] = np.inf
    return RecordedTask("conv", task.space, points, latency)


def test_what_was_saved_is_loaded(tmp_path):
    tasks = [recorded_task(), recorded_task(5, seed=1)]
    path = tmp_path / "tasks.json.gz"
    recorded.save(path, tasks, "made up")
    loaded = recorded.load(path)
    assert json.loads(gzip.decompress(path.read_bytes()))["about"] == "made up"
    for before, after in zip(tasks, loaded, strict=True):
        assert after.name == before.name
        assert after.space == before.space
        np.testing.assert_array_equal(after.points, before.points)
        np.testing.assert_allclose(after.latency_s, before.latency_s, rtol=1e-3)


def test_the_same_tasks_give_the_same_bytes(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    recorded.save(first, [recorded_task()], "")
    recorded.save(second, [recorded_task()], "")
    assert first.read_bytes() == second.read_bytes()


def test_fitness_is_of_the_best_and_none_for_a_failure():
    task = recorded_task()
    assert task.fitness.max() == 1.0
    assert task.fitness[-1] == 0.0
    best = task.latency_s.min()
    np.testing.assert_allclose(task.fitness[:-1], best / task.latency_s[:-1], rtol=1e-6)


def test_a_task_of_failures_has_no_fitness():
    task = recorded_task(5)
    failed = RecordedTask("failed", task.space, task.points, np.full(5, np.inf))
    np.testing.assert_array_equal(failed.fitness, np.zeros(5))


def test_a_task_without_points_is_a_task(tmp_path):
    task = recorded_task()
    empty = RecordedTask("empty", task.space, task.points[:0], task.latency_s[:0])
    recorded.save(tmp_path / "f", [empty], "")
    (loaded,) = recorded.load(tmp_path / "f")
    assert loaded.points.shape == (0, task.space.width)
    assert loaded.fitness.shape == (0,)
