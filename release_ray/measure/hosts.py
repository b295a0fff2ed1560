"""The machines of a cluster and what they have: cores, memory, GPUs."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from release_ray.measure.gpus import LIBRARY

_PROBE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Gpu:
    """A GPU as its driver describes it."""

    model: str
    target: Mapping[str, Any] = field(default_factory=dict)
    """What TVM's target must say of it: `arch` and the bounds of a thread block."""


@dataclass(frozen=True)
class Host:
    """A node of a cluster. Several may lie on one machine, whose cores they then share."""

    name: str
    machine: str
    """The same for nodes on the same machine."""
    processor: str
    cores: tuple[int, ...]
    """CPU cores that processes there may use, ascending."""
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    node: str = ""
    """Ray's id of the node; empty where Ray has only this one."""


def this_host(node: str = "", gpus: int | None = None) -> Host:
    """The machine on which this runs.

    Args:
        node: Ray's id of it.
        gpus: how many GPUs there are to be had; default: as many as the driver finds.
    """
    found = _gpus() if gpus != 0 and _has_cuda() else ()
    if gpus is not None:
        # Ray may have been told of fewer than there are, and in a test of more.
        found = (found + (Gpu("unknown"),) * gpus)[:gpus]
    return Host(
        name=platform.node(),
        machine=_machine(),
        processor=_processor(),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        memory_bytes=psutil.virtual_memory().total,
        gpus=found,
        node=node,
    )


def cluster_hosts() -> list[Host]:
    """The nodes of the cluster that this process has joined, this process's own first."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if [node["NodeID"] for node in nodes] == [here]:
        return [this_host(here, _gpu_count(nodes[0]))]
    probe: Any = ray.remote(this_host)
    asked = [
        probe.options(
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote(node["NodeID"], _gpu_count(node))
        for node in nodes
    ]
    hosts = ray.get(asked, timeout=_PROBE_TIMEOUT_S)
    return sorted(hosts, key=lambda host: (host.node != here, host.name, host.node))


def _gpu_count(node: Mapping[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def _has_cuda() -> bool:
    try:
        ctypes.CDLL(LIBRARY)  # only loaded, not started
    except OSError:
        return False
    return True


def _gpus() -> tuple[Gpu, ...]:
    """What the CUDA driver says, asked in a process of its own: it must not start in this one."""
    try:
        asked = subprocess.run(
            [sys.executable, "-m", "release_ray.measure.gpus"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(Gpu(**gpu) for gpu in json.loads(asked.stdout))


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{platform.node()} {boot.read_text().strip() if boot.is_file() else ''}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
