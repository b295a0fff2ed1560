"""Boards behind a TVM RPC tracker: phones, single-board computers, machines without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from release_ray.core.errors import InputError
from release_ray.core.settings import MeasureSettings
from release_ray.measure.devices.compiled import HANDLERS, ChildWorker, CompiledKind
from release_ray.measure.hosts import Host
from release_ray.measure.jobs import DeviceSpec
from release_ray.measure.process import ChildFailure, Raised
from release_ray.measure.trackers import BoardAddress

_NO_SESSION = "Cannot request"
"""TVM says so where a tracker hands out no board."""


class RpcWorker(ChildWorker):
    """Times kernels on whichever board of its sort is free."""

    waits_s = 120.0

    def __init__(self, spec: DeviceSpec, settings: MeasureSettings, target_kind: str) -> None:
        super().__init__(spec, settings, target_kind)
        kind = "cuda" if target_kind == "cuda" else "cpu"
        self.device = str(replace(BoardAddress.parse(spec.address), kind=kind))

    def _after(self, failure: ChildFailure) -> tuple[str, bool]:
        address = BoardAddress.parse(self.device)
        try:
            reason = address.lost()
        except InputError as error:
            return str(error), False
        if not reason:
            return super()._after(failure)
        # With the board went whatever was running on it, and not what waited for it.
        return reason, isinstance(failure, Raised) and _NO_SESSION not in failure.message

    def call(self, function: str, arguments: Sequence[Any], timeout_s: float) -> Any:
        if not function.startswith(f"{HANDLERS}:"):
            raise InputError(f"devices: {self._spec.name} is a board and runs kernels alone")
        return super().call(function, arguments, timeout_s)


class RpcKind(CompiledKind):
    """`rpc://host:port/key`: as many devices as the tracker there knows boards of that key.

    Candidates are built here for the run's target, which must be the board's.
    """

    name: ClassVar[str] = "rpc"
    worker_class: ClassVar[type[ChildWorker]] = RpcWorker
    builds: ClassVar[bool] = False
    runs_networks: ClassVar[bool] = False

    def expand(self, options: str, hosts: Sequence[Host]) -> list[DeviceSpec]:
        text = f"{self.name}:{options}"
        address = BoardAddress.parse(text)
        return [
            DeviceSpec(f"rpc:{i}", self.name, node=hosts[0].node, model=address.key, address=text)
            for i in range(address.boards())
        ]
