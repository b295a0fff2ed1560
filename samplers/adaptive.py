"""Adaptive sampling: measure one candidate a cluster (Algorithm 1 of Chameleon, arXiv 2001.08743).

k-means clusters the candidates with a growing k until a step no longer pays: the knee of the
loss. Then a single representative of each cluster is measured.

Where the paper leaves room:

- Clusters form in the features of `KnobSpace`, each divided by its deviation among the candidates:
  schedules are near when their tile sizes are, whatever the cardinality of a knob. (The authors'
  code takes the raw indices of two knobs.)
- A centroid is no configuration, so the candidate nearest to it stands for the cluster.
- A representative that was visited is replaced by synthesis: the most frequent value of each knob
  among those members of its own cluster that have the cluster's most frequent sketch. Where that
  was visited too, the least decided knobs take their next most frequent values, one knob at a
  time; then comes the best unvisited member; then chance. So it ends, whatever was visited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import ThreadpoolController

from release_ray.core.space import KnobSpace, keys
from samplers.base import Candidates, Sampler, Selection
from samplers.plan import Plan, random_share

RESTARTS = 2
"""Runs of k-means from different centroids, of which the best is kept."""


class AdaptiveSampler(Sampler):
    """Clusters the candidates and measures the representatives, the best predicted first."""

    def select(
        self,
        candidates: Candidates,
        space: KnobSpace,
        visited: set[bytes],
        limit: int,
        rng: np.random.Generator,
    ) -> Selection:
        """See `Sampler.select`. Few candidates are filled up with chance to `min_clusters`."""
        points, places = _distinct(candidates.points)
        clusters, losses = self._cluster(_scaled(space.features(points)), limit, rng)
        size = max(len(clusters), min(limit, self.settings.min_clusters), 0)
        chosen = size - random_share(self.settings.epsilon, size, rng)
        plan = Plan(space, visited, size)
        for cluster in clusters[:chosen]:
            if not plan.offer(points[cluster.representative], "policy"):
                _replace(plan, points[cluster.members], rng)
        plan.add_random(size - len(plan), rng)
        labels = np.zeros(len(points), int)
        for label, cluster in enumerate(clusters):
            labels[cluster.members] = label
        selection = plan.selection(len(clusters), losses)
        return replace(selection, labels=tuple(labels[places].tolist()) if clusters else ())

    def _cluster(
        self, rows: np.ndarray, limit: int, rng: np.random.Generator
    ) -> tuple[list[_Cluster], tuple[float, ...]]:
        """The clusters at the knee, by the rank of their representatives, and the losses."""
        most = min(limit, self.settings.max_clusters, len(rows))
        if most < 1:
            return [], ()
        if rows.shape[1] == 0:
            return [_Cluster(0, np.arange(len(rows)))], (0.0,)
        losses: list[float] = []
        first = min(self.settings.min_clusters, most)
        for k in (*range(first, most, self.settings.cluster_step), most):
            means = _k_means(rows, k, rng)
            losses.append(float(means.inertia_))
            if len(losses) > 1 and self.settings.threshold * losses[-1] >= losses[-2]:
                break
        return _clusters(rows, means), tuple(losses)


@dataclass(frozen=True)
class _Cluster:
    """Ranks of candidates: the one nearest to the centroid, and all members, best first."""

    representative: int
    members: np.ndarray


def _distinct(points: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """The points without repetitions, in their order; and where among them each point is."""
    places: dict[bytes, int] = {}
    rows = [places.setdefault(key, len(places)) for key in keys(points)]
    first = np.unique(rows, return_index=True)[1]
    return points[first], rows


def _scaled(features: np.ndarray) -> np.ndarray:
    """Every feature by its deviation; without those in which the candidates do not differ."""
    deviation = features.std(axis=0) if len(features) else np.zeros(features.shape[1])
    differs = deviation > 1e-6
    return features[:, differs] / deviation[differs]


def _k_means(rows: np.ndarray, k: int, rng: np.random.Generator) -> KMeans:
    """On one thread: it is fast enough, its sums are the same each time, and cores are needed."""
    means = KMeans(k, n_init=RESTARTS, random_state=int(rng.integers(2**31)))
    with _threads().limit(limits=1):
        return means.fit(rows)


@lru_cache(maxsize=1)
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def _clusters(rows: np.ndarray, means: KMeans) -> list[_Cluster]:
    distances = np.linalg.norm(rows - means.cluster_centers_[means.labels_], axis=1)
    clusters = []
    for label in np.unique(means.labels_):
        members = np.flatnonzero(means.labels_ == label)
        clusters.append(_Cluster(int(members[distances[members].argmin()]), members))
    return sorted(clusters, key=lambda cluster: cluster.representative)


def _replace(plan: Plan, members: np.ndarray, rng: np.random.Generator) -> None:
    """Adds what stands for a cluster of `members`, best first, whose representative is known."""
    if any(plan.offer(point, "synthesis") for point in _synthesised(members)):
        return
    if any(plan.offer(point, "policy") for point in members):
        return
    plan.add_random(1, rng)


def _synthesised(members: np.ndarray) -> Iterator[np.ndarray]:
    """The most frequent values of the members' knobs, then that with one knob less typical.

    Only members with the most frequent sketch speak, for the knobs of sketches differ. Ties go to
    the better predicted.
    """
    sketch = Counter(members[:, 0].tolist()).most_common(1)[0][0]
    speakers = members[members[:, 0] == sketch]
    ballots = [Counter(column.tolist()).most_common() for column in speakers.T]
    typical = np.array([ballot[0][0] for ballot in ballots], np.int32)
    yield typical
    for column in sorted(range(len(ballots)), key=lambda column: ballots[column][0][1]):
        for value, _ in ballots[column][1:]:
            varied = typical.copy()
            varied[column] = value
            yield varied
