"""Search policies: which configurations are worth measuring next.

`create` makes one by its short name (`ppo`, `random`) or as `module:Class`.
"""

from __future__ import annotations

import difflib
import importlib

from policies.base import Policy, SearchState
from release_ray.core.errors import InputError
from release_ray.core.settings import AgentSettings

__all__ = ["REGISTERED", "Policy", "SearchState", "create"]

REGISTERED = {
    "ppo": "policies.ppo:PPOPolicy",
    "random": "policies.random:RandomPolicy",
}


def create(name: str, settings: AgentSettings, seed: int = 0) -> Policy:
    """The policy of a registered name, or of a `module:Class` that can be imported.

    Raises `InputError` where there is no such policy.
    """
    path = REGISTERED.get(name, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, REGISTERED, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "use one of " + ", ".join(REGISTERED)
        raise InputError(f"no policy {name!r}: {hint} (or give module:Class)")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"policy {name!r} cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Policy)):
        raise InputError(f"policy {name!r} is no class derived from policies.Policy")
    return kind(settings, seed)
