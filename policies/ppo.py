"""The RELEASE/Chameleon agent: PPO walks the design space by the cost model (paper: section 4)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from envs.walkers import Walkers
from policies.base import Policy, SearchState, best_unvisited, enumerate_all
from release_ray.core.settings import AgentSettings
from samplers.base import Candidates

if TYPE_CHECKING:
    from policies.knob_ppo import KnobPPO


class PPOPolicy(Policy):
    """Walkers, learning as they go, and the best of all configurations they came through.

    One RLlib algorithm serves every task and round: what the agent has learnt of knobs and their
    values carries over, while it begins anew to act (see `KnobModule.begin_anew`). Ray must be
    initialised before, as RLlib would else start a cluster of its own. A space no larger than
    `model_calls` is scored whole, which no agent could better.
    """

    _algorithm: KnobPPO | None = None

    def __init__(self, settings: AgentSettings, seed: int = 0) -> None:
        super().__init__(settings, seed)
        self._lock = threading.Lock()

    def propose(self, state: SearchState, count: int) -> Candidates:
        if state.space.size <= self.settings.model_calls or not state.space.slots:
            self._metrics = {}
            return enumerate_all(state, count)
        walkers, walks = self._walkers(state)
        algorithm = self._built()
        algorithm.assign(walkers, state.rng)
        with _one_torch_thread():
            for _ in range(walks):
                result = algorithm.train()
        self._metrics = {**algorithm.figures(result), "reward": float(np.mean(walkers.gained))}
        points, scores = walkers.scored()
        return best_unvisited(state, points, scores, count)

    def prepare(self) -> None:
        self._built()

    def save(self, directory: Path) -> None:
        if self._algorithm is not None:
            # RLlib takes a relative path for a URI without a scheme.
            self._algorithm.learner_group.save_to_path(directory.resolve() / "agent")

    def restore(self, directory: Path) -> None:
        if (directory / "agent").is_dir():
            self._built().restore_learner(directory.resolve() / "agent")

    def close(self) -> None:
        if self._algorithm is not None:
            self._algorithm.stop()
            self._algorithm = None

    def _walkers(self, state: SearchState) -> tuple[Walkers, int]:
        """Walkers, and how many walks of theirs the budget of model calls allows; at least one."""
        settings = self.settings
        steps = min(settings.steps, max(1, settings.model_calls - 1))
        count = min(settings.walkers, max(1, settings.model_calls // (steps + 1)))
        walkers = Walkers(
            state.space,
            state.score,
            count=count,
            steps=steps,
            measured=state.measured,
            fitness=state.fitness,
            measured_starts=settings.measured_starts,
            scored_starts=settings.scored_starts,
            best_starts=settings.best_starts,
        )
        return walkers, max(1, settings.model_calls // (count * (steps + 1)))

    def _built(self) -> KnobPPO:
        """The algorithm, built once. The first build in a process imports RLlib (seconds)."""
        with self._lock:
            if self._algorithm is None:
                import ray

                from policies.knob_ppo import configure

                if not ray.is_initialized():
                    raise RuntimeError("the ppo policy needs Ray: call ray.init() before")
                # Else it warns of its own defaults and of its own use of deprecated calls.
                for name in ("ray.rllib", "ray._common.deprecation"):
                    logging.getLogger(name).setLevel(logging.ERROR)
                self._algorithm = cast("KnobPPO", configure(self.settings, self.seed).build_algo())
            return self._algorithm


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Keeps torch to the calling thread: a small network gains nothing from more."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
