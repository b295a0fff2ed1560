"""What the parts have in common: a Ray that ends with the last of them, and an orderly end."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from release_ray import cluster
from release_ray.core.errors import InputError
from release_ray.measure.devices import device_kind, expand
from release_ray.measure.hosts import Host
from release_ray.measure.jobs import DeviceSpec

_users = 0
_address: str | None = None
_shared = ExitStack()


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Ray, started or joined for the first of the parts and left with the last.

    Raises `InputError` where another part has joined another one.
    """
    global _users, _address
    if not _users:
        _shared.enter_context(cluster.connected(address))
        _address = address
    elif address not in (None, _address):
        raise InputError(
            f"Ray is {_address or 'that of this program'} for the other parts already, and cannot "
            f"be {address} too: give all parts one address, or close the others"
        )
    _users += 1
    try:
        yield
    finally:
        _users -= 1
        if not _users:
            _shared.close()


def real_devices(text: str, hosts: Sequence[Host], target: str) -> list[DeviceSpec]:
    """What `devices` asks for. Raises `InputError` where these make their latencies up."""
    devices = expand(text, hosts, target=target)
    if any(device_kind(device.kind).simulated for device in devices):
        raise InputError(f"devices: {text} are simulated, and run none of MetaSchedule's kernels")
    return devices


def closed_with(owner: Any) -> ExitStack:
    """A stack that is closed when its owner is forgotten, and at the end of the program.

    Ray, which has been imported by now, ends after what was registered later.
    """
    stack = ExitStack()
    weakref.finalize(owner, stack.close).atexit = False
    atexit.register(stack.close)
    return stack
