"""Where a run measures: found once, for whoever measures there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from release_ray.core.settings import TuneSettings
from release_ray.measure.devices import grows
from release_ray.measure.hosts import Host
from release_ray.measure.jobs import DeviceSpec
from release_ray.measure.pool import MeasurePool


@dataclass(frozen=True)
class Site:
    """Hosts, devices, and what their pool must know besides; it travels between processes."""

    hosts: Sequence[Host]
    devices: Sequence[DeviceSpec]
    """Boards, which cannot be asked what they are, are told their target."""
    target_kind: str
    """The back end that the pool's compilers register."""
    grows: str
    """What finds more such devices; empty where Ray will have no other nodes."""

    @staticmethod
    def of(settings: TuneSettings, hosts: Sequence[Host], devices: Sequence[DeviceSpec]) -> Site:
        """The site of a run with these settings; loads TVM, which takes seconds."""
        from release_ray.prepare import target_for, told_target
        from release_ray.targets import back_end

        target = target_for(settings, devices)
        told = told_target(devices, target)
        more = grows(told, settings.devices, target=settings.target) if hosts[0].node else ""
        return Site(hosts, told, back_end(target), more)

    def pool(self, settings: TuneSettings) -> MeasurePool:
        """Starts the pool there, or joins it; raises as `MeasurePool.start` does."""
        return MeasurePool.start(
            self.devices,
            settings.builders,
            settings.measure,
            self.target_kind,
            self.hosts,
            self.grows,
        )
