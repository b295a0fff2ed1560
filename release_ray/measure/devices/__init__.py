"""Kinds of devices by name, and what a user's `--devices` means."""

from __future__ import annotations

import difflib
import importlib.util
import json
from collections.abc import Sequence

from release_ray.core.errors import InputError
from release_ray.core.registry import find
from release_ray.measure.devices.base import DeviceKind
from release_ray.measure.devices.cpu import CpuKind
from release_ray.measure.devices.cuda import CudaKind
from release_ray.measure.devices.rpc import RpcKind
from release_ray.measure.devices.sim import SimKind
from release_ray.measure.hosts import Host, this_host
from release_ray.measure.jobs import DeviceSpec

_KINDS: dict[str, DeviceKind] = {
    kind.name: kind for kind in (CpuKind(), CudaKind(), RpcKind(), SimKind())
}


def kinds() -> tuple[str, ...]:
    """The registered names."""
    return tuple(_KINDS)


def device_kind(name: str) -> DeviceKind:
    """The kind of that name, a registered one or `module:Class` of the user's own.

    Raises `InputError` for an unknown one, naming the nearest.
    """
    if name in _KINDS:
        return _KINDS[name]
    if ":" in name:
        return find("kind of device", name, {}, DeviceKind)()
    near = difflib.get_close_matches(name, ("auto", *_KINDS), n=1, cutoff=0.3)
    remedy = f"did you mean {near[0]}?" if near else f"use auto, {', '.join(_KINDS)}"
    raise InputError(f"devices: unknown kind {name!r}; {remedy}")


def expand(
    text: str, hosts: Sequence[Host] | None = None, *, target: str = "native"
) -> list[DeviceSpec]:
    """The devices that `--devices TEXT` asks for, at least one.

    Args:
        text: `auto`, `cpu`, `cpu:COUNTxCORES`, `cuda`, `cuda:MODEL`, `sim:COUNT`,
            `sim:COUNT?build_s=0.1`, `rpc://host:port/key`, or `module:Class?options`.
        hosts: where they may be, the driver's own first; default: this machine.
        target: the text of `--target`, which says what `auto` is.

    Raises:
        InputError: an unknown kind, or more than there is; it says what to ask for.
    """
    name, options = _named(text, target)
    return device_kind(name).expand(options, hosts or [this_host()])


def grows(devices: Sequence[DeviceSpec], text: str, *, target: str = "native") -> str:
    """What finds more devices like these, which `text` gave, in a cluster that has grown.

    Empty where the text said how many there are to be.
    """
    name, options = _named(text, target)
    return device_kind(name).grows(devices[0], options)


def _named(text: str, target: str) -> tuple[str, str]:
    name, _, options = text.partition(":")
    if name == "auto" and options:
        raise InputError(f"devices: auto takes no options: write cpu:{options}, or cuda:{options}")
    if name == "auto":
        return (CudaKind if is_cuda(target) else CpuKind).name, ""
    if name not in _KINDS and options:
        attribute, _, options = options.partition("?")
        # A class by its capital, as `lab:Meter`; `cuad:A100` is a slip.
        if attribute[:1].isupper() and importlib.util.find_spec(name.partition(".")[0]):
            return f"{name}:{attribute}", options
    return name, options


def is_cuda(target: str) -> bool:
    """Whether the text of a target names NVIDIA's GPUs; without TVM, so before it is imported."""
    if target.lstrip().startswith("{"):
        try:
            config = json.loads(target)
        except ValueError:
            return False  # whoever reads it in earnest says what is wrong with it
        words = [str(config.get("kind", "")), str(config.get("tag", ""))]
    else:
        words = target.split()[:1]
    return any(word == "cuda" or word.startswith("nvidia/") for word in words)
