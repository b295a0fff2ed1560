"""Whether latencies can be believed: the same schedules in several sessions, quiet and disturbed.

Random schedules of one conv2d are measured in two pools, one after the other, and in a third one
while a hog runs on the device's core. Their ranks are compared, and it is counted how many
latencies the canary has flagged.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
from operators import RESNET_3X3

from release_ray import cluster
from release_ray.configuration import load_settings
from release_ray.core.statuses import Status
from release_ray.measure.devices import expand
from release_ray.measure.jobs import DeviceSpec, Job, Outcome
from release_ray.measure.pool import MeasurePool
from release_ray.planner import rank_correlation
from release_ray.prepare import prepare
from release_ray.sketches import Sketches
from release_ray.targets import back_end

SESSIONS = ("quiet", "quiet again", "with a hog")


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("."), help="where repeatability.csv goes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    devices = expand("auto")
    with tempfile.TemporaryDirectory() as scratch:
        jobs, kind = schedules(
            RESNET_3X3.save(Path(scratch)), devices, arguments.schedules, arguments.seed
        )
    rows = []
    for session in SESSIONS:
        print(f"{len(jobs)} schedules, {session}", file=sys.stderr)
        disturbance = hog(devices[0].cores) if session == SESSIONS[2] else nullcontext()
        with cluster.connected(None):
            for outcome in measured(devices, jobs, kind, disturbance):
                rows.append((session, outcome.job_id, outcome.latency_s, bool(outcome.message)))
    path = arguments.out / "repeatability.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("session", "schedule", "latency_s", "flagged"), *rows])
    print(json.dumps(summary(path)))


def schedules(
    network: Path, devices: list[DeviceSpec], count: int, seed: int
) -> tuple[list[Job], str]:
    """Random schedules that TVM accepts, as jobs, and the back end that they are built with."""
    prepared = prepare(str(network), load_settings(None, {}), devices)
    (task,) = (task for task in prepared.tasks if task.name.startswith("conv2d"))
    sketches = Sketches(task)
    rng = np.random.default_rng(seed)
    jobs: dict[str, Job] = {}
    while len(jobs) < count:
        (point,) = sketches.space.random(rng, 1)
        applied = sketches.apply(point)
        if applied.point is not None:
            decisions = sketches.decisions(applied.point)
            jobs[decisions] = Job(
                len(jobs), task.workload, applied.trace_json, decisions, best_s=None
            )
    return list(jobs.values()), back_end(prepared.target)


def measured(devices: list[DeviceSpec], jobs: list[Job], kind: str, disturbance) -> list[Outcome]:
    """The latencies in one session; the disturbance begins when the pool is up."""
    pool = MeasurePool.start(devices, None, jobs[0].settings, kind)
    try:
        pool.ready()
        # The canary learns what is usual before anybody disturbs it.
        for _ in run(pool, [Job(**{**vars(job), "id": -1 - job.id}) for job in jobs[:8]]):
            pass
        with disturbance:
            outcomes = run(pool, jobs)
    finally:
        pool.shutdown()
    return sorted(outcomes, key=lambda outcome: outcome.job_id)


def run(pool: MeasurePool, jobs: list[Job]) -> list[Outcome]:
    """All outcomes, which must be latencies."""
    pool.submit(jobs)
    outcomes: list[Outcome] = []
    while len(outcomes) < len(jobs):
        outcomes += pool.wait(5.0)
    wrong = [outcome for outcome in outcomes if outcome.status is not Status.OK]
    if wrong:
        raise SystemExit(f"not measured: {wrong[0].status} {wrong[0].message}")
    return outcomes


@contextmanager
def hog(cores: tuple[int, ...]) -> Iterator[None]:
    """A process that never sleeps, on each of the cores."""
    hogs = [
        subprocess.Popen(
            [sys.executable, "-c", "while True: pass"],
            preexec_fn=lambda core=core: os.sched_setaffinity(0, {core}),
        )
        for core in cores
    ]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in hogs:
            process.kill()
            process.wait()


def summary(path: Path) -> dict:
    """The benchmark's figures from its CSV."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    quiet, again, hogged = (
        [row for row in rows if row["session"] == session] for session in SESSIONS
    )
    return {
        "spearman": spearman(quiet, again),
        "spearman_with_hog": spearman(quiet, hogged),
        "flagged": sum(row["flagged"] == "True" for row in quiet + again) / len(quiet + again),
        "flagged_with_hog": sum(row["flagged"] == "True" for row in hogged) / len(hogged),
    }


def spearman(one: list[dict], other: list[dict]) -> float | None:
    """Rank correlation of the latencies of two sessions."""
    first, second = (np.array([float(row["latency_s"]) for row in rows]) for rows in (one, other))
    correlation = rank_correlation(first, second)
    return None if correlation is None else round(correlation, 4)


if __name__ == "__main__":
    main()
