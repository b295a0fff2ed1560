import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samplers
from release_ray.core.settings import SamplerSettings
from release_ray.core.space import keys
from release_ray.testing import synthetic
from release_ray.testing.samplers import check, check_origins, propose, ranked
from release_ray.testing.synthetic import SyntheticTask
from samplers.adaptive import AdaptiveSampler
from samplers.base import Candidates, Selection


def adaptive(**changed: object) -> AdaptiveSampler:
    return AdaptiveSampler(SamplerSettings.model_validate({"epsilon": 0.0, **changed}))


def select(
    sampler: samplers.Sampler,
    task: SyntheticTask,
    candidates: Candidates,
    visited: set[bytes] | None = None,
) -> Selection:
    visited = visited or set()
    return sampler.select(candidates, task.space, visited, 64, np.random.default_rng(0))


def groups(task: SyntheticTask, count: int, size: int, seed: int = 1) -> np.ndarray:
    """`count * size` points: groups around random ones, which differ in the last knob only."""
    rng = np.random.default_rng(seed)
    points = np.repeat(task.space.random(rng, count), size, axis=0)
    points[:, -1] = np.tile(np.arange(size), count)
    return points


def test_the_number_of_clusters_follows_the_candidates() -> None:
    task = synthetic.bowl()
    sampler = adaptive(min_clusters=4, cluster_step=2, max_clusters=32, threshold=1.25)
    few = select(sampler, task, ranked(task, groups(task, 6, 4)))
    many = select(sampler, task, ranked(task, groups(task, 14, 4)))
    assert few.clusters < many.clusters
    assert len(few.points) == few.clusters


def test_a_lower_threshold_lets_the_clusters_grow() -> None:
    task = synthetic.bowl()
    candidates = propose(task, 64)
    sizes = [
        select(adaptive(threshold=t, max_clusters=40), task, candidates).clusters
        for t in (4.0, 1.02)
    ]
    assert sizes[0] < sizes[1]


def test_the_loss_falls_and_the_last_step_alone_may_not_pay() -> None:
    task = synthetic.bowl()
    losses = select(adaptive(threshold=1.1, max_clusters=64), task, propose(task, 64)).losses
    ratios = [before / max(after, 1e-9) for before, after in zip(losses, losses[1:], strict=False)]
    assert len(losses) > 2
    assert all(ratio > 1.1 for ratio in ratios[:-1])


def test_every_group_has_one_representative() -> None:
    task = synthetic.bowl()
    points = groups(task, 8, 4)
    selection = select(adaptive(max_clusters=8), task, ranked(task, points))
    assert len({p[:-1].tobytes() for p in selection.points}) == 8


def test_representatives_come_best_predicted_first() -> None:
    task = synthetic.bowl()
    selection = select(adaptive(), task, propose(task, 64))
    fitness = task.fitness(selection.points)
    assert (np.diff(fitness) <= 0).all()


def test_synthesis_takes_the_most_frequent_values_of_the_clusters_own_members() -> None:
    task = synthetic.bowl()
    common = np.array([0, 10, 10, 10, 3, 0, 2, 1], np.int32)
    lone = [common.copy() for _ in range(1, 8)]
    for column, point in enumerate(lone, start=1):
        point[column] += 1
    crowd = np.array(lone, np.int32)
    far = np.repeat(np.array([[0, 80, 0, 0, 0, 0, 0, 3]], np.int32), 12, axis=0)
    far[:, 4] = np.arange(12) % 6
    far[:, 6] = np.arange(12) // 6
    points = np.concatenate([crowd, far])
    candidates = Candidates(points, np.linspace(1, 0, len(points)))
    sampler = adaptive(min_clusters=2, max_clusters=2)
    selection = select(sampler, task, candidates, set(keys(crowd)))
    assert selection.origins[0] == "synthesis"
    assert np.array_equal(selection.points[0], common)


def test_synthesis_varies_the_least_decided_knob_first() -> None:
    task = synthetic.bowl()
    votes = [(10, 3, 1), (10, 4, 2), (10, 3, 2), (11, 3, 3)]
    rows = np.array([[0, f, 10, 10, rc, 1, 2, unroll] for f, rc, unroll in votes], np.int32)
    candidates = Candidates(rows, np.linspace(1, 0, 4))
    sampler = adaptive(min_clusters=1, max_clusters=1)
    selection = select(sampler, task, candidates, set(keys(rows)))
    assert selection.origins == ("synthesis",)
    assert selection.points[0].tolist() == [0, 10, 10, 10, 3, 1, 2, 3]


def test_synthesis_stays_in_the_majority_sketch() -> None:
    task = synthetic.two_sketches()
    rng = np.random.default_rng(0)
    points = task.space.random(rng, 200)
    wide, narrow = points[points[:, 0] == 0][:3], points[points[:, 0] == 1][:9]
    both = np.concatenate([wide, narrow])
    selection = select(
        adaptive(min_clusters=1, max_clusters=1), task, ranked(task, both), set(keys(both))
    )
    assert selection.origins == ("synthesis",)
    assert selection.points[0, 0] == 1


def test_where_nothing_can_be_put_together_a_candidate_of_the_cluster_follows() -> None:
    task = synthetic.tiny()
    candidates = Candidates(task.space.enumerate(), np.linspace(1, 0, 6))
    left = task.space.enumerate()[4]
    visited = set(keys(task.space.enumerate())) - {left.tobytes()}
    selection = select(adaptive(min_clusters=1, max_clusters=1), task, candidates, visited)
    assert selection.points.tolist() == [left.tolist()]


SPACES = [synthetic.bowl(), synthetic.two_sketches(), synthetic.tiny(), synthetic.single()]


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(samplers.REGISTERED)),
    task=st.sampled_from(SPACES),
    count=st.integers(0, 70),
    pool=st.integers(1, 70),
    share=st.floats(0, 1),
    limit=st.integers(-1, 70),
    least=st.integers(1, 20),
    more=st.integers(0, 20),
    step=st.integers(1, 9),
    threshold=st.floats(0.1, 10),
    epsilon=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_whatever_is_asked_for_the_contract_holds(
    name: str,
    task: SyntheticTask,
    count: int,
    pool: int,
    share: float,
    limit: int,
    least: int,
    more: int,
    step: int,
    threshold: float,
    epsilon: float,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    points = task.space.random(rng, pool)[rng.integers(pool, size=count)]
    candidates = ranked(task, points)
    visited = {key for key in keys(points) if rng.random() < share}
    sampler = samplers.create(
        name,
        SamplerSettings(
            min_clusters=least,
            max_clusters=least + more,
            cluster_step=step,
            threshold=threshold,
            epsilon=epsilon,
        ),
    )
    selection = sampler.select(candidates, task.space, visited, limit, rng)
    check(selection, task, visited, limit)
    check_origins(selection, candidates)
    left = limit > 0 and len(visited) < task.space.size
    assert (len(selection.points) > 0) == left


@pytest.mark.parametrize("least", [3, 5])
@pytest.mark.parametrize("count", [2, 64])
def test_max_clusters_bounds_the_plan(least: int, count: int) -> None:
    task = synthetic.bowl()
    sampler = adaptive(min_clusters=least, max_clusters=5, threshold=0.1)
    assert len(select(sampler, task, propose(task, count)).points) <= 5
