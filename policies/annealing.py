"""Simulated annealing on the cost model: AutoTVM's search, the paper's baseline.

As AutoTVM's `SimulatedAnnealingOptimizer` (Chen et al. 2018, arXiv 1805.08166): chains change one
knob to a random value, which is accepted by Metropolis' rule at a temperature that falls from 1 to
0; what counts are the best of all configurations on the way. There chains start at random; here, as
in all policies, a share of them starts from the best measured.
"""

from __future__ import annotations

import numpy as np

from policies.base import (
    Policy,
    SearchState,
    best_unvisited,
    enumerate_all,
    safe_scores,
    starts,
)
from samplers.base import Candidates

PATIENCE = 50
"""Iterations without a new one among the best, after which it stops (AutoTVM's early stop)."""
# Keeps Metropolis' rule finite at the end (AutoTVM's code has the same).
_COLD = 1e-5


class AnnealingPolicy(Policy):
    """`walkers` chains, as many iterations as `model_calls` allow."""

    def propose(self, state: SearchState, count: int) -> Candidates:
        if state.space.size <= self.settings.model_calls:
            return enumerate_all(state, count)
        chains = min(self.settings.walkers, self.settings.model_calls)
        iterations = self.settings.model_calls // chains - 1
        points = starts(state, chains, self.settings)
        scores = safe_scores(state, points)
        seen, seen_scores = [points], [scores]
        best, stale = np.sort(scores)[::-1][:count], 0
        for iteration in range(iterations):
            temperature = 1.0 - iteration / iterations
            changed = state.space.redraw(points, state.rng)
            changed_scores = safe_scores(state, changed)
            seen.append(changed)
            seen_scores.append(changed_scores)
            gain = np.minimum((changed_scores - scores) / (temperature + _COLD), 0.0)
            accepted = state.rng.random(chains) < np.exp(gain)
            points = np.where(accepted[:, None], changed, points)
            scores = np.where(accepted, changed_scores, scores)
            better = np.sort(np.concatenate([best, changed_scores]))[::-1][:count]
            stale = stale + 1 if np.array_equal(better, best) else 0
            best = better
            if stale >= PATIENCE:
                break
        return best_unvisited(state, np.concatenate(seen), np.concatenate(seen_scores), count)
