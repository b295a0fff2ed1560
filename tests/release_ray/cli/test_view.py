"""What a person reads of a run where there is no terminal."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from release_ray.cli.view import View, tasks_table
from release_ray.core.statuses import Status
from release_ray.events import (
    DeviceLost,
    Measured,
    MeasuredUntuned,
    RoundFinished,
    RunStarted,
    TaskSummary,
)


def lines(*events, level=1):
    """What a view says of events."""
    stream = io.StringIO()
    with View(Console(file=stream, width=200), level) as view:
        for event in events:
            view(event)
    return stream.getvalue().splitlines()


def started(trials=0, planned=None, flops=1e9):
    task = TaskSummary("conv", 1, flops, trials, 1e-3 if trials else None)
    return RunStarted("net", "{}", ("cpu:0",), (task,), planned, None, 0.0)


def test_a_run_from_the_start_says_what_it_tunes():
    assert lines(started()) == ["tuning net on cpu:0, 1 task ({})"]


@pytest.mark.parametrize(
    "trials, said", [(1, "going on from 1 trial of"), (7, "going on from 7 trials of")]
)
def test_a_run_that_goes_on_says_so(trials, said):
    assert said in lines(started(trials, 32))[1]


def test_a_spent_budget_is_told():
    told = lines(started(32, 32))
    assert told[1] == "going on from 32 trials of earlier calls"
    assert "all trials of the budget were spent before" in told[2]


def test_a_round_tells_all_trials_and_the_task_s():
    measured = Measured("conv", Status.OK, 2e-3, "", "cpu:0", 1, 2e-3)
    told = lines(started(), measured, RoundFinished("conv", 0, 65.0))
    assert told[1].startswith("1:05  1 trial in all (")
    assert "conv: 1 trial, best 2.0000 ms, 500.0 GFLOPS" in told[1]


def test_an_operator_that_computes_nothing_has_no_gflops():
    measured = Measured("conv", Status.OK, 2e-3, "", "cpu:0", 1, 2e-3)
    told = lines(started(flops=0.0), measured, RoundFinished("conv", 0, 65.0))
    assert told[1].endswith("conv: 1 trial, best 2.0000 ms")


def test_a_quiet_view_says_nothing():
    assert lines(started(7, 7), level=0) == []


def test_a_lost_device_is_named():
    told = lines(started(), DeviceLost("cpu:1", "its node died", 3))
    assert told[1] == "cpu:1 is given up, 3 left: its node died"


def test_a_task_is_told_against_untuned_where_that_is_known():
    measured = Measured("conv", Status.OK, 2e-3, "", "cpu:0", 1, 2e-3)
    finished = RoundFinished("conv", 0, 65.0)
    told = lines(started(), measured, MeasuredUntuned("conv", 0.1), finished)
    assert told[1].endswith("500.0 GFLOPS, 50.0 times untuned")


def test_the_table_has_a_column_for_it_only_then():
    known = TaskSummary("conv", 1, 1e9, 8, 2e-3, 0.1)
    for tasks, headers in (([known], 6), ([replace(known, untuned_s=None)], 5)):
        table = tasks_table(tasks, "net")
        assert len(table.columns) == 1 + headers
        assert table.row_count == 1
