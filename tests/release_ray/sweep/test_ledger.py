"""What a sweep remembers, also when it was killed in the middle."""

import json

import pytest

from release_ray.core.errors import InputError
from release_ray.sweep.ledger import Ledger, Report

RUNS = ["a-00", "a-01", "a-02", "a-03"]
REPORT = Report(1, 1.5, 20.0, 16, 3.25)


def ledger(folder, **identity):
    return Ledger(folder / "sweep.json", identity, RUNS)


def test_another_call_goes_on_from_there(tmp_path):
    first = ledger(tmp_path)
    assert first.unfinished == RUNS
    first.begin("a-02")
    first.report("a-02", REPORT)
    first.begin("a-00")
    first.report("a-00", REPORT)
    first.end("a-00", "done")
    first.report("a-01", REPORT, stopped=True)
    first.settle(4)
    first.settle(8)
    second = ledger(tmp_path)
    # What has begun is first.
    assert second.unfinished == ["a-02", "a-03"]
    assert second.entries == first.entries
    assert second.entries["a-01"].status == "stopped" and second.devices == 4
    assert second.entries["a-02"].last == REPORT


def test_a_second_report_of_a_round_takes_the_first_ones_place(tmp_path):
    mine = ledger(tmp_path)
    better = Report(1, 1.75, 15.0, 20, 4.5)
    for report in (REPORT, better, Report(2, 2.0, 12.0, 24, 5.0)):
        mine.report("a-00", report)
    assert [report.speedup for report in mine.entries["a-00"].reports] == [1.75, 2.0]


def test_a_failed_run_is_over_and_the_next_call_tries_it_again(tmp_path):
    first = ledger(tmp_path)
    first.end("a-00", "failed", "no device is left")
    assert "a-00" not in first.unfinished
    assert ledger(tmp_path).unfinished[0] == "a-00"


def test_another_sweep_is_refused_with_what_differs(tmp_path):
    ledger(tmp_path, seed=1, networks=["a"]).begin("a-00")
    with pytest.raises(InputError, match=r"other settings \(seed differ\)"):
        ledger(tmp_path, seed=2, networks=["a"])


def stored(**changed):
    report = {"round": 1, "speedup": 2.0, "latency_ms": 1.0, "trials": 8, "wall_s": 1.0}
    entry = {"status": "done", "reports": [{**report, **changed}], "message": ""}
    return json.dumps({"sweep": {}, "runs": {"a-00": entry}})


def test_what_is_right_is_read(tmp_path):
    (tmp_path / "sweep.json").write_text(stored())
    assert ledger(tmp_path).entries["a-00"].last.speedup == 2.0


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        '{"sweep": {}, "runs": {"a": 3}}',
        "[1]",
        "[" * 100_000,
        stored(speedup=None),
        stored(speedup=0),
        stored(speedup=-1),
        stored(speedup=float("nan")),
        stored(trials="many"),
        stored().replace('"done"', '"over"'),
        '{"sweep": {}, "runs": {"a-00": {"status": "done", "reports": [], "message": ""}}}',
    ],
)
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(InputError, match=r"sweep\.json is damaged"):
        ledger(tmp_path)
