"""The conformance suite over every registered policy."""

import pytest

import policies
from policies import Policy
from release_ray.core.settings import AgentSettings
from release_ray.testing import synthetic
from release_ray.testing.policies import PolicySuite, check_beats_random


class TestRandom(PolicySuite):
    def make(self, settings: AgentSettings, seed: int) -> Policy:
        return policies.create("random", settings, seed)


@pytest.mark.usefixtures("ray_local")
class TestPPO(PolicySuite):
    def make(self, settings: AgentSettings, seed: int) -> Policy:
        return policies.create("ppo", settings, seed)

    @pytest.mark.parametrize("task", [synthetic.bowl(), synthetic.two_sketches()])
    def test_beats_random(self, task: synthetic.SyntheticTask) -> None:
        policy = self.make(AgentSettings(), seed=0)
        check_beats_random(policy, task)
        policy.close()


class TestAnnealing(PolicySuite):
    def make(self, settings: AgentSettings, seed: int) -> Policy:
        return policies.create("annealing", settings, seed)


class TestGenetic(PolicySuite):
    def make(self, settings: AgentSettings, seed: int) -> Policy:
        return policies.create("genetic", settings, seed)

    @pytest.mark.parametrize("task", [synthetic.bowl(), synthetic.two_sketches()])
    def test_beats_random(self, task: synthetic.SyntheticTask) -> None:
        check_beats_random(self.make(AgentSettings(), seed=0), task)
