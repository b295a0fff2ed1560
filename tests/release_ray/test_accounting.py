"""CPU time over processes, and active seconds over calls."""

import subprocess
import sys
import time

import psutil

from release_ray.accounting import CpuMeter, Stopwatch

BURN = """
import sys, time
ended = time.process_time() + float(sys.argv[1])
while time.process_time() < ended:
    pass
print("burnt", flush=True)
sys.stdin.read()
"""


def burn(seconds):
    ended = time.process_time() + seconds
    while time.process_time() < ended:
        pass


def test_this_process_and_its_children_count_also_when_they_have_ended():
    meter = CpuMeter()
    assert meter.total_s < 0.05
    burn(0.2)
    child = subprocess.Popen(
        [sys.executable, "-c", BURN, "0.3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"burnt\n"
    meter.update()
    spent = meter.total_s
    assert 0.45 < spent < 5
    child.communicate()
    meter.update()
    assert meter.total_s >= spent


def test_what_was_spent_before_does_not_count():
    burn(0.2)
    meter = CpuMeter()
    meter.update()
    assert meter.total_s < 0.15


def test_it_survives_processes_that_vanish(monkeypatch):
    meter = CpuMeter()
    child = subprocess.Popen(["sleep", "60"])
    vanished = psutil.Process(child.pid)
    child.kill()
    child.wait()
    monkeypatch.setattr("psutil.Process.children", lambda self, recursive: [vanished])
    meter.update()


def test_a_stopwatch_adds_earlier_calls():
    watch = Stopwatch()
    assert watch.active_s() >= 0
    watch.earlier_s = 100.0
    before = watch.active_s()
    time.sleep(0.01)
    assert 100 < before < watch.active_s() < 160
    assert watch.here_s < 60
