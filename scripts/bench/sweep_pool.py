"""A sweep of many short runs on one pool: how busy its devices are, and what the sweep costs.

Simulated devices that take a fixed time, on a Ray cluster of several nodes, all of this machine.
Its peer is a pool that is never idle: the measurements' own time over all devices.
"""

from __future__ import annotations

import argparse
import csv
import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path

import psutil
import yaml
from pool_scaling import cpu_seconds, nodes

from release_ray.sweep import load_sweep
from release_ray.sweep.driver import RunUpdate, run_sweep

NODES, DEVICES, RUNS, TRIALS, AT_ONCE, RUN_S = 4, 8, 100, 16, 4, 1.0


@dataclass
class Row:
    """A measurement: when it ended, in seconds of the clock, and how long it took."""

    run: str
    device: str
    ended_s: float
    run_s: float
    cpu_s: float
    """CPU-seconds of all processes that lived at the sweep's end; the same in every row."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench/sweep_pool"))
    parser.add_argument("--runs", type=int, default=RUNS)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, nodes(NODES):
        work_dir = Path(folder) / "sweep"
        file = Path(folder) / "sweep.yaml"
        file.write_text(yaml.safe_dump(described(chosen.runs, work_dir)))
        run_sweep(load_sweep(file), listener=told)
        rows = list(measured(work_dir, cpu_seconds()))
    path = chosen.out / "measurements.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    print(json.dumps(summary(path)))


def described(runs: int, work_dir: Path) -> dict:
    """The sweep: one network, so many learning rates."""
    return {
        "networks": ["tiny"],
        "devices": f"sim:{DEVICES}?run_s={RUN_S}",
        "budget": {"trials": TRIALS},
        "space": {"agent.lr": {"loguniform": [1e-4, 1e-2]}},
        "num_samples": runs,
        "max_concurrent": AT_ONCE,
        "work_dir": str(work_dir),
    }


def told(update: RunUpdate | str) -> None:
    if isinstance(update, str):
        print(update, file=sys.stderr)
    elif update.entry.status != "running":
        print(f"{update.over}/{update.total} {update.run.name}", file=sys.stderr)


def measured(work_dir: Path, cpu_s: float):
    """Every measurement of every run."""
    for records in sorted(work_dir.glob("runs/*/records.db")):
        with closing(sqlite3.connect(records)) as connection:
            found = connection.execute(
                "SELECT device, created_at, run_s FROM records WHERE purpose = 'trial'"
                " AND status != 'invalid'"
            ).fetchall()
        for device, created_at, run_s in found:
            ended_s = datetime.fromisoformat(created_at).timestamp()
            yield Row(records.parent.name, device, ended_s, run_s, cpu_s)


def summary(path: Path) -> dict:
    """The benchmark's figures from its CSV."""
    with path.open() as stream:
        rows = list(csv.DictReader(stream))
    ended = [float(row["ended_s"]) for row in rows]
    first = min(float(row["ended_s"]) - float(row["run_s"]) for row in rows)
    wall_s = max(ended) - first
    busy_s = sum(float(row["run_s"]) for row in rows)
    runs = len({row["run"] for row in rows})
    return {
        "utilisation": round(busy_s / (wall_s * DEVICES), 4),
        "runs": runs,
        "measurements": len(rows),
        "wall_s": round(wall_s, 1),
        "busy_s_a_device": round(busy_s / DEVICES, 1),
        "overhead_s_a_run": round((wall_s - busy_s / DEVICES) / runs, 3),
        "cpu_s_a_run": round(float(rows[0]["cpu_s"]) / runs, 2),
        "cores": psutil.cpu_count(),
    }


if __name__ == "__main__":
    main()
