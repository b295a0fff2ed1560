import csv
import io
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy.exc

from release_ray.core.errors import InputError
from release_ray.core.statuses import Purpose, Status
from release_ray.records import COLUMNS, UNTUNED, Record, Records, now, write_csv

INTERFACE = """task workload target sketch decisions purpose status latency_s bound_s message device
host measure_settings build_s run_s round policy sampler seed run_id created_at tvm_version"""


def record(run_id: str, number: int = 0, **changed: object) -> Record:
    status = changed.get("status", Status.OK)
    values = {
        "task": "conv2d",
        "workload": "abc",
        "target": '{"kind":"llvm"}',
        "sketch": 0,
        "decisions": f"[[{number},1]]",
        "purpose": Purpose.TRIAL,
        "status": status,
        "latency_s": 1e-3 * (1 + number) if status is Status.OK else None,
        "bound_s": None,
        "message": "",
        "device": "cpu:0",
        "host": "here",
        "measure_settings": "{}",
        "build_s": 0.2,
        "run_s": 0.1,
        "round": 1,
        "policy": "ppo",
        "sampler": "adaptive",
        "seed": 0,
        "run_id": run_id,
        "created_at": now(),
        "tvm_version": "0.27.0",
    }
    return Record(**{**values, **changed})  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.db"


def best_of(records: Records, **kind: bool) -> list[str]:
    history = records.history(simulated=kind.get("simulated", False))
    return [r.decisions for r in history.best("abc", '{"kind":"llvm"}', 10)]


def test_the_columns_are_the_interface() -> None:
    assert tuple(INTERFACE.split()) == COLUMNS


def test_what_is_written_is_read_again(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        slow = record(run, 2, status=Status.SLOW, bound_s=0.5, message="far from the best")
        written = [record(run), slow, record(run, 3, status=Status.CRASH, message="signal 11 ☠")]
        ids = [records.append(r) for r in written]
    with Records.open(path) as records:
        read = records.history(simulated=False).all()
    assert read == [replace(r, id=i) for r, i in zip(written, ids, strict=True)]


def test_other_programs_can_read_the_table(path: Path) -> None:
    with Records.open(path) as records:
        records.append(record(records.begin_run("tune", "{}")))
        outside = sqlite3.connect(path)
        assert outside.execute("SELECT status, latency_s FROM records").fetchall() == [("ok", 1e-3)]
        names = [row[1] for row in outside.execute("PRAGMA table_info(records)")]
        assert names == ["id", *COLUMNS]
        outside.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"latency_s": None},
        {"latency_s": 0.0},
        {"latency_s": float("nan")},
        {"latency_s": float("inf")},
        {"status": Status.RUN_ERROR, "latency_s": 1e10},
        {"bound_s": 1.0},
        {"status": Status.CRASH, "bound_s": 1.0},
    ],
)
def test_a_failure_is_never_a_number(changed: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="latency|bound"):
        record("run", **changed)


@pytest.mark.parametrize(
    "change",
    ["latency_s = NULL", "latency_s = 0", "latency_s = 9e999", "status = 'crash'", "purpose = 'x'"],
)
def test_the_file_itself_refuses_contradictions(path: Path, change: str) -> None:
    with Records.open(path) as records:
        records.append(record(records.begin_run("tune", "{}")))
    outside = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError):
        outside.execute(f"UPDATE records SET {change}")
    outside.close()


def test_a_record_of_no_run_is_refused(path: Path) -> None:
    with Records.open(path) as records, pytest.raises(sqlalchemy.exc.IntegrityError):
        records.append(record("unknown"))


def test_the_best_are_the_fastest_that_still_stand(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        for number in range(5):
            records.append(record(run, number))
        records.append(record(run, 0, purpose=Purpose.RETRY, latency_s=0.0035))
        records.append(record(run, 1, purpose=Purpose.RETRY, status=Status.CRASH))
        records.append(record(run, 2, purpose=Purpose.RETRY, status=Status.DEVICE_LOST))
        records.append(record(run, 9, purpose=Purpose.CANARY, latency_s=1e-6))
        records.append(record(run, 8, target="other", latency_s=1e-6))
        assert best_of(records) == ["[[2,1]]", "[[0,1]]", "[[3,1]]", "[[4,1]]"]


def final(run: str, number: int, latency_s: float | None) -> Record:
    status = Status.OK if latency_s else Status.CRASH
    return record(run, number, purpose=Purpose.REMEASURE, status=status, latency_s=latency_s)


def close(run: str, number: int) -> Record:
    """One of candidates of which any may be the best."""
    return record(run, number, latency_s=1e-3 + 1e-5 * number)


def test_finals_decide_among_the_finalists(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        for number in range(7):
            records.append(close(run, number))
        history = records.history(simulated=False)
        task = ("abc", '{"kind":"llvm"}')
        assert [r.decisions for r in history.finalists(*task)] == [f"[[{n},1]]" for n in range(5)]
        # The fastest pass of each counts, and a candidate that failed once is out.
        passes = [(0, 0.02), (1, 0.03), (2, None), (3, 0.05), (3, 0.01), (4, 0.04), (2, 0.001)]
        for number, latency_s in passes[:5]:
            records.append(final(run, number, latency_s))
        # Until all of them were measured there is nothing to go by.
        assert best_of(records) == [f"[[{n},1]]" for n in (0, 1, 3, 4, 5, 6)]
        for number, latency_s in [*passes[5:], (5, 0.05)]:
            records.append(final(run, number, latency_s))
        lost = record(run, 4, purpose=Purpose.REMEASURE, status=Status.DEVICE_LOST, latency_s=None)
        records.append(lost)
        assert best_of(records) == [f"[[{n},1]]" for n in (3, 0, 1, 4, 5, 6)]
        (best,) = history.best(*task)
        # What is called its latency is still comparable with that of any other trial.
        assert (best.decisions, best.latency_s) == ("[[3,1]]", 1e-3 + 3e-5)
        assert history.trials() == {task: 7}


def test_the_last_finals_count_as_long_as_nobody_new_is_among_the_finalists(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        for number in range(3):
            records.append(close(run, number))
        for number, latency_s in [(0, 0.03), (1, 0.02), (2, 0.01)]:
            records.append(final(run, number, latency_s))
        assert best_of(records) == ["[[2,1]]", "[[1,1]]", "[[0,1]]"]
        later = records.begin_run("tune", "{}")
        records.append(record(later, 9, latency_s=0.00099))
        assert best_of(records)[0] == "[[9,1]]"
        for number, latency_s in [(9, 0.04), (0, 0.05), (1, 0.03), (2, 0.06)]:
            records.append(final(later, number, latency_s))
        assert best_of(records) == ["[[1,1]]", "[[9,1]]", "[[0,1]]", "[[2,1]]"]
        # One that is far faster needs no finals.
        records.append(record(later, 8, latency_s=0.0005))
        assert best_of(records)[0] == "[[8,1]]"


def test_trials_are_what_was_sent_to_be_measured(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        records.append(record(run, 0))
        records.append(record(run, 1, purpose=Purpose.REUSED))
        records.append(record(run, 2, status=Status.BUILD_ERROR))
        records.append(record(run, 3, status=Status.INVALID))
        records.append(record(run, 0, purpose=Purpose.REMEASURE))
        records.append(record(run, 4, status=Status.DEVICE_LOST))
        records.append(record(run, 4, purpose=Purpose.RETRY))
        history = records.history(simulated=False)
        assert history.trials() == {("abc", '{"kind":"llvm"}'): 4}
        assert history.failures() == {
            Status.BUILD_ERROR: 1,
            Status.INVALID: 1,
            Status.DEVICE_LOST: 1,
        }


def test_a_wrong_result_falls_with_all_its_measurements(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        first = records.append(record(run, 0))
        again = records.append(record(run, 0, purpose=Purpose.REMEASURE))
        records.append(record(run, 1))
        sim = records.begin_run("tune", "{}", simulated=True)
        records.append(record(sim, 0))
        assert records.mark_wrong(again, "differs by 0.3") == 2
        assert best_of(records) == ["[[1,1]]"]
        assert best_of(records, simulated=True) == ["[[0,1]]"]
        fallen = [r for r in records.everything().all() if r.status is Status.WRONG_RESULT]
        assert [(r.id, r.latency_s, r.message) for r in fallen] == [
            (first, None, "differs by 0.3"),
            (again, None, "differs by 0.3"),
        ]


def test_simulated_and_real_records_never_mix(path: Path) -> None:
    with Records.open(path) as records:
        real = records.begin_run("tune", "{}")
        sim = records.begin_run("tune", "{}", simulated=True)
        records.append(record(real, 0), active_s=2.0)
        records.append(record(sim, 1, latency_s=1e-9, device="sim:0"), active_s=5.0)
        assert best_of(records) == ["[[0,1]]"]
        assert best_of(records, simulated=True) == ["[[1,1]]"]
        assert records.history(simulated=False).active_s() == 2.0
        assert records.history(simulated=True).active_s() == 5.0


def test_a_fresh_run_hides_what_was_before_of_its_own_kind(path: Path) -> None:
    with Records.open(path) as records:
        old = records.begin_run("tune", "{}")
        sim = records.begin_run("tune", "{}", simulated=True)
        records.append(record(old, 0), active_s=100.0)
        records.append(record(sim, 1), active_s=7.0)
        fresh = records.begin_run("tune --fresh", "{}", fresh=True)
        history = records.history(simulated=False)
        assert history.all() == []
        assert history.active_s() == 0.0
        records.append(record(fresh, 2))
        later = records.begin_run("tune", "{}")
        records.append(record(later, 3))
        assert [r.run_id for r in history.all()] == [fresh, later]
        assert [r.run_id for r in records.history(simulated=True).all()] == [sim]
        assert len(records.everything().all()) == 4


def test_active_time_adds_up_over_calls(path: Path) -> None:
    with Records.open(path) as records:
        first = records.begin_run("tune", "{}")
        records.append(record(first, 0), active_s=3.0)
        records.append(record(first, 1), active_s=5.5)
    with Records.open(path) as records:
        second = records.begin_run("tune", "{}")
        records.update_run(second, 2.0, "done")
        newest = record(second, 2)
        records.append(newest)
        history = records.history(simulated=False)
        assert history.active_s() == 7.5
        assert [run.status for run in history.runs()] == ["running", "done"]
        seconds = history.seconds()
        assert 5.5 <= seconds(newest) < 7.5


def test_prune(path: Path) -> None:
    with Records.open(path) as records:
        old = records.begin_run("tune", "{}")
        records.append(record(old, 0))
        run = records.begin_run("tune", "{}", fresh=True)
        for number in range(1, 6):
            records.append(close(run, number))
        for number in (1, 2, 3, 4, 5):
            records.append(final(run, number, 0.01 if number in (2, 3) else 0.02))
        records.append(record(run, 6, status=Status.CRASH))
        assert records.prune() == 0
        assert records.prune(failures=True) == 1
        # A candidate stays with all that was measured of it.
        assert records.prune(keep_best=2) == 6
        assert [(r.decisions, r.purpose) for r in records.everything().all()] == [
            ("[[0,1]]", "trial"),
            ("[[2,1]]", "trial"),
            ("[[3,1]]", "trial"),
            ("[[2,1]]", "remeasure"),
            ("[[3,1]]", "remeasure"),
        ]
        assert records.prune(superseded=True) == 1
        assert best_of(records) == ["[[2,1]]", "[[3,1]]"]


def test_a_failure_of_what_was_measured_too_is_not_pruned(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        for number in (1, 2):
            records.append(close(run, number))
        records.append(replace(final(run, 1, 0.01), status=Status.CRASH, latency_s=None))
        records.append(final(run, 2, 0.02))
        lost = replace(close(run, 2), status=Status.DEVICE_LOST, latency_s=None)
        records.append(lost)
        records.append(record(run, 3, status=Status.CRASH))
        before = best_of(records)
        assert before == ["[[2,1]]"]
        assert records.prune(failures=True) == 2
        assert best_of(records) == before


def test_records_in_a_folder_that_cannot_be_written_are_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Records.open(path) as writing:
        run = writing.begin_run("tune", "{}")
        writing.append(record(run, 1))
        # What is written lies in the log still.
        assert path.with_name(f"{path.name}-wal").stat().st_size
        monkeypatch.setattr(os, "access", lambda folder, mode: False)
        with Records.open(path, create=False) as records:
            assert [r.decisions for r in records.everything().all()] == ["[[1,1]]"]
            with pytest.raises(InputError, match="make it and its folder writable"):
                records.append(record(run, 2))


def test_what_is_no_candidate_survives_a_pruning_to_the_best(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        canary = record(run, purpose=Purpose.CANARY, workload="", target="", decisions="[]")
        untuned = replace(final(run, 0, 0.001), sketch=UNTUNED[0], decisions=UNTUNED[1])
        kept = [close(run, 1), final(run, 1, 0.002), canary, untuned]
        for one in [*kept, close(run, 2)]:
            records.append(one)
        assert records.prune(keep_best=1) == 1
        left = records.everything().all()
        assert [replace(r, id=None) for r in left] == kept
        assert records.history(simulated=False).untuned_won("abc", '{"kind":"llvm"}')


def test_untuned_wins_against_the_finalists_of_now_alone(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        history = records.history(simulated=False)

        def won() -> bool:
            return history.untuned_won("abc", '{"kind":"llvm"}')

        records.append(close(run, 1))
        records.append(replace(final(run, 1, 0.001), sketch=UNTUNED[0], decisions=UNTUNED[1]))
        assert not won()  # interrupted
        records.append(final(run, 1, 0.002))
        assert won()
        records.append(record(run, 9, latency_s=1e-4))
        assert not won()


def test_many_are_written_together_or_not_at_all(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("import", "{}")
        assert records.extend(record(run, number) for number in range(10)) == 10
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            records.extend([record(run, 11), record("unknown", 12)])
        assert len(records.everything().all()) == 10


def test_csv(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        records.append(record(run, 0))
        records.append(record(run, 1, status=Status.RUN_ERROR, message='a "quoted",\nline'))
        stream = io.StringIO()
        write_csv(records.everything().all(), stream)
    rows = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert tuple(rows[0]) == ("id", *COLUMNS)
    assert (rows[0]["status"], rows[0]["latency_s"]) == ("ok", "0.001")
    assert (rows[1]["latency_s"], rows[1]["message"]) == ("", 'a "quoted",\nline')


def test_several_threads_may_write(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")

        def write(first: int) -> None:
            for number in range(first, first + 25):
                records.append(record(run, number))

        threads = [threading.Thread(target=write, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(records.everything().all()) == 100


# -- what can be wrong with the file ------------------------------------------------------------


def test_a_missing_file_is_made_only_for_a_writer(path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Records.open(path, create=False)
    assert not path.exists()
    path.touch()
    with pytest.raises(InputError, match="no records database"):
        Records.open(path, create=False)
    Records.open(path).close()
    Records.open(path, create=False).close()


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    Records.open(path).close()
    outside = sqlite3.connect(path)
    outside.execute("PRAGMA user_version = 99")
    outside.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="schema 99.*update release_ray"):
        Records.open(path)
    assert path.read_bytes() == before


def test_another_programs_database_is_refused(path: Path) -> None:
    outside = sqlite3.connect(path)
    outside.execute("CREATE TABLE mine (x)")
    outside.commit()
    outside.close()
    with pytest.raises(InputError, match="no records database"):
        Records.open(path)


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"task,workload\n" * 200)
    with pytest.raises(InputError, match="records.db.*move the file away"):
        Records.open(path)


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
def test_a_torn_file(path: Path, keep: float) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        records.extend(record(run, number, message="x" * 500) for number in range(300))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(InputError, match="move the file away"):
        Records.open(path)


def test_a_file_with_a_page_of_garbage(path: Path) -> None:
    with Records.open(path) as records:
        run = records.begin_run("tune", "{}")
        records.extend(record(run, number, message="x" * 500) for number in range(300))
    whole = bytearray(path.read_bytes())
    whole[20 * 4096 : 21 * 4096] = os.urandom(4096)
    path.write_bytes(whole)
    with pytest.raises(InputError, match="move the file away"):
        Records.open(path)


def test_a_path_that_cannot_be_a_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "records.db"):
        with pytest.raises(InputError, match="choose another --work-dir"):
            Records.open(path)


FILL_THE_DISK = """
import resource, sys
from pathlib import Path
from release_ray.core.errors import InputError
from release_ray.records import Records
sys.path.insert(0, sys.argv[2])
from test_records import record
records = Records.open(Path(sys.argv[1]))
run = records.begin_run("tune", "{}")
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
written = 0
try:
    while True:
        records.append(record(run, written, message="x" * 1000))
        written += 1
except InputError as error:
    print(written, error)
"""


def test_a_full_disk_is_told_and_loses_nothing(path: Path) -> None:
    command = [sys.executable, "-c", FILL_THE_DISK, str(path), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    written, _, message = done.stdout.partition(" ")
    assert "everything recorded so far is kept" in message, done.stderr
    with Records.open(path) as records:
        assert len(records.everything().all()) == int(written) > 10


WRITE_FOREVER = """
import sys
from pathlib import Path
from release_ray.records import Records
sys.path.insert(0, sys.argv[2])
from test_records import record
records = Records.open(Path(sys.argv[1]))
run = records.begin_run("tune", "{}")
number = 0
while True:
    records.append(record(run, number, message="x" * 300), active_s=float(number))
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("lines", [1, 40, 333])
def test_a_killed_writer_loses_nothing_it_acknowledged(path: Path, lines: int) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOREVER, str(path), str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(lines)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout.read().split("\n") if line.strip()]
    writer.wait()
    with Records.open(path) as records:
        history = records.history(simulated=False)
        found = [r.decisions for r in history.all()]
        assert len(found) in (len(acknowledged), len(acknowledged) + 1)
        assert found == [f"[[{number},1]]" for number in range(len(found))]
        assert history.active_s() == len(found) - 1
        records.append(record(records.begin_run("tune", "{}"), len(found)))
