"""Whose the top-level packages are: their names are common, and others of them hide these."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOMS: Final = ("envs", "policies", "samplers")


def foreign() -> Mapping[str, str]:
    """Those that are not this program's, with where they are; nowhere if they cannot be found.

    Nothing is imported to find it out.
    """
    home = Path(__file__).resolve().parents[1]
    found = {}
    for name in ROOMS:
        spec = importlib.util.find_spec(name)
        # One without an __init__.py is nothing but folders.
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        where = next(filter(None, places), "")
        if not where or Path(where).resolve() != home / name / "__init__.py":
            found[name] = where
    return found
