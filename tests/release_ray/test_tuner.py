"""The loop over a network, with a pool that answers in whatever order a test wants."""

import random
import time
from collections import Counter

import pytest
from search_fakes import UNTUNED_S, FakePool, Run, known, refuses_none, settings

import policies
from policies import create
from release_ray.core.statuses import Purpose, Status
from release_ray.events import Measured, MeasuredUntuned, RoundFinished, RoundPlanned
from release_ray.planner import Observation
from release_ray.testing import synthetic
from release_ray.tuner import _HOPELESS


def one_by_one(waiting):
    return waiting[:1]


def backwards(waiting):
    return waiting[-1:]


def all_at_once(waiting):
    return waiting


def shuffled(seed):
    rng = random.Random(seed)

    def choose(waiting):
        return rng.sample(waiting, rng.randint(0, len(waiting)))

    return choose


@pytest.fixture(scope="module")
def task():
    return synthetic.two_sketches()


BUDGET = {"trials_per_task": 40}


def test_a_pool_that_grows_gets_more_rounds_at_once(task):
    def most_waiting(devices):
        seen = []

        def choose(waiting):
            run.tuner.feed(devices)
            seen.append(len(waiting))
            time.sleep(0.01)
            # Nothing is answered before as many rounds have begun as may be under way.
            return waiting if seen[-30:] == [len(waiting)] * 30 else []

        run = Run(task, settings(budget=BUDGET, policy="random"), FakePool(task, choose))
        run.run()
        return max(seen)

    assert most_waiting(1) < most_waiting(16)


@pytest.mark.parametrize("sampler", ["adaptive", "greedy"])
@pytest.mark.parametrize("devices", [1, 8])
def test_plans_are_the_same_whatever_the_order_of_results(task, sampler, devices):
    chosen = settings(budget=BUDGET, sampler=sampler)
    orders = [one_by_one, backwards, all_at_once, shuffled(1), shuffled(2)]
    runs = [Run(task, chosen, FakePool(task, order), devices=devices).run() for order in orders]
    for run in runs[1:]:
        assert run.plans == runs[0].plans
        assert sorted(run.trials) == sorted(runs[0].trials)


def test_a_round_planned_ahead_changes_nothing(task):
    chosen = settings(budget=BUDGET)
    ahead = Run(task, chosen, FakePool(task)).run(begins=True)
    assert ahead.plans == Run(task, chosen, FakePool(task)).run().plans


def test_another_policy_opens_while_the_wanted_one_is_made(task):
    chosen = settings(budget=BUDGET)
    opening = ("genetic", policies.create("genetic", chosen.agent))
    run = Run(task, chosen, FakePool(task), prior=known(task), opening=opening).run()
    labels = {}
    for record in run.records:
        by_round = labels.setdefault((record.state.name, record.round), set())
        by_round.add(record.candidate.policy)
    # Two rounds are planned before any results, each of another task.
    opened = [of for of, names in labels.items() if "genetic" in names]
    assert len(opened) == 2 and all(number == 0 for _, number in opened)
    # The wanted policy is the one of that name.
    assert all(names == {"random"} for of, names in labels.items() if of not in opened)


@pytest.mark.parametrize(
    ("budget", "total"),
    [
        ({"trials_per_task": 40}, 120),
        ({"trials_per_task": 1}, 3),
        ({"trials": 50}, 50),
        ({"trials": 1}, 1),
        ({"trials": 2}, 2),
        ({"trials": 1000, "trials_per_task": 20}, 60),
        ({"trials": 30, "trials_per_task": 20}, 30),
    ],
)
def test_budgets_are_spent_exactly(task, budget, total):
    run = Run(task, settings(budget=budget), FakePool(task, shuffled(3))).run()
    assert len(run.trials) == total == len(run.pool.jobs)
    assert sum(state.trials for state in run.states) == total
    per_task = Counter(name for name, _ in run.trials)
    assert all(count <= budget.get("trials_per_task", total) for count in per_task.values())


def test_nothing_is_measured_twice_and_every_job_is_recorded_once(task):
    run = Run(task, settings(budget=BUDGET), FakePool(task, shuffled(4))).run()
    assert len(set(run.trials)) == len(run.trials)
    assert sorted(r.outcome.job_id for r in run.records if r.outcome) == sorted(run.pool.jobs)
    refused = [(r.state.name, r.candidate.decisions) for r in run.records if r.outcome is None]
    assert refused
    assert len(set(refused)) == len(refused)
    assert not set(refused) & set(run.trials)
    assert run.pool.waiting == []


def test_every_task_gets_a_round(task):
    run = Run(task, settings(budget={"trials": 30}), tasks=7).run()
    assert {name for name, _ in run.trials} == {f"task_{i}" for i in range(7)}
    first = [e.task for e in run.events if isinstance(e, RoundPlanned)][:7]
    assert len(set(first)) == 7


def test_states_curves_and_events_agree(task):
    clock = iter(range(100_000))
    run = Run(task, settings(budget=BUDGET), active_s=lambda: float(next(clock))).run()
    for state in run.states:
        own = [r.outcome for r in run.records if r.outcome and r.state is state]
        assert state.trials == len(own) == 40
        assert state.best_s == min(o.latency_s for o in own)
        assert [p[2] for p in state.curve] == sorted({p[2] for p in state.curve}, reverse=True)
        assert state.curve[-1][2] == state.best_s
        trials, seconds, _ = zip(*state.curve, strict=True)
        assert list(trials) == sorted(trials) and trials[0] == 1
        assert list(seconds) == sorted(seconds)
    assert sum(isinstance(e, Measured) for e in run.events) == 120
    planned = [e for e in run.events if isinstance(e, RoundPlanned)]
    assert sum(e.candidates for e in planned) == 120
    finished = sum(isinstance(e, RoundFinished) for e in run.events)
    assert finished == len(planned) == run.rounds


def test_rounds_are_numbered_and_the_first_is_small(task):
    run = Run(task, settings(budget={"trials_per_task": 16}), tasks=1).run()
    planned = [e for e in run.events if isinstance(e, RoundPlanned)]
    assert [e.round for e in planned] == list(range(len(planned)))
    assert planned[0].candidates == 4
    assert {r.round for r in run.records} == {e.round for e in planned}


def test_the_time_budget_ends_it_and_what_is_under_way_is_taken_in(task):
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    clock = Clock()

    def tick(waiting):
        clock.now += 1.0
        return waiting[:1]

    pool = FakePool(task, tick)
    run = Run(task, settings(budget={"time_budget": "20s"}), pool, active_s=clock).run()
    # One that had begun is still measured; the rest is called off.
    assert len(run.trials) == 21
    assert sorted(pool.answered + pool.withdrawn) == sorted(pool.jobs)
    assert sum(state.trials for state in run.states) == 21


def test_no_time_left_measures_nothing(task):
    chosen = settings(budget={"time_budget": "20s"})
    run = Run(task, chosen, active_s=lambda: 20.0).run()
    assert run.trials == []


def resumed(run, task, chosen, **more):
    """Another call in the same work dir: as the journal restores it."""
    following = Run(task, chosen, **more)
    for state, before in zip(following.states, run.states, strict=True):
        mine = [r for r in run.records if r.state is before]
        for recorded in mine:
            if recorded.outcome:
                o = recorded.outcome
                state.count(o.status, o.latency_s, o.message, 0.0)
            state.planner.rounds = max(state.planner.rounds, recorded.round + 1)
        state.planner.absorb(
            Observation(
                r.candidate.sketch,
                r.candidate.decisions,
                r.outcome.status if r.outcome else Status.INVALID,
                r.outcome.latency_s if r.outcome else None,
            )
            for r in mine
        )
    return following


def test_going_on_repeats_nothing_and_spends_the_difference(task):
    first = Run(task, settings(budget={"trials": 40})).run()
    again = resumed(first, task, settings(budget={"trials": 40})).run()
    assert again.records == []
    more = resumed(first, task, settings(budget={"trials": 100})).run()
    assert len(more.trials) == 60
    assert not set(more.trials) & set(first.trials)
    refused = {(r.state.name, r.candidate.decisions) for r in first.records if not r.outcome}
    assert not set(more.trials) & refused
    assert all(m.best_s <= f.best_s for m, f in zip(more.states, first.states, strict=True))


def test_a_run_in_which_everything_fails_ends_early(task):
    pool = FakePool(task, status=lambda job: Status.BUILD_ERROR)
    run = Run(task, settings(budget={"trials_per_task": 1000}), pool).run()
    assert _HOPELESS <= len(run.trials) < 2 * _HOPELESS
    assert sum(state.failures[Status.BUILD_ERROR] for state in run.states) == len(run.trials)
    assert run.states[0].messages == {"build_error of a fake": run.states[0].trials}
    # The cause may have been mended since: the next call tries again.
    mended = resumed(run, task, settings(budget={"trials": 200})).run()
    assert len(mended.trials) == 200 - len(run.trials)
    assert any(state.best_s for state in mended.states)


def test_many_failures_do_not_end_a_run_that_has_a_result(task):
    pool = FakePool(task, status=lambda job: Status.OK if job.id == 0 else Status.CRASH)
    run = Run(task, settings(budget={"trials_per_task": 60}), pool).run()
    assert len(run.trials) == 180


def test_without_any_device_left_the_run_ends(task):
    lost = Status.DEVICE_LOST
    pool = FakePool(task, status=lambda job: lost if job.id >= 40 else Status.OK)
    run = Run(task, settings(budget={"trials_per_task": 1000}), pool).run()
    assert run.tuner.devices_lost == "device_lost of a fake"
    assert 40 < len(run.trials) < 80
    assert any(state.best_s for state in run.states)
    # A device that goes and comes back ends nothing.
    pool = FakePool(task, status=lambda job: lost if job.id % 4 else Status.OK)
    run = Run(task, settings(budget=BUDGET), pool).run()
    assert not run.tuner.devices_lost
    assert len(run.trials) == 120


def test_tasks_that_are_not_asked_for_get_no_round(task):
    made = []
    chosen = settings(budget={"trials_per_task": 20})
    run = Run(task, chosen, tuned=lambda number: number == 1).run()
    assert Counter(name for name, _ in run.trials) == {"task_1": 20}
    again = resumed(
        run, task, chosen, tuned=lambda number: number == 1, make_policy=lambda: made.append(1)
    ).run()
    assert again.records == [] and made == []


def test_an_exhausted_space_ends_the_run():
    tiny = synthetic.tiny()
    run = Run(tiny, settings(budget=BUDGET), FakePool(tiny, shuffled(5)), refuses=refuses_none)
    run.run()
    assert Counter(name for name, _ in run.trials) == {f"task_{i}": 3 for i in range(3)}
    single = synthetic.single()
    run = Run(single, settings(budget={"time_budget": "1h"}), tasks=1, refuses=refuses_none).run()
    assert len(run.trials) == 1


def test_a_space_without_any_schedule_ends_the_run(task):
    run = Run(task, settings(budget=BUDGET), refuses=lambda point: True).run()
    assert run.trials == []
    assert run.records


@pytest.mark.parametrize("after", range(1, 60, 7))
def test_an_interrupt_keeps_what_the_pool_has_finished(task, after):
    """It comes at any moment: here while the outcome number `after` is being recorded."""
    pool = FakePool(task, shuffled(after))
    run = Run(task, settings(budget=BUDGET), pool)
    calls = 0

    def interrupted(recorded):
        nonlocal calls
        if recorded.outcome:
            calls += 1
            if calls == after:
                raise KeyboardInterrupt
        run.record(recorded)

    run._arguments["record"] = interrupted
    with pytest.raises(KeyboardInterrupt):
        run.run()
    run.tuner.rescue()
    # One call more than before the interrupt may answer more jobs.
    assert sorted(r.outcome.job_id for r in run.records if r.outcome) == sorted(pool.answered)
    assert sum(state.trials for state in run.states) == len(run.trials)


def test_rounds_tell_how_well_the_cost_model_foresaw_the_last_ones(task):
    run = Run(task, settings(budget=BUDGET), tasks=1).run()
    told = [e.metrics.get("foresight") for e in run.events if isinstance(e, RoundPlanned)]
    known = [value for value in told if value is not None]
    assert told[:2] == [None, None]
    assert known and all(-1 <= value <= 1 for value in known)


def test_an_error_of_the_search_ends_the_run(task):
    def broken():
        raise RuntimeError("no such agent")

    run = Run(task, settings(budget=BUDGET), make_policy=broken)
    with pytest.raises(RuntimeError, match="no such agent"):
        run.run()


def test_the_policy_is_made_once_and_random_rounds_come_first(task):
    made = []

    def make():
        made.append(create("random", settings().agent))
        return made[-1]

    run = Run(task, settings(budget=BUDGET, policy="ppo"), make_policy=make).run()
    assert made == [run.tuner.policy]
    labels = [r.candidate.policy for r in run.records]
    assert labels[0] == "random" and "ppo" in labels
    chosen = settings(budget={"trials_per_task": 60}, policy="ppo")
    following = resumed(run, task, chosen, make_policy=make).run()
    # With results of an earlier call the policy proposes from the start.
    assert following.records[0].candidate.policy == "ppo"
    # With nothing left to do none is made.
    made.clear()
    resumed(run, task, settings(budget=BUDGET), make_policy=make).run()
    assert made == []


def test_candidates_carry_the_best_that_was_known(task):
    run = Run(task, settings(budget=BUDGET)).run()
    bests = [job.best_s for job in run.pool.jobs.values() if job.workload.name == "task_0"]
    known = [best for best in bests if best is not None]
    assert bests[0] is None and known
    assert known == sorted(known, reverse=True)


def test_the_run_ends_when_no_device_is_left(task):
    pool = FakePool(task, status=lambda job: Status.OK if job.id < 4 else Status.DEVICE_LOST)
    run = Run(task, settings(budget={"trials_per_task": 1000}), pool).run()
    assert run.tuner.devices_lost == "device_lost of a fake"
    assert len(run.trials) < 100
    assert any(state.best_s for state in run.states)


def test_tasks_that_were_not_asked_for_get_no_rounds(task):
    run = Run(task, settings(budget={"trials": 40}))
    run.states[1].tuned = run.states[2].tuned = False
    for state in run.states:
        state.__post_init__()
    run.run()
    assert [state.trials for state in run.states] == [40, 0, 0]


def test_each_operator_is_timed_untuned_once_when_one_of_its_candidates_is(task):
    run = Run(task, settings(budget=BUDGET), untuned=True).run()
    told = [event for event in run.events if isinstance(event, MeasuredUntuned)]
    assert {event.task: event.latency_s for event in told} == {
        state.name: UNTUNED_S for state in run.states
    }
    assert len(told) == len(run.states)
    defaults = [job for job in run.pool.jobs.values() if job.purpose is Purpose.DEFAULT]
    assert all(job.best_s is not None for job in defaults)
    # They are no trials, and change nothing.
    without = Run(task, settings(budget=BUDGET)).run()
    planned, as_without = (
        sorted((r.state.name, r.round, r.candidate.decisions) for r in one.records)
        for one in (run, without)
    )
    assert planned == as_without


def test_an_operator_that_would_take_long_untuned_is_not_timed(task):
    run = Run(task, settings(budget=BUDGET), untuned=True)
    run.states[0].flops = 1e12
    run.run()
    told = {event.task for event in run.events if isinstance(event, MeasuredUntuned)}
    assert told == {state.name for state in run.states[1:]}
