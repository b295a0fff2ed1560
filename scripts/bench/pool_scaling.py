"""How the measurement pool fares with many devices: busy devices, and what a measurement costs.

The same scheduler twice. First for real: simulated devices, an actor and so a process each, on a
Ray cluster of several nodes on this machine; they sleep, so all CPU time is the pool's own. Then
on a virtual clock, with the message costs that were measured, for pools larger than this machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil

from release_ray import cluster
from release_ray.core.settings import MeasureSettings
from release_ray.measure.devices import expand
from release_ray.measure.jobs import Job, Workload
from release_ray.measure.pool import MeasurePool
from release_ray.measure.virtual import simulate

REAL = ((32, 0.25), (128, 1.0))
"""Devices, and seconds a measurement."""
VIRTUAL = ((100, 0.25), (300, 0.25), (1000, 0.25), (1000, 1.0), (3000, 1.0))
SOAK = (16, 0.0)
IDLE_S = 10.0
WORKLOAD = Workload("pool-scaling", "conv2d", "{}", "{}", 1e9)
MIB = 2**20


@dataclass(frozen=True)
class Row:
    """One pool at work. `cpu_s` is of all processes together, `pool_cpu_s` of the scheduler's.

    `idle_cores` is what the same processes use while nothing is measured: most of it is Ray's
    agents, which look after every process of their node.
    """

    clock: str
    devices: int
    run_s: float
    results: int
    pids: int
    wall_s: float
    utilisation: float
    cpu_s: float
    idle_cores: float
    pool_cpu_s: float
    driver_growth_mib: float


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--builders", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=40.0, help="each real pool works so long")
    parser.add_argument("--soak", type=int, default=20_000, help="measurements of the last pool")
    parser.add_argument("--out", type=Path, default=Path("."), help="where pool_scaling.csv goes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with nodes(arguments.nodes):
        rows = [
            at_work(count, run_s, int(count * arguments.seconds / run_s), arguments.builders)
            for count, run_s in REAL
        ]
        rows.append(at_work(*SOAK, arguments.soak, arguments.builders))
    # At its limit, where it hears of several measurements at once.
    message_s = rows[-1].pool_cpu_s / rows[-1].results
    rows += [on_virtual_clock(count, run_s, message_s) for count, run_s in VIRTUAL]
    path = arguments.out / "pool_scaling.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerow([field.name for field in fields(Row)])
        csv.writer(file).writerows(astuple(row) for row in rows)
    print(json.dumps(summary(path)))


@contextmanager
def nodes(count: int) -> Iterator[None]:
    """A Ray cluster of so many nodes, all on this machine, joined and in the end stopped."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    try:
        for _ in range(count - 1):
            made.add_node(num_cpus=4)
        made.wait_for_nodes()
        with cluster.connected(made.address):
            yield
    finally:
        made.shutdown()


def at_work(count: int, run_s: float, results: int, builders: int) -> Row:
    """A real pool, from its first measurement to its last."""
    print(f"{count} devices of {run_s:g} s: {results} measurements", file=sys.stderr)
    devices = expand(f"sim:{count}?run_s={run_s}")
    pool = MeasurePool.start(devices, builders, MeasureSettings())
    try:
        pool.ready()
        pids = {pid for name, pid in pool.stats().pids.items() if name.startswith("sim")}
        # So that nothing is measured before every process has done its first piece of work.
        run(pool, 2 * count, first=0)
        idle = cpu_seconds()
        time.sleep(IDLE_S)
        idle_cores = (cpu_seconds() - idle) / IDLE_S
        driver, before = psutil.Process(), cpu_seconds()
        pool_before, memory = pool.stats().pool_cpu_s, driver.memory_info().rss
        begun = time.perf_counter()
        busy_s = run(pool, results, first=2 * count)
        wall_s = time.perf_counter() - begun
        return Row(
            clock="real",
            devices=count,
            run_s=run_s,
            results=results,
            pids=len(pids),
            wall_s=wall_s,
            utilisation=busy_s / (wall_s * count),
            cpu_s=cpu_seconds() - before,
            idle_cores=idle_cores,
            pool_cpu_s=pool.stats().pool_cpu_s - pool_before,
            driver_growth_mib=(driver.memory_info().rss - memory) / MIB,
        )
    finally:
        pool.shutdown()


def run(pool: MeasurePool, results: int, first: int) -> float:
    """Measures so many candidates, submitted in rounds as a search does; seconds of measuring."""
    size = 4 * len(pool.devices)
    submitted = received = 0
    busy_s = 0.0
    while received < results:
        if submitted < results and submitted - received < 2 * size:
            ids = range(submitted, min(submitted + size, results))
            pool.submit(jobs(range(first + ids.start, first + ids.stop)))
            submitted = ids.stop
            continue
        for outcome in pool.wait(5.0):
            received += 1
            busy_s += outcome.run_s
    return busy_s


def jobs(ids: Sequence[int]) -> list[Job]:
    """Candidates that all differ, with traces as long as a convolution's."""
    return [Job(i, WORKLOAD, f'["{i}"]'.ljust(10_000), f"[[{i},2],3]", None) for i in ids]


def cpu_seconds() -> float:
    """CPU-seconds of this process and all that it started, of those that live."""
    total = 0.0
    me = psutil.Process(os.getpid())
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def on_virtual_clock(count: int, run_s: float, message_s: float) -> Row:
    """A pool that is simulated as a whole; each measurement costs its scheduler `message_s`."""
    print(f"{count} devices of {run_s:g} s on a virtual clock", file=sys.stderr)
    results = 40 * count
    begun = time.process_time()
    timeline = simulate(
        jobs(range(results)),
        builders=max(4, count // 8),
        devices=count,
        build_s=lambda job: 0.3 / 8 * run_s,
        run_s=lambda job: run_s,
        message_s=message_s,
    )
    return Row(
        clock="virtual",
        devices=count,
        run_s=run_s,
        results=len(timeline.outcomes),
        pids=0,
        wall_s=timeline.wall_s,
        utilisation=timeline.utilisation,
        cpu_s=0.0,
        idle_cores=0.0,
        pool_cpu_s=time.process_time() - begun,
        driver_growth_mib=0.0,
    )


def overhead_ms(row: dict, net: bool) -> float:
    """CPU time a measurement, all processes together; `net` of what they use while idle."""
    idle_s = float(row["idle_cores"]) * float(row["wall_s"]) if net else 0.0
    return (float(row["cpu_s"]) - idle_s) / int(row["results"]) * 1e3


def summary(path: Path) -> dict:
    """The benchmark's figures from its CSV."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    real = [row for row in rows if row["clock"] == "real" and float(row["run_s"])]
    (soak,) = (row for row in rows if row["clock"] == "real" and not float(row["run_s"]))
    return {
        "devices": {
            row["devices"]: {
                "utilisation": round(float(row["utilisation"]), 4),
                "pids": int(row["pids"]),
                "results": int(row["results"]),
                "wall_s": round(float(row["wall_s"]), 2),
            }
            for row in real
        },
        "overhead_ms": round(max(overhead_ms(row, net=True) for row in real), 2),
        "overhead_with_idle_ms": round(max(overhead_ms(row, net=False) for row in real), 2),
        "soak": {
            "results": int(soak["results"]),
            "driver_growth_mib": round(float(soak["driver_growth_mib"]), 1),
            "results_per_s": round(int(soak["results"]) / float(soak["wall_s"]), 1),
        },
        "virtual": {
            f"{row['devices']} x {float(row['run_s']):g} s": round(float(row["utilisation"]), 4)
            for row in rows
            if row["clock"] == "virtual"
        },
    }


if __name__ == "__main__":
    main()
