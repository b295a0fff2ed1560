import numpy as np
import pytest

from release_ray.core.knobs import ChoiceKnob, TileKnob
from release_ray.core.space import KnobSpace, keys, unvisited

TILE = TileKnob("tile", 16, 3, 8)
UNROLL = ChoiceKnob("unroll", (0, 16, 64))
ONE = TileKnob("batch", 1, 4, 64)


@pytest.fixture
def space():
    return KnobSpace(((ONE, TILE, UNROLL), (TILE,), ()))


def test_size_and_width_and_slots(space):
    assert space.size == TILE.cardinality * 3 + TILE.cardinality + 1
    assert space.width == 4
    assert space.slots == 3
    assert len(space.enumerate()) == space.size
    assert len(set(keys(space.enumerate()))) == space.size


def test_a_space_without_sketches_is_an_error():
    with pytest.raises(ValueError, match="sketch"):
        KnobSpace(())


def test_random_points_are_in_the_space(space):
    points = space.random(np.random.default_rng(0), 500)
    assert set(keys(points)) <= set(keys(space.enumerate()))
    assert set(points[:, 0]) == {0, 1, 2}


def test_values_and_points_are_inverse(space):
    for point in space.enumerate():
        again = space.point(int(point[0]), space.values(point))
        np.testing.assert_array_equal(again, point)


def test_random_unvisited_returns_all_that_is_left_and_no_more(space):
    everything = space.enumerate()
    visited = set(keys(everything[:-3]))
    left = space.random_unvisited(np.random.default_rng(0), 10, visited)
    assert set(keys(left)) == set(keys(everything[-3:]))
    assert len(space.random_unvisited(np.random.default_rng(0), 10, set(keys(everything)))) == 0


def test_legal_moves_are_exactly_those_that_change_the_point(space):
    points = space.enumerate()
    legal = space.legal(points)
    for slot in range(space.slots):
        for action in (0, 2):
            actions = np.ones((len(points), space.slots), int)
            actions[:, slot] = action
            changed = (space.step(points, actions) != points).any(axis=1)
            np.testing.assert_array_equal(legal[:, slot, action], changed)
    assert legal[:, :, 1].all()


def test_steps_stay_in_the_space_whatever_the_actions(space):
    rng = np.random.default_rng(1)
    members = set(keys(space.enumerate()))
    points = space.random(rng, 64)
    for _ in range(50):
        points = space.step(points, rng.integers(0, 3, (64, space.slots)))
        assert set(keys(points)) <= members


def test_a_step_moves_each_walker_by_itself(space):
    rng = np.random.default_rng(2)
    points = space.random(rng, 32)
    actions = rng.integers(0, 3, (32, space.slots))
    alone = np.concatenate(
        [space.step(points[i : i + 1], actions[i : i + 1]) for i in range(len(points))]
    )
    np.testing.assert_array_equal(space.step(points, actions), alone)


def test_knobs_of_two_sketches_that_mean_the_same_share_features():
    space = KnobSpace(((TILE, UNROLL), (UNROLL, TILE)))
    one = space.features(np.array([[0, 5, 2]], np.int32))
    other = space.features(np.array([[1, 2, 5]], np.int32))
    assert one[0, :2].tolist() == [1, 0]
    assert other[0, :2].tolist() == [0, 1]
    np.testing.assert_array_equal(one[0, 2:], other[0, 2:])


def test_features_tell_configurations_apart(space):
    rows = {row.tobytes() for row in space.features(space.enumerate())}
    assert len(rows) == space.size


def test_spaces_are_of_one_family_where_their_features_mean_the_same(space):
    larger = KnobSpace(((ONE, TileKnob("tile", 48, 3, 8), UNROLL), (TILE,), ()))
    deeper = KnobSpace(((ONE, TileKnob("tile", 16, 4, 8), UNROLL), (TILE,), ()))
    longer = KnobSpace(((ONE, TILE, ChoiceKnob("unroll", (0, 8))), (TILE,), ()))
    shorter = KnobSpace(((ONE, TILE), (TILE,), ()))
    assert space.family == KnobSpace(space.sketches).family
    assert (
        KnobSpace(((TILE, UNROLL),)).family == KnobSpace(((larger.sketches[0][1], UNROLL),)).family
    )
    for other in (larger, deeper, shorter):
        assert other.family != space.family
    assert longer.family == space.family
    assert hash(space.family) == hash(longer.family)


def test_unvisited_keeps_the_first_of_equal_rows():
    points = np.array([[0, 1], [0, 1], [0, 2], [0, 3]], np.int32)
    visited = set(keys(points[3:]))
    assert unvisited(points, visited).tolist() == [True, False, True, False]
