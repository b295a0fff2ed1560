"""The built-in networks: known architectures with random weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

import torch
from torch import nn

from release_ray.networks import models
from release_ray.networks.base import Network, NetworkSource
from release_ray.networks.exported import from_exported_program
from release_ray.networks.files import without_chatter

BUILT_INS: Final[dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]] = {
    "tiny": (models.tiny, (1, 3, 32, 32)),
    "alexnet": (models.alexnet, (1, 3, 224, 224)),
    "vgg16": (models.vgg16, (1, 3, 224, 224)),
    "resnet18": (models.resnet18, (1, 3, 224, 224)),
}
"""Name: the architecture and the shape of its input."""

VERSION: Final = 1
"""To be raised when an architecture or the way its weights are drawn changes."""


def torch_module(name: str, seed: int) -> tuple[nn.Module, torch.Tensor]:
    """A built-in network as a torch module with the seed's weights, and an input of zeros."""
    architecture, shape = BUILT_INS[name]
    with torch.device("meta"):  # no default initialisation: VGG-16's takes seconds
        model = architecture()
    model = model.to_empty(device="cpu").eval()
    models.draw_weights(model, seed)
    return model, torch.zeros(shape)


class BuiltInSource(NetworkSource):
    """Networks by name."""

    def load(self, source: str, *, seed: int) -> Network:
        model, example = torch_module(source, seed)
        with torch.no_grad(), without_chatter():
            program = torch.export.export(model, (example,))
        # Weights do not count: whatever the seed, the operators are the same, and so their records.
        fingerprint = hashlib.sha256(f"{source}/{VERSION}".encode()).hexdigest()
        return from_exported_program(program, name=source, label=source, fingerprint=fingerprint)
