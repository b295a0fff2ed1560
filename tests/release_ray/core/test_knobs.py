import itertools
import math

import numpy as np
import pytest

from release_ray.core.knobs import (
    DECREMENT,
    INCREMENT,
    STAY,
    ChoiceKnob,
    TileKnob,
    factorizations,
    smallest_prime_factor,
)


@pytest.mark.parametrize(
    ("extent", "levels", "max_innermost", "count"),
    [(1, 4, 64, 1), (56, 4, 64, 80), (64, 4, 64, 84), (64, 2, 64, 7), (64, 2, 8, 4), (7, 1, 64, 1)],
)
def test_factorizations_are_complete_and_distinct(extent, levels, max_innermost, count):
    splits = factorizations(extent, levels, max_innermost)
    expected = {
        split
        for split in itertools.product(
            [d for d in range(1, extent + 1) if extent % d == 0], repeat=levels
        )
        if math.prod(split) == extent and split[-1] <= max_innermost
    }
    assert len(splits) == count
    assert set(splits) == expected


def test_factorizations_of_nothing_are_an_error():
    with pytest.raises(ValueError, match="0"):
        factorizations(0, 4, 64)


@pytest.mark.parametrize(("number", "factor"), [(1, 1), (2, 2), (49, 7), (12, 2), (97, 97)])
def test_smallest_prime_factor(number, factor):
    assert smallest_prime_factor(number) == factor


def test_a_tile_move_carries_one_prime_between_neighbouring_levels():
    knob = TileKnob("t", 56, 4, 64)
    start = knob.index_of((7, 1, 4, 2))
    reached = [knob.values[i] for i in knob.transitions[2, :, start]]
    assert reached[DECREMENT] == (7, 1, 8, 1)
    assert reached[STAY] == (7, 1, 4, 2)
    assert reached[INCREMENT] == (7, 1, 2, 4)


def test_a_move_that_would_exceed_the_innermost_limit_stays():
    knob = TileKnob("t", 64, 2, 8)
    start = knob.index_of((8, 8))
    assert knob.transitions[0, INCREMENT, start] == start
    assert knob.values[knob.transitions[0, DECREMENT, start]] == (16, 4)


def test_every_split_can_be_reached_from_every_other():
    knob = TileKnob("t", 56, 4, 64)
    reached = {0}
    frontier = [0]
    while frontier:
        neighbours = set(knob.transitions[:, :, frontier].ravel().tolist()) - reached
        reached |= neighbours
        frontier = sorted(neighbours)
    assert reached == set(range(knob.cardinality))


def test_a_choice_moves_one_place_and_stops_at_its_ends():
    knob = ChoiceKnob("u", (0, 16, 64, 512))
    np.testing.assert_array_equal(knob.transitions[0], [[0, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 3]])


def test_a_knob_with_one_value_has_no_agent():
    for knob in (TileKnob("t", 1, 4, 64), ChoiceKnob("c", (5,))):
        assert knob.moves == 0
        assert knob.transitions.shape == (0, 3, 1)


def test_unknown_values_are_a_key_error():
    with pytest.raises(KeyError):
        TileKnob("t", 8, 2, 8).index_of((3, 3))
