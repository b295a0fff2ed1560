"""`release-ray sweep`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from release_ray.cli import options
from release_ray.core.errors import WorkFailed

if TYPE_CHECKING:
    from release_ray.sweep.driver import RunUpdate
    from release_ray.sweep.results import Outcome, Row
    from release_ray.sweep.spec import SweepSpec


def sweep(
    file: Annotated[Path, typer.Argument(help="What to sweep over, as YAML.", show_default=False)],
    work_dir: Annotated[
        Path | None, typer.Option(help="Where everything goes, instead of the file's.")
    ] = None,
    address: options.Address = None,
    storage: options.Storage = None,
    json: Annotated[
        bool, typer.Option("--json", help="The runs and the best setting as one JSON line.")
    ] = False,
    verbose: options.Verbose = 0,
    quiet: options.Quiet = False,
) -> int:
    r"""Tune networks with many settings, on one pool, by Ray Tune. A second call resumes.

    Example of a file:

        networks: \[alexnet, resnet18]

        budget: {trials_per_task: 32}

        space:

          agent.lr: {loguniform: \[1.0e-4, 1.0e-2]}

        num_samples: 8
    """
    level = options.level(verbose, quiet)
    from release_ray.sweep import load_sweep

    return run(load_sweep(file), work_dir, address, storage, json, level)


def run(
    spec: SweepSpec,
    work_dir: Path | None = None,
    address: str | None = None,
    storage: str | None = None,
    json: bool = False,
    level: int = 1,
) -> int:
    """Runs a sweep, shows its progress and prints its results."""
    from release_ray.sweep.driver import run_sweep

    outcome = run_sweep(
        spec,
        work_dir=work_dir,
        address=address,
        storage=storage,
        listener=_Lines(options.console(), level),
    )
    if json:
        print(json_module.dumps(_as_json(outcome)))
    elif level:
        _print(outcome, storage or spec.settings.storage)
    if outcome.best is None:
        raise WorkFailed(_why_none(outcome))
    return 0


class _Lines:
    """A line on stderr for whatever happens to a run."""

    def __init__(self, console: Console, level: int) -> None:
        self._console = console
        self._level = level

    def __call__(self, update: RunUpdate | str) -> None:
        if not self._level:
            return
        line = f"{update} …" if isinstance(update, str) else self._told(update)
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    @staticmethod
    def _told(update: RunUpdate) -> str:
        entry, last = update.entry, update.entry.last
        words = [f"{update.over}/{update.total}", update.run.name, entry.status]
        if not entry.reports and entry.status == "running":
            words += [f"{name}={_short(value)}" for name, value in update.run.values.items()]
        if last is not None:
            words += [
                f"round {last.round}",
                f"{last.speedup:.2f}x",
                f"{last.latency_ms:.3f} ms",
                f"{last.trials} trials",
                f"{last.wall_s:.0f} s",
            ]
        return "  ".join([*words, entry.message]).rstrip()


def _print(outcome: Outcome, storage: str | None) -> None:
    varied = list(dict.fromkeys(name for row in outcome.rows for name in row.run.values))
    table = Table(title=f"{len(outcome.rows)} runs", title_justify="left", title_style="bold")
    table.add_column("run", overflow="fold")
    for name in varied:
        table.add_column(name)
    table.add_column("status")
    for name in ("speed-up", "latency ms", "trials", "seconds"):
        table.add_column(name, justify="right")
    for row in sorted(outcome.rows, key=lambda row: -(row.speedup or 0.0)):
        last = row.entry.last
        figures = ("–", "–", "–", "–")
        if last is not None:
            seconds = f"{last.wall_s:.0f}"
            figures = (f"{last.speedup:.2f}", f"{last.latency_ms:.3f}", str(last.trials), seconds)
        values = (_short(row.run.values.get(name, "")) for name in varied)
        table.add_row(row.run.name, *values, row.entry.status, *figures)
    options.results().print(table)
    for row in outcome.rows:
        if row.entry.status == "failed":
            print(f"failed    {row.run.name}: {row.entry.message}")
    work_dir, best = outcome.work_dir, outcome.best
    if best is not None:
        told = ", ".join(f"{name}={_short(value)}" for name, value in best.values.items())
        print(f"best      {best.speedup:.2f}x  {told}".rstrip())
        print(f"settings  {work_dir / 'best.yaml'}")
    print(f"runs      {work_dir / 'sweep.csv'}")
    if (work_dir / "plots").is_dir():
        print(f"plots     {work_dir / 'plots'}")
    print(f"Tune      {work_dir / 'tune'}  (for tensorboard --logdir)")
    if storage:
        print(f"copy      {storage}")


def _as_json(outcome: Outcome) -> dict[str, Any]:
    best = outcome.best
    return {
        "runs": [_row(row) for row in outcome.rows],
        "best": best and {"setting": best.setting, **best.values, "speedup": best.speedup},
        "work_dir": str(outcome.work_dir),
    }


def _row(row: Row) -> dict[str, Any]:
    last = row.entry.last
    return {
        "run": row.run.name,
        "network": row.run.network,
        "setting": row.run.setting,
        "values": dict(row.run.values),
        "status": row.entry.status,
        "speedup": last.speedup if last else None,
        "latency_ms": last.latency_ms if last else None,
        "trials": last.trials if last else 0,
        "wall_s": last.wall_s if last else 0.0,
        "message": row.entry.message,
    }


def _why_none(outcome: Outcome) -> str:
    failed = [row for row in outcome.rows if row.entry.status == "failed"]
    if not failed:
        return "no setting has reported on every network"
    first = failed[0]
    return (
        f"no setting has worked on every network: {len(failed)} of {len(outcome.rows)} runs failed,"
        f" the first of them {first.run.name}: {first.entry.message}"
    )


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
