"""A round's candidates as a picture: where they lie, how they clustered, which were chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from release_ray.core.space import KnobSpace

AT_MOST = 160
"""Candidates in a map: evenly taken from the best to the worst."""


@dataclass(frozen=True)
class RoundMap:
    """In the plane in which the candidates' features vary most.

    `candidates` are (x, y, predicted fitness, cluster or -1), the best first; `chosen` (x, y) of
    what the sampler settled on, some of it no candidate itself.
    """

    candidates: tuple[tuple[float, float, float, int], ...]
    chosen: tuple[tuple[float, float], ...]


def round_map(
    space: KnobSpace,
    points: np.ndarray,
    scores: np.ndarray,
    labels: Sequence[int],
    chosen: np.ndarray,
) -> RoundMap | None:
    """The map of `points` (`n x width`, best first), of which `chosen` (`m x width`) came.

    `labels` are the points' clusters, or empty. None for fewer than two candidates: they span no
    plane.
    """
    if len(points) < 2:
        return None
    features = space.features(points)
    centre, deviation = features.mean(axis=0), features.std(axis=0)
    deviation[deviation < 1e-6] = np.inf
    rows = (features - centre) / deviation
    axes = np.linalg.svd(rows, full_matrices=False)[2][:2]
    kept = np.linspace(0, len(points) - 1, min(len(points), AT_MOST)).astype(int)
    placed = rows[kept] @ axes.T
    # Policies and samplers may be anybody's.
    scores = np.nan_to_num(scores, posinf=0.0, neginf=0.0)
    clusters = labels if len(labels) == len(points) else [-1] * len(points)
    picked = (space.features(chosen) - centre) / deviation @ axes.T
    return RoundMap(
        tuple(
            (*_pair(place), round(float(scores[row]), 4), int(clusters[row]))
            for row, place in zip(kept, placed, strict=True)
        ),
        tuple(_pair(place) for place in picked),
    )


def _pair(place: np.ndarray) -> tuple[float, float]:
    # One feature alone spans a line.
    x, y = (*place, 0.0)[:2]
    return round(float(x), 3), round(float(y), 3)
