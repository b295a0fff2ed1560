"""`release-ray tasks`, `devices` and `doctor`: a look at what there is, without tuning."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from release_ray.cli import options
from release_ray.configuration import load_settings

if TYPE_CHECKING:
    from release_ray.discovery import DeviceReport


def tasks(
    network: options.Network,
    target: options.Target = None,
    tasks: options.Tasks = None,
    devices: options.Devices = None,
    seed: options.Seed = None,
    config: options.Config = None,
    json: options.Json = False,
) -> None:
    """List a network's tuning tasks: weight, FLOPs, knobs, size of the design space."""
    settings = load_settings(
        config,
        {
            "target": target,
            "tasks": tuple(tasks) if tasks else None,
            "devices": devices,
            "seed": seed,
        },
    )
    from release_ray.prepare import local_devices, prepare
    from release_ray.sketches import Sketches

    prepared = prepare(network, settings, local_devices(settings))
    spaces = [
        (task, Sketches(task).space) for task in prepared.tasks if task.name in prepared.chosen
    ]
    if json:
        rows = [
            {
                "name": task.name,
                "weight": task.weight,
                "flops": task.flops,
                "sketches": len(space.sketches),
                "knobs": space.width - 1,
                "size": space.size,
            }
            for task, space in spaces
        ]
        print(json_module.dumps(rows))
        return
    table = Table(title=f"{prepared.network.name}: {len(spaces)} tasks", title_justify="left")
    table.add_column("task", overflow="fold")
    for column in ("weight", "MFLOPs", "sketches", "knobs", "configurations"):
        table.add_column(column, justify="right")
    for task, space in spaces:
        table.add_row(
            task.name,
            str(task.weight),
            f"{task.flops / 1e6:.1f}",
            str(len(space.sketches)),
            str(space.width - 1),
            f"{space.size:.3g}" if space.size >= 1e6 else str(space.size),
        )
    options.results().print(table)


def devices(
    devices: options.Devices = None,
    target: options.Target = None,
    address: options.Address = None,
    config: options.Config = None,
    json: options.Json = False,
) -> int:
    """Show what the pool would use, and time a fixed kernel (a canary) on each device."""
    settings = load_settings(config, {"devices": devices, "target": target})
    from release_ray.discovery import examine_devices

    rows = examine_devices(settings, address)
    if json:
        print(json_module.dumps(rows))
    else:
        table = Table(title_justify="left")
        for column in ("device", "host", "kind", "model", "cores or GPU"):
            table.add_column(column, overflow="fold")
        for column in ("GFLOPS", "spread"):
            table.add_column(column, justify="right")
        table.add_column("unfit because", overflow="fold")
        for row in rows:
            table.add_row(
                row["device"],
                row["host"],
                row["kind"],
                row["model"],
                _place(row),
                f"{row['gflops']:.1f}" if row["gflops"] else "–",
                f"{row['spread']:.1%}" if row["spread"] is not None else "–",
                row["unfit"] or "",
            )
        options.results().print(table)
    return 1 if all(row["unfit"] for row in rows) else 0


def _place(row: DeviceReport) -> str:
    if row["gpu"]:
        return f"GPU {row['gpu']}"
    cores = ", ".join(str(core) for core in row["cores"])
    return f"core{'s' if len(row['cores']) > 1 else ''} {cores}" if cores else "–"


def doctor(
    target: options.Target = None,
    address: options.Address = None,
    json: options.Json = False,
) -> int:
    """Check versions, pins, host, target and cluster; exit status 1 if something cannot work."""
    from release_ray.doctor import examine

    findings = examine(address, target or "native")
    if json:
        print(json_module.dumps([finding._asdict() for finding in findings]))
    else:
        for finding in findings:
            mark = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}[finding.level]
            typer.echo(f"{mark}  {finding.subject}: {finding.message}")
    return 1 if any(finding.level == "error" for finding in findings) else 0
