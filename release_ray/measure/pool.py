"""The driver's handle of a measurement pool: jobs in, outcomes out, in the order they come."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from release_ray.core.errors import InputError, WorkFailed
from release_ray.core.settings import MeasureSettings
from release_ray.measure.actors import BuilderActor, DeviceActor, Failure
from release_ray.measure.devices import device_kind
from release_ray.measure.devices.cores import Aside
from release_ray.measure.hosts import Host, this_host
from release_ray.measure.jobs import Canary, DeviceSpec, Job, Outcome
from release_ray.measure.placement import here, on_node, spread_builders
from release_ray.measure.pool_actor import PoolActor, PoolStats

logger = logging.getLogger(__name__)

MAX_RESTARTS = 3
"""How often Ray starts a crashed builder or device actor again."""
_GRACE_S = 2.0
_ROOT = Path(__file__).resolve().parents[2]


class MeasurePool:
    """Builders and devices at work on a cluster. `start` makes one; `shutdown` ends it."""

    def __init__(
        self, pool: ActorHandle, workers: Sequence[ActorHandle], specs: Sequence[DeviceSpec]
    ) -> None:
        self._pool = pool
        self._workers = tuple(workers)
        self._specs = tuple(specs)
        self._received = 0
        self._aside: Aside | None = None

    @staticmethod
    def start(
        devices: Sequence[DeviceSpec],
        builders: int | None,
        settings: MeasureSettings,
        target_kind: str = "llvm",
        hosts: Sequence[Host] | None = None,
    ) -> MeasurePool:
        """A pool whose actors are on their way up; jobs may be submitted at once.

        Ray is initialised already. Actors start, and load the compiler, in the background.

        Args:
            devices: at least one, all real or all simulated.
            builders: actors that only build; 0 leaves building to the devices. Default: as many
                as `spread_builders` finds room for.
            target_kind: TVM's name of the target kind, such as `llvm`.
            hosts: where builders may be; default: this machine.

        Raises:
            InputError: devices that do not go together.
        """
        if not devices:
            raise InputError("devices: none given; use --devices auto")
        if len({device_kind(device.kind).simulated for device in devices}) > 1:
            raise InputError("devices: real and simulated ones do not mix; ask for one sort")
        common = (tuple(devices), settings, target_kind)
        nodes = spread_builders(hosts or [this_host()], devices, builders)
        device_actors = {
            spec.name: _actor(
                DeviceActor, _device_cpus(spec), num_gpus=spec.gpus, **on_node(spec.node)
            ).remote(spec, *common)
            for spec in devices
        }
        cpus = _builder_cpus(devices, len(nodes))
        builder_actors = {
            f"builder:{i}": _actor(BuilderActor, cpus, **on_node(node)).remote(*common)
            for i, node in enumerate(nodes)
        }
        pool = _actor(PoolActor, 0, max_restarts=0).remote(
            builder_actors, device_actors, tuple(devices), settings
        )
        pool.start.remote()
        return MeasurePool(pool, [*builder_actors.values(), *device_actors.values()], devices)

    @property
    def devices(self) -> tuple[DeviceSpec, ...]:
        return self._specs

    def ready(self) -> None:
        """Waits until every device, and a builder, is up, and gets out of the devices' way.

        From here until `shutdown` this process, and a Ray that it has started, keep off the cores
        of devices on this host. Starting them took every core there is.

        Raises:
            InputError: a device is somebody else's.
            WorkFailed: a device cannot be started.
        """
        failure = self._ask(self._pool.ready.remote())
        if isinstance(failure, Failure):
            if isinstance(failure.error, InputError):
                raise failure.error
            raise WorkFailed(f"devices: {failure.error}")
        if self._aside is None:
            self._aside = Aside(here(self._specs))

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queues jobs after those that are queued. Each will have exactly one outcome."""
        self._ask(self._pool.submit.remote(list(jobs)))

    def withdraw(self) -> list[int]:
        """Takes back the jobs that no device was sent, and returns their ids.

        They will have no outcome; those that a builder or a device is at will have theirs.
        """
        return self._ask(self._pool.withdraw.remote())

    def wait(self, timeout_s: float) -> list[Outcome]:
        """Outcomes that came since the last call; waits for one, at most `timeout_s`.

        An interrupted call loses none: the next one has them.
        """
        outcomes = self._ask(self._pool.next_outcomes.remote(self._received, timeout_s))
        self._received += len(outcomes)
        return outcomes

    def call_on_device(self, function: str, arguments: Sequence[Any], timeout_s: float) -> Any:
        """Runs `package.module:function` alone on a device, in its child process.

        Raises:
            ChildFailure: it raised, died or took too long.
            InputError: the devices run no programs.
        """
        return _value(self._ask(self._pool.call.remote(function, tuple(arguments), timeout_s)))

    def check(self, job: Job) -> float:
        """max|a-b| / max|b| of the candidate's output against the unscheduled operator's.

        Raises:
            ChildFailure: there was no output.
        """
        return _value(self._ask(self._pool.check.remote(job)))

    def canary(self, device: str) -> Canary:
        """The speed of a fixed kernel on the device of that name. Raises `ChildFailure`."""
        return _value(self._ask(self._pool.canary.remote(device)))

    def stats(self) -> PoolStats:
        """What the pool has done so far."""
        return self._ask(self._pool.stats.remote())

    def shutdown(self) -> None:
        """Ends all actors and their child processes, whatever they are doing."""
        if self._aside is not None:
            self._aside.end()
        ray.kill(self._pool)
        # Asked first, an actor gives its device back in order; a busy one is killed, and the
        # kernel then kills its children.
        stops: list[Any] = [worker.stop.remote() for worker in self._workers]
        ray.wait(stops, num_returns=len(stops), timeout=_GRACE_S)
        for worker in self._workers:
            ray.kill(worker)

    @staticmethod
    def _ask(reply: ray.ObjectRef) -> Any:
        try:
            return ray.get(reply)
        except RayError as error:
            raise WorkFailed(f"the measurement pool is gone: {error}") from error


def _value(answer: Any) -> Any:
    if isinstance(answer, Failure):
        raise answer.error
    return answer


def _actor(of: type, num_cpus: int, max_restarts: int = MAX_RESTARTS, **options: Any) -> Any:
    return ray.remote(of).options(
        num_cpus=num_cpus, max_restarts=max_restarts, runtime_env=_runtime_env(), **options
    )


def _device_cpus(spec: DeviceSpec) -> int:
    """CPUs a device reserves: its cores, or one that drives a GPU."""
    return len(spec.cores) or (1 if spec.gpus and not device_kind(spec.kind).simulated else 0)


def _builder_cpus(devices: Sequence[DeviceSpec], builders: int) -> int:
    """CPUs a builder reserves: 1, or 0 where Ray has fewer, for it would never be started."""
    wanted = sum(_device_cpus(device) for device in devices)
    if not wanted:
        return 0
    wanted += builders
    return 1 if wanted <= ray.cluster_resources().get("CPU", 0) else 0


def _runtime_env() -> dict[str, Any]:
    """What Ray's workers need to import this package: nothing where it is installed.

    They have the driver's working directory and the script's folder in their path anyway. An
    environment of its own costs the start of a process, so none is asked for without need.
    """
    in_reach = {Path.cwd(), Path(sys.path[0]).resolve()} if sys.path else {Path.cwd()}
    if _ROOT in in_reach or _installed():
        return {}
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return {"env_vars": {"PYTHONPATH": path}}


def _installed() -> bool:
    try:
        importlib.metadata.distribution("release-ray")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
