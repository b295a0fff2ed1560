"""The sampler actor: clustering beside the driver, for all tasks of a run.

`RemoteSampler` is its handle and a `Sampler` itself, so whoever selects need not know where.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import samplers
from release_ray.core.settings import SamplerSettings
from release_ray.core.space import KnobSpace
from samplers.base import Candidates, Sampler, Selection

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Reply:
    """A selection, the generator's state after it, and the CPU-seconds spent since the last."""

    selection: Selection
    rng_state: dict[str, Any]
    cpu_s: float


class SamplerActor:
    """Holds its users' samplers, and the spaces of their tasks: each travels only once."""

    def __init__(self) -> None:
        self._samplers: dict[str, Sampler] = {}
        self._spaces: dict[str, dict[int, KnobSpace]] = {}
        self._accounted_s = 0.0

    def select(
        self,
        user: str,
        settings: SamplerSettings,
        task: int,
        space: KnobSpace | None,
        candidates: Candidates,
        visited: set[bytes],
        limit: int,
        rng: np.random.Generator,
    ) -> _Reply | None:
        """As `Sampler.select`. None where `space` is left out and the task is not known here."""
        if space is not None:
            self._spaces.setdefault(user, {})[task] = space
        spaces = self._spaces.get(user, {})
        if task not in spaces:
            return None
        if user not in self._samplers:
            self._samplers[user] = samplers.create(settings.name, settings)
        selection = self._samplers[user].select(candidates, spaces[task], visited, limit, rng)
        spent_s, self._accounted_s = self._accounted_s, time.process_time()
        return _Reply(selection, dict(rng.bit_generator.state), self._accounted_s - spent_s)

    def forget(self, user: str) -> None:
        """Drops what is kept for a user."""
        self._samplers.pop(user, None)
        self._spaces.pop(user, None)


def start_actor() -> Any:
    """A `SamplerActor` beside the driver, for any number of `RemoteSampler`s; needs Ray.

    It takes no CPU from Ray's books, or it would wait for the measuring actors to leave. If it
    dies, Ray starts another.
    """
    # Nodes with devices are there to measure.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor_class: Any = ray.remote(SamplerActor)
    options = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here}
    return actor_class.options(**options).remote()


class RemoteSampler(Sampler):
    """A sampler that works in an actor of its own, with the same results as here.

    If the actor dies, the call that was lost is answered here.
    """

    def __init__(self, settings: SamplerSettings, actor: Any = None) -> None:
        """`actor`: of `start_actor`; else one is started, and ended with this.

        Raises `InputError` for an unknown sampler; needs a running Ray.
        """
        super().__init__(settings)
        samplers.check(settings.name)
        self._owned = actor is None
        self._actor: Any = start_actor() if actor is None else actor
        self._user = uuid.uuid4().hex
        self._tasks: dict[KnobSpace, int] = {}
        self._cpu_s = 0.0
        self._closed = False

    @property
    def cpu_s(self) -> float:
        """CPU-seconds of the actor's process so far, its imports included."""
        return self._cpu_s

    def select(
        self,
        candidates: Candidates,
        space: KnobSpace,
        visited: set[bytes],
        limit: int,
        rng: np.random.Generator,
    ) -> Selection:
        """See `Sampler.select`; `rng` advances as if it had been used here."""
        task = self._tasks.setdefault(space, len(self._tasks))
        who, rest = (self._user, self.settings), (candidates, visited, limit, rng)
        try:
            reply: _Reply | None = ray.get(self._actor.select.remote(*who, task, None, *rest))
            if reply is None and self._closed:
                raise RuntimeError("the sampler was closed")
            if reply is None:
                reply = ray.get(self._actor.select.remote(*who, task, space, *rest))
        except RayActorError as error:
            if self._closed:
                raise
            log.warning("the sampler actor was lost, selecting in this process: %s", error)
            local = samplers.create(self.settings.name, self.settings)
            return local.select(candidates, space, visited, limit, rng)
        assert reply is not None
        rng.bit_generator.state = reply.rng_state
        self._cpu_s += reply.cpu_s
        return reply.selection

    def close(self) -> None:
        """Ends the actor, unless it is others' too. A selection under way in a thread may fail."""
        self._closed = True
        if self._owned:
            ray.kill(self._actor)
        else:
            self._actor.forget.remote(self._user)
