"""The machines of a cluster and what they have: cores, memory, GPUs."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from release_ray.core.errors import InputError
from release_ray.measure.gpus import LIBRARY

_PROBE_TIMEOUT_S = 60.0
_REACH_S = 5.0
_DYING_S = 40.0
"""Ray takes half of that to see that a node is dead."""
_AGAIN_S = 1.0
_INSTALL_TIMEOUT_S = 1800.0
"""A node may have to install a job's packages before it can answer."""


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
    compiler: str = ""
    """What compiles and runs kernels there, with its versions."""


def answers(address: str) -> bool:
    """Whether somebody listens at a `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _REACH_S):
            return True
    except (OSError, ValueError, OverflowError):
        return False


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
        compiler=_compiler(),
    )


def require_same_compiler(hosts: Iterable[Host]) -> None:
    """Raises `InputError` where one has another TVM than this process, or none."""
    here = _compiler()
    for host in hosts:
        if host.compiler not in ("", here):
            raise InputError(
                f"the node {host.name} has {host.compiler}, and here is {here}: install the same"
                " there, or submit a job that brings it along (scripts/jobs)"
            )


def cluster_hosts(unfit: Callable[[str, str], None] | None = None) -> list[Host]:
    """The nodes of the cluster that this process has joined, this process's own first.

    One that dies meanwhile is left out.

    Args:
        unfit: is told the id of a node that cannot run this package, and why; it is left out.

    Raises:
        InputError: there is such a node, and nobody to be told.
    """
    import ray

    here = ray.get_runtime_context().get_node_id()
    found: list[Host] = []
    deadline = time.monotonic() + _DYING_S
    waiting = _living()
    while waiting:
        # This node's too, for its workers may have another Python than this process.
        asked = {name: _probe(node) for name, node in waiting.items()}
        again = []
        for name, reply in asked.items():
            try:
                found.append(ray.get(reply, timeout=_INSTALL_TIMEOUT_S))
            except _gone_errors() as error:
                if time.monotonic() < deadline:
                    again.append(name)
                else:
                    _refuse(waiting[name], error, unfit)
            except ray.exceptions.RayError as error:
                _refuse(waiting[name], error, unfit)
        if again:
            # A dead node is not known to be dead at once.
            time.sleep(_AGAIN_S)
        waiting = {name: node for name, node in _living().items() if name in again}
    # Workers here may keep off cores that a pool has taken; this process may use them all.
    cores = tuple(sorted(os.sched_getaffinity(0)))
    hosts = [replace(host, cores=cores) if host.node == here else host for host in found]
    return sorted(hosts, key=lambda host: (host.node != here, host.name, host.node))


def _living() -> dict[str, Mapping[str, Any]]:
    """The nodes that Ray takes to be alive, by their ids."""
    import ray

    return {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}


def _probe(node: Mapping[str, Any]) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    probe: Any = ray.remote(this_host)
    options = probe.options(num_cpus=0, max_retries=0, scheduling_strategy=there)
    return options.remote(node["NodeID"], _gpu_count(node))


def _gone_errors() -> tuple[type[Exception], ...]:
    """What Ray says where a node does not answer, whatever is installed there."""
    from ray import exceptions

    return (
        exceptions.TaskUnschedulableError,
        exceptions.NodeDiedError,
        exceptions.WorkerCrashedError,
        exceptions.LocalRayletDiedError,
    )


def _refuse(
    node: Mapping[str, Any], error: Exception, unfit: Callable[[str, str], None] | None
) -> None:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = (
        f"the node {node['NodeManagerAddress']} of the cluster cannot run release_ray"
        f" ({lines[-1]}): install the same there as here, or submit a job that brings it along"
        " (scripts/jobs)"
    )
    if unfit is None:
        raise InputError(reason) from error
    unfit(node["NodeID"], reason)


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


def _compiler() -> str:
    found = []
    for name in ("apache-tvm", "apache-tvm-ffi"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return " and ".join(found)


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
