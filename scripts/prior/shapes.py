"""A network of operators that no network has: what the shipped measurements are taken of.

Their shapes are drawn at random, and none of them is in a built-in network. So what is learnt of
them is no knowledge of any network that is tuned.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

CHANNELS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 240, 256, 320, 384, 512)
IMAGES = (8, 10, 12, 14, 16, 18, 20, 21, 24, 28, 30, 32, 36, 40, 42, 48, 56, 60, 64, 72, 80, 96)
FEATURES = (128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048)
KERNELS = (3, 3, 3, 3, 5, 7)
MACS = (1e7, 4e8)
WEIGHTS = 3e6
CONVOLUTIONS, POINTWISE, DENSE = 24, 8, 6


@dataclass(frozen=True)
class Convolution:
    """Batch 1, a square image, padded to keep its size but for the stride.

    `form`: 0 alone, 1 with bias and ReLU, 2 with a residual added too.
    """

    channels: int
    image: int
    filters: int
    kernel: int
    stride: int
    form: int

    @property
    def out(self) -> int:
        return (self.image - 1) // self.stride + 1


@dataclass(frozen=True)
class Dense:
    """`rows x inputs` times `inputs x outputs`, with a bias; `form` 1: with ReLU."""

    rows: int
    inputs: int
    outputs: int
    form: int


# Of the built-in networks, and ResNet's first one is of three channels as most first ones are.
TAKEN = {(64, 56, 64), (64, 56, 128), (128, 28, 128), (128, 28, 256), (256, 14, 256)}
TAKEN |= {(256, 14, 512), (512, 14, 512), (256, 28, 256), (256, 28, 512), (512, 28, 512)}
TAKEN |= {(128, 56, 256), (256, 56, 256)}


def draw(seed: int) -> list[Convolution | Dense]:
    """The operators, in a random order."""
    rng = np.random.default_rng(seed)
    drawn: list[Convolution | Dense] = []
    kernels = [int(rng.choice(KERNELS)) for _ in range(CONVOLUTIONS)] + [1] * POINTWISE
    for number, kernel in enumerate(kernels):
        while True:
            first = kernel > 1 and number % 8 == 0
            channels = 3 if first else int(rng.choice(CHANNELS))
            filters, stride = int(rng.choice(CHANNELS)), int(rng.choice((1, 1, 2)))
            image = int(rng.choice((96, 112, 128, 144, 160, 192) if first else IMAGES))
            one = Convolution(channels, image, filters, kernel, stride, number % 3)
            macs = one.out**2 * channels * filters * kernel**2
            if (
                MACS[0] <= macs <= MACS[1]
                and channels * filters * kernel**2 <= WEIGHTS
                and (channels, image, filters) not in TAKEN
            ):
                break
        drawn.append(one)
    for number in range(DENSE):
        rows = (1, 1, 64, 1, 196, 128)[number]
        inputs, outputs = (int(n) for n in rng.choice(FEATURES, 2))
        drawn.append(Dense(rows, inputs, outputs, number % 2))
    return [drawn[i] for i in rng.permutation(len(drawn))]


class Operators(nn.Module):
    """Every operator on an input of its own."""

    def __init__(self, operators: list[Convolution | Dense]) -> None:
        super().__init__()
        self._operators = operators
        self.layers = nn.ModuleList(
            nn.Conv2d(
                one.channels,
                one.filters,
                one.kernel,
                one.stride,
                one.kernel // 2,
                bias=one.form > 0,
            )
            if isinstance(one, Convolution)
            else nn.Linear(one.inputs, one.outputs)
            for one in operators
        )

    def examples(self) -> tuple[torch.Tensor, ...]:
        """An input for each, and one more where a residual is added."""
        inputs = []
        for one in self._operators:
            if isinstance(one, Dense):
                inputs.append(torch.zeros(one.rows, one.inputs))
                continue
            inputs.append(torch.zeros(1, one.channels, one.image, one.image))
            if one.form == 2:
                inputs.append(torch.zeros(1, one.filters, one.out, one.out))
        return tuple(inputs)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rest = list(inputs)
        outputs = []
        for one, layer in zip(self._operators, self.layers, strict=True):
            output = layer(rest.pop(0))
            if isinstance(one, Convolution) and one.form == 2:
                output = output + rest.pop(0)
            outputs.append(torch.relu(output) if one.form else output)
        return tuple(outputs)


def main() -> None:
    """Writes the network as a `.pt2` archive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="the .pt2 archive")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    network = Operators(draw(arguments.seed)).eval()
    torch.export.save(torch.export.export(network, network.examples()), arguments.out)


if __name__ == "__main__":
    main()
