"""The baseline: the best predicted, and a share of chance (AutoTVM's plan; paper: section 2)."""

from __future__ import annotations

import numpy as np

from release_ray.core.space import KnobSpace
from samplers.base import Candidates, Sampler, Selection
from samplers.plan import Plan, random_share


class GreedySampler(Sampler):
    """Measures the first `max_clusters` candidates, the last `epsilon` of them random instead."""

    def select(
        self,
        candidates: Candidates,
        space: KnobSpace,
        visited: set[bytes],
        limit: int,
        rng: np.random.Generator,
    ) -> Selection:
        size = max(0, min(limit, self.settings.max_clusters))
        chosen = size - random_share(self.settings.epsilon, size, rng)
        plan = Plan(space, visited, size)
        for point in candidates.points:
            if len(plan) < chosen:
                plan.offer(point, "policy")
        plan.add_random(size - len(plan), rng)
        return plan.selection()
