"""A network cut into tasks for a target: what every command begins with."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tvm.ir import IRModule
from tvm.target import Target

from release_ray import networks, tvm_setup
from release_ray.core.errors import InputError
from release_ray.core.settings import TuneSettings
from release_ray.measure.devices import expand, is_cuda
from release_ray.measure.hosts import this_host
from release_ray.measure.jobs import DeviceSpec
from release_ray.networks import Network
from release_ray.networks.files import first_line
from release_ray.networks.pipeline import prepare_graph
from release_ray.targets import resolve, target_json
from release_ray.tasks import Task, extract


@dataclass(frozen=True)
class Prepared:
    """A network, its module after the graph pipeline, and its tasks.

    `chosen` are the names of those that were asked for; the others are not tuned.
    """

    network: Network
    module: IRModule = field(repr=False)
    target: Target
    tasks: tuple[Task, ...]
    chosen: frozenset[str]


def prepare(network: str, settings: TuneSettings, devices: Sequence[DeviceSpec]) -> Prepared:
    """Loads a network and extracts its tasks. Raises `InputError` for a bad network or target."""
    tvm_setup.check_pins()
    target = target_for(settings, devices)
    loaded = networks.load(network, seed=settings.seed)
    try:
        module = prepare_graph(loaded.module, target, settings.layout)
        tasks = extract(module, target)
    except (RuntimeError, ValueError, TypeError) as error:  # as TVM's passes raise them
        raise InputError(
            f"network {network!r} cannot be prepared: TVM's passes fail: {first_line(error)}"
        ) from error
    if not tasks:
        raise InputError(
            f"network {network!r} has no operator to tune: whatever it computes is no loop nest"
            " that TVM could schedule"
        )
    chosen = frozenset(task.name for task in select(tasks, settings.tasks))
    return Prepared(loaded, module, target, tuple(tasks), chosen)


def local_devices(settings: TuneSettings) -> list[DeviceSpec]:
    """This machine's devices, for what needs none: to look at tasks, and to compile.

    None where the target is a GPU's and there is none here: code is made all the same.
    """
    if settings.devices == "auto" and is_cuda(settings.target) and not this_host().gpus:
        return []
    return expand(settings.devices, target=settings.target)


def target_for(settings: TuneSettings, devices: Sequence[DeviceSpec]) -> Target:
    """The target of the settings, for kernels on the cores, or the GPU, of one device."""
    if not devices:
        return resolve(settings.target, 1)
    return resolve(settings.target, max(1, len(devices[0].cores)), devices[0].target)


def told_target(devices: Sequence[DeviceSpec], target: Target) -> list[DeviceSpec]:
    """The devices; boards, which cannot be asked what they are, with the target that they are."""
    config = json.loads(target_json(target))
    return [replace(device, target=config) if device.address else device for device in devices]


def select(tasks: Sequence[Task], globs: Sequence[str]) -> list[Task]:
    """The tasks whose name matches one of the globs; all where there are none.

    Raises `InputError` where nothing matches.
    """
    if not globs:
        return list(tasks)
    chosen = [t for t in tasks if any(fnmatch.fnmatchcase(t.name, glob) for glob in globs)]
    if not chosen:
        names = ", ".join(task.name for task in tasks)
        raise InputError(f"no task matches {' or '.join(globs)}; the tasks are {names}")
    return chosen
