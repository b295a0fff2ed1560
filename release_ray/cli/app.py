"""The commands and their options. Each is thin: it reads options, calls the library, prints."""

from __future__ import annotations

import typer

from release_ray import __version__
from release_ray.cli import options, outputs, overview, records
from release_ray.cli.sweep import sweep
from release_ray.cli.tune import tune

app = typer.Typer(
    name="release-ray",
    help="Tunes the operators of a neural network for the hardware they will run on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"release-ray {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    options.level(verbose=0, quiet=False)


app.command(
    epilog=options.examples(
        "tune tiny",
        "tune model.onnx --time-budget 2h",
        "tune resnet18 --policy genetic --seed 1 --work-dir tuning/genetic",
        "tune resnet18 --address HEAD:6379 --target cuda",
    )
)(tune)
app.command(epilog=options.examples("sweep sweep.yaml"))(sweep)
app.command(epilog=options.examples("tasks resnet18", "tasks model.onnx --json"))(overview.tasks)
app.command(epilog=options.examples("devices", "devices --devices cpu:2x1"))(overview.devices)
app.command(epilog=options.examples("compile model.onnx --work-dir tuning/model -o best.so"))(
    outputs.compile
)
app.command(epilog=options.examples("bench model.onnx --work-dir tuning/model"))(outputs.bench)
app.command(
    epilog=options.examples(
        "report --work-dir tuning/resnet18",
        "report --work-dir tuning/a --work-dir tuning/b -o ab.html",
    )
)(outputs.report)
app.add_typer(records.app, name="records")
app.command(epilog=options.examples("doctor", "doctor --target 'llvm -mcpu=znver3'"))(
    overview.doctor
)
