"""What is wrong with this machine's set-up, and how to mend it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from release_ray import tvm_setup
from release_ray.core.errors import InputError
from release_ray.measure.gpus import LIBRARY
from release_ray.packages import ROOMS, foreign
from release_ray.versions import versions

_SHARED_MEMORY_BYTES = 512 * 2**20
_CANARY = "release_ray.measure.handlers:canary"
_KERNEL_S = 60.0
_CUDA = (LIBRARY, "libcudart.so.13")
"""What TVM's CUDA runtime is linked with: the driver, and the runtime of CUDA 13."""


class Finding(NamedTuple):
    """One thing that was looked at. An `error` would make a run fail, a `warning` may spoil it."""

    level: Literal["ok", "warning", "error"]
    subject: str
    message: str


def examine(address: str | None = None, target: str = "native") -> list[Finding]:
    """Looks at versions, pins, packages, the host, a kernel for the target, and the cluster.

    The cluster is looked at where one is named, here or by `RAY_ADDRESS`; then the target is that
    of its nodes, and `release-ray devices` looks at those.
    """
    findings = [_python(), _pins(), _ray(), *_rooms(), _linker()]
    findings += [_load(), _frequency(), _shared_memory()]
    address = address or os.environ.get("RAY_ADDRESS")
    if address:
        findings.append(_cluster(address))
    elif not any(finding.level == "error" for finding in findings):
        findings.append(_kernel(target))
    return findings


def _python() -> Finding:
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    return Finding("ok", "versions", found)


def _pins() -> Finding:
    try:
        tvm_setup.check_pins()
    except InputError as error:
        return Finding("error", "pins", str(error))
    return Finding("ok", "pins", "apache-tvm and apache-tvm-ffi are the pair that works")


def _ray() -> Finding:
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        return Finding("error", "ray", "is not installed: pip install 'ray[default,rllib,tune]'")
    if importlib.util.find_spec("aiohttp") is None:
        return Finding(
            "warning", "ray", f"{version}, without its dashboard: pip install 'ray[default]'"
        )
    return Finding("ok", "ray", version)


def _rooms() -> list[Finding]:
    findings = [
        Finding(
            "error",
            name,
            f"is another package's ({where}): uninstall that one, or use a virtual environment of "
            "its own"
            if where
            else "cannot be imported: install release_ray again",
        )
        for name, where in foreign().items()
    ]
    return findings or [Finding("ok", "packages", f"{', '.join(ROOMS)} are release_ray's own")]


def _linker() -> Finding:
    if shutil.which("g++") is None and shutil.which("c++") is None:
        return Finding("error", "compiler", "no g++ to link model.so: apt-get install g++")
    if shutil.which("ld") is None:
        return Finding("warning", "linker", "no ld: candidates load slower; install binutils")
    return Finding("ok", "linker", "g++ and ld are there")


def _load() -> Finding:
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    processor = f"{cores} cores, {platform.machine()}"
    if load > 0.5 * cores:
        return Finding(
            "warning",
            "host",
            f"{processor}, load {load:.1f} over the last minute: what still runs disturbs "
            "measurements",
        )
    return Finding("ok", "host", f"{processor}, load {load:.1f}")


def _frequency(cpus: Path = Path("/sys/devices/system/cpu")) -> Finding:
    """Whether cores change their clock as they like. Virtual machines do not show it."""
    found = set()
    for path in cpus.glob("cpu*/cpufreq/scaling_governor"):
        # Of a core that is offline it cannot be read.
        with suppress(OSError):
            found.add(path.read_text().strip())
    slow = ", ".join(sorted(found - {"performance"}))
    if slow:
        return Finding(
            "warning",
            "frequency",
            f"the cores' governor is {slow}: latencies depend on what ran before; "
            "sudo cpupower frequency-set -g performance",
        )
    return Finding("ok", "frequency", "governor performance" if found else "no scaling to be seen")


def _kernel(target: str) -> Finding:
    """Builds a kernel for the target and runs it, in a child: it may be no code for this host."""
    from release_ray.measure.process import Child, ChildFailure
    from release_ray.targets import back_end, resolve, target_json

    try:
        resolved = resolve(target, 1)
    except InputError as error:
        return Finding("error", "target", str(error))
    if resolved.kind.name == "cuda":
        return _cuda()
    if resolved.kind.name != "llvm":
        return Finding(
            "ok", "target", f"{target} is none of processors: see release-ray devices --target"
        )
    child = Child(cores=(), threads=1, kinds=[back_end(resolved)], jobs_per_worker=1)
    try:
        child.wait_ready()
        canary = child.call(_CANARY, "cpu", target_json(resolved), timeout_s=_KERNEL_S).value
    except ChildFailure as failure:
        remedy = "use --target native" if target != "native" else "is LLVM wrong about it?"
        return Finding(
            "error", "target", f"{target} does not run on this host: {failure}; {remedy}"
        )
    finally:
        child.close()
    return Finding("ok", "target", f"a kernel for {target} runs, at {canary.gflops:.0f} GFLOPS")


def _cuda() -> Finding:
    """Whether this machine has what TVM's wheel needs to make code for GPUs, and to run it."""
    missing = [library for library in _CUDA if not _loads(library)]
    if shutil.which("nvcc") is None:
        missing.append("nvcc")
    if missing:
        return Finding(
            "warning",
            "target",
            f"this machine lacks {', '.join(missing)}, so no GPU can be measured here: install "
            "NVIDIA's driver and the CUDA toolkit 13; of a cluster's nodes release-ray devices "
            "--target cuda tells",
        )
    return Finding("ok", "target", "CUDA's driver, runtime and compiler are there")


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _shared_memory() -> Finding:
    free = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else 0
    if free < _SHARED_MEMORY_BYTES:
        return Finding(
            "warning",
            "shared memory",
            f"/dev/shm has {free >> 20} MiB free: Ray wants {_SHARED_MEMORY_BYTES >> 20} MiB",
        )
    return Finding("ok", "shared memory", f"{free >> 20} MiB free")


def _cluster(address: str) -> Finding:
    from release_ray.cluster import connected

    try:
        with connected(address):
            import ray

            resources = ray.cluster_resources()
    except InputError as error:
        return Finding("error", "cluster", str(error))
    return Finding("ok", "cluster", f"{address}: {resources.get('CPU', 0):.0f} CPUs")
