"""Trials a second of `release-ray tune` and of stock MetaSchedule, on one conv2d, in one run.

Both tune the same operator for one core, both may use every core of the machine, both have their
defaults, but that both find warm caches, as the peer does. A trial is a distinct candidate that was
measured (`ok` or `slow`). Starting up is not counted, and reported beside.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from operators import RESNET_3X3

from release_ray.records import Records
from release_ray.workdir import WorkDir

HERE = Path(__file__).parent
RELEASE_RAY = [sys.executable, "-m", "release_ray"]


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("."), help="where throughput.csv goes")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        network = RESNET_3X3.save(Path(scratch))
        rows = ours(network, Path(scratch, "work"), arguments.trials, arguments.seed)
        rows += peer(Path(scratch, "work"), arguments.trials, arguments.seed)
    path = arguments.out / "throughput.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("tuner", "start_s", "seconds", "latency_s"), *rows])
    print(json.dumps(summary(path)))


def ours(network: Path, work_dir: Path, trials: int, seed: int) -> list[tuple]:
    """A row for each trial: seconds from the first candidate's beginning; latency if `ok`."""
    warm = network.with_suffix(".yaml")
    warm.write_text("measure: {flush_cache: false}\n")
    command = [*RELEASE_RAY, "tune", str(network), "--work-dir", str(work_dir)]
    command += ["--config", str(warm)]
    command += ["--tasks", "conv2d*", "--trials", str(trials), "--seed", str(seed), "--json"]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    start_s = json.loads(finished.stdout)["start_s"]
    with Records.open(WorkDir.existing(work_dir).records, create=False) as records:
        found = [
            record
            for record in records.history(simulated=False).all()
            if record.status.measured and record.purpose.counts
        ]
    at = [datetime.fromisoformat(record.created_at).timestamp() for record in found]
    begun = at[0] - found[0].build_s - found[0].run_s
    return [
        ("release_ray", start_s, when - begun, r.latency_s)
        for when, r in zip(at, found, strict=True)
    ]


def peer(work_dir: Path, trials: int, seed: int) -> list[tuple]:
    """A row for each trial of MetaSchedule, all at the time of its end: it measures in batches."""
    tasks = json.loads(WorkDir(work_dir).tasks.read_text())
    task = next(task for task in tasks if task["name"].startswith("conv2d"))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"module": task["module"], "target": task["target"]}, file)
        file.flush()
        command = [sys.executable, str(HERE / "metaschedule_peer.py"), file.name]
        command += ["--trials", str(trials), "--seed", str(seed)]
        finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(finished.stdout.splitlines()[-1])
    return [
        ("metaschedule", result["start_s"], result["tuning_s"], latency)
        for latency in result["latencies_s"]
    ]


def summary(path: Path) -> dict[str, float]:
    """The benchmark's figures from its CSV."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    rate, best, start = {}, {}, {}
    for tuner in ("release_ray", "metaschedule"):
        mine = [row for row in rows if row["tuner"] == tuner]
        rate[tuner] = len(mine) / max(float(row["seconds"]) for row in mine)
        best[tuner] = min(float(row["latency_s"]) for row in mine if row["latency_s"])
        start[tuner] = float(mine[0]["start_s"])
    return {
        "ratio": rate["release_ray"] / rate["metaschedule"],
        "ours_trials_per_s": rate["release_ray"],
        "peer_trials_per_s": rate["metaschedule"],
        "quality_ratio": best["metaschedule"] / best["release_ray"],
        "ours_best_ms": best["release_ray"] * 1e3,
        "peer_best_ms": best["metaschedule"] * 1e3,
        "ours_start_s": start["release_ray"],
        "peer_start_s": start["metaschedule"],
    }


if __name__ == "__main__":
    main()
