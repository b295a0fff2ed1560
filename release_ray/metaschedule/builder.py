"""MetaSchedule's builder, on builder actors all over a Ray cluster."""

from __future__ import annotations

import logging
import pickle
import tempfile
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder

from release_ray import cluster, tvm_setup
from release_ray.core.errors import InputError, WorkFailed
from release_ray.core.settings import MeasureSettings
from release_ray.measure.actors import BuilderActor, packed
from release_ray.measure.jobs import Artifact
from release_ray.measure.kernels import job_of
from release_ray.measure.placement import on_node, spread_builders
from release_ray.metaschedule.connection import closed_with, connected, real_devices
from release_ray.targets import back_end

_log = logging.getLogger(__name__)

_ATTEMPTS = 2
"""So many builders are asked for a candidate: that one is lost says little of what it built."""


@derived_object
class RayBuilder(PyBuilder):
    """Builds candidates in child processes of Ray actors, on the cores that devices leave.

    One that crashes the compiler, or takes too long, costs only itself: its result carries the
    reason. Artifacts are shared libraries, each in a folder of its own, as MetaSchedule expects.
    """

    def __init__(
        self,
        *,
        devices: str = "auto",
        builders: int | None = None,
        timeout_sec: float = 30.0,
        address: str | None = None,
    ) -> None:
        """Starts nothing; the first `build` does.

        Args:
            devices: what is measured on, as `--devices` says it; their cores are left alone.
            builders: how many actors; default: one a core that devices leave.
            timeout_sec: for one build.
            address: of a Ray cluster; default: `RAY_ADDRESS`, else one is started.

        Raises:
            InputError: there are to be no builders, or no time to build.
        """
        super().__init__()
        if builders is not None and not (isinstance(builders, int) and builders > 0):
            raise InputError(f"RayBuilder: builders={builders!r}: there must be one at least")
        if not timeout_sec > 0:
            raise InputError(f"RayBuilder: timeout_sec={timeout_sec!r}: give some seconds")
        # Else whoever imports the builders waits 20 s for intrinsics of other back ends.
        tvm_setup.prepare()
        self._devices = devices
        self._count = builders
        self._address = address
        self._settings = MeasureSettings(build_timeout_s=timeout_sec)
        self._kind = ""
        self._lost = False
        self._actors: list[Any] = []
        self._stack = closed_with(self)

    def build(self, build_inputs: list[BuilderInput]) -> list[BuilderResult]:
        """A result for each input, in their order."""
        if not len(build_inputs):
            return []
        kind = back_end(build_inputs[0].target)
        if self._lost or kind != self._kind:
            self.close()
            self._start(kind)
        jobs = [
            packed(job_of(number, given.mod, given.target, self._settings))
            for number, given in enumerate(build_inputs)
        ]
        return [_result(reply) for reply in self._replies(jobs)]

    def close(self) -> None:
        """Ends the actors, and a Ray that was started for them; the next `build` starts anew."""
        self._actors = []
        self._kind, self._lost = "", False
        self._stack.close()

    def _start(self, target_kind: str) -> None:
        hosts = cluster.hosts(self._stack, self._address, connected)
        self._stack.enter_context(connected(self._address))
        devices = real_devices(self._devices, hosts, target_kind)
        actor: Any = ray.remote(BuilderActor)
        for node in spread_builders(hosts, devices, self._count):
            made = actor.options(num_cpus=0, **on_node(node)).remote(
                devices, self._settings, target_kind
            )
            self._stack.callback(ray.kill, made)
            self._actors.append(made)
        self._kind = target_kind

    def _replies(self, jobs: Sequence[bytes]) -> list[Any]:
        """What the actors say of each job, or what became of the last actor that was asked.

        An actor that is lost, as with its node, is asked no more; another one is, and the next
        build begins with new ones.
        """
        replies: list[Any] = [None] * len(jobs)
        waiting = deque(range(len(jobs)))
        idle = list(self._actors)
        asked: dict[Any, tuple[int, Any]] = {}
        attempts: Counter[int] = Counter()
        while waiting and idle or asked:
            while waiting and idle:
                number, actor = waiting.popleft(), idle.pop()
                attempts[number] += 1
                asked[actor.build.remote(jobs[number])] = number, actor
            (answered,), _ = ray.wait(list(asked))
            number, actor = asked.pop(answered)
            try:
                replies[number] = ray.get(answered)
            except RayActorError as error:
                _log.warning("a builder is lost: %s", error)
                replies[number], self._lost = error, True
                if attempts[number] < _ATTEMPTS:
                    waiting.append(number)
                continue
            except RayError as error:
                replies[number] = error
            idle.append(actor)
        for number in waiting:
            replies[number] = replies[number] or WorkFailed("all builders are lost")
        return replies


def _result(reply: Any) -> BuilderResult:
    if isinstance(reply, Exception):
        return BuilderResult(None, f"RayBuilder: {reply}")
    report, packed_artifact = reply
    if not packed_artifact:
        outcome = pickle.loads(report).outcome
        return BuilderResult(None, f"RayBuilder: {outcome.status.value}: {outcome.message}")
    artifact: Artifact = pickle.loads(packed_artifact)
    # MetaSchedule removes the folder of an artifact that it has measured.
    path = Path(tempfile.mkdtemp(prefix="release_ray-"), f"kernel.{artifact.form}")
    path.write_bytes(artifact.payload)
    return BuilderResult(str(path), None)
