"""Which source serves a name or a path."""

from __future__ import annotations

import difflib
from typing import Final

from release_ray.core.errors import InputError
from release_ray.networks.base import Network, NetworkSource
from release_ray.networks.builtin import BUILT_INS, BuiltInSource
from release_ray.networks.exported import ExportedProgramSource
from release_ray.networks.files import existing_file
from release_ray.networks.onnx_file import OnnxSource

SOURCES: Final[tuple[NetworkSource, ...]] = (
    BuiltInSource(),
    OnnxSource(),
    ExportedProgramSource(),
)


def known_networks() -> list[str]:
    """Names of the built-in networks."""
    return list(BUILT_INS)


def load(source: str, *, seed: int) -> Network:
    """The network that a name or a path means.

    Args:
        source: a built-in name, a path to an `.onnx` file, or a path to a `.pt2` archive.
        seed: of a built-in's random weights.

    Raises:
        InputError: see `NetworkSource.load`.
    """
    return find(source).load(source, seed=seed)


def find(source: str) -> NetworkSource:
    """The source that a name or a path means. Reads nothing of the network.

    Raises:
        InputError: none does, or there is no such file.
    """
    for candidate in SOURCES:
        if candidate.accepts(source):
            if source not in BUILT_INS:
                existing_file(source)
            return candidate
    known = ", ".join(known_networks())
    near = difflib.get_close_matches(source, known_networks(), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InputError(
        f"network {source!r} is neither a built-in ({known}) nor a .onnx or .pt2 file{hint}"
    )
