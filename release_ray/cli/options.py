"""Options that several commands share."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

Network = Annotated[
    str,
    typer.Argument(
        help="alexnet, vgg16, resnet18, tiny, an .onnx file, or a .pt2 archive of torch.export.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(help="native, cuda, or any TVM target as a string or JSON. \\[default: native]"),
]
WorkDir = Annotated[
    Path | None, typer.Option(help="Where everything goes. \\[default: tuning/NAME]")
]
Tasks = Annotated[
    list[str] | None, typer.Option(help="Only tasks whose name matches; may be repeated.")
]
Devices = Annotated[
    str | None,
    typer.Option(
        help="auto, cpu, cpu:COUNTxCORES, cuda, cuda:MODEL, rpc://host:port/key, sim:COUNT. "
        "\\[default: auto]"
    ),
]
Address = Annotated[
    str | None, typer.Option(help="A Ray cluster. \\[default: RAY_ADDRESS, else one is started]")
]
Storage = Annotated[
    str | None, typer.Option(help="Copy the work dir there after each round: any fsspec URL.")
]
Seed = Annotated[int | None, typer.Option(help="Fixes every random choice. \\[default: 0]")]
Config = Annotated[
    Path | None, typer.Option(help="A YAML file of settings; the command line wins.")
]
Json = Annotated[bool, typer.Option("--json", help="The result as one JSON line on stdout.")]
Verbose = Annotated[
    int, typer.Option("-v", "--verbose", count=True, help="More output; may be repeated.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Errors only.")]


class _Progress(Console):
    """A console that falls silent when its reader goes away, and lets the work go on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def console() -> Console:
    """Where progress and logs go: stderr. Stdout carries results alone."""
    return _Progress(stderr=True, markup=False)


def level(verbose: int, quiet: bool) -> int:
    """0 for quiet, 1 for normal, more for verbose; sets up logging to match."""
    chosen = 0 if quiet else 1 + verbose
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger().setLevel(
        {0: logging.ERROR, 1: logging.WARNING, 2: logging.INFO}.get(chosen, logging.DEBUG)
    )
    # Other packages' chatter is of use to nobody but at -vvv.
    chatter = chosen >= 4
    warnings.simplefilter("default" if chatter else "ignore")
    for name in ("ray", "tvm", "torch", "onnx"):
        logging.getLogger(name).setLevel(logging.NOTSET if chatter else logging.ERROR)
    return chosen


def results() -> Console:
    """Where results go: stdout, wide enough for a table where it is no terminal."""
    # What a failure says may look like markup.
    console = Console(markup=False)
    return console if console.is_terminal else Console(width=140, markup=False)


def examples(*lines: str) -> str:
    """The end of a command's help: calls of the program."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"release-ray {line}" for line in lines)])
