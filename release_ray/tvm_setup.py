"""The way TVM is entered: the pinned pair is checked and only the needed intrinsics are registered.

`tvm.s_tir.tensor_intrin` parses the tensor intrinsics of every back end when it is imported, which
takes 15 to 25 s, and `TuneContext` and the builders import it. `prepare` puts a package in its
place that holds the asked-for back ends alone; the others are still found when something names
them (`from tvm.s_tir.tensor_intrin.cuda import ...`).
"""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys
from collections.abc import Iterable
from importlib import metadata
from types import ModuleType
from typing import Final

from release_ray.core.errors import InputError

PINS: Final = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
"""Distributions and the versions that work together: 0.1.15 of the second segfaults."""

PACKAGE: Final = "tvm.s_tir.tensor_intrin"

BACK_ENDS: Final = {
    "x86": ("x86",),
    "arm_cpu": ("arm_cpu",),
    "riscv_cpu": ("riscv_cpu",),
    "cuda": ("cuda", "dot_product_common"),
    "rocm": ("rocm",),
    "hexagon": ("hexagon",),
    "metal": ("metal",),
}
"""Sub-modules of the package for each back end. A kind that is not listed needs none."""


def prepare(kinds: Iterable[str] = ("llvm",)) -> None:
    """Import TVM and register the tensor intrinsics of some target kinds, once or many times.

    Args:
        kinds: target kinds ("llvm" is this host's architecture) or architectures of `BACK_ENDS`.
    """
    package = sys.modules.get(PACKAGE)
    if package is None:
        package = _install()
    if not isinstance(package, _LightPackage):
        return  # somebody imported the real package: everything is registered
    for kind in kinds:
        for name in BACK_ENDS.get(host_back_end() if kind == "llvm" else kind, ()):
            importlib.import_module(f"{PACKAGE}.{name}")


def host_back_end() -> str:
    """This host's key of `BACK_ENDS`, or the machine's name where there is none."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64", "i386", "i686"):
        return "x86"
    if machine.startswith(("aarch64", "arm")):
        return "arm_cpu"
    return "riscv_cpu" if machine.startswith("riscv") else machine


def check_pins() -> None:
    """Check that the installed TVM is the pair that works, before anything imports it.

    Raises:
        InputError: another version is installed, or none; it says what to install.
    """
    found = {name: _version(name) for name in PINS}
    wrong = [
        f"{name} {version or 'is not installed'}"
        for name, version in found.items()
        if version != PINS[name]
    ]
    if wrong:
        pins = " ".join(f"{name}=={version}" for name, version in PINS.items())
        raise InputError(
            f"TVM: {', '.join(wrong)}; install the pair that works: pip install {pins}"
        )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


class _LightPackage(ModuleType):
    """Stands for the real package and imports a sub-module when it is named."""

    def __getattr__(self, name: str) -> ModuleType:
        # ModuleNotFoundError would surprise hasattr(); an attribute that is not there is one.
        if name.startswith("__") or importlib.util.find_spec(f"{PACKAGE}.{name}") is None:
            raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}")
        return importlib.import_module(f"{PACKAGE}.{name}")


def _install() -> _LightPackage:
    parent = importlib.import_module(PACKAGE.rpartition(".")[0])
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{PACKAGE} is no longer a package: this TVM is not {PINS['apache-tvm']}")
    package = _LightPackage(PACKAGE, doc="The tensor intrinsics of the back ends in use.")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    package.__package__ = PACKAGE
    sys.modules[PACKAGE] = package
    parent.tensor_intrin = package  # type: ignore[attr-defined]
    return package
