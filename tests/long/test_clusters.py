"""Pools on Ray clusters of several nodes, all on this machine."""

import time
import urllib.request
from collections import Counter
from contextlib import contextmanager

import pytest

from release_ray import cluster
from release_ray.core.errors import InputError
from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Status
from release_ray.measure.devices import expand, grows
from release_ray.measure.hosts import cluster_hosts
from release_ray.measure.jobs import Job, Workload
from release_ray.measure.pool import MeasurePool

pytestmark = pytest.mark.long

WORKLOAD = Workload("key", "conv", "{}", "{}", 1e9)
SETTINGS = MeasureSettings()


def jobs(count):
    return [Job(i, WORKLOAD, "[]", f"[[{i + 1},2],3]", None) for i in range(count)]


@contextmanager
def nodes(*resources):
    """A cluster with a node for each; the first is the head. Joined; gives the nodes."""
    from ray.cluster_utils import Cluster

    made = Cluster()
    try:
        added = [made.add_node(include_dashboard=False, **wanted) for wanted in resources]
        made.wait_for_nodes()
        with cluster.connected(made.address):
            yield made, added
    finally:
        made.shutdown()


def outcomes_of(pool, count, timeout_s=60.0):
    outcomes = []
    deadline = time.monotonic() + timeout_s
    while len(outcomes) < count:
        assert time.monotonic() < deadline, f"only {len(outcomes)} of {count} outcomes came"
        outcomes += pool.wait(1.0)
    return outcomes


def test_a_gpu_is_one_actors_and_builders_are_elsewhere():
    with nodes({"num_cpus": 4}, {"num_cpus": 4, "num_gpus": 4}):
        hosts = cluster_hosts()
        assert [len(host.gpus) for host in hosts] == [0, 4]
        specs = expand("sim:4?gpus=1&run_s=0.02", hosts)
        assert {spec.node for spec in specs} == {hosts[1].node}
        pool = MeasurePool.start(specs, 2, SETTINGS, hosts=hosts)
        pool.ready()
        stats = pool.stats()
        # What Ray put into CUDA_VISIBLE_DEVICES of each actor.
        assert sorted(device.gpu for device in stats.devices.values()) == ["0", "1", "2", "3"]
        pool.submit(jobs(40))
        assert {o.device for o in outcomes_of(pool, 40)} == {spec.name for spec in specs}
        pids = {name: pool.stats().pids[name] for name in stats.devices}
        assert len(set(pids.values())) == 4
        pool.shutdown()


def test_gpus_that_others_have_are_one_line():
    with nodes({"num_cpus": 4, "num_gpus": 2}):
        hosts = cluster_hosts()
        first = MeasurePool.start(expand("sim:2?gpus=1", hosts), 1, SETTINGS, hosts=hosts)
        first.ready()
        second = MeasurePool.start(expand("sim:1?gpus=1", hosts), 1, SETTINGS, hosts=hosts)
        with pytest.raises(InputError, match=r"no room for sim:0 in 30 s: .* are in use"):
            second.ready()
        second.shutdown()
        first.submit(jobs(4))
        assert len(outcomes_of(first, 4)) == 4
        first.shutdown()


def test_devices_on_real_gpus_would_be_one_a_gpu():
    with nodes({"num_cpus": 2}, {"num_cpus": 4, "num_gpus": 3}):
        hosts = cluster_hosts()
        specs = expand("auto", hosts, target="cuda")
        assert [(spec.name, spec.gpus, spec.node) for spec in specs] == [
            (f"cuda:{i}", 1, hosts[1].node) for i in range(3)
        ]


def test_the_work_of_a_lost_node_goes_on_elsewhere():
    with nodes({"num_cpus": 2}, {"num_cpus": 2}) as (made, added):
        hosts = cluster_hosts()
        specs = expand("sim:4?run_s=0.1", hosts)
        pool = MeasurePool.start(specs, 0, SETTINGS, hosts=hosts)
        pool.ready()
        # Pools are where their runs are, every one of them, so these lose devices alone.
        others = [
            MeasurePool.start(expand(f"sim:{n}", hosts), 0, SETTINGS, hosts=hosts)
            for n in (5, 6, 7)
        ]
        gone = {spec.name for spec in specs if spec.node != hosts[0].node}
        assert len(gone) == 2
        pool.submit(jobs(100))
        outcomes = outcomes_of(pool, 10)
        made.remove_node(added[1], allow_graceful=False)
        outcomes += outcomes_of(pool, 100 - len(outcomes), timeout_s=120)
        assert sorted(o.job_id for o in outcomes) == list(range(100))
        assert {o.status for o in outcomes} == {Status.OK}
        assert {o.device for o in outcomes[-20:]} == {spec.name for spec in specs} - gone
        stats = pool.stats()
        assert set(stats.losses) == gone
        for other in others:
            assert other.stats().runs == 1
            other.shutdown()
        pool.shutdown()


def test_devices_that_join_the_cluster_join_the_pool():
    text = "sim:?gpus=1&run_s=0.05"
    with nodes({"num_cpus": 2}, {"num_cpus": 2, "num_gpus": 1}) as (made, _):
        hosts = cluster_hosts()
        specs = expand(text, hosts)
        assert [spec.name for spec in specs] == ["sim:0"]
        pool = MeasurePool.start(specs, 1, SETTINGS, hosts=hosts, grows=grows(specs, text))
        pool.submit(jobs(400))
        outcomes = outcomes_of(pool, 5)
        made.add_node(num_cpus=2, num_gpus=2)
        outcomes += outcomes_of(pool, 395, timeout_s=120)
        assert sorted(o.job_id for o in outcomes) == list(range(400))
        assert {o.device for o in outcomes} == {"sim:0", "sim:1", "sim:2"}
        pool.shutdown()


def test_the_pools_metrics_are_there_for_prometheus():
    with nodes({"num_cpus": 2}):
        import ray

        (node,) = ray.nodes()
        pool = MeasurePool.start(expand("sim:2?run_s=0.05&crash=0.2"), 1, SETTINGS)
        pool.submit(jobs(100))
        counted = Counter((o.device, o.status.value) for o in outcomes_of(pool, 100))
        url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        deadline = time.monotonic() + 60
        while True:
            with urllib.request.urlopen(url, timeout=10) as page:
                lines = page.read().decode().splitlines()
            ours = [line for line in lines if line.startswith("ray_release_ray_")]
            found = {
                (device, status)
                for device, status in counted
                if any(
                    "measurements" in line
                    and f'device="{device}"' in line
                    and f'status="{status}"' in line
                    and line.endswith(f" {counted[device, status]:.1f}")
                    for line in ours
                )
            }
            names = {line.split("{")[0] for line in ours}
            if found == set(counted) and "ray_release_ray_queue_length" in names:
                break
            assert time.monotonic() < deadline, ours
            time.sleep(2)
        assert "ray_release_ray_device_utilisation" in names
        pool.shutdown()


def test_a_node_that_joins_while_another_dies_joins_the_pool():
    text = "sim:?run_s=0.05"
    with nodes({"num_cpus": 2}, {"num_cpus": 2}) as (made, added):
        hosts = cluster_hosts()
        specs = expand(text, hosts)
        pool = MeasurePool.start(specs, 1, SETTINGS, hosts=hosts, grows=grows(specs, text))
        pool.ready()
        made.remove_node(added[1], allow_graceful=False)
        # Ray takes the dead one to be alive for a while yet.
        made.add_node(num_cpus=2)
        assert len(cluster_hosts()) == 2
        pool.submit(jobs(1000))
        outcomes = outcomes_of(pool, 1000, timeout_s=120)
        assert sorted(o.job_id for o in outcomes) == list(range(1000))
        assert outcomes[-1].device in ("sim:0", "sim:2")
        assert {"sim:0", "sim:2"} <= {o.device for o in outcomes}
        assert set(pool.stats().gone) == {"sim:1"}
        pool.shutdown()
