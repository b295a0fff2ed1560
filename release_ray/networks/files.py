"""What both kinds of network files share: the checks before anything reads them."""

from __future__ import annotations

import hashlib
import io
import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from release_ray.core.errors import InputError


def existing_file(source: str) -> Path:
    """The path, once it is a file that holds something; InputError otherwise."""
    path = Path(source).expanduser()
    if path.is_dir():
        raise InputError(f"network {source!r} is a directory: give the file itself")
    if not path.is_file():
        raise InputError(f"network {source!r}: there is no such file")
    try:
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError(f"network {source!r} is an empty file: export it again")
    except OSError as error:
        raise InputError(f"network {source!r} cannot be read: {error.strerror}") from None
    return path


def digest(paths: Iterable[Path]) -> str:
    """SHA-256 of the files' contents, in this order."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


@contextmanager
def without_chatter() -> Iterator[None]:
    """Keeps frameworks from printing and warning, beside the exceptions that they raise.

    What they warn of is their own use of each other, which no user can mend.
    """
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def first_line(error: BaseException) -> str:
    """What an exception of a framework says, as one line without its traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
