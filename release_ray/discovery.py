"""What the pool would measure with, and how fast and steady each device is."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TypedDict

from release_ray import cluster
from release_ray.core.errors import InputError, WorkFailed
from release_ray.core.settings import TuneSettings
from release_ray.measure.devices import expand
from release_ray.measure.jobs import Canary, DeviceSpec
from release_ray.measure.pool import MeasurePool
from release_ray.measure.pool_actor import DeviceStats
from release_ray.measure.process import ChildFailure
from release_ray.prepare import target_for, told_target
from release_ray.targets import back_end


class DeviceReport(TypedDict):
    """A device; `gflops` and `spread` of the canary, or why it is `unfit`."""

    device: str
    host: str
    kind: str
    model: str
    cores: list[int]
    gpu: str
    gflops: float | None
    spread: float | None
    unfit: str | None


def examine_devices(settings: TuneSettings, address: str | None) -> list[DeviceReport]:
    """Starts the pool, times a canary on each device and ends the pool again.

    Raises `InputError` where the devices cannot be had.
    """
    with ExitStack() as stack:
        hosts = cluster.hosts(stack, address)
        devices = expand(settings.devices, hosts, target=settings.target)
        stack.enter_context(cluster.connected(address))
        target = target_for(settings, devices)
        devices = told_target(devices, target)
        pool = MeasurePool.start(devices, 0, settings.measure, back_end(target))
        stack.callback(pool.shutdown)
        try:
            pool.ready()
        except WorkFailed as failure:
            return [_report(device, None, None, str(failure)) for device in devices]
        where = pool.stats().devices
        return [_examined(pool, device, where[device.name]) for device in devices]


def _examined(pool: MeasurePool, device: DeviceSpec, where: DeviceStats) -> DeviceReport:
    try:
        return _report(device, where, pool.canary(device.name), None)
    except (ChildFailure, InputError) as failure:
        return _report(device, where, None, str(failure))


def _report(
    device: DeviceSpec, where: DeviceStats | None, canary: Canary | None, unfit: str | None
) -> DeviceReport:
    return DeviceReport(
        device=device.name,
        host=where.host if where else "",
        kind=device.kind,
        model=device.model,
        cores=list(device.cores),
        gpu=where.gpu if where else "",
        gflops=canary.gflops if canary else None,
        spread=canary.spread if canary else None,
        unfit=unfit,
    )
