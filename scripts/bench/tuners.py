"""Tuners that the benchmarks set beside each other, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any

import yaml
from courses import Course

from release_ray.records import Records
from release_ray.workdir import WorkDir

HERE = Path(__file__).parent
RELEASE_RAY = [sys.executable, "-m", "release_ray"]


def release_ray(
    network: Path,
    work_dir: Path,
    *,
    trials: int,
    seed: int,
    settings: Mapping[str, Any],
) -> Course:
    """`release-ray tune` with the settings given and its defaults, in a fresh work dir.

    Of the network the convolutions are tuned.

    The course begins with the process and leaves out what follows the search.
    """
    command = [*RELEASE_RAY, "tune", str(network), "--work-dir", str(work_dir), "--json"]
    command += ["--tasks", "conv2d*", "--trials", str(trials), "--seed", str(seed)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(settings), file)
        file.flush()
        begun = time.time()
        subprocess.run(
            [*command, "--config", file.name], check=True, stdout=subprocess.PIPE, text=True
        )
    with Records.open(WorkDir.existing(work_dir).records, create=False) as records:
        found = [r for r in records.history(simulated=False).all() if r.purpose.counts]
    at = [datetime.fromisoformat(r.created_at).timestamp() - begun for r in found]
    latencies = [r.latency_s or r.bound_s or inf for r in found]
    return Course(
        tuple(zip(at, latencies, strict=True)),
        start_s=at[0] - found[0].build_s - found[0].run_s,
        wall_s=at[-1],
    )


def metaschedule(
    tasks: Sequence[Mapping[str, Any]],
    *,
    trials: int,
    seed: int,
    ours: Sequence[str] = (),
    batch: int = 64,
) -> Course:
    """Stock MetaSchedule on tasks as a work dir's `tasks.json` has them.

    Of several the latencies are those of the whole network, as far as its tasks make it up.

    `batch` is how many candidates it measures at once, its default if left out. `ours` are the
    parts that are release_ray's: `builder`, `runner`, `strategy`.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(tasks, file)
        file.flush()
        command = [sys.executable, str(HERE / "metaschedule_peer.py"), file.name]
        command += ["--trials", str(trials), "--seed", str(seed), "--begun", str(time.time())]
        command += ["--batch", str(batch), "--ours", *ours]
        finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    told = json.loads(finished.stdout.splitlines()[-1])
    return Course(
        tuple((at, inf if latency is None else latency) for at, latency in told["trials"]),
        start_s=told["start_s"],
        wall_s=told["wall_s"],
    )


def task_of(work_dir: Path) -> dict[str, Any]:
    """The first convolution of a work dir."""
    tasks = json.loads(WorkDir(work_dir).tasks.read_text())
    return next(task for task in tasks if task["name"].startswith("conv2d"))
