"""What the parts have in common: a Ray that ends with the last of them, and an orderly end."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from release_ray import cluster

_users = 0
_shared = ExitStack()


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Ray, started or joined for the first of the parts and left with the last."""
    global _users
    if not _users:
        _shared.enter_context(cluster.connected(address))
    _users += 1
    try:
        yield
    finally:
        _users -= 1
        if not _users:
            _shared.close()


def closed_with(owner: Any) -> ExitStack:
    """A stack that is closed when its owner is forgotten, and at the end of the program.

    Ray, which has been imported by now, ends after what was registered later.
    """
    stack = ExitStack()
    weakref.finalize(owner, stack.close).atexit = False
    atexit.register(stack.close)
    return stack
