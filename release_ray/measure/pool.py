"""The driver's handle of a measurement pool: jobs in, outcomes out, in the order they come."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError

from release_ray.core.errors import InputError, WorkFailed
from release_ray.core.settings import MeasureSettings
from release_ray.measure.actors import Failure
from release_ray.measure.devices import device_kind
from release_ray.measure.devices.cores import Aside
from release_ray.measure.hosts import Host, require_same_compiler, this_host
from release_ray.measure.jobs import Canary, DeviceSpec, Job, Outcome
from release_ray.measure.lease import Lease
from release_ray.measure.placement import here, on_node, spread_builders
from release_ray.measure.pool_actor import PoolActor, PoolPlan, PoolStats

logger = logging.getLogger(__name__)

NAMESPACE = "release_ray"
PROTOCOL = 1
"""Changes with what driver and pool say to each other: other versions have pools of their own."""
_JOIN_S = 30.0
_LEAVE_S = 5.0
_RETRY_S = 0.2
_ROOT = Path(__file__).resolve().parents[2]


class MeasurePool:
    """A run's share in builders and devices at work on a cluster.

    `start` makes the pool, or joins the one that other runs have made of the same devices;
    `shutdown` leaves it, and the last one ends it. So does the end of the process, whatever it is.
    """

    def __init__(self, pool: ActorHandle, lease: Lease, run: str, plan: PoolPlan) -> None:
        self._pool = pool
        self._lease = lease
        self._run = run
        self._plan = plan
        self._received = 0
        self._aside: Aside | None = None
        self._left = False

    @staticmethod
    def start(
        devices: Sequence[DeviceSpec],
        builders: int | None,
        settings: MeasureSettings,
        target_kind: str = "llvm",
        hosts: Sequence[Host] | None = None,
        grows: str = "",
    ) -> MeasurePool:
        """A pool whose actors are on their way up; jobs may be submitted at once.

        Ray is initialised already. Actors start, and load the compiler, in the background.

        Args:
            devices: at least one, all real or all simulated.
            builders: actors that only build; 0 leaves building to the devices. Default: as many
                as `spread_builders` finds room for.
            settings: of the pool as a whole; how a job is measured is in the job.
            target_kind: TVM's name of the target kind, such as `llvm`.
            hosts: where builders may be; default: this machine.
            grows: what finds more such devices (`devices.grows`) on nodes that join later.

        Raises:
            InputError: devices that do not go together, or a node with another compiler.
            WorkFailed: the pool cannot be reached.
        """
        if not devices:
            raise InputError("devices: none given; use --devices auto")
        if not all(isinstance(device, DeviceSpec) for device in devices):
            raise InputError(f"devices: {devices!r} are no DeviceSpecs; use expand({devices!r})")
        if not ray.is_initialized():
            raise InputError("devices: Ray does not run; call ray.init(address='local') first")
        if len({device_kind(device.kind).simulated for device in devices}) > 1:
            raise InputError("devices: real and simulated ones do not mix; ask for one sort")
        nodes = spread_builders(hosts or [this_host()], devices, builders)
        if not device_kind(devices[0].kind).simulated:
            used = {*nodes, *(device.node for device in devices)}
            require_same_compiler(host for host in hosts or () if host.node in used)
        plan = PoolPlan(
            devices=tuple(devices),
            builders=tuple(nodes),
            settings=settings,
            target_kind=target_kind,
            cpus=_reserved_cpus(devices, len(nodes)),
            grows=grows,
        )
        run = uuid.uuid4().hex
        deadline = time.monotonic() + _JOIN_S
        while True:
            pool = _named(plan)
            try:
                answer = _value(ray.get(pool.start.remote(target_kind)))
                if answer is not None:
                    return MeasurePool(pool, Lease(answer, run), run, plan)
                reason = "it is ending"
            except (RayError, OSError) as error:
                reason = str(error).splitlines()[0]
            # One that was just ending has its name for a moment longer.
            if time.monotonic() > deadline:
                raise WorkFailed(f"the measurement pool cannot be joined: {reason}")
            time.sleep(_RETRY_S)

    @property
    def devices(self) -> tuple[DeviceSpec, ...]:
        return self._plan.devices

    @property
    def near(self) -> bool:
        """Whether a device is on this node, so that it sees this node's files."""
        return bool(here(self._plan.devices))

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
        self.stand_aside()

    def stand_aside(self) -> None:
        """Keeps this process, and all that it has started, off the cores of devices on this host.

        `ready` does, and whoever came back meanwhile has to before it submits more.
        """
        if self._aside is None:
            self._aside = Aside(here(self._plan.devices))

    def come_back(self) -> None:
        """Uses the devices' cores again. Only while nothing is measured on them."""
        if self._aside is not None:
            self._aside.end()
            self._aside = None

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queues jobs after those that are queued. Each will have exactly one outcome."""
        self._taken(self._ask(self._pool.submit.remote(self._run, list(jobs))))

    def withdraw(self) -> list[int]:
        """Takes back the jobs that no device was sent, and returns their ids.

        They will have no outcome; those that a builder or a device is at will have theirs.
        """
        return self._ask(self._pool.withdraw.remote(self._run))

    def wait(self, timeout_s: float) -> list[Outcome]:
        """Outcomes that came since the last call; waits for one, at most `timeout_s`.

        An interrupted call loses none: the next one has them.
        """
        reply: Any = self._pool.next_outcomes.remote(self._run, self._received, timeout_s)
        outcomes = self._taken(self._ask(reply))
        self._received += len(outcomes)
        return outcomes

    def call_on_device(self, function: str, arguments: Sequence[Any], timeout_s: float) -> Any:
        """Runs `package.module:function` alone on a device, in its child process.

        On one of this node, if there is any that is up.

        Raises:
            ChildFailure: it raised, died or took too long.
            InputError: the devices run no programs.
        """
        node = ray.get_runtime_context().get_node_id()
        return _value(
            self._ask(self._pool.call.remote(function, tuple(arguments), timeout_s, node))
        )

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
        return self._ask(self._pool.stats.remote(self._run))

    def shutdown(self) -> None:
        """Leaves the pool; if nobody else uses it, all its actors and child processes end."""
        self._left = True
        self.come_back()
        with suppress(RayError):
            ray.get(self._pool.leave.remote(self._run), timeout=_LEAVE_S)
        self._lease.release()

    def _ask(self, reply: ray.ObjectRef) -> Any:
        if self._left:
            raise WorkFailed("this measurement pool was shut down: start another")
        try:
            return ray.get(reply)
        except RayTaskError as error:
            # The pool lives, and could make nothing of what it was told.
            raise TypeError(f"the measurement pool cannot do that: {error.cause}") from error
        except RayError as error:
            raise WorkFailed(f"the measurement pool is gone: {error}") from error

    def _taken(self, answer: Any) -> Any:
        if isinstance(answer, Failure):
            raise WorkFailed(f"the measurement pool has given this run up: {answer.error}")
        return answer


def _value(answer: Any) -> Any:
    if isinstance(answer, Failure):
        raise answer.error
    return answer


def _named(plan: PoolPlan) -> ActorHandle:
    """The pool of those devices, which is made if there is none."""
    # A pool that grows has more devices by and by, and is the same pool.
    first = plan.devices[0]
    growing = (plan.grows, first.model, len(first.cores), first.target)
    devices = repr(growing if plan.grows else plan.devices)
    digest = hashlib.sha256(devices.encode()).hexdigest()[:12]
    actor: Any = ray.remote(PoolActor)
    return actor.options(
        name=f"pool-{PROTOCOL}-{digest}",
        namespace=NAMESPACE,
        # Its runs come and go; it ends itself after the last.
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        max_restarts=0,
        enable_task_events=False,
        runtime_env=_runtime_env(),
        # Near the run that makes it, away from machines that are there to measure. A soft wish for
        # a node is one that Ray often passes over for an actor that asks for no CPU.
        **on_node(ray.get_runtime_context().get_node_id()),
    ).remote(plan)


def _reserved_cpus(devices: Sequence[DeviceSpec], builders: int) -> tuple[int, int]:
    """CPUs of a builder, and of a device without cores of its own.

    A GPU needs one to be driven; a board drives itself. Builders reserve none where Ray has too
    few, for then they would never be started.
    """
    simulated = device_kind(devices[0].kind).simulated
    of_device = 0 if simulated or devices[0].address else 1
    wanted = sum(len(device.cores) or of_device for device in devices)
    fits = wanted + builders <= ray.cluster_resources().get("CPU", 0)
    return (1 if fits and not simulated else 0), of_device


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
