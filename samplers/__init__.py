"""Samplers: which candidates of a search policy are measured.

`create` makes one by its short name (`adaptive`, `greedy`) or as `module:Class`.
"""

from __future__ import annotations

from release_ray.core.registry import find
from release_ray.core.settings import SamplerSettings
from samplers.base import Candidates, Origin, Sampler, Selection

__all__ = ["REGISTERED", "Candidates", "Origin", "Sampler", "Selection", "check", "create"]

REGISTERED = {
    "adaptive": "samplers.adaptive:AdaptiveSampler",
    "greedy": "samplers.greedy:GreedySampler",
}


def check(name: str) -> None:
    """Raises `InputError` where `create` would, without importing what is registered."""
    if name not in REGISTERED:
        find("sampler", name, REGISTERED, Sampler)


def create(name: str, settings: SamplerSettings) -> Sampler:
    """The sampler of a registered name, or of a `module:Class` that can be imported.

    Raises `InputError` where there is no such sampler.
    """
    return find("sampler", name, REGISTERED, Sampler)(settings)
