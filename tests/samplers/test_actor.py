import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest
import ray

import samplers
from release_ray.core.errors import InputError
from release_ray.core.settings import SamplerSettings
from release_ray.core.space import keys
from release_ray.testing import synthetic
from release_ray.testing.samplers import propose
from samplers.actor import RemoteSampler

TASKS = [synthetic.bowl(), synthetic.two_sketches(), synthetic.tiny()]
pytestmark = pytest.mark.usefixtures("ray_local")


@pytest.fixture
def remote() -> Iterator[RemoteSampler]:
    sampler = RemoteSampler(SamplerSettings())
    yield sampler
    sampler.close()


def agrees_with_a_local_one(remote: RemoteSampler, seed: int) -> None:
    local = samplers.create("adaptive", SamplerSettings())
    here, there = np.random.default_rng(seed), np.random.default_rng(seed)
    for task in TASKS:
        candidates = propose(task, 64, seed)
        visited = set(keys(candidates.points[::3]))
        mine = local.select(candidates, task.space, visited, 64, here)
        theirs = remote.select(candidates, task.space, visited, 64, there)
        assert np.array_equal(mine.points, theirs.points)
        assert (mine.origins, mine.clusters) == (theirs.origins, theirs.clusters)
        assert mine.losses == theirs.losses
    assert here.random() == there.random()


def test_the_actor_selects_as_a_local_sampler_would(remote: RemoteSampler) -> None:
    agrees_with_a_local_one(remote, 0)
    before = remote.cpu_s
    agrees_with_a_local_one(remote, 1)
    assert 0 < before < remote.cpu_s


def test_a_killed_actor_costs_no_selection(remote: RemoteSampler) -> None:
    agrees_with_a_local_one(remote, 0)
    pid = ray.get(remote._actor.__ray_call__.remote(lambda actor: os.getpid()))
    os.kill(pid, signal.SIGKILL)
    agrees_with_a_local_one(remote, 1)
    for seed in range(2, 100):
        spent = remote.cpu_s
        agrees_with_a_local_one(remote, seed)
        if remote.cpu_s > spent:
            return
        time.sleep(0.2)
    pytest.fail("the actor never came back")


def test_an_unknown_sampler_is_refused_before_an_actor_starts() -> None:
    with pytest.raises(InputError, match="greedy"):
        RemoteSampler(SamplerSettings(name="greedi"))
