"""A round's candidates in the plane."""

import numpy as np
import pytest

from release_ray.core.knobs import ChoiceKnob
from release_ray.core.round_map import AT_MOST, round_map
from release_ray.core.space import KnobSpace

PLANE = KnobSpace(((ChoiceKnob("a", tuple(range(9))), ChoiceKnob("b", tuple(range(9)))),))


def points(*pairs):
    return np.array([(0, *pair) for pair in pairs], np.int32)


def test_distances_are_kept_where_two_features_are_all():
    drawn = round_map(
        PLANE, points((0, 0), (8, 0), (0, 8), (8, 8)), np.ones(4), (0, 0, 1, 1), points((4, 4))
    )
    a, b, c, d = (np.array(candidate[:2]) for candidate in drawn.candidates)
    side = np.linalg.norm(a - b)
    assert side == pytest.approx(np.linalg.norm(a - c), rel=1e-2)
    assert np.linalg.norm(a - d) == pytest.approx(side * 2**0.5, rel=1e-2)
    assert drawn.chosen == ((pytest.approx(0, abs=1e-3), pytest.approx(0, abs=1e-3)),)
    assert [candidate[3] for candidate in drawn.candidates] == [0, 0, 1, 1]


def test_one_feature_spans_a_line():
    drawn = round_map(PLANE, points((0, 3), (8, 3)), np.array([1.0, 0.5]), (), points((0, 3)))
    assert [candidate[1:] for candidate in drawn.candidates] == [
        (pytest.approx(0.0, abs=1e-3), 1.0, -1),
        (pytest.approx(0.0, abs=1e-3), 0.5, -1),
    ]


def test_of_many_candidates_the_best_and_the_worst_are_kept():
    many = PLANE.random(np.random.default_rng(0), 3 * AT_MOST)
    scores = np.linspace(1, 0, len(many))
    drawn = round_map(PLANE, many, scores, (), many[:0])
    assert len(drawn.candidates) == AT_MOST
    assert (drawn.candidates[0][2], drawn.candidates[-1][2]) == (1.0, 0.0)
    assert drawn.chosen == ()


def test_what_a_policy_or_a_sampler_gets_wrong_is_left_out():
    scores = np.array([np.nan, np.inf, 0.5])
    drawn = round_map(PLANE, points((0, 0), (8, 0), (0, 8)), scores, (1,), points((0, 0)))
    assert [candidate[2:] for candidate in drawn.candidates] == [(0.0, -1), (0.0, -1), (0.5, -1)]


def test_a_single_candidate_has_no_plane():
    assert round_map(PLANE, points((0, 0)), np.ones(1), (0,), points((0, 0))) is None
