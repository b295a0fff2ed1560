"""The error measure at its edges."""

import math

import numpy as np
import pytest

from release_ray.verify import max_rel_error, tolerance


def of(*values: float) -> np.ndarray:
    return np.array(values, "float32")


@pytest.mark.parametrize(
    ("output", "reference", "error"),
    [
        ([of(1, 2)], [of(1, 4)], 0.5),
        ([of(1, 2), of(3)], [of(1, 2), of(4)], 0.25),
        ([of(1, 2)], [of(1, 2)], 0.0),
        ([of(0, 0)], [of(0, 0)], 0.0),
        ([of(0, 0.5)], [of(0, 0)], 0.5),
        ([of(1)], [of(1, 2)], math.inf),
        ([of(1)], [of(1), of(2)], math.inf),
        ([of(math.nan)], [of(1)], math.inf),
        ([of(math.inf)], [of(1)], math.inf),
        ([of(math.nan, 1)], [of(math.nan, 1)], 0.0),
        ([of()], [of()], 0.0),
        ([of(-math.inf, 3)], [of(-math.inf, 4)], 0.25),
        ([of(math.inf, 1)], [of(-math.inf, 1)], math.inf),
        ([of(math.nan, 1)], [of(1, math.nan)], math.inf),
    ],
)
def test_max_rel_error(output, reference, error):
    assert max_rel_error(output, reference) == error


def test_16_bit_floats_may_differ_more():
    assert tolerance("float16") == tolerance("float32", "bfloat16") > 10 * tolerance("float32")
