from release_ray.allocation import TaskProgress, next_task


def _task(weight=1, flops=1e9, trials=16, bests=(1e-2,), **more):
    return TaskProgress(weight, flops, trials=trials, bests=list(bests), **more)


def test_tasks_without_a_round_come_first_the_heaviest_first():
    tasks = [_task(), _task(trials=0, bests=()), _task(trials=0, bests=(), weight=3)]
    assert next_task(tasks) == 2
    assert next_task(tasks, frozenset({2})) == 1


def test_the_task_that_weighs_most_gets_the_round():
    assert next_task([_task(weight=1), _task(weight=4)]) == 1


def test_progress_is_followed():
    stuck = _task(bests=(1e-2, 1e-2, 1e-2, 1e-2))
    moving = _task(bests=(4e-2, 3e-2, 2e-2, 1e-2))
    assert next_task([stuck, moving]) == 1


def test_a_slow_task_has_more_to_gain_than_one_at_the_best_speed():
    fast = _task(flops=1e9, bests=(1e-2, 1e-2, 1e-2, 1e-2))
    slow = _task(flops=1e8, bests=(1e-2, 1e-2, 1e-2, 1e-2))
    assert next_task([fast, slow]) == 1


def test_spent_and_exhausted_tasks_get_nothing():
    assert next_task([_task(remaining=0), _task(exhausted=True)]) is None
    assert next_task([_task(remaining=0), _task(remaining=5)]) == 1


def test_a_task_with_a_round_under_way_waits_unless_it_is_the_only_one():
    tasks = [_task(weight=9), _task(weight=1)]
    assert next_task(tasks, frozenset({0})) == 1
    assert next_task(tasks[:1], frozenset({0})) == 0


def test_a_task_whose_candidates_all_failed_is_not_starved_for_ever():
    failed = _task(weight=5, bests=())
    good = _task(weight=1, bests=(1e-2, 1e-2, 1e-2, 1e-2, 1e-2))
    assert next_task([failed, good]) == 0


STUCK = (1e-2, 1e-2, 1e-2, 1e-2)


def test_a_task_bound_by_memory_has_little_to_gain_however_slow_it_computes():
    fast = _task(flops=1e9, bytes=1e5, bests=STUCK)
    dense = [_task(flops=1e7, bytes=1e8, bests=STUCK), _task(flops=1e7, bytes=1e8, bests=STUCK)]
    slow = _task(flops=1e8, bytes=1e5, bests=STUCK)
    assert next_task([fast, *dense, slow]) == 3


def test_a_task_moves_its_bytes_no_sooner_than_others_of_its_size():
    fast = _task(flops=1e9, bytes=1e5, bests=STUCK)
    # In a cache, which the dense layer's weights do not fit into.
    cached = _task(flops=1e6, bytes=1e6, bests=(1e-5,) * 4)
    larger = _task(flops=1e7, bytes=4e8, bests=(4e-2,) * 4)
    dense = _task(flops=1e7, bytes=1e8, bests=STUCK)
    slow = _task(flops=1e8, bytes=1e5, bests=STUCK)
    assert next_task([fast, cached, larger, dense, slow], frozenset({2})) == 4


def test_the_only_large_task_is_no_measure_of_itself():
    fast = _task(flops=1e9, bytes=1e5, bests=STUCK)
    alone = _task(flops=1e8, bytes=1e8, bests=STUCK)
    assert next_task([fast, alone]) == 1
