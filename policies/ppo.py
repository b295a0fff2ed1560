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
from policies.genetic import evolve
from release_ray.core.settings import AgentSettings
from release_ray.core.space import unvisited
from samplers.base import Candidates

if TYPE_CHECKING:
    from policies.knob_ppo import KnobPPO


class PPOPolicy(Policy):
    """Walkers, learning as they go, and the best of all configurations they came through.

    A share of the model calls, `fine_tune`, goes to a genetic search that starts from these: the
    agent finds the region, crossing its best finds the point (ConfuciuX, Kao et al. 2020, arXiv
    2009.02010).

    One RLlib algorithm serves every task and round: what the agent has learnt of knobs and their
    values carries over, while it begins anew to act (see `KnobModule.begin_anew`). Ray must be
    initialised before, as RLlib would else start a cluster of its own. A space no larger than
    `model_calls` is scored whole, which no agent could better.
    """

    slow_start = True
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
        bred, bred_scores = self._fine_tuned(state, points, scores)
        return best_unvisited(
            state, np.concatenate([points, bred]), np.concatenate([scores, bred_scores]), count
        )

    def _fine_tuned(
        self, state: SearchState, points: np.ndarray, scores: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Breeds the best that the agent came through; what that gave, and its scores."""
        calls = round(self.settings.fine_tune * self.settings.model_calls)
        first = unvisited(points, set())
        points, scores = points[first], scores[first]
        # Where the agent saw fewer, the best are there twice: a small population breeds slowly.
        best = np.resize(np.argsort(-scores, kind="stable"), self.settings.walkers)
        return evolve(state, points[best], scores[best], calls)

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
        calls = settings.model_calls - round(settings.fine_tune * settings.model_calls)
        steps = min(settings.steps, max(1, calls - 1))
        count = min(settings.walkers, max(1, calls // (steps + 1)))
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
        return walkers, max(1, calls // (count * (steps + 1)))

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
