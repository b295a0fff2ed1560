"""What the pool would measure with, and how fast and steady each device is."""

from __future__ import annotations

import platform
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TypedDict

from release_ray import cluster
from release_ray.core.errors import InputError, WorkFailed
from release_ray.core.settings import TuneSettings
from release_ray.measure.devices import device_kind, expand
from release_ray.measure.jobs import Canary, DeviceSpec
from release_ray.measure.pool import MeasurePool
from release_ray.measure.process import ChildFailure
from release_ray.prepare import target_for
from release_ray.targets import back_end


class DeviceReport(TypedDict):
    """A device; `gflops` and `spread` of the canary, or why it is `unfit`."""

    device: str
    host: str
    kind: str
    model: str
    cores: list[int]
    gflops: float | None
    spread: float | None
    unfit: str | None


def examine_devices(settings: TuneSettings, address: str | None) -> list[DeviceReport]:
    """Starts the pool, times a canary on each device and ends the pool again.

    Raises `InputError` where the devices cannot be had.
    """
    devices = expand(settings.devices)
    with ExitStack() as stack:
        stack.enter_context(cluster.connected(address))
        target_kind = back_end(target_for(settings, devices))
        pool = MeasurePool.start(devices, 0, settings.measure, target_kind)
        stack.callback(pool.shutdown)
        try:
            pool.ready()
        except WorkFailed as failure:
            return [_report(device, None, str(failure)) for device in devices]
        return [_examined(pool, device) for device in devices]


def _examined(pool: MeasurePool, device: DeviceSpec) -> DeviceReport:
    try:
        return _report(device, pool.canary(device.name), None)
    except (ChildFailure, InputError) as failure:
        return _report(device, None, str(failure))


def _report(device: DeviceSpec, canary: Canary | None, unfit: str | None) -> DeviceReport:
    return DeviceReport(
        device=device.name,
        host=socket.gethostname(),
        kind=device.kind,
        model="simulated" if device_kind(device.kind).simulated else _processor(),
        cores=list(device.cores),
        gflops=canary.gflops if canary else None,
        spread=canary.spread if canary else None,
        unfit=unfit,
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
