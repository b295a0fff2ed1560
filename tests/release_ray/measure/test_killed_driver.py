"""A driver that is killed takes everything with it."""

import subprocess
import sys
import time

import psutil
import pytest


@pytest.mark.long
def test_a_killed_driver_leaves_no_process():
    program = (
        "import ray, sys\n"
        "from release_ray.core.settings import MeasureSettings\n"
        "from release_ray.measure import devices\n"
        "from release_ray.measure.pool import MeasurePool\n"
        "ray.init(address='local', num_cpus=2, include_dashboard=False, log_to_driver=False)\n"
        "pool = MeasurePool.start(devices.expand('cpu:1x1'), 1, MeasureSettings())\n"
        "pool.ready()\n"
        "print('ready', flush=True)\n"
        "pool.call_on_device('time:sleep', (1000,), 1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert b"ready" in driver.stdout.read(6)
        # Ray's own agents notice within a minute; what this package started goes at once.
        ours = [p for p in psutil.Process(driver.pid).children(recursive=True) if _is_ours(p)]
        assert len(ours) >= 5
        driver.kill()
    deadline = time.monotonic() + 30
    while any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in ours):
        assert time.monotonic() < deadline, "processes outlived their driver"
        time.sleep(0.1)


def _is_ours(process):
    command = " ".join(process.cmdline())
    return "Actor" in command or "release_ray.measure.child" in command
