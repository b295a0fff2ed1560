"""The agent itself, on RLlib."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import policies
from envs.observation import OBSERVATION
from envs.runner import MODULE_ID
from policies.base import SearchState
from policies.knob_ppo import generalised_advantages
from release_ray.core.knobs import ChoiceKnob
from release_ray.core.settings import AgentSettings
from release_ray.core.space import KnobSpace, keys
from release_ray.testing import synthetic
from release_ray.testing.policies import COUNT, search_state
from release_ray.testing.recorded import RecordedLayer

RECORDED = Path(__file__).parents[1] / "data" / "recorded_conv2d_64x56x56.json.gz"


@pytest.fixture
def agent(ray_local):
    policy = policies.create("ppo", AgentSettings(model_calls=2000), seed=0)
    yield policy
    policy.close()


def test_beats_random_on_a_recorded_layer(agent):
    layer = RecordedLayer.load(RECORDED)
    truth = layer.truth()
    state = layer.search_state(96, sample=0, seed=0)
    proposed = truth(agent.propose(state, 32).points).mean()
    drawn = policies.create("random", agent.settings).propose(
        layer.search_state(96, sample=0, seed=0), 32
    )
    assert proposed > truth(drawn.points).mean() + 0.1
    assert set(agent.metrics) == {"policy_loss", "vf_loss", "entropy", "reward"}


def test_illegal_moves_have_no_probability_and_stay_is_preferred(agent):
    agent.prepare()
    module = agent._algorithm.env_runner.module[MODULE_ID]
    seen = torch.rand(5, OBSERVATION)
    seen[:, :3] = torch.tensor([0.0, 1.0, 1.0])
    chances = torch.softmax(module.forward_exploration({"obs": seen})["action_dist_inputs"], dim=-1)
    assert (chances[:, 0] == 0).all()
    assert (chances[:, 1] > 0.9).all()


def test_prepared_in_one_thread_proposes_in_another_as_in_the_main_one(agent):
    task = synthetic.bowl()
    here = policies.create("ppo", agent.settings, seed=0)
    expected = here.propose(search_state(task), COUNT)
    here.close()
    found = []
    for work in (
        agent.prepare,
        lambda: found.append(agent.propose(search_state(task), COUNT)),
    ):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    np.testing.assert_array_equal(found[0].points, expected.points)


def test_is_no_worse_in_later_rounds(agent):
    """An agent that has learnt to stay on one round's best would find nothing in the next."""
    layer = RecordedLayer.load(RECORDED)
    truth = layer.truth()
    for round_ in range(4):
        state = layer.search_state(96, sample=round_, seed=round_)
        assert truth(agent.propose(state, 32).points).mean() > 0.65


def test_refuses_to_start_a_ray_of_its_own(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    policy = policies.create("ppo", AgentSettings())
    with pytest.raises(RuntimeError, match="ray.init"):
        policy.prepare()


def test_walkers_in_a_sketch_without_moves_learn_nothing(ray_local):
    fixed = (ChoiceKnob("unroll", (0,)),)
    space = KnobSpace((fixed, synthetic.bowl().space.sketches[0]))
    only = np.zeros((1, space.width), np.int32)
    state = SearchState(
        space=space,
        score=lambda points: np.where(points[:, 0] == 0, 1.0, 0.0),
        measured=only,
        fitness=np.ones(1),
        visited=set(keys(only)),
        rng=np.random.default_rng(0),
    )
    settings = AgentSettings(model_calls=60, walkers=2, measured_starts=1.0, scored_starts=0.0)
    policy = policies.create("ppo", settings)
    candidates = policy.propose(state, COUNT)
    assert len(candidates.points) == COUNT
    assert set(policy.metrics) == {"reward"}
    policy.close()


def test_generalised_advantages_of_a_walk():
    rewards = np.array([[1.0, 0.0]])
    values = np.array([[0.5, 0.25, 2.0]])
    last = 0.0 + 0.9 * 2.0 - 0.25
    first = 1.0 + 0.9 * 0.25 - 0.5
    np.testing.assert_allclose(
        generalised_advantages(rewards, values, 0.9, 0.8),
        [[first + 0.9 * 0.8 * last, last]],
    )
