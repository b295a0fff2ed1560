"""A run that searches anew comes to where it was, and measures nothing a second time."""

from dataclasses import replace

import pytest
from search_fakes import FakePool, Run, settings

from release_ray.accounting import Stopwatch
from release_ray.core.statuses import Purpose, Status
from release_ray.journal import Journal
from release_ray.records import Records
from release_ray.testing import synthetic

TASK = synthetic.two_sketches()
CHOSEN = settings(budget={"trials_per_task": 24}, sampler="greedy")


class Killed(Exception):
    """As if the process had ended there."""


def search(store, *, shared=None, kill_after=None, pool=None, chosen=CHOSEN):
    """A run on the records of a store: its fake with the pool, and its journal."""
    run = Run(TASK, chosen, pool)
    journal = Journal(store, chosen, simulated=True, fresh=False, watch=Stopwatch(), shared=shared)

    def record(recorded):
        journal.write(recorded)
        run.record(recorded)
        if kill_after is not None and len(run.trials) >= kill_after:
            raise Killed

    run._arguments |= {"record": record, "recall": journal.recall()}
    if kill_after is None:
        return run.run()
    with pytest.raises(Killed):
        run.run()
    return run


def rows(store):
    """What was recorded, without what tells one call from another."""
    return sorted(
        (r.task, r.round, r.sketch, r.decisions, r.status, r.purpose, r.latency_s or 0.0)
        for r in store.history(simulated=True).all()
    )


@pytest.fixture
def opened(tmp_path):
    stores = {}

    def store(name):
        stores[name] = Records.open(tmp_path / f"{name}.db")
        return stores[name]

    yield store
    for each in stores.values():
        each.close()


@pytest.mark.parametrize("kill_after", [1, 20, 50, 71])
def test_a_killed_run_ends_as_an_unbroken_one(opened, kill_after):
    unbroken, broken = opened("unbroken"), opened("broken")
    whole = search(unbroken)
    search(broken, kill_after=kill_after)
    before = len(broken.history(simulated=True).all())
    again = search(broken)
    assert rows(broken) == rows(unbroken)
    assert [s.best_s for s in again.states] == [s.best_s for s in whole.states]
    assert [s.trials for s in again.states] == [s.trials for s in whole.states]
    # Only what was missing went to the hardware.
    assert len(again.pool.jobs) == len(whole.pool.jobs) - kill_after
    assert len(broken.history(simulated=True).all()) > before


def test_a_finished_run_measures_nothing_more(opened):
    store = opened("store")
    whole = search(store)
    again = search(store)
    assert not again.pool.jobs
    assert [s.curve[-1][0] for s in again.states] == [s.curve[-1][0] for s in whole.states]


def test_what_a_device_lost_is_measured_again(opened):
    store = opened("store")
    lost = FakePool(TASK, status=lambda job: Status.DEVICE_LOST if job.id < 3 else Status.OK)
    search(store, pool=lost, kill_after=30)
    again = search(store)
    decisions = {job.decisions for job in again.pool.jobs.values()}
    assert {lost.jobs[i].decisions for i in range(3)} <= decisions


def test_where_nothing_worked_everything_is_tried_again(opened):
    store = opened("store")
    broken = FakePool(TASK, status=lambda job: Status.BUILD_ERROR)
    search(store, pool=broken)
    again = search(store)
    assert len(again.pool.jobs) == 72


def test_others_failures_are_not_taken_over(opened):
    shared = opened("shared")
    broken = FakePool(TASK, status=lambda job: Status.CRASH if job.id % 2 else Status.OK)
    first = search(opened("first"), shared=shared, pool=broken)
    second = search(opened("second"), shared=shared, kill_after=20)
    crashed = {job.decisions for job in first.pool.jobs.values() if job.id % 2}
    assert {job.decisions for job in second.pool.jobs.values()} & crashed


def test_runs_take_over_what_others_have_measured(opened):
    shared = opened("shared")
    first = search(opened("first"), shared=shared)
    second_store = opened("second")
    second = search(second_store, shared=shared)
    assert first.pool.jobs and not second.pool.jobs
    purposes = {r.purpose for r in second_store.history(simulated=True).all() if r.status.measured}
    assert purposes == {Purpose.REUSED}
    assert [s.trials for s in second.states] == [s.trials for s in first.states]
    assert [s.best_s for s in second.states] == [s.best_s for s in first.states]


def test_what_was_measured_otherwise_is_not_taken_over(opened):
    shared = opened("shared")
    search(opened("first"), shared=shared)
    longer = CHOSEN.measure.model_copy(update={"repeats": 9})
    otherwise = search(
        opened("second"), shared=shared, chosen=CHOSEN.model_copy(update={"measure": longer})
    )
    assert len(otherwise.pool.jobs) == 72


def test_a_run_that_was_killed_recalls_what_it_had_taken_over(opened):
    shared, store = opened("shared"), opened("second")
    search(opened("first"), shared=shared)
    search(store, shared=shared, kill_after=20)
    search(store, shared=shared)
    found = [replace(r, id=None) for r in store.history(simulated=True).all()]
    keys = [(r.workload, r.sketch, r.decisions) for r in found if r.status is not Status.INVALID]
    assert len(keys) == len(set(keys)) == 72
