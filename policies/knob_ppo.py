"""RLlib's PPO, fed with whole walks.

RLlib's learner connectors handle agents' episodes one by one. A round has thousands of them, all
of one length, and their handling would cost more than the learning. So the batch, with its
advantages, is built from the walk's arrays at once; learner, loss and optimiser are RLlib's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
)

from envs.knob_env import ACTION_SPACE, OBSERVATION_SPACE, KnobEnv
from envs.runner import MODULE_ID, Walk, WalkerRunner
from envs.walkers import Walkers
from policies.knob_module import KnobModule
from release_ray.core.settings import AgentSettings


def train_batch(walk: Walk, module: KnobModule, gamma: float, lambda_: float) -> MultiAgentBatch:
    """A walk's agent steps as rows, with generalised advantages; empty slots are left out.

    The rows are shuffled by a fixed permutation: minibatches mix walkers, agents and steps, and
    the same walk gives the same update whatever else draws random numbers.
    """
    observations = walk.observations[walk.filled]
    with torch.no_grad():
        values = module.compute_values({Columns.OBS: torch.from_numpy(observations)}).numpy()
    rewards = walk.rewards[np.nonzero(walk.filled)[0]]
    advantages = generalised_advantages(rewards, values, gamma, lambda_)
    targets = advantages + values[:, :-1]
    advantages = (advantages - advantages.mean()) / max(1e-4, float(advantages.std()))
    columns = {
        Columns.OBS: observations[:, :-1],
        Columns.ACTIONS: walk.actions[walk.filled],
        Columns.ACTION_LOGP: walk.logp[walk.filled],
        Columns.ACTION_DIST_INPUTS: walk.logits[walk.filled],
        Postprocessing.ADVANTAGES: advantages,
        Postprocessing.VALUE_TARGETS: targets,
    }
    order = np.random.default_rng(0).permutation(rewards.size)
    rows = {
        name: torch.from_numpy(column.reshape(rewards.size, *column.shape[2:])[order])
        for name, column in columns.items()
    }
    return MultiAgentBatch({MODULE_ID: SampleBatch(rows)}, env_steps=walk.rewards.size)


def generalised_advantages(
    rewards: np.ndarray, values: np.ndarray, gamma: float, lambda_: float
) -> np.ndarray:
    """`n x t` advantages of `n x t` rewards and `n x (t + 1)` values (Schulman et al. 2015).

    Walks are cut, not ended, so the last value stands for what would have followed.
    """
    errors = rewards + gamma * values[:, 1:] - values[:, :-1]
    advantages = np.empty_like(errors)
    running = np.zeros(len(errors), errors.dtype)
    for step in reversed(range(errors.shape[1])):
        running = errors[:, step] + gamma * lambda_ * running
        advantages[:, step] = running
    return advantages


class KnobPPO(PPO):
    """PPO whose every iteration is one walk of all walkers, and one update from it.

    PPO's own step samples until a number of environment steps is reached; here the walkers decide.
    """

    # RLlib declares these as optional; an algorithm that is built has them.
    config: Any
    metrics: Any
    learner_group: Any
    env_runner_group: Any
    _logdir: Any

    def assign(self, walkers: Walkers, rng: np.random.Generator) -> None:
        """Turns the agent to a round of a task: iterations from here on walk these walkers."""
        runner = self.env_runner_group.local_env_runner
        runner.assign(walkers, rng)
        # Both copies: RLlib's own syncing takes no weights that no update has made newer.
        runner.module[MODULE_ID].begin_anew()
        self.learner_group.foreach_learner(lambda learner: learner.module[MODULE_ID].begin_anew())

    def restore_learner(self, directory: Path) -> None:
        """Takes up network and optimiser from what `learner_group.save_to_path` wrote."""
        self.learner_group.restore_from_path(directory)
        self._sync_weights()

    def _setup_logdir(self) -> None:
        # Nothing is logged there, and RLlib would make a directory in the user's home.
        self._logdir = tempfile.gettempdir()

    def training_step(self) -> None:
        runner = self.env_runner_group.local_env_runner
        walk = runner.walk()
        self.metrics.aggregate([runner.get_metrics()], key=ENV_RUNNER_RESULTS)
        if not walk.filled.any():  # all walkers are in sketches that leave nothing to choose
            return
        batch = train_batch(walk, runner.module[MODULE_ID], self.config.gamma, self.config.lambda_)
        results = self.learner_group.update(
            batch=batch,
            timesteps={
                NUM_ENV_STEPS_SAMPLED_LIFETIME: self.metrics.peek(
                    (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)
                )
            },
            num_epochs=self.config.num_epochs,
            # RLlib repeats rows until a minibatch is full: a small batch would be over-trained.
            minibatch_size=min(self.config.minibatch_size, len(batch[MODULE_ID])),
            shuffle_batch_per_epoch=False,
        )
        self.metrics.aggregate(results, key=LEARNER_RESULTS)
        self._sync_weights()

    @staticmethod
    def figures(result: dict[str, Any]) -> dict[str, float]:
        """The losses and the entropy that an iteration's result reports; none without an update."""
        learner = result.get(LEARNER_RESULTS, {}).get(MODULE_ID, {})
        names = (POLICY_LOSS_KEY, VF_LOSS_KEY, ENTROPY_KEY)
        return {name: float(learner[name]) for name in names if name in learner}

    def _sync_weights(self) -> None:
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group, inference_only=True
        )


def configure(settings: AgentSettings, seed: int) -> PPOConfig:
    """PPO with every value set: RLlib's defaults are far from what this agent needs."""
    return (
        PPOConfig(algo_class=KnobPPO)
        .environment(KnobEnv, disable_env_checking=True)
        .env_runners(
            env_runner_cls=WalkerRunner,
            num_env_runners=0,
            num_envs_per_env_runner=settings.walkers,
            rollout_fragment_length="auto",
        )
        .learners(num_learners=0, num_gpus_per_learner=0)
        .multi_agent(policies={MODULE_ID}, policy_mapping_fn=lambda *args, **kwargs: MODULE_ID)
        .rl_module(
            rl_module_spec=MultiRLModuleSpec(
                rl_module_specs={
                    MODULE_ID: RLModuleSpec(
                        module_class=KnobModule,
                        observation_space=OBSERVATION_SPACE,
                        action_space=ACTION_SPACE,
                        model_config={
                            "hidden": settings.hidden,
                            "stay_bias": settings.stay_bias,
                            "seed": seed,
                        },
                    )
                }
            )
        )
        .training(
            lr=settings.lr,
            gamma=settings.gamma,
            lambda_=settings.gae_lambda,
            use_critic=True,
            use_gae=True,
            num_epochs=settings.epochs,
            minibatch_size=settings.minibatch,
            shuffle_batch_per_epoch=False,
            # Only checked against the minibatch: a walk's length is the walkers' own.
            train_batch_size_per_learner=max(settings.minibatch, settings.walkers * settings.steps),
            clip_param=settings.clip,
            vf_clip_param=float("inf"),
            vf_loss_coeff=settings.value_coefficient,
            entropy_coeff=settings.entropy,
            use_kl_loss=False,
            kl_coeff=0.0,
            grad_clip=settings.grad_clip,
            grad_clip_by="global_norm",
        )
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
        .debugging(log_level="ERROR", log_sys_usage=False)
    )
