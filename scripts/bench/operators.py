"""Single convolutions as networks: what the benchmarks tune."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Convolution:
    """A conv2d of batch 1: channels in and out, square image and kernel, stride."""

    channels: int
    image: int
    filters: int
    kernel: int
    stride: int = 1

    @property
    def name(self) -> str:
        size = f"{self.channels}x{self.image}x{self.image}"
        return f"{size}_{self.filters}_{self.kernel}x{self.kernel}" + (
            f"_{self.stride}" if self.stride > 1 else ""
        )

    def save(self, directory: Path) -> Path:
        """Writes the convolution as a `.pt2` archive and returns its path."""
        torch.manual_seed(0)
        layer = torch.nn.Conv2d(
            self.channels,
            self.filters,
            self.kernel,
            self.stride,
            padding=self.kernel // 2,
            bias=False,
        ).eval()
        example = (torch.zeros(1, self.channels, self.image, self.image),)
        path = directory / f"{self.name}.pt2"
        torch.export.save(torch.export.export(layer, example), path)
        return path


RESNET_3X3 = Convolution(64, 56, 64, 3)
RESNET18 = (
    Convolution(3, 224, 64, 7, 2),
    RESNET_3X3,
    Convolution(128, 28, 256, 3, 2),
    Convolution(256, 14, 256, 3),
    Convolution(256, 14, 512, 3, 2),
    Convolution(512, 7, 512, 3),
)
"""Layers of ResNet-18 that the benchmarks tune, a kernel size and stride of each kind."""
