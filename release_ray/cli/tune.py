"""`release-ray tune`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from release_ray.cli import options
from release_ray.cli.view import View, tasks_table
from release_ray.configuration import load_settings, to_yaml
from release_ray.core.errors import WorkFailed


def tune(
    network: options.Network,
    target: options.Target = None,
    work_dir: options.WorkDir = None,
    trials: Annotated[
        int | None, typer.Option(help="Measurements in all. [default: 64 a task]")
    ] = None,
    trials_per_task: Annotated[int | None, typer.Option(help="Measurements a task.")] = None,
    time_budget: Annotated[
        str | None, typer.Option(help="Active time in all: 90s, 10m, 2h.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="ppo, random, or module:Class. [default: ppo]")
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(help="adaptive, greedy, or module:Class. [default: adaptive]")
    ] = None,
    tasks: options.Tasks = None,
    devices: options.Devices = None,
    builders: Annotated[
        int | None, typer.Option(help="Build actors. [default: the cores that devices leave]")
    ] = None,
    seed: options.Seed = None,
    config: options.Config = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings as YAML and stop.")
    ] = False,
    address: options.Address = None,
    storage: Annotated[
        str | None, typer.Option(help="Copy the work dir there after each round: any fsspec URL.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore earlier records.")] = False,
    json: options.Json = False,
    verbose: options.Verbose = 0,
    quiet: options.Quiet = False,
) -> int:
    """Tune a network: search, measure, compile, verify. A second run in a work dir resumes.

    Examples:

        release-ray tune resnet18

        release-ray tune model.onnx --time-budget 10m --work-dir out

        release-ray tune tiny --devices sim:2 --trials 100 --json
    """
    settings = load_settings(
        config,
        {
            "target": target,
            "policy": policy,
            "sampler": sampler,
            "tasks": tuple(tasks) if tasks else None,
            "devices": devices,
            "builders": builders,
            "seed": seed,
            "budget.trials": trials,
            "budget.trials_per_task": trials_per_task,
            "budget.time_budget": time_budget,
        },
    )
    if print_config:
        print(to_yaml(settings), end="")
        return 0
    level = options.level(verbose, quiet)

    from release_ray.session import run_tuning

    with View(options.console(), level) as view:
        result = run_tuning(
            network,
            settings,
            work_dir=work_dir,
            address=address,
            storage=storage,
            fresh=fresh,
            listener=view,
        )
    if json:
        print(result.to_json_line())
    elif level:
        _print_result(result)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.status == "failed":
        raise WorkFailed(result.reason)
    return 0
