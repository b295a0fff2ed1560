"""The built-in architectures in torch, for 3 x 224 x 224 images (`tiny`: 3 x 32 x 32).

Dropout is left out: it does nothing at inference.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def tiny() -> nn.Module:
    """Three convolutions with batch norms; tuned in seconds."""
    return nn.Sequential(
        *_conv_norm_relu(3, 16, 3, 1, 1),
        *_conv_norm_relu(16, 32, 3, 2, 1),
        *_conv_norm_relu(32, 32, 3, 1, 1),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 8 * 8, 10),
    )


def alexnet() -> nn.Module:
    """AlexNet in one tower (Krizhevsky 2014, arXiv 1404.5997)."""
    return nn.Sequential(
        *_conv_relu(3, 64, 11, 4, 2),
        nn.MaxPool2d(3, 2),
        *_conv_relu(64, 192, 5, 1, 2),
        nn.MaxPool2d(3, 2),
        *_conv_relu(192, 384, 3, 1, 1),
        *_conv_relu(384, 256, 3, 1, 1),
        *_conv_relu(256, 256, 3, 1, 1),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Linear(256 * 6 * 6, 4096),
        nn.ReLU(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, 1000),
    )


def vgg16() -> nn.Module:
    """VGG-16, configuration D (Simonyan and Zisserman 2014, arXiv 1409.1556)."""
    layers: list[nn.Module] = []
    channels = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += _conv_relu(channels, width, 3, 1, 1)
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, 1000),
    )


def resnet18() -> nn.Module:
    """ResNet-18 (He et al. 2015, arXiv 1512.03385)."""
    blocks: list[nn.Module] = []
    channels = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [_ResidualBlock(channels, width, stride), _ResidualBlock(width, width, 1)]
        channels = width
    return nn.Sequential(
        *_conv_norm_relu(3, 64, 7, 2, 3),
        nn.MaxPool2d(3, 2, 1),
        *blocks,
        _GlobalAverage(),
        nn.Linear(512, 1000),
    )


def draw_weights(model: nn.Module, seed: int) -> None:
    """Fill every parameter and statistic in place, from the seed alone.

    He's uniform initialisation keeps activations of order one through any depth, and the batch
    norms get statistics of their own, so that folding them wrongly would show in the output.
    """
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                bound = (6.0 / layer.weight[0].numel()) ** 0.5
                layer.weight.uniform_(-bound, bound, generator=draw)
                if layer.bias is not None:
                    layer.bias.uniform_(-0.1, 0.1, generator=draw)
            elif isinstance(layer, nn.BatchNorm2d):
                assert layer.running_mean is not None and layer.running_var is not None
                assert layer.num_batches_tracked is not None
                layer.weight.uniform_(0.5, 1.0, generator=draw)
                layer.bias.uniform_(-0.1, 0.1, generator=draw)
                layer.running_mean.uniform_(-0.1, 0.1, generator=draw)
                layer.running_var.uniform_(0.5, 1.5, generator=draw)
                layer.num_batches_tracked.zero_()


class _GlobalAverage(nn.Module):
    """Mean over the image: one operator in any layout, where pooling and flattening are two."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class _ResidualBlock(nn.Module):
    """Two convolutions and a shortcut, projected where the shape changes (option B)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_conv_norm_relu(channels, width, 3, stride, 1),
            *_conv_norm_relu(width, width, 3, 1, 1)[:2],
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(*_conv_norm_relu(channels, width, 1, stride, 0)[:2])

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _conv_relu(channels: int, width: int, kernel: int, stride: int, pad: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, width, kernel, stride, pad), nn.ReLU()]


def _conv_norm_relu(
    channels: int, width: int, kernel: int, stride: int, pad: int
) -> list[nn.Module]:
    return [
        nn.Conv2d(channels, width, kernel, stride, pad, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
