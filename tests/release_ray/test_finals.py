"""The finals: who is invited, who stays, and that the records then name the winner."""

from types import SimpleNamespace

import pytest
from made_records import a_record
from search_fakes import planner, settings

from release_ray import finals
from release_ray.accounting import Stopwatch
from release_ray.core.statuses import Purpose, Status
from release_ray.database import Entry
from release_ray.finals import hold_finals
from release_ray.journal import Journal
from release_ray.records import UNTUNED, Records
from release_ray.testing import synthetic
from release_ray.tuner import TaskState

TASK = synthetic.bowl()


class Pool:
    """Measures as it is told: seconds by decisions; None for a crash. Keeps the jobs."""

    def __init__(self, cold_s):
        self.cold_s = cold_s
        self.jobs = []
        self._waiting = []

    def submit(self, jobs):
        self.jobs += jobs
        self._waiting += jobs

    def wait(self, timeout_s):
        # One that nobody asked for: a trial that was called off too late.
        stray = SimpleNamespace(job_id=0)
        return [stray, self._outcome(self._waiting.pop(0))]

    def _outcome(self, job):
        seconds = self.cold_s[job.decisions]
        if seconds is KeyboardInterrupt:
            raise KeyboardInterrupt
        return SimpleNamespace(
            job_id=job.id,
            status=Status.OK if seconds else Status.CRASH,
            latency_s=seconds,
            bound_s=None,
            message="" if seconds else "killed by SIGSEGV",
            device="fake:0",
            host="here",
            build_s=0.1,
            run_s=0.1,
        )


def decisions_of(number):
    return f"[[{number},1]]"


class Task:
    """One task of a work dir: what is found of it, and the finals that are held."""

    def __init__(self, records):
        self._records = records

    def __call__(self, trials_s, cold_s, untuned_s=None):
        """Finals of a call in which trials took `trials_s`; the pool, the order, all records."""
        journal = self.found(trials_s)
        state = TaskState(planner(TASK, settings(), name="task"), 1, 1e6)
        state.untuned_s = untuned_s
        pool = Pool({decisions_of(n): s for n, s in cold_s.items()} | {"[]": cold_s.get(0)})
        try:
            hold_finals([state], journal, pool, settings().measure, first_job=10)
            journal.end("done")
        except KeyboardInterrupt:
            journal.end("interrupted")
        return pool, self.order, self._records.history(simulated=False).all()

    def found(self, trials_s):
        """A call that finds these."""
        journal = self._journal()
        for number, seconds in trials_s.items():
            self._records.append(trial(journal, self._task, number, seconds))
        return journal

    def wrong(self, number):
        """The output of a candidate proves to be wrong."""
        journal = self._journal()
        (record,) = (r for r in journal.best(self._task, 10) if r.decisions == decisions_of(number))
        journal.mark_wrong(record, "wrong")

    @property
    def order(self):
        best = self._journal().best(self._task, 10)
        return [int(record.decisions[2:].split(",")[0]) for record in best]

    @property
    def untuned_won(self):
        return self._journal().untuned_won(self._task)

    @property
    def _task(self):
        return planner(TASK, settings(), name="task").task

    def _journal(self):
        return Journal(self._records, settings(), simulated=False, fresh=False, watch=Stopwatch())


@pytest.fixture
def hold(tmp_path, monkeypatch):
    """Holds finals of one task, of which candidate 99 has no schedule any more."""
    monkeypatch.setattr(
        finals,
        "replayed",
        lambda task, sketches, r: (
            None if r.decisions == decisions_of(99) else Entry(task, r.decisions, r.latency_s)
        ),
    )
    with Records.open(tmp_path / "records.db") as records:
        yield Task(records)


def trial(journal, task, number, latency_s):
    return a_record(
        journal._run_id,
        task=task.name,
        workload=task.workload.key,
        target=task.workload.target_json,
        decisions=decisions_of(number),
        latency_s=latency_s,
        device="fake:0",
    )


def test_the_near_ones_are_measured_in_turns_and_the_fastest_wins(hold):
    pool, order, records = hold(
        {1: 1.0e-3, 2: 1.1e-3, 3: 1.2e-3, 4: 1.3e-3}, {1: 5e-3, 2: 2.9e-3, 3: 3.0e-3}
    )
    assert order == [2, 3, 1, 4]
    assert {job.purpose for job in pool.jobs} == {Purpose.REMEASURE}
    assert [job.decisions for job in pool.jobs] == [decisions_of(n) for n in (1, 2, 3, 2, 3)]
    assert [job.id for job in pool.jobs] == [10, 11, 12, 13, 14]
    assert pool.jobs[1].best_s == 1.1e-3
    finalists = [r for r in records if r.purpose is Purpose.REMEASURE]
    assert [r.latency_s for r in finalists] == [5e-3, 2.9e-3, 3.0e-3, 2.9e-3, 3.0e-3]
    assert {(r.policy, r.device) for r in finalists} == {("ppo", "fake:0")}


def test_a_lonely_candidate_needs_no_finals(hold):
    pool, order, _ = hold({1: 1e-3, 2: 2e-3}, {})
    assert (pool.jobs, order) == ([], [1, 2])


def test_a_decided_task_is_not_measured_again_until_a_new_one_comes_near(hold):
    cold = {1: 2e-3, 2: 1e-3}
    first, order, _ = hold({1: 1e-3, 2: 1.05e-3}, cold)
    assert (len(first.jobs), order) == (2, [2, 1])
    again, order, _ = hold({}, cold)
    assert (again.jobs, order) == ([], [2, 1])
    once_more, order, _ = hold({3: 0.9e-3}, {**cold, 3: 3e-3})
    assert {job.decisions for job in once_more.jobs} == {decisions_of(n) for n in (1, 2, 3)}
    assert order == [2, 1, 3]


def test_one_that_crashes_in_the_finals_is_out(hold):
    _, order, records = hold({1: 1e-3, 2: 1.1e-3, 3: 1.15e-3}, {1: None, 2: 3e-3, 3: 2e-3})
    assert order == [3, 2]
    assert [r.message for r in records if r.status is Status.CRASH] == ["killed by SIGSEGV"]


SEARCHED = {1: 1.00e-3, 2: 1.01e-3, 3: 1.02e-3, 4: 1.03e-3, 5: 1.04e-3, 6: 1.05e-3}


def test_who_moves_up_for_one_that_drops_out_comes_after_those_in_the_finals(hold):
    cold = {1: None, 2: 5e-3, 3: 4e-3, 4: 3e-3, 5: 2e-3}
    pool, order, _ = hold(SEARCHED, cold)
    assert decisions_of(6) not in {job.decisions for job in pool.jobs}
    assert order == [5, 4, 3, 2, 6]
    # With a next call it has its chance.
    _, order, _ = hold({}, {**cold, 6: 1e-3})
    assert order == [6, 5, 4, 3, 2]


def test_what_was_found_since_undoes_finals_though_one_dropped_out(hold):
    hold({1: 1.0e-3, 2: 1.1e-3, 3: 1.15e-3}, {1: None, 2: 5e-3, 3: 4e-3})
    hold.found({4: 1.12e-3})
    assert hold.order == [2, 4, 3]


def test_one_that_proves_wrong_leaves_the_others_in_the_order_of_the_finals(hold):
    trials = {1: 1.0e-3, 2: 1.1e-3, 3: 1.12e-3, 4: 1.3e-3}
    hold(trials, {1: 1e-3, 2: 5e-3, 3: 4e-3})
    hold.wrong(1)
    assert hold.order == [3, 2, 4]


def test_finals_that_were_interrupted_judge_nobody(hold):
    hold({1: 1.0e-3, 2: 1.1e-3, 3: 1.15e-3}, {1: 5e-3, 2: 4e-3, 3: KeyboardInterrupt})
    assert hold.order == [1, 2, 3]
    # The next call holds them to the end.
    hold({}, {1: 5e-3, 2: 4e-3, 3: 3e-3})
    assert hold.order == [3, 2, 1]


def test_one_that_failed_in_earlier_finals_stays_out(hold):
    cold = {1: None, 2: 5e-3, 3: 4e-3}
    hold({1: 1e-3, 2: 1.1e-3, 3: 1.15e-3}, cold)
    again, order, _ = hold({4: 0.95e-3}, {**cold, 4: 3e-3})
    assert decisions_of(1) not in {job.decisions for job in again.jobs}
    assert order == [4, 3, 2]


def test_untuned_wins_though_a_finalist_drops_out(hold):
    cold = {0: 1e-3, 1: None, 2: 5e-3, 3: 4e-3, 4: 3e-3, 5: 2e-3}
    hold(SEARCHED, cold, untuned_s=1e-3)
    assert hold.untuned_won


def test_one_that_cannot_be_replayed_is_left_out(hold):
    pool, order, records = hold({99: 1e-3, 2: 1.1e-3, 3: 1.15e-3}, {2: 3e-3, 3: 2e-3})
    assert "this TVM does not make its schedule" in {record.message for record in records}
    assert decisions_of(99) not in {job.decisions for job in pool.jobs}
    assert order == [3, 2]


def test_the_operator_untuned_takes_part_where_it_is_about_as_fast(hold):
    pool, order, records = hold(
        {1: 1.0e-3, 2: 1.2e-3}, {0: 2e-3, 1: 3e-3, 2: 4e-3}, untuned_s=1.1e-3
    )
    purposes = {job.decisions: job.purpose for job in pool.jobs}
    assert purposes["[]"] is Purpose.DEFAULT
    assert all(job.settings.flush_cache for job in pool.jobs)
    assert hold.untuned_won
    assert order == [1, 2]
    untuned = [r for r in records if r.candidate == UNTUNED]
    assert {(r.purpose, r.policy, r.latency_s) for r in untuned} == {(Purpose.REMEASURE, "", 2e-3)}


def test_a_lonely_candidate_is_compared_with_the_operator_untuned(hold):
    pool, order, _ = hold({1: 1.0e-3}, {0: 5e-3, 1: 3e-3}, untuned_s=0.9e-3)
    assert {job.decisions for job in pool.jobs} == {"[]", decisions_of(1)}
    assert not hold.untuned_won
    assert order == [1]


def test_an_operator_that_is_far_slower_untuned_has_no_part(hold):
    pool, _, _ = hold({1: 1.0e-3}, {}, untuned_s=1.3e-3)
    assert pool.jobs == []
    assert not hold.untuned_won


def test_that_the_untuned_operator_fails_in_the_finals_costs_nobody_else(hold):
    _, order, _ = hold({1: 1.0e-3, 2: 1.1e-3}, {0: None, 1: 3e-3, 2: 2e-3}, untuned_s=1e-3)
    assert not hold.untuned_won
    assert order == [2, 1]
