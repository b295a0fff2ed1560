"""Extension points by name: a short, registered one, or `module:Class` of the user's own."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import TypeVar

from release_ray.core.errors import InputError

Base = TypeVar("Base")


def find(what: str, name: str, registered: Mapping[str, str], base: type[Base]) -> type[Base]:
    """The class of a name, which derives from `base`.

    Args:
        what: the extension point, as messages call it: `policy`.
        registered: `module:Class` of each short name; imported only when it is asked for.

    Raises:
        InputError: there is none; it names the nearest short name.
    """
    path = registered.get(name, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, registered, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "use one of " + ", ".join(registered)
        raise InputError(f"no {what} {name!r}: {hint} (or give module:Class)")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{what} {name!r} cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, base)):
        home = base.__module__.partition(".")[0]
        raise InputError(f"{what} {name!r} is no class derived from {home}.{base.__name__}")
    return kind
