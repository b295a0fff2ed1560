"""Random search, ordered by the cost model: what every other policy has to beat."""

from __future__ import annotations

from policies.base import Policy, SearchState, best_unvisited, enumerate_all, safe_scores
from samplers.base import Candidates


class RandomPolicy(Policy):
    """Draws `model_calls` configurations and proposes the best predicted of them."""

    def propose(self, state: SearchState, count: int) -> Candidates:
        if state.space.size <= self.settings.model_calls:
            return enumerate_all(state, count)
        points = state.space.random(state.rng, self.settings.model_calls)
        return best_unvisited(state, points, safe_scores(state, points), count)
