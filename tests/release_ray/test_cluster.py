import signal
import subprocess
import sys

import pytest
import ray

from release_ray import cluster
from release_ray.core.errors import InputError


def test_no_call_starts_a_ray_by_itself():
    """A thread that outlives a run must not start a second one behind the program's back."""
    program = "import release_ray.session, ray; ray.put(1)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "RaySystemError" in ended.stderr or "initialized" in ended.stderr


def test_a_sigterm_that_ray_takes_for_itself_is_an_interrupt():
    """While it starts, Ray has a handler of its own, which exits."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), cluster._signals_kept():
            signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_ray_on_the_cluster_is_one_line(monkeypatch):
    def refused(*_, **__):
        raise RuntimeError(
            "Version mismatch: The cluster has:\n    Ray: 2.9\nThis has:\n    Ray: 3"
        )

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refused)
    with pytest.raises(InputError) as caught, cluster.connected("auto"):
        pass
    assert "Version mismatch: The cluster has: Ray: 2.9 This has: Ray: 3" in str(caught.value)
    assert "\n" not in str(caught.value)


def report(line):
    """What Ray's listener does with what a daemon reports."""
    from ray._private.worker import print_to_stdstream

    print_to_stdstream({"lines": [line], "pid": "raylet", "is_err": False}, False)


def test_what_is_reported_while_ray_ends_is_kept_off_stdout_too(monkeypatch, capsys):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: None)
    monkeypatch.setattr(ray, "shutdown", lambda: report("a worker died"))
    with cluster.connected("local"):
        report("a worker died")
    assert capsys.readouterr().out == ""


def test_what_ray_s_daemons_report_is_kept_off_stdout(capsys):
    with cluster._silent_daemons():
        report("a worker died")
    assert capsys.readouterr().out == ""
    report("of a Ray that is the user's own")
    assert "the user's own" in capsys.readouterr().out
