"""Sampling for RLlib that steps all walkers at once.

RLlib's own runner steps environments one by one and sends every agent through its connectors: ten
times the cost of what it samples. This one asks the module once a step for all agents of all
walkers, and hands over the same episodes, or the arrays that they are views of. It takes the place
of the connectors between environment and module, so a module sees observations as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.env.vector.vector_multi_agent_env import VectorMultiAgentEnv
from ray.rllib.utils.metrics import (
    NUM_AGENT_STEPS_SAMPLED,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    NUM_MODULE_STEPS_SAMPLED,
    NUM_MODULE_STEPS_SAMPLED_LIFETIME,
)

from envs.knob_env import ACTION_SPACE, OBSERVATION_SPACE, KnobEnv, agent_name
from envs.observation import OBSERVATION
from envs.walkers import Walkers
from release_ray.core.knobs import ACTIONS, STAY, ChoiceKnob
from release_ray.core.space import KnobSpace

MODULE_ID = "knob"
"""The one module that all agents of all tasks share."""


@dataclass(frozen=True)
class Walk:
    """One walk of all walkers, as arrays of `walkers x slots x steps` and more.

    `filled` (`walkers x slots`) says which slots hold an agent; what stands in the others means
    nothing. Observations have one step more, rewards (`walkers x steps`) are those of all agents.
    """

    filled: np.ndarray
    observations: np.ndarray
    actions: np.ndarray
    logp: np.ndarray
    logits: np.ndarray
    rewards: np.ndarray

    @staticmethod
    def unwalked(filled: np.ndarray, steps: int) -> Walk:
        """Room for a walk of so many steps, all agents staying."""
        agents = filled.shape
        return Walk(
            filled=filled,
            observations=np.zeros((*agents, steps + 1, OBSERVATION), np.float32),
            actions=np.full((*agents, steps), STAY, np.int64),
            logp=np.zeros((*agents, steps), np.float32),
            logits=np.zeros((*agents, steps, ACTIONS), np.float32),
            rewards=np.zeros((agents[0], steps), np.float32),
        )


class WalkerRunner(MultiAgentEnvRunner):
    """RLlib's env runner over `Walkers`. Each call of `sample` is one walk of all walkers.

    Built by RLlib without a task; `assign` gives it the walkers, and another task's later.
    """

    walkers: Walkers | None = None
    # RLlib declares it as optional.
    module: Any

    def assign(self, walkers: Walkers, rng: np.random.Generator) -> None:
        """From here on samples walks of `walkers`; `rng` draws the starts and the actions."""
        self.walkers = walkers
        self._rng = rng

    def make_env(self) -> None:
        """RLlib asks the environment for spaces alone; they are the same for every task."""
        self.env = _Spaces(self.config.num_envs_per_env_runner)
        self.num_envs = self.env.num_envs

    def _sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[MultiAgentEpisode]:
        """One walk of every walker, whatever number of steps or episodes is asked for."""
        return _episodes(self.walk(explore=explore, random_actions=random_actions))

    def walk(self, *, explore: bool = True, random_actions: bool = False) -> Walk:
        """Steps all walkers from their starts to the end of the walk."""
        if self.walkers is None:
            raise RuntimeError("assign walkers before sampling")
        walkers = self.walkers
        walkers.reset(self._rng)
        filled = np.arange(walkers.space.slots) < walkers.agents()[:, None]
        walk = Walk.unwalked(filled, walkers.steps)
        module = self.module[MODULE_ID]
        forward = module.forward_exploration if explore else module.forward_inference
        walk.observations[:, :, 0] = seen = walkers.observe()
        for step in range(walkers.steps):
            # Empty slots stay, and are no part of what is learnt from.
            outputs = forward({Columns.OBS: torch.from_numpy(seen[filled])})
            logits = outputs[Columns.ACTION_DIST_INPUTS].numpy()
            actions, logp = _draw(np.zeros_like(logits) if random_actions else logits, self._rng)
            walk.logits[filled, step] = logits
            walk.logp[filled, step] = logp
            walk.actions[filled, step] = actions
            walk.rewards[:, step] = walkers.step(walk.actions[:, :, step])
            walk.observations[:, :, step + 1] = seen = walkers.observe()
        self._log_steps(walkers)
        return walk

    def _log_steps(self, walkers: Walkers) -> None:
        """What RLlib's runner would have counted."""
        env_steps = walkers.count * walkers.steps
        agents = walkers.agents()
        log = self.metrics.log_value
        log(NUM_ENV_STEPS_SAMPLED, env_steps, reduce="sum")
        log(NUM_ENV_STEPS_SAMPLED_LIFETIME, env_steps, reduce="lifetime_sum", with_throughput=True)
        log(NUM_EPISODES, walkers.count, reduce="sum")
        log(NUM_EPISODES_LIFETIME, walkers.count, reduce="lifetime_sum")
        for slot in range(int(agents.max(initial=0))):
            steps = int((agents > slot).sum()) * walkers.steps
            log((NUM_AGENT_STEPS_SAMPLED, agent_name(slot)), steps, reduce="sum")
            log((NUM_AGENT_STEPS_SAMPLED_LIFETIME, agent_name(slot)), steps, reduce="lifetime_sum")
        steps = int(agents.sum()) * walkers.steps
        log((NUM_MODULE_STEPS_SAMPLED, MODULE_ID), steps, reduce="sum")
        log((NUM_MODULE_STEPS_SAMPLED_LIFETIME, MODULE_ID), steps, reduce="lifetime_sum")


def _draw(logits: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Actions of `n x ACTIONS` logits and the logarithms of their probabilities.

    By numpy's generator and the Gumbel trick: torch's generator is global, and threads share it.
    """
    actions = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    shifted = logits - logits.max(axis=1, keepdims=True)
    logp = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return actions, logp[np.arange(len(actions)), actions]


def _episodes(walk: Walk) -> list[MultiAgentEpisode]:
    """One episode a walker, in which its sketch's agents act."""
    steps = walk.rewards.shape[1]
    episodes = []
    for walker, agents in enumerate(walk.filled.sum(axis=1)):
        episode = MultiAgentEpisode(
            agent_module_ids={agent_name(slot): MODULE_ID for slot in range(agents)},
            agent_to_module_mapping_fn=lambda *_, **__: MODULE_ID,
            len_lookback_buffer=0,
        )
        episode.env_t = steps
        episode.is_truncated = True
        for slot in range(agents):
            name = agent_name(slot)
            episode.agent_episodes[name] = SingleAgentEpisode(
                observations=InfiniteLookbackBuffer(walk.observations[walker, slot]),
                infos=InfiniteLookbackBuffer([{}] * (steps + 1)),
                actions=InfiniteLookbackBuffer(walk.actions[walker, slot]),
                rewards=InfiniteLookbackBuffer(walk.rewards[walker]),
                extra_model_outputs={
                    Columns.ACTION_LOGP: InfiniteLookbackBuffer(walk.logp[walker, slot]),
                    Columns.ACTION_DIST_INPUTS: InfiniteLookbackBuffer(walk.logits[walker, slot]),
                },
                truncated=True,
                len_lookback_buffer=0,
                agent_id=name,
                module_id=MODULE_ID,
                multi_agent_episode_id=cast(Any, episode.id_),
            )
        episodes.append(episode)
    return episodes


class _Spaces(VectorMultiAgentEnv):
    """A vector environment that knows its spaces and number, which is all RLlib asks here."""

    def __init__(self, count: int) -> None:
        nothing: dict[str, Any] = {
            "space": KnobSpace(((ChoiceKnob("placeholder", (0, 1)),),)),
            "score": lambda points: np.zeros(len(points), np.float32),
        }
        prototype: Any = KnobEnv(nothing)
        self.num_envs = count
        self.envs = [prototype] * count
        self.single_observation_spaces = prototype.observation_spaces
        self.single_action_spaces = prototype.action_spaces
        self.single_observation_space = gym.spaces.Dict(
            dict.fromkeys(prototype.possible_agents, OBSERVATION_SPACE)
        )
        self.single_action_space = gym.spaces.Dict(
            dict.fromkeys(prototype.possible_agents, ACTION_SPACE)
        )
        self.metadata = {}

    def close(self, **kwargs: Any) -> None:
        """Holds nothing."""
