"""Policies by name."""

import pytest

import policies
from policies.random import RandomPolicy
from release_ray.core.errors import InputError
from release_ray.core.settings import AgentSettings


def test_short_name_and_path_give_the_same_class():
    for name in ("random", "policies.random:RandomPolicy"):
        policy = policies.create(name, AgentSettings(), seed=3)
        assert type(policy) is RandomPolicy
        assert policy.seed == 3


@pytest.mark.parametrize(
    "name, said",
    [
        ("pop", "did you mean 'ppo'"),
        ("xyz", "use one of"),
        ("no.such:Thing", "cannot be imported"),
        ("policies.random:Nothing", "cannot be imported"),
        ("policies.base:SearchState", "is no class derived from"),
    ],
)
def test_unknown_names_say_the_remedy(name, said):
    with pytest.raises(InputError, match=said):
        policies.create(name, AgentSettings())
