import pickle

import numpy as np
import pytest

from release_ray.core.space import keys
from release_ray.testing import synthetic
from release_ray.testing.synthetic import SyntheticTask

TASKS = {
    "bowl": synthetic.bowl(),
    "rugged": synthetic.rugged(),
    "two_sketches": synthetic.two_sketches(),
    "tiny": synthetic.tiny(),
    "single": synthetic.single(),
}


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest) -> SyntheticTask:
    return TASKS[request.param]


def test_the_optimum_alone_has_fitness_one(task: SyntheticTask) -> None:
    assert task.fitness(task.optimum[None]) == [1.0]
    points = task.space.random(np.random.default_rng(0), 20_000)
    fitness = task.fitness(points)
    assert fitness.dtype == np.float32
    assert (fitness >= 0).all()
    others = [key != task.optimum.tobytes() for key in keys(points)]
    assert (fitness[others] < 1).all()


def test_the_best_neighbour_of_the_optimum_is_better_than_most(task: SyntheticTask) -> None:
    if task.space.slots == 0:
        return
    actions = np.random.default_rng(0).integers(3, size=(200, task.space.slots))
    near = task.space.step(np.repeat(task.optimum[None], 200, axis=0), actions)
    far = task.space.random(np.random.default_rng(1), 200)
    assert task.fitness(near).max() >= np.quantile(task.fitness(far), 0.9)


def test_fitness_survives_the_way_to_another_process(task: SyntheticTask) -> None:
    copy = pickle.loads(pickle.dumps(task))
    points = task.space.random(np.random.default_rng(2), 50)
    assert np.array_equal(copy.fitness(points), task.fitness(points))


def test_a_seed_moves_the_optimum() -> None:
    optima = {synthetic.bowl(seed).optimum.tobytes() for seed in range(5)}
    assert len(optima) == 5
    assert {int(synthetic.two_sketches(seed).optimum[0]) for seed in range(9)} == {0, 1}


def test_rugged_has_refused_regions_and_local_optima() -> None:
    task = synthetic.rugged()
    points = task.space.random(np.random.default_rng(3), 2000)
    assert 0.01 < (task.fitness(points) == 0).mean() < 0.9


def test_sizes() -> None:
    assert synthetic.bowl().space.size > 10_000
    assert synthetic.tiny().space.size == 6
    assert synthetic.single().space.size == 1
    assert synthetic.single().space.slots == 0
