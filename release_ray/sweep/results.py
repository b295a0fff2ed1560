"""What a sweep has found: a table of its runs, and the setting that did best over all networks."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from release_ray.configuration import to_yaml
from release_ray.sweep.ledger import Entry
from release_ray.sweep.spec import Run, SweepSpec
from release_ray.workdir import write_atomic

TABLE, BEST, PLOTS = "sweep.csv", "best.yaml", "plots"


@dataclass(frozen=True)
class Row:
    """A run, and how it stands."""

    run: Run
    entry: Entry

    @property
    def speedup(self) -> float | None:
        return self.entry.last.speedup if self.entry.last else None


@dataclass(frozen=True)
class Best:
    """The setting with the best geometric mean of `speedup` over the networks."""

    setting: int
    values: Mapping[str, Any]
    speedup: float


@dataclass(frozen=True)
class Outcome:
    """All runs of a sweep, and the best setting; None before one has reported on all networks."""

    rows: tuple[Row, ...]
    best: Best | None
    work_dir: Path


def write_results(path: Path, spec: SweepSpec, entries: Mapping[str, Entry]) -> Outcome:
    """Writes `sweep.csv` and `best.yaml`."""
    rows = tuple(Row(run, entries[run.name]) for run in spec.runs)
    write_atomic(path / TABLE, _csv(spec, rows))
    best = _best(spec, rows)
    if best is not None:
        settings = next(run.settings for run in spec.runs if run.setting == best.setting)
        told = ", ".join(f"{name}={value}" for name, value in best.values.items())
        comment = (
            f"# Setting {best.setting} of {spec.source}: {best.speedup:.4g} times as fast as"
            f" untuned, the geometric mean over {', '.join(spec.settings.networks)}.\n"
            f"# {told or 'No setting varies.'}\n"
        )
        write_atomic(path / BEST, comment + to_yaml(settings))
    return Outcome(rows, best, path)


def _best(spec: SweepSpec, rows: tuple[Row, ...]) -> Best | None:
    """Settings that failed on a network, or have not reported on one, are none that one picks."""
    speedups: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if row.speedup is not None and row.entry.status != "failed":
            speedups[row.run.setting].append(row.speedup)
    means = {
        setting: geometric_mean(found)
        for setting, found in speedups.items()
        if len(found) == len(spec.settings.networks)
    }
    if not means:
        return None
    setting = max(means, key=lambda number: (means[number], -number))
    values = next(row.run.values for row in rows if row.run.setting == setting)
    return Best(setting, values, means[setting])


def _csv(spec: SweepSpec, rows: tuple[Row, ...]) -> str:
    varied = list(dict.fromkeys(name for row in rows for name in row.run.values))
    columns = ("speedup", "latency_ms", "trials", "wall_s")
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ["run", "network", "setting", *varied, "status", "round", *columns, "message", "work_dir"]
    )
    for row in rows:
        last = row.entry.last
        writer.writerow(
            [
                row.run.name,
                row.run.network,
                row.run.setting,
                *(row.run.values.get(name, "") for name in varied),
                row.entry.status,
                last.round if last else "",
                *(getattr(last, column) if last else "" for column in columns),
                row.entry.message,
                f"runs/{row.run.name}",
            ]
        )
    return stream.getvalue()
