"""The command line: the only part that prints, and that handles signals."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

from release_ray.core.errors import InputError, WorkFailed
from release_ray.packages import foreign

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
KEPT = "interrupted; everything measured is kept, the same command goes on from there"
_PATIENCE_S = 15.0


def main() -> None:
    """The `release-ray` program. Exit status: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    serve(lambda: run(sys.argv[1:]))


def serve(program: Callable[[], int]) -> None:
    """Runs a program to its end, and this process with it: signals, streams, exit status."""
    try:
        _handle_signals()
        status = program()
    except (KeyboardInterrupt, RuntimeError) as error:
        # Python wraps an interrupt that comes while a class is being made.
        if not isinstance(error, KeyboardInterrupt) and not isinstance(
            error.__cause__, KeyboardInterrupt
        ):
            raise
        _complain(KEPT)
        status = INTERRUPTED
    # Either stream may be closed, or its reader gone: then there is nobody to tell.
    with suppress(BrokenPipeError, ValueError, AttributeError):
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            _complain(_of_the_system(error))
            status = status or BAD_INPUT
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    # A search thread or a TVM thread pool may still run; everything that counts has been written.
    os._exit(status)


def run(arguments: list[str]) -> int:
    """Runs one command and returns its exit status. Errors are one line on stderr."""
    return explained(lambda: _command(_runnable(_given(arguments))))


def _runnable(arguments: list[str]) -> list[str]:
    """The arguments. Raises `InputError` where nothing but `doctor` can run."""
    others = {} if arguments[:1] == ["doctor"] else foreign()
    for name, where in others.items():
        raise InputError(
            f"the package {name} that Python finds is another one ({where or 'nowhere'}): "
            "uninstall that one, or use a virtual environment of its own"
        )
    return arguments


def _given(arguments: list[str]) -> list[str]:
    """The arguments. Raises `InputError` for an empty one, as an unset variable leaves it."""
    for before, argument in zip(["release-ray", *arguments], arguments, strict=False):
        option, equals, value = argument.partition("=")
        if not argument:
            raise InputError(f"the argument after {before} is empty: is a variable unset?")
        if option.startswith("--") and equals and not value:
            raise InputError(f"the argument {option} is empty: is a variable unset?")
    return arguments


def _command(arguments: list[str]) -> int:
    import typer

    from release_ray.cli.app import app

    # Typer carries its own copy of Click, whose base of usage errors it exports under no name.
    usage_error: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    try:
        status = app(arguments, prog_name="release-ray", standalone_mode=False)
    except usage_error as error:
        message = error.format_message().rstrip(".")
        if message:  # none where no command was given: then the help has been shown
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "release-ray"
            _complain(f"{message}; see `{command} --help`")
        return BAD_INPUT
    # Typer makes this status of a KeyboardInterrupt, without a word.
    if status == INTERRUPTED:
        _complain(KEPT)
    return status if isinstance(status, int) else DONE


def explained(command: Callable[[], int]) -> int:
    """A command's exit status; what ends it is one line on stderr and the status for that."""
    try:
        return command()
    except WorkFailed as error:
        _complain(str(error))
        return FAILED
    except InputError as error:
        _complain(str(error))
        return BAD_INPUT
    except BrokenPipeError:
        # The reader of a pipe has gone (`release-ray records show | head`): not an error of ours.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return DONE
    except OSError as error:
        _complain(_of_the_system(error))
        return BAD_INPUT


def _of_the_system(error: OSError) -> str:
    """A full disk, a missing permission: with the file's name, or else it was standard output."""
    return f"{error.filename or 'standard output'}: {error.strerror or error}"


def _complain(message: str) -> None:
    print("release-ray:", " ".join(message.split()), file=sys.stderr)


def _handle_signals() -> None:
    """SIGTERM ends a run as Ctrl-C does. A SIGINT that was ignored at the start stays ignored."""

    def interrupt(_signal: int, _frame: object) -> None:
        # An exception out of a handler can get lost in Ray's start-up, which then waits for ever.
        watchdog = threading.Timer(_PATIENCE_S, _give_up)
        watchdog.daemon = True
        watchdog.start()
        raise KeyboardInterrupt

    # An interrupt that meets a child between its fork and its program is nobody's to read about.
    tell = sys.unraisablehook
    sys.unraisablehook = lambda lost: lost.exc_type is KeyboardInterrupt or tell(lost)
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)


def _give_up() -> None:
    """Ends an interrupted program that has not ended by itself, and all that it has started."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
    _complain(KEPT)
    os._exit(INTERRUPTED)
