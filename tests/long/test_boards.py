"""Boards behind a real TVM RPC tracker, both on this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from program import records, result, run

from release_ray.cluster import connected
from release_ray.core.errors import InputError
from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Status
from release_ray.measure.devices import expand
from release_ray.measure.jobs import Artifact, Job, Workload
from release_ray.measure.kernels import values
from release_ray.measure.places import opened
from release_ray.measure.pool import MeasurePool

pytestmark = pytest.mark.long

KEY = "board"


@pytest.fixture(scope="module")
def tracker(tmp_path_factory):
    """A tracker with one board; gives its `host:port`."""
    with boards(tmp_path_factory.mktemp("rpc")) as address:
        yield address


@contextmanager
def boards(folder):
    """As `tracker`, whose server may be broken."""
    port = free_port()
    started = []

    def start(module, *arguments):
        with (folder / f"{module}.log").open("w") as log:
            command = [sys.executable, "-m", f"tvm.exec.{module}", *arguments]
            started.append(
                subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            )

    try:
        start(
            "rpc_tracker", "--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1)
        )
        until(lambda: answers(port))
        address = f"127.0.0.1:{port}"
        start("rpc_server", "--host", "127.0.0.1", "--tracker", address, "--key", KEY)
        until(lambda: has_board(address))
        yield address
    finally:
        end(started)


def end(started):
    for process in started:
        # With the workers that TVM has started.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def has_board(address):
    try:
        return bool(expand(f"rpc://{address}/{KEY}"))
    except InputError:
        return False


def until(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come up"
        time.sleep(0.2)


def test_a_key_that_the_tracker_does_not_know_is_one_line(tracker):
    with pytest.raises(InputError, match=f"knows no board 'phone' .known: {KEY}"):
        expand(f"rpc://{tracker}/phone")


def test_a_task_is_tuned_on_a_board(tracker, tmp_path):
    work = tmp_path / "work"
    program = run(
        *("tune", "tiny", "--work-dir", work, "--tasks", "conv2d*", "--trials", 12),
        *("--devices", f"rpc://{tracker}/{KEY}"),
        cwd=tmp_path,
    )
    assert program.process.returncode == 0, program.err
    ended = result(work)
    assert ended["status"] == "done"
    assert ended["latency_ms"] == {"default": None, "tuned": None}
    measured = records(work, "purpose, status, device")
    assert sum(purpose == "trial" for purpose, _, _ in measured) == 12
    assert ("trial", "ok", "rpc:0") in measured
    # Checked on the board, and left for whoever compiles for it.
    database = (work / "database_tuning_record.json").read_text().splitlines()
    assert database and all(json.loads(line) for line in database)
    assert not (work / "model.so").exists()


def test_what_a_kernel_is_timed_with_is_made_on_the_board(tracker):
    with opened(f"rpc://{tracker}/{KEY}?cpu", limit_s=60.0) as place:
        numbers = place.tensor(0, (64, 3), "float32").numpy()
        indices = place.tensor(1, (64,), "int64").numpy()
    assert np.isfinite(numbers).all() and len(np.unique(numbers)) > 1
    assert not np.array_equal(numbers, values(0, (64, 3), "float32"))
    assert set(indices) == {0, 1}


def test_the_board_has_a_canary(tracker, tmp_path):
    program = run("devices", "--devices", f"rpc://{tracker}/{KEY}", "--json", cwd=tmp_path)
    assert program.process.returncode == 0, program.err
    (device,) = json.loads(program.out)
    assert (device["device"], device["model"], device["unfit"]) == ("rpc:0", KEY, None)
    assert device["gflops"] > 0.1


def test_a_kernel_that_takes_the_board_along_is_blamed_and_the_board_named(tmp_path):
    """TVM's server ends its service when a kernel kills a session."""
    program = tmp_path / "crash.c"
    program.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void crash(void) { abort(); }\n"
    )
    library = tmp_path / "crash.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, program], check=True)
    crash = Artifact("so", library.read_bytes(), ())
    with boards(tmp_path) as address, connected(None):
        devices = expand(f"rpc://{address}/{KEY}")
        pool = MeasurePool.start(devices, 1, MeasureSettings(run_timeout_s=5.0))
        pool.ready()
        workload = Workload("", "crash", "", "{}", 0.0)
        pool.submit([Job(n, workload, "", "", None, artifact=crash) for n in range(3)])
        outcomes = []
        deadline = time.monotonic() + 120
        while len(outcomes) < 3 and time.monotonic() < deadline:
            outcomes += pool.wait(1.0)
        lost = pool.stats().gone
        pool.shutdown()
    statuses = {outcome.job_id: outcome.status for outcome in outcomes}
    assert statuses == {0: Status.CRASH, 1: Status.DEVICE_LOST, 2: Status.DEVICE_LOST}
    assert "has no board 'board' any more" in lost["rpc:0"]


def test_a_tracker_that_never_answers_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(InputError, match=f"no RPC tracker answers at 127.0.0.1:{port}"):
            expand(f"rpc://127.0.0.1:{port}/{KEY}")
