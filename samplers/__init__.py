"""Samplers: which candidates of a search policy are measured.

`create` makes one by its short name (`adaptive`, `greedy`) or as `module:Class`.
"""

from __future__ import annotations

import difflib
import importlib

from release_ray.core.errors import InputError
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
        create(name, SamplerSettings())


def create(name: str, settings: SamplerSettings) -> Sampler:
    """The sampler of a registered name, or of a `module:Class` that can be imported.

    Raises `InputError` where there is no such sampler.
    """
    path = REGISTERED.get(name, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, REGISTERED, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "use one of " + ", ".join(REGISTERED)
        raise InputError(f"no sampler {name!r}: {hint} (or give module:Class)")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"sampler {name!r} cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Sampler)):
        raise InputError(f"sampler {name!r} is no class derived from samplers.Sampler")
    return kind(settings)
