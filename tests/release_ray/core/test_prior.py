"""What a search knows before it has measured anything."""

import numpy as np
import pytest

from release_ray.core import prior
from release_ray.core.prior import Prior
from release_ray.core.recorded import RecordedTask
from release_ray.testing import synthetic


def of(task, count, seed=0):
    points = task.space.random_unvisited(np.random.default_rng(seed), count, set())
    return RecordedTask("task", task.space, points, 1e-4 / np.maximum(task.fitness(points), 0.01))


def test_takes_tasks_whose_features_mean_the_same():
    bowl, other = synthetic.bowl(), synthetic.two_sketches()
    known = Prior((of(bowl, 10), of(other, 20), of(bowl, 5, seed=1)))
    features, fitness = known.of(bowl.space, 100)
    assert features.shape == (15, bowl.space.features(bowl.space.enumerate()[:1]).shape[1])
    np.testing.assert_array_equal(features[:10], bowl.space.features(known.tasks[0].points))
    np.testing.assert_array_equal(fitness[:10], known.tasks[0].fitness)


def test_takes_no_more_than_asked_for_and_evenly():
    bowl = synthetic.bowl()
    known = Prior((of(bowl, 30), of(bowl, 30, seed=1)))
    features, fitness = known.of(bowl.space, 20)
    assert len(features) == len(fitness) == 20
    first = {row.tobytes() for row in bowl.space.features(known.tasks[0].points)}
    assert sum(row.tobytes() in first for row in features) == 10


@pytest.mark.parametrize("known, at_most", [(Prior(), 10), (Prior((of(synthetic.bowl(), 9),)), 0)])
def test_knows_nothing(known, at_most):
    space = synthetic.bowl().space
    features, fitness = known.of(space, at_most)
    assert len(features) == len(fitness) == 0
    assert features.shape[1] == space.features(space.random(np.random.default_rng(0), 1)).shape[1]


def test_what_is_shipped_knows_good_and_bad_schedules():
    tasks = prior.shipped().tasks
    assert len(tasks) > 20
    for task in tasks:
        assert len(task.points) > 16
        assert task.fitness.max() == 1.0
        assert task.fitness.min() < 0.5
