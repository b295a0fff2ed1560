"""A tuning task as an RLlib multi-agent environment: one walker whose agents are the knobs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from envs.observation import OBSERVATION
from envs.walkers import Walkers
from release_ray.core.knobs import ACTIONS, STAY

OBSERVATION_SPACE = gym.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
ACTION_SPACE: gym.spaces.Discrete = gym.spaces.Discrete(ACTIONS)


def agent_name(slot: int) -> str:
    """The name of the agent in a slot of a sketch."""
    return f"knob_{slot}"


class KnobEnv(MultiAgentEnv):
    """One walk through a task's design space, as stock RLlib steps it.

    `config` holds `space` and `score`, and whatever else of `Walkers` is wanted: `measured`,
    `fitness`, `measured_starts`, `steps`. An agent is a move of a knob (a tile of n levels is
    n - 1 of them), and all share the reward. In an episode act the agents of its sketch alone,
    which may be fewer than `possible_agents`. The walk is truncated after `steps` steps.
    """

    agents: list[Any]
    possible_agents: list[Any]

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.walker = Walkers(**{"steps": 10, **config, "count": 1})
        self.possible_agents = [agent_name(slot) for slot in range(self.walker.space.slots)]
        self.agents = list(self.possible_agents)
        self.observation_spaces = dict.fromkeys(self.possible_agents, OBSERVATION_SPACE)
        self.action_spaces = dict.fromkeys(self.possible_agents, ACTION_SPACE)
        self._rng = np.random.default_rng()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Starts a walk: from `options["start"]`, a point, where given."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        start = (options or {}).get("start")
        self.walker.reset(self._rng, None if start is None else np.asarray(start)[None])
        self.agents = self.possible_agents[: int(self.walker.agents()[0])]
        return self._observations(), {}

    def step(  # type: ignore[override]
        self, action_dict: dict[Any, Any]
    ) -> tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any], dict[Any, Any], dict[Any, Any]]:
        """All agents act at once; one that is not in `action_dict` stays."""
        actions = np.full((1, len(self.possible_agents)), STAY)
        for slot, agent in enumerate(self.agents):
            actions[0, slot] = action_dict.get(agent, STAY)
        reward = float(self.walker.step(actions)[0])
        ended = self.walker.done
        return (
            self._observations(),
            dict.fromkeys(self.agents, reward),
            {**dict.fromkeys(self.agents, False), "__all__": False},
            {**dict.fromkeys(self.agents, ended), "__all__": ended},
            {},
        )

    def _observations(self) -> dict[str, np.ndarray]:
        return dict(zip(self.agents, self.walker.observe()[0], strict=False))
