"""How far a compiled network's outputs are from the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

TOLERANCE: Final = 1e-3
"""Largest relative error of a right result: float32 sums in another order stay far below it."""


def max_rel_error(output: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> float:
    """max|a - b| / max|b|, the worst over the outputs.

    Infinite where the number of outputs or a shape differs, or where NaN or infinity stands in one
    and not in the other. An output that ought to be all zeros is judged by its own largest value.
    """
    if len(output) != len(reference):
        return math.inf
    errors = [_error(a, b) for a, b in zip(output, reference, strict=True)]
    return max(errors, default=0.0)


def _error(output: np.ndarray, reference: np.ndarray) -> float:
    if output.shape != reference.shape:
        return math.inf
    if not output.size:
        return 0.0
    a, b = output.astype(np.float64), reference.astype(np.float64)
    if not np.isfinite(a).all() or not np.isfinite(b).all():
        return 0.0 if np.array_equal(a, b, equal_nan=True) else math.inf
    worst, scale = float(np.abs(a - b).max()), float(np.abs(b).max())
    if worst == 0.0:
        return 0.0
    return worst / scale if scale else worst
