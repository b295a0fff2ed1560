"""Search policies: which configurations are worth measuring next.

`create` makes one by its short name (`ppo`, `random`) or as `module:Class`.
"""

from __future__ import annotations

from policies.base import Policy, SearchState
from release_ray.core.registry import find
from release_ray.core.settings import AgentSettings

__all__ = ["OPENING", "REGISTERED", "Policy", "SearchState", "create", "opening"]

REGISTERED = {
    "annealing": "policies.annealing:AnnealingPolicy",
    "evolutionary": "release_ray.metaschedule.evolutionary:EvolutionaryPolicy",
    "genetic": "policies.genetic:GeneticPolicy",
    "ppo": "policies.ppo:PPOPolicy",
    "random": "policies.random:RandomPolicy",
}


OPENING = "genetic"
"""Proposes as long as a slow policy gets ready."""


def opening(name: str, settings: AgentSettings, seed: int = 0) -> tuple[str, Policy]:
    """Name and policy that propose until that of `name` is ready: itself, if it always is.

    Raises `InputError` as `create`.
    """
    opener = OPENING if _class(name).slow_start else name
    return opener, create(opener, settings, seed)


def create(name: str, settings: AgentSettings, seed: int = 0) -> Policy:
    """The policy of a registered name, or of a `module:Class` that can be imported.

    Raises `InputError` where there is no such policy.
    """
    return _class(name)(settings, seed)


def _class(name: str) -> type[Policy]:
    return find("policy", name, REGISTERED, Policy)
