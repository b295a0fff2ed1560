"""The versions that results depend on. Nothing is imported to find them out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from types import MappingProxyType

VERSIONS = ("release_ray", "apache-tvm", "apache-tvm-ffi", "ray", "torch", "numpy", "xgboost-cpu")


@cache
def versions() -> Mapping[str, str]:
    """Versions of Python and of the packages that results depend on."""
    found = {"python": sys.version.split()[0]}
    for name in VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return MappingProxyType(found)
