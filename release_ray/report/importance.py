"""Which knobs of a task decide its latency, as far as its measurements tell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from release_ray.records import Record

ENOUGH = 24
"""Of fewer measurements of a sketch nothing is told."""
SHOWN = 8
_TREES = 100


def importance(rows: Sequence[Record]) -> list[tuple[str, float]]:
    """(knob, share) of the knobs that matter most, the first first; the shares of all sum to 1.

    By how much splits on a knob reduce the variance of the logarithm of the latency in a forest
    of extremely randomised trees (Geurts et al. 2006), over the sketch measured most often. It
    tells of what was measured, which the search has chosen: a hint, and no proof.
    """
    latencies = [(row, row.latency_s) for row in rows if row.latency_s is not None]
    common = Counter(row.sketch for row, _ in latencies).most_common(1)
    mine = [(row, latency_s) for row, latency_s in latencies if row.sketch == common[0][0]]
    if len(mine) < ENOUGH:
        return []
    from sklearn.ensemble import ExtraTreesRegressor

    values = [json.loads(row.decisions) for row, _ in mine]
    names = [_name(number, value) for number, value in enumerate(values[0])]
    owners = [number for number, value in enumerate(values[0]) for _ in np.atleast_1d(value)]
    forest = ExtraTreesRegressor(_TREES, random_state=0)
    forest.fit(
        np.array([np.hstack(knobs) for knobs in values]),
        np.log(np.array([latency_s for _, latency_s in mine])),
    )
    shares = np.zeros(len(names))
    np.add.at(shares, owners, forest.feature_importances_)
    order = np.argsort(-shares, kind="stable")[:SHOWN]
    return [(names[i], round(float(shares[i]), 4)) for i in order if shares[i] > 0]


def _name(number: int, value: int | list[int]) -> str:
    """Of a knob, by its place in the sketch: a loop's tiles, or a choice."""
    if isinstance(value, list):
        return f"{number}: tiles of {int(np.prod(value))}"
    return f"{number}: choice"
