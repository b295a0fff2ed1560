"""A task as an RLlib environment, under stock RLlib, and against the walkers."""

import shutil

import numpy as np
import pytest
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

from envs.knob_env import ACTION_SPACE, OBSERVATION_SPACE, KnobEnv, agent_name
from envs.runner import MODULE_ID, WalkerRunner
from envs.walkers import Walkers
from policies.knob_module import KnobModule
from release_ray.testing import synthetic

TASK = synthetic.two_sketches()
CONFIG = {"space": TASK.space, "score": TASK.fitness, "steps": 4}


def test_passes_the_check_of_rllib():
    check_multiagent_environments(KnobEnv(CONFIG))


def test_walks_as_the_walkers_do():
    env = KnobEnv(CONFIG)
    walker = Walkers(count=1, **CONFIG)
    seen, _ = env.reset(seed=7)
    walker.reset(np.random.default_rng(7))
    rng = np.random.default_rng(1)
    for _ in range(4):
        for slot, agent in enumerate(env.agents):
            np.testing.assert_array_equal(seen[agent], walker.observe()[0, slot])
        actions = rng.integers(3, size=(1, TASK.space.slots))
        seen, rewards, terminated, truncated, _ = env.step(
            {agent: actions[0, slot] for slot, agent in enumerate(env.agents)}
        )
        reward = walker.step(actions)
        assert set(rewards.values()) == {float(reward[0])}
        assert not terminated["__all__"]
    assert truncated["__all__"]


def test_only_the_agents_of_the_sketch_act():
    env = KnobEnv(CONFIG)
    for sketch, agents in enumerate(TASK.space.agents):
        start = np.zeros(TASK.space.width, np.int32)
        start[0] = sketch
        seen, _ = env.reset(options={"start": start})
        assert list(seen) == env.agents == [agent_name(slot) for slot in range(len(agents))]
    assert len(env.possible_agents) == TASK.space.slots


def test_step_never_raises():
    env = KnobEnv(CONFIG)
    env.reset(seed=0)
    _, rewards, *_ = env.step({"knob_0": 99, "nobody": 1})
    assert set(rewards.values()) == {0.0}


@pytest.mark.usefixtures("ray_local")
@pytest.mark.parametrize("runner", [MultiAgentEnvRunner, WalkerRunner])
def test_stock_ppo_learns_from_either_runner(runner):
    algorithm = _stock_ppo(runner).build_algo()
    if runner is WalkerRunner:
        walkers = Walkers(count=4, **CONFIG)
        algorithm.env_runner.assign(walkers, np.random.default_rng(0))
    result = algorithm.train()
    assert result["env_runners"]["num_env_steps_sampled"] == 16
    learner = result["learners"][MODULE_ID]
    assert np.isfinite(learner["policy_loss"])
    assert result["env_runners"]["num_module_steps_sampled"][MODULE_ID] > 16
    _stop(algorithm)


@pytest.mark.usefixtures("ray_local")
def test_episodes_of_the_batched_runner_are_walks_of_the_environment():
    """The actions of an episode, played by the environment, give its observations and rewards."""
    algorithm = _stock_ppo(WalkerRunner).build_algo()
    algorithm.env_runner.assign(Walkers(count=6, **CONFIG), np.random.default_rng(0))
    episodes = algorithm.env_runner.sample()
    starts = Walkers(count=6, **CONFIG)
    starts.reset(np.random.default_rng(0))
    assert len(episodes) == 6
    env = KnobEnv(CONFIG)
    for episode, start in zip(episodes, starts.points, strict=True):
        seen, _ = env.reset(options={"start": start})
        assert set(episode.agent_episodes) == set(env.agents)
        for step in range(4):
            for agent in env.agents:
                np.testing.assert_array_equal(
                    episode.agent_episodes[agent].get_observations(step), seen[agent]
                )
            seen, rewards, *_ = env.step(
                {a: episode.agent_episodes[a].get_actions(step) for a in env.agents}
            )
            for agent in env.agents:
                assert episode.agent_episodes[agent].get_rewards(step) == pytest.approx(
                    rewards[agent]
                )
        assert len(episode) == 4
        assert episode.is_done
    _stop(algorithm)


def _stop(algorithm):
    algorithm.stop()
    # The directory that RLlib made in the user's home.
    shutil.rmtree(algorithm.logdir)


def _stock_ppo(runner):
    spec = RLModuleSpec(
        module_class=KnobModule,
        observation_space=OBSERVATION_SPACE,
        action_space=ACTION_SPACE,
        model_config={"hidden": (16,), "stay_bias": 1.0, "seed": 0},
    )
    return (
        PPOConfig()
        .environment(KnobEnv, env_config=CONFIG)
        .env_runners(
            env_runner_cls=runner,
            num_env_runners=0,
            num_envs_per_env_runner=4,
            rollout_fragment_length=4,
        )
        .multi_agent(policies={MODULE_ID}, policy_mapping_fn=lambda *_, **__: MODULE_ID)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={MODULE_ID: spec}))
        .training(train_batch_size_per_learner=16, minibatch_size=16, num_epochs=1)
    )
