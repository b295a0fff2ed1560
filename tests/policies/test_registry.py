"""Policies by name."""

import pytest

import policies
from policies.genetic import GeneticPolicy
from policies.random import RandomPolicy
from release_ray.core.errors import InputError
from release_ray.core.settings import AgentSettings


def test_short_name_and_path_give_the_same_class():
    for name in ("random", "policies.random:RandomPolicy"):
        policy = policies.create(name, AgentSettings(), seed=3)
        assert type(policy) is RandomPolicy
        assert policy.seed == 3


@pytest.mark.parametrize("name", ["annealing", "genetic", "random"])
def test_a_policy_that_is_ready_at_once_opens_itself(name):
    opener, policy = policies.opening(name, AgentSettings(), seed=3)
    assert opener == name
    assert type(policy) is type(policies.create(name, AgentSettings()))


def test_another_opens_for_a_policy_that_takes_long_to_make():
    opener, policy = policies.opening("ppo", AgentSettings(), seed=3)
    assert opener == "genetic"
    assert type(policy) is GeneticPolicy
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
