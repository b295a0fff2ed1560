"""What agents see."""

import numpy as np
import pytest

from envs.observation import LEGAL, OBSERVATION, OWN, PROGRESS, Observer
from release_ray.core.knobs import ChoiceKnob, TileKnob
from release_ray.core.space import KnobSpace
from release_ray.testing import synthetic

TASKS = [synthetic.bowl(), synthetic.two_sketches(), synthetic.tiny(), synthetic.single()]


@pytest.mark.parametrize("task", TASKS)
def test_width_is_fixed_and_the_mask_is_the_legal_moves(task):
    points = task.space.random(np.random.default_rng(0), 50)
    progress = np.random.default_rng(1).random((50, PROGRESS))
    seen = Observer(task.space).observe(points, progress)
    assert seen.shape == (50, task.space.slots, OBSERVATION)
    assert seen.dtype == np.float32
    np.testing.assert_array_equal(seen[:, :, LEGAL] > 0.5, task.space.legal(points))
    assert np.isfinite(seen).all()


def test_an_empty_slot_sees_nothing():
    task = synthetic.two_sketches()
    points = task.space.random(np.random.default_rng(0), 20)
    seen = Observer(task.space).observe(points, np.ones((20, PROGRESS)))
    for point, of_point in zip(points, seen, strict=True):
        agents = len(task.space.agents[point[0]])
        assert not of_point[agents:, OWN:].any()
        assert of_point[:agents, -PROGRESS:].all()


def test_agents_of_a_walker_share_what_lies_beyond_their_own_knob():
    space = synthetic.bowl().space
    seen = Observer(space).observe(space.random(np.random.default_rng(0), 3), np.zeros((3, 3)))
    assert (seen[:, :, OWN:] == seen[:, :1, OWN:]).all()
    assert (seen[:, 0, :OWN] != seen[:, 1, :OWN]).any()


def test_knobs_beyond_the_width_still_count_in_the_sums():
    knobs = tuple(TileKnob(f"tile_{i}", 64, 4, 64) for i in range(20))
    space = KnobSpace(((*knobs, ChoiceKnob("unroll", (0, 16))),))
    points = np.zeros((2, space.width), np.int32)
    points[1, 20] = 5
    seen = Observer(space).observe(points, np.zeros((2, PROGRESS)))
    assert (seen[0, 0, OWN:] != seen[1, 0, OWN:]).any()
