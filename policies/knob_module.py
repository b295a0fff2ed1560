"""The agent's network: one module for all knobs of all tasks."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import nn

from envs.observation import LEGAL
from release_ray.core.knobs import ACTIONS, STAY

_ILLEGAL = -1e9


class KnobModule(TorchRLModule, ValueFunctionAPI):
    """A shared body with a head for the three moves and one for the value.

    `model_config` holds `hidden` (widths), `stay_bias` and `seed`. Illegal moves, which the
    observation marks, get no probability. The policy head starts near zero but for the bias of
    stay, so that a fresh agent changes a few of its knobs a step.
    """

    # RLlib declares these as optional; a module that is set up has them.
    model_config: Any
    observation_space: Any

    def setup(self) -> None:
        config = self.model_config
        generator = torch.Generator().manual_seed(int(config["seed"]))
        layers: list[nn.Module] = []
        width = self.observation_space.shape[0]
        for hidden in config["hidden"]:
            layers += [_linear(width, hidden, 2**0.5, generator), nn.ReLU()]
            width = hidden
        self._body = nn.Sequential(*layers)
        self._value = _linear(width, 1, 1.0, generator)
        self._policy = nn.Linear(width, ACTIONS)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forgets how to act, but not what was learnt of knobs and values.

        A policy that has converged on one round's best configurations has learnt to stay there; in
        the next round it would never move, and find nothing.
        """
        generator = torch.Generator().manual_seed(int(self.model_config["seed"]))
        nn.init.orthogonal_(self._policy.weight, 0.01, generator=generator)
        nn.init.zeros_(self._policy.bias)
        with torch.no_grad():
            self._policy.bias[STAY] = self.model_config["stay_bias"]

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        observations = batch[Columns.OBS]
        embeddings = self._body(observations)
        legal = observations[..., LEGAL] > 0.5
        logits = self._policy(embeddings).masked_fill(~legal, _ILLEGAL)
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.EMBEDDINGS: embeddings}

    def compute_values(
        self, batch: dict[str, Any], embeddings: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The value of each observation, `n` of them."""
        if embeddings is None:
            embeddings = self._body(batch[Columns.OBS])
        return self._value(embeddings).squeeze(-1)


def _linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
