"""`release-ray compile`, `bench` and `report`: what earlier runs have left, made use of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from release_ray.cli import options
from release_ray.configuration import load_settings

_WorkDir = Annotated[Path, typer.Option(help="Of an earlier `tune`.", show_default=False)]


def compile(  # noqa: A001 - the command's name
    network: options.Network,
    work_dir: _WorkDir,
    output: Annotated[Path, typer.Option("-o", "--output", help="The library.")] = Path("model.so"),
    target: options.Target = None,
    seed: options.Seed = None,
    config: options.Config = None,
) -> None:
    """Compile a network with the best records of a work dir into a library."""
    settings = load_settings(config, {"target": target, "seed": seed})
    from release_ray.rebuild import compile_from

    compile_from(network, settings, work_dir, output)
    print(output)


def bench(
    network: options.Network,
    work_dir: _WorkDir,
    target: options.Target = None,
    devices: options.Devices = None,
    seed: options.Seed = None,
    address: options.Address = None,
    config: options.Config = None,
    json: options.Json = False,
) -> None:
    """Measure the default network against the tuned one, in one run."""
    settings = load_settings(config, {"target": target, "seed": seed, "devices": devices})
    from release_ray.rebuild import bench_from

    deployment = bench_from(network, settings, work_dir, address)
    if json:
        import json as json_module
        from dataclasses import asdict

        print(json_module.dumps(asdict(deployment)))
        return
    ratio = deployment.default_ms / deployment.tuned_ms
    print(f"default  {deployment.default_ms:.3f} ms")
    print(f"tuned    {deployment.tuned_ms:.3f} ms  ({ratio:.2f}x)")
    print(f"max relative error against the reference: {deployment.max_rel_error:.2g}")


def report(
    work_dir: Annotated[
        list[Path],
        typer.Option(help="Of an earlier `tune`; repeat it to compare.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Default: report.html in the first work dir."),
    ] = None,
) -> None:
    """Write one HTML page about a run, or about several side by side; it needs no network."""
    from release_ray.report import write_report

    print(write_report(work_dir, output))
