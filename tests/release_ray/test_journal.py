"""From a run to its records, and back at the next call."""

from dataclasses import replace

import numpy as np
import pytest
from search_fakes import FakePool, planner, settings

from policies.random import RandomPolicy
from release_ray.accounting import Stopwatch
from release_ray.core.statuses import Purpose, Status
from release_ray.journal import CANARY_EVERY, Journal
from release_ray.measure.jobs import Job
from release_ray.planner import Candidate, Refused
from release_ray.records import Records
from release_ray.testing import synthetic
from release_ray.tuner import Recorded, TaskState

TASK = synthetic.bowl()


@pytest.fixture
def records(tmp_path):
    with Records.open(tmp_path / "records.db") as opened:
        yield opened


def journal(records, *, fresh=False, simulated=False, watch=None, **more):
    return Journal(
        records,
        settings(**more),
        simulated=simulated,
        fresh=fresh,
        watch=watch or Stopwatch(),
    )


def states(count=2):
    return [
        TaskState(planner(TASK, settings(), name=f"task_{i}"), i + 1, 1e6) for i in range(count)
    ]


def measured(state, seed, status=Status.OK, latency_s=None, round_=0):
    """What a tuner hands over for the random configuration number `seed`."""
    point = TASK.space.random(np.random.default_rng(seed), 1)[0]
    decisions = state.planner.sketches.decisions(point)
    candidate = Candidate(point, decisions, str(point.tolist()), "random")
    if status is Status.INVALID:
        return Recorded(state, Refused(point, decisions, "refused by it", "random"), round_, None)
    job = Job(seed, state.planner.task.workload, candidate.trace_json, decisions, None)
    outcome = FakePool(TASK, status=lambda _: status).outcome(job)
    if latency_s is not None:
        outcome = type(outcome)(**{**outcome.__dict__, "latency_s": latency_s})
    return Recorded(state, candidate, round_, outcome)


def test_an_outcome_is_on_disk_when_write_returns(records, tmp_path):
    (state, _) = states()
    written = journal(records, seed=7, sampler="greedy")
    recorded = measured(state, 1, round_=3)
    written.write(recorded)
    with Records.open(tmp_path / "records.db", create=False) as other:
        (row,) = other.history(simulated=False).all()
    assert (row.task, row.workload, row.target) == ("task_0", f"{'task_0':>016}", '{"kind":"fake"}')
    assert (row.status, row.purpose, row.round) == (Status.OK, Purpose.TRIAL, 3)
    assert row.latency_s == recorded.outcome.latency_s
    assert (row.policy, row.sampler, row.seed) == ("random", "greedy", 7)
    assert (row.device, row.host) == ("fake:0", "here")
    assert row.decisions == recorded.candidate.decisions
    assert '"repeats":3' in row.measure_settings


def test_now_and_then_a_devices_canary_is_recorded(records):
    (state, _) = states()
    written = journal(records)
    for seed in range(CANARY_EVERY + 1):
        recorded = measured(state, seed)
        outcome = replace(recorded.outcome, canary_s=1e-3 + seed)
        written.write(replace(recorded, outcome=outcome))
    written.write(measured(state, CANARY_EVERY + 1))
    history = records.history(simulated=False)
    canaries = [row for row in history.all() if row.purpose is Purpose.CANARY]
    assert [row.latency_s for row in canaries] == [1e-3, 1e-3 + CANARY_EVERY]
    assert {(row.task, row.workload, row.device) for row in canaries} == {("", "", "fake:0")}
    # It is no trial, and belongs to no task.
    assert sum(history.trials().values()) == CANARY_EVERY + 2
    assert {workload for workload, _ in history.trials()} == {f"{'task_0':>016}"}


def test_a_refusal_is_recorded_and_is_no_trial(records):
    (state, _) = states()
    journal(records).write(measured(state, 1, Status.INVALID))
    (row,) = records.history(simulated=False).all()
    assert (row.status, row.message, row.latency_s) == (Status.INVALID, "refused by it", None)
    assert row.host
    (again, _) = others = states()
    journal(records).restore(others)
    assert again.trials == 0
    # But it is not asked for again.
    again.planner.plan(1, None)
    assert len(again.planner._visited) >= 2


def test_the_next_call_goes_on_where_the_last_one_ended(records):
    first = states()
    writer = journal(records, watch=Stopwatch(earlier_s=0))
    history = [
        measured(first[0], 1, latency_s=3e-3),
        measured(first[0], 2, latency_s=2e-3),
        measured(first[0], 3, Status.BUILD_ERROR),
        measured(first[0], 4, latency_s=5e-3, round_=1),
        measured(first[0], 5, latency_s=1e-3, round_=1),
        measured(first[0], 6, Status.SLOW, round_=2),
        measured(first[1], 7, Status.DEVICE_LOST, round_=2),
    ]
    for recorded in history:
        writer.write(recorded)
    writer.end("done")
    second = states()
    watch = Stopwatch()
    journal(records, watch=watch).restore(second)
    assert watch.earlier_s > 0
    restored = second[0]
    assert (restored.trials, restored.best_s, restored.planner.best_s) == (6, 1e-3, 1e-3)
    assert [(trials, best) for trials, _, best in restored.curve] == [
        (1, 3e-3),
        (2, 2e-3),
        (5, 1e-3),
    ]
    assert restored.failures == {Status.BUILD_ERROR: 1}
    assert restored.messages == {"build_error of a fake": 1}
    assert (restored.planner.rounds, second[1].planner.rounds) == (3, 3)
    assert (second[1].trials, second[1].best_s) == (1, None)
    visited = {r.candidate.point.tobytes() for r in history[:6]}
    restored.planner._settle()
    assert restored.planner._visited == visited


def test_seconds_of_a_curve_count_from_the_call_s_start(records):
    """A record's time includes what the call did before its first record, as `wall_s` does."""
    (state, _) = states()
    watch = Stopwatch()
    watch._started -= 40
    writer = journal(records, watch=watch)
    writer.write(measured(state, 1, latency_s=1e-3))
    writer.end("done")
    (again, _) = others = states()
    later = Stopwatch()
    journal(records, watch=later).restore(others)
    (_, seconds, _) = again.curve[0]
    assert 40 <= seconds < 70
    assert 40 <= later.earlier_s < 70


def test_a_fresh_run_and_simulated_runs_see_nothing(records):
    (state, _) = states()
    journal(records).write(measured(state, 1))
    for more in ({"fresh": True}, {"simulated": True}):
        others = states()
        watch = Stopwatch()
        made = journal(records, watch=watch, **more)
        made.restore(others)
        assert others[0].trials == 0 and others[0].best_s is None
        assert watch.earlier_s == 0
        assert made.failures() == {}
        assert made.best(others[0].planner.task, 1) == []


def test_wrong_results_make_the_next_best_win(records):
    (state, _) = states()
    writer = journal(records)
    for seed, latency_s in ((1, 1e-3), (2, 3e-3), (3, 2e-3)):
        recorded = measured(state, seed, latency_s=latency_s)
        writer.write(recorded)
        state.count(Status.OK, latency_s, "", 1.0)
    task = state.planner.task
    best = writer.best(task, 5)
    assert [r.latency_s for r in best] == [1e-3, 2e-3, 3e-3]
    writer.mark_wrong(best[0], "it differs")
    writer.recount(state)
    assert (state.trials, state.best_s) == (3, 2e-3)
    assert [(trials, s) for trials, _, s in state.curve] == [(2, 3e-3), (3, 2e-3)]
    assert state.failures == {Status.WRONG_RESULT: 1}
    assert writer.failures() == {Status.WRONG_RESULT: 1}
    for record in writer.best(task, 5):
        writer.mark_wrong(record, "it differs")
    writer.recount(state)
    assert (state.best_s, state.curve) == (None, [])


def test_a_run_says_how_it_ended(records):
    written = journal(records)
    (run,) = records.history(simulated=False).runs()
    assert (run.status, run.active_s) == ("running", 0.0)
    written.end("interrupted")
    (run,) = records.history(simulated=False).runs()
    assert run.status == "interrupted" and run.active_s > 0


def test_imported_records_are_what_the_model_learns_from_and_the_agent_starts_at(records):
    (first, _) = states()
    earlier = journal(records)
    for seed in range(12):
        earlier.write(measured(first, seed))
    rows = [
        replace(row, id=None, purpose=Purpose.REUSED, policy="import")
        for row in records.history(simulated=False).all()
        if row.purpose is Purpose.TRIAL
    ]
    imported = records.begin_run("records import", "{}", fresh=True)
    records.extend(replace(row, run_id=imported) for row in rows)

    (state, other) = states()
    journal(records).restore([state, other])
    assert (state.trials, other.trials) == (12, 0)
    assert state.best_s == min(row.latency_s for row in rows)
    seen = []

    class Watching(RandomPolicy):
        def propose(self, search, count):
            seen.append(search)
            return super().propose(search, count)

    state.planner.plan(8, Watching(settings().agent))
    (search,) = seen
    assert len(search.measured) == 12
    assert search.fitness.max() == 1.0
    # The model has learnt: it tells the best from the worst of what was imported.
    predicted = search.score(search.measured)
    assert predicted[search.fitness.argmax()] > predicted[search.fitness.argmin()]
