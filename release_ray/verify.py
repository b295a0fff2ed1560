"""How far a compiled network's outputs are from the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

TOLERANCE: Final = 1e-3
"""Largest relative error of a right result: float32 sums in another order stay far below it."""
TOLERANCE_16_BIT: Final = 2e-2
"""The same for 16-bit floats, of which one rounding is 0.05 to 0.4 %."""


def tolerance(*texts: str) -> float:
    """The largest relative error to be accepted of computations whose types the texts name."""
    halves = any("float16" in text for text in texts)
    return TOLERANCE_16_BIT if halves else TOLERANCE


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
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return math.inf
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    a, b = a[finite], b[finite]
    worst, scale = float(np.abs(a - b).max(initial=0.0)), float(np.abs(b).max(initial=0.0))
    return worst / scale if worst and scale else worst
