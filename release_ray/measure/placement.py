"""Where actors go: devices where their hardware is, builders on the cores that devices leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from release_ray.measure.hosts import Host
from release_ray.measure.jobs import DeviceSpec

BUILDER_BYTES = 2**30
"""Memory that a builder may come to need: the compiler, twice, and what it builds."""


def spread_builders(
    hosts: Sequence[Host], devices: Sequence[DeviceSpec], count: int | None = None
) -> list[str]:
    """The node of each builder. One goes where most cores are left, and so does the next.

    Args:
        hosts: where builders may be.
        devices: these have cores of their own, and each GPU needs one to be driven.
        count: how many; default: one a core that devices leave, as far as memory allows, at
            least 1. Simulated devices, which have no cores, need 1.
    """
    left = {host.node: _cores_left(host, devices) for host in hosts}
    if count is None:
        hardware = any(d.cores or d.gpus or d.address for d in devices)
        count = max(1, sum(max(0, free) for free in left.values())) if hardware else 1
    nodes = []
    for _ in range(count):
        node = max(left, key=left.__getitem__)
        left[node] -= 1
        nodes.append(node)
    return nodes


def on_node(node: str) -> dict[str, Any]:
    """Ray's options that put an actor on a node, and nowhere else."""
    if not node:
        return {}
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def here(devices: Sequence[DeviceSpec]) -> list[DeviceSpec]:
    """Those of the devices that are on the node of this process, which Ray has started."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    return [device for device in devices if device.node in ("", node)]


def _cores_left(host: Host, devices: Sequence[DeviceSpec]) -> int:
    mine = [device for device in devices if device.node == host.node]
    taken = sum(len(device.cores) or device.gpus for device in mine)
    return min(len(host.cores) - taken, host.memory_bytes // BUILDER_BYTES)
