"""`release-ray tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from release_ray.cli import options
from release_ray.cli.view import View, tasks_table
from release_ray.configuration import check_search, load_settings, to_yaml
from release_ray.core.errors import Interrupted, WorkFailed
from release_ray.core.settings import TuneSettings
from release_ray.events import TaskSummary

if TYPE_CHECKING:
    from release_ray.result import Result


def tune(
    network: options.Network,
    target: options.Target = None,
    work_dir: options.WorkDir = None,
    trials: Annotated[
        int | None, typer.Option(help="Measurements in all. \\[default: 64 a task]")
    ] = None,
    trials_per_task: Annotated[int | None, typer.Option(help="Measurements a task.")] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(help="Of tuning in all: 90s, 10m, 2h; checks and compiling come on top."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="ppo, annealing, genetic, evolutionary, random, or module:Class. \\[default: ppo]"
        ),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(help="adaptive, greedy, or module:Class. \\[default: adaptive]")
    ] = None,
    tasks: options.Tasks = None,
    devices: options.Devices = None,
    builders: Annotated[
        int | None, typer.Option(help="Build actors. \\[default: the cores that devices leave]")
    ] = None,
    seed: options.Seed = None,
    config: options.Config = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings as YAML and stop.")
    ] = False,
    address: options.Address = None,
    storage: options.Storage = None,
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
        check_search(settings)
        print(to_yaml(settings), end="")
        return 0
    return tune_network(
        network,
        settings,
        work_dir=work_dir,
        address=address,
        storage=storage,
        fresh=fresh,
        json=json,
        level=options.level(verbose, quiet),
    )


def tune_network(
    network: str,
    settings: TuneSettings,
    *,
    work_dir: Path | None = None,
    address: str | None = None,
    storage: str | None = None,
    fresh: bool = False,
    json: bool = False,
    level: int = 1,
) -> int:
    """Tunes a network, shows its progress and prints its result; `level` is of `options.level`."""
    from release_ray.session import default_work_dir, run_tuning

    path = work_dir or default_work_dir(network)
    try:
        with View(options.console(), level) as view:
            result = run_tuning(
                network,
                settings,
                work_dir=path,
                address=address,
                storage=storage,
                fresh=fresh,
                listener=view,
            )
    except (Interrupted, WorkFailed) as end:
        if json and end.result is not None:
            print(end.result.to_json_line())
        raise
    if json:
        print(result.to_json_line())
    elif level:
        _print_result(result, path, storage)
    return 0


def _print_result(result: Result, work_dir: Path, storage: str | None) -> None:
    console = options.results()
    console.print(
        tasks_table(
            [
                TaskSummary(t.name, t.weight, t.flops, t.trials, t.best_latency_s)
                for t in result.tasks
            ],
            f"{result.network}: {result.trials} trials in {result.wall_s:.0f} s",
        )
    )
    cpu, idle = result.cpu_s, result.device_idle_share
    total = max(cpu.search + cpu.build + cpu.run + cpu.other, 1e-9)
    print(
        f"CPU time  search {cpu.search / total:.0%}, build {cpu.build / total:.0%}, "
        f"run {cpu.run / total:.0%}, other {cpu.other / total:.0%}"
        + (f"; devices idle {idle:.0%}" if idle is not None else "")
    )
    if result.failures:
        print("failed    " + ", ".join(f"{n} {status}" for status, n in result.failures.items()))
    latency = result.latency_ms
    if latency.default and latency.tuned:
        print(
            f"latency   {latency.default:.3f} ms -> {latency.tuned:.3f} ms "
            f"({latency.default / latency.tuned:.2f}x); "
            f"max relative error {result.max_rel_error:.1e}"
        )
        print(f"model     {work_dir / 'model.so'}")
    print(f"records   {work_dir / 'records.db'}")
    if storage:
        print(f"copy      {storage}")
