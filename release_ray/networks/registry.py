"""Which source serves a name or a path.

Sources are imported when one is used: they bring torch, ONNX and TVM along, which take seconds, and
a mistyped name should be told at once.
"""

from __future__ import annotations

import difflib
import importlib
from pathlib import Path
from typing import Final

from release_ray.core.errors import InputError
from release_ray.networks.base import Network, NetworkSource
from release_ray.networks.files import existing_file

BUILT_IN_NAMES: Final = ("tiny", "alexnet", "vgg16", "resnet18")
BUILT_IN_SOURCE: Final = "release_ray.networks.builtin:BuiltInSource"
FILE_SOURCES: Final = {
    ".onnx": "release_ray.networks.onnx_file:OnnxSource",
    ".pt2": "release_ray.networks.exported:ExportedProgramSource",
}
"""The source of each suffix, as `module:Class`."""


def load(source: str, *, seed: int) -> Network:
    """The network that a name or a path means.

    Args:
        source: a built-in name, a path to an `.onnx` file, or a path to a `.pt2` archive.
        seed: of a built-in's random weights.

    Raises:
        InputError: see `NetworkSource.load`.
    """
    module, _, name = check(source).partition(":")
    kind: type[NetworkSource] = getattr(importlib.import_module(module), name)
    return kind().load(source, seed=seed)


def check(source: str) -> str:
    """The `module:Class` of the source that a name or a path means. Reads nothing of the network.

    Raises:
        InputError: none does, or there is no such file.
    """
    if not isinstance(source, str):
        raise InputError(f"network {source!r} is no text: give a built-in's name or a path")
    if source in BUILT_IN_NAMES:
        return BUILT_IN_SOURCE
    suffix = Path(source).suffix.lower()
    if suffix in FILE_SOURCES:
        existing_file(source)
        return FILE_SOURCES[suffix]
    known = ", ".join(BUILT_IN_NAMES)
    near = difflib.get_close_matches(source, BUILT_IN_NAMES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InputError(
        f"network {source!r} is neither a built-in ({known}) nor a .onnx or .pt2 file{hint}"
    )
