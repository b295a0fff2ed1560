"""Search policies: which configurations are worth measuring next.

`create` makes one by its short name (`ppo`, `random`) or as `module:Class`.
"""

from __future__ import annotations

from policies.base import Policy, SearchState
from release_ray.core.registry import find
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
    return find("policy", name, REGISTERED, Policy)(settings, seed)
