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


app.command()(tune)
app.command()(sweep)
app.command()(overview.tasks)
app.command()(overview.devices)
app.command()(outputs.compile)
app.command()(outputs.bench)
app.command()(outputs.report)
app.add_typer(records.app, name="records")
app.command()(overview.doctor)
