"""CPU devices: some cores of a host, on which nothing else runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

from release_ray.core.errors import InputError
from release_ray.measure.devices.compiled import ChildWorker, CompiledKind
from release_ray.measure.devices.cores import CoreLocks
from release_ray.measure.hosts import Host
from release_ray.measure.jobs import DeviceSpec


class CpuWorker(ChildWorker):
    """Times kernels in a child process that is pinned to the device's cores."""

    device = "cpu"
    _locks: CoreLocks | None = None

    def start(self) -> None:
        if self._locks is None:
            self._locks = CoreLocks(self._spec.cores)
        super().start()

    def close(self) -> None:
        super().close()
        if self._locks is not None:
            self._locks.release()


class CpuKind(CompiledKind):
    """`cpu`, or `cpu:COUNTxCORES`: COUNT devices of CORES cores each, from the last core down.

    Without a count it is one device a machine, of all cores but one, and from five cores on all
    but a quarter: what is left builds, searches and runs Ray. In a cluster only machines with the
    first one's processor are taken, for that is what is tuned for.
    """

    name: ClassVar[str] = "cpu"
    worker_class: ClassVar[type[ChildWorker]] = CpuWorker
    builds: ClassVar[bool] = True

    def expand(self, options: str, hosts: Sequence[Host]) -> list[DeviceSpec]:
        alike = _machines(host for host in hosts if host.processor == hosts[0].processor)
        if options:
            placed = self._counted(options, alike)
        else:
            width = min(len(host.cores) - _left_free(len(host.cores)) for host in alike)
            placed = [(host, host.cores[len(host.cores) - width :]) for host in alike]
        return [
            DeviceSpec(f"cpu:{i}", self.name, cores, node=host.node, model=host.processor)
            for i, (host, cores) in enumerate(placed)
        ]

    def grows(self, spec: DeviceSpec, options: str) -> str:
        return "" if options else self.name

    @staticmethod
    def _counted(options: str, hosts: Sequence[Host]) -> list[tuple[Host, tuple[int, ...]]]:
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", options)
        if match is None:
            raise InputError(
                f"devices: cannot read cpu:{options}; write cpu:COUNTxCORES as cpu:2x4"
            )
        count, width = int(match[1]), int(match[2])
        shares = [0] * len(hosts)
        for _ in range(count):
            # Spread, so that each has as much as possible left to build with.
            left = [len(h.cores) - share * width for h, share in zip(hosts, shares, strict=True)]
            widest = max(range(len(hosts)), key=left.__getitem__)
            if left[widest] < width:
                there = ", ".join(str(len(host.cores)) for host in hosts)
                raise InputError(
                    f"devices: cpu:{options} asks for {count * width} cores and this process may"
                    f" use {there}; ask for fewer"
                )
            shares[widest] += 1
        return [
            (host, host.cores[start : start + width])
            for host, share in zip(hosts, shares, strict=True)
            for start in range(len(host.cores) - share * width, len(host.cores), width)
        ]


def _machines(hosts: Iterable[Host]) -> list[Host]:
    """One host for each machine: nodes on the same one have the same cores."""
    return list({host.machine: host for host in reversed(list(hosts))}.values())[::-1]


def _left_free(cores: int) -> int:
    """Cores of a machine that are left to everything but measuring."""
    return 0 if cores == 1 else 1 if cores <= 4 else cores // 4
