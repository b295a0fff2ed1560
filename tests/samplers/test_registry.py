import numpy as np
import pytest

import samplers
from release_ray.core.errors import InputError
from release_ray.core.settings import SamplerSettings
from release_ray.testing import synthetic
from release_ray.testing.samplers import propose
from samplers.plan import random_share


def test_short_names_and_paths_name_the_same_class() -> None:
    settings = SamplerSettings(epsilon=0.0)
    for name, path in samplers.REGISTERED.items():
        assert type(samplers.create(name, settings)) is type(samplers.create(path, settings))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("adaptiv", "did you mean 'adaptive'"),
        ("xyz", "adaptive, greedy"),
        ("no_such_module:Sampler", "no_such_module"),
        ("samplers.base:Nothing", "Nothing"),
        ("samplers.base:Candidates", "no class derived"),
        (":Sampler", "cannot be imported"),
    ],
)
def test_an_unknown_sampler_is_an_input_error(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        samplers.create(name, SamplerSettings())


def test_greedy_takes_the_best_first() -> None:
    task = synthetic.bowl()
    candidates = propose(task, 64)
    greedy = samplers.create("greedy", SamplerSettings(epsilon=0.0, max_clusters=10))
    selection = greedy.select(candidates, task.space, set(), 64, np.random.default_rng(0))
    assert np.array_equal(selection.points, candidates.points[:10])


def test_the_random_share_is_exact_on_average() -> None:
    rng = np.random.default_rng(0)
    drawn = [random_share(0.05, 12, rng) for _ in range(4000)]
    assert set(drawn) == {0, 1}
    assert 0.57 < np.mean(drawn) < 0.63
    assert random_share(0.0, 64, rng) == 0
    assert random_share(1.0, 64, rng) == 64
