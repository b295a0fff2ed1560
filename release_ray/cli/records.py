"""`release-ray records`: what was measured, and MetaSchedule's database as a format of exchange."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from release_ray.cli import options
from release_ray.core.errors import InputError

app = typer.Typer(
    help="Show, export, import or prune the measurements of a work dir.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_WorkDir = Annotated[Path, typer.Option(help="Of an earlier `tune`.", show_default=False)]


@app.command(
    epilog=options.examples(
        "records show --work-dir tuning/resnet18",
        "records show --work-dir tuning/resnet18 --task 'conv2d*' --csv > records.csv",
    )
)
def show(
    work_dir: _WorkDir,
    task: Annotated[str | None, typer.Option(help="Only tasks whose name matches.")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Every column of every record.")] = False,
) -> None:
    """A line a task, or with --csv a line a record; those that were measured again count too.

    Without --csv what a --fresh run has hidden is left out, and simulated records are where there
    are real ones.
    """
    from fnmatch import fnmatchcase

    from release_ray.core.statuses import Purpose
    from release_ray.records import Records, write_csv
    from release_ray.workdir import WorkDir

    with Records.open(WorkDir.existing(work_dir).records, create=False) as records:
        if csv:
            seen = records.everything().all()
        else:
            real, simulated = (records.history(simulated=kind).all() for kind in (False, True))
            seen = real or simulated
        found = [r for r in seen if fnmatchcase(r.task, task or "*")]
    if csv:
        write_csv(found, sys.stdout)
        return
    table = Table(title_justify="left")
    table.add_column("task", overflow="fold")
    for column in ("records", "ok", "slow", "failed", "best ms"):
        table.add_column(column, justify="right")
    table.add_column("most frequent failure", overflow="fold")
    by_task: dict[str, list] = {}
    for record in found:
        if record.purpose is not Purpose.CANARY:
            by_task.setdefault(record.task, []).append(record)
    for name, mine in by_task.items():
        failed = [r for r in mine if not r.status.measured]
        messages = [f"{r.status.value}: {r.message}" for r in failed]
        # Of the search, as in the table of `tune`: the finals' latencies compare among themselves.
        searched = [r.latency_s for r in mine if r.purpose is not Purpose.REMEASURE]
        best = min(filter(None, searched), default=None)
        table.add_row(
            name,
            str(len(mine)),
            str(sum(r.status == "ok" for r in mine)),
            str(sum(r.status == "slow" for r in mine)),
            str(len(failed)),
            f"{best * 1e3:.4f}" if best else "–",
            max(set(messages), key=messages.count)[:100] if messages else "",
        )
    options.results().print(table)


@app.command(
    "export", epilog=options.examples("records export --work-dir tuning/resnet18 -o database")
)
def export_(
    work_dir: _WorkDir,
    output: Annotated[Path, typer.Option("-o", "--output", help="A directory.")] = Path("."),
) -> None:
    """Write the best record of each task as MetaSchedule's database."""
    from release_ray.exchange import export_database

    count = export_database(work_dir, output)
    print(f"{count} records in {output}: database_workload.json, database_tuning_record.json")


@app.command(
    "import", epilog=options.examples("records import database --work-dir tuning/resnet18")
)
def import_(
    database: Annotated[Path, typer.Argument(help="A directory with MetaSchedule's two files.")],
    work_dir: _WorkDir,
) -> None:
    """Take the measurements of a MetaSchedule database into a work dir. They count as trials."""
    from release_ray.exchange import import_database

    imported = import_database(work_dir, database)
    for line in imported.skipped:
        print(f"skipped {line}", file=sys.stderr)
    print(f"{imported.count} records imported, {len(imported.skipped)} skipped")


@app.command(
    epilog=options.examples(
        "records prune --work-dir tuning/resnet18 --failures",
        "records prune --work-dir tuning/resnet18 --superseded --keep-best 10",
    )
)
def prune(
    work_dir: _WorkDir,
    failures: Annotated[
        bool, typer.Option("--failures", help="Delete candidates that gave no measurement.")
    ] = False,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Delete what a --fresh run has hidden.")
    ] = False,
    keep_best: Annotated[
        int | None, typer.Option(min=1, help="Keep only so many candidates a task.")
    ] = None,
) -> None:
    """Delete records for good. What is deleted no longer counts as a trial."""
    from release_ray.records import Records
    from release_ray.workdir import WorkDir

    if not (failures or superseded or keep_best):
        raise InputError("records prune: say what to delete: --failures, --superseded, --keep-best")
    identity = WorkDir.existing(work_dir).identity
    with (
        WorkDir.locked(work_dir, identity) as workdir,
        Records.open(workdir.records, create=False) as records,
    ):
        deleted = records.prune(superseded=superseded, failures=failures, keep_best=keep_best)
    print(f"{deleted} records deleted")
