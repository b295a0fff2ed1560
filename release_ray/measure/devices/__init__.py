"""Kinds of devices by name, and what a user's `--devices` means."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence

from release_ray.core.errors import InputError
from release_ray.measure.devices.base import DeviceKind
from release_ray.measure.devices.cpu import CpuKind
from release_ray.measure.devices.sim import SimKind
from release_ray.measure.jobs import DeviceSpec

_KINDS: dict[str, DeviceKind] = {kind.name: kind for kind in (CpuKind(), SimKind())}
_LATER = ("cuda", "rpc")


def kinds() -> tuple[str, ...]:
    """The registered names."""
    return tuple(_KINDS)


def device_kind(name: str) -> DeviceKind:
    """The kind of that name. Raises `InputError` for an unknown one, naming the nearest."""
    if name in _KINDS:
        return _KINDS[name]
    if name in _LATER:
        raise InputError(f"devices: {name} is not available in this version; use cpu or sim")
    near = difflib.get_close_matches(name, ("auto", *_KINDS), n=1, cutoff=0.3)
    remedy = f"did you mean {near[0]}?" if near else f"use auto, {', '.join(_KINDS)}"
    raise InputError(f"devices: unknown kind {name!r}; {remedy}")


def expand(text: str, cores: Sequence[int] | None = None) -> list[DeviceSpec]:
    """The devices that `--devices TEXT` asks for, at least one.

    Args:
        text: `auto`, `cpu`, `cpu:COUNTxCORES`, `sim:COUNT`, `sim:COUNT?build_s=0.1`.
        cores: CPU cores to choose from; default: those that this process may use.

    Raises:
        InputError: an unknown kind, or more than there is; it says what to ask for.
    """
    name, _, options = text.partition(":")
    if name == "auto":
        name, options = CpuKind.name, ""
    return device_kind(name).expand(options, sorted(cores or os.sched_getaffinity(0)))
