"""A tuning run once Ray, the pool and the network are there: tune, deploy, report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

import policies
from release_ray.accounting import CpuMeter, Stopwatch
from release_ray.core.errors import Interrupted, WorkFailed
from release_ray.core.settings import TuneSettings
from release_ray.deploy import Deployment, choose_winners, deploy
from release_ray.events import Listener, RunStarted, Stage, TaskSummary
from release_ray.journal import Journal
from release_ray.measure.jobs import DeviceSpec
from release_ray.measure.pool import MeasurePool
from release_ray.planner import TaskPlanner
from release_ray.prepare import Prepared, prepare, target_for
from release_ray.progress import Progress, Status
from release_ray.records import Records
from release_ray.result import Result
from release_ray.storage import Storage
from release_ray.targets import back_end, target_json
from release_ray.tasks import dump_tasks
from release_ray.tuner import Recorded, TaskState, Tuner
from release_ray.workdir import Identity, WorkDir, write_atomic
from samplers.actor import RemoteSampler

__all__ = ["TuningRun", "back_end", "prepare", "target_for"]


class TuningRun:
    """One run in its work dir: tune, deploy, report."""

    def __init__(
        self,
        *,
        prepared: Prepared,
        settings: TuneSettings,
        devices: Sequence[DeviceSpec],
        simulated: bool,
        pool: MeasurePool,
        sampler: RemoteSampler,
        workdir: WorkDir,
        journal: Journal,
        storage: Storage | None,
        listener: Listener,
        watch: Stopwatch,
        meter: CpuMeter,
    ) -> None:
        self._prepared = prepared
        self._settings = settings
        self._devices = devices
        self._simulated = simulated
        self._pool = pool
        self._workdir = workdir
        self._journal = journal
        self._storage = storage
        self._listener = listener
        self._watch = watch
        self._states = [
            TaskState(
                TaskPlanner(task, settings, sampler),
                task.weight,
                task.flops,
                tuned=task.name in prepared.chosen,
            )
            for task in prepared.tasks
        ]
        journal.restore(self._states)
        self._tuner = Tuner(
            self._states,
            pool=pool,
            devices=len(devices),
            make_policy=self._make_policy,
            settings=settings,
            record=self._record,
            after_round=self._after_round,
            listener=listener,
            active_s=watch.active_s,
        )
        self._progress = Progress(
            workdir.result,
            network=prepared.network.name,
            target=target_json(prepared.target),
            settings=settings,
            states=self._states,
            devices=len(devices),
            pool=pool,
            journal=journal,
            watch=watch,
            meter=meter,
            search_cpu_s=lambda: self._tuner.search_cpu_s + sampler.cpu_s,
        )

    @staticmethod
    def opened(
        stack: ExitStack,
        *,
        prepared: Prepared,
        settings: TuneSettings,
        devices: Sequence[DeviceSpec],
        simulated: bool,
        pool: MeasurePool,
        sampler: RemoteSampler,
        workdir: WorkDir,
        fresh: bool,
        storage: Storage | None,
        listener: Listener,
        watch: Stopwatch,
        meter: CpuMeter,
    ) -> TuningRun:
        """A run in a work dir that is locked already; its records close with `stack`.

        Raises `InputError` where the work dir is another network's or target's.
        """
        network = prepared.network
        workdir.claim(Identity(network.name, network.fingerprint, target_json(prepared.target)))
        records = stack.enter_context(Records.open(workdir.records))
        write_atomic(workdir.tasks, dump_tasks(prepared.tasks))
        if fresh:
            workdir.forget_learning()
        return TuningRun(
            prepared=prepared,
            settings=settings,
            devices=devices,
            simulated=simulated,
            pool=pool,
            sampler=sampler,
            workdir=workdir,
            journal=Journal(records, settings, simulated=simulated, fresh=fresh, watch=watch),
            storage=storage,
            listener=listener,
            watch=watch,
            meter=meter,
        )

    def execute(self) -> Result:
        """Tunes and, on real devices, leaves a checked library.

        Raises `WorkFailed` and `Interrupted`, which carry the result so far.
        """
        try:
            self._pool.ready()
            self._announce()
            self._progress.began()
            self._tuner.run()
            self._progress.update(tuning=True)
            self._checkpoint()
            if not any(state.best_s for state in self._states):
                raise WorkFailed(_reasons(self._states))
            if self._tuner.devices_lost:
                raise WorkFailed(f"{self._tuner.devices_lost}; everything measured is kept")
            # What a simulated device says is no reason to compile anything.
            deployment = None if self._simulated else self._deploy()
            self._progress.update(tuning=False)
        except KeyboardInterrupt:
            raise Interrupted(self._end("interrupted")) from None
        except WorkFailed as failure:
            failure.result = self._end("failed")
            raise
        return self._end("done", deployment)

    def _announce(self) -> None:
        budget = self._settings.budget
        per_task = budget.trials_per_task
        caps = [budget.trials, per_task and per_task * len(self._prepared.chosen)]
        self._listener(
            RunStarted(
                self._prepared.network.name,
                target_json(self._prepared.target),
                tuple(device.name for device in self._devices),
                tuple(
                    TaskSummary(s.name, s.weight, s.flops, s.trials, s.best_s) for s in self._states
                ),
                min((cap for cap in caps if cap is not None), default=None),
                budget.time_budget,
                self._watch.earlier_s,
            )
        )

    def _make_policy(self) -> policies.Policy:
        policy = policies.create(self._settings.policy, self._settings.agent, self._settings.seed)
        policy.prepare()
        policy.restore(self._workdir.checkpoints)
        return policy

    def _record(self, recorded: Recorded) -> None:
        self._journal.write(recorded)
        if recorded.outcome is not None:
            self._progress.measured()

    def _after_round(self) -> None:
        self._progress.update(tuning=True)
        self._progress.write("running")
        if self._storage is not None:
            self._storage.sync(self._workdir.path)

    def _checkpoint(self) -> None:
        if self._tuner.policy is not None:
            self._tuner.policy.save(self._workdir.checkpoints)
            self._tuner.policy.close()

    def _deploy(self) -> Deployment:
        self._listener(Stage("checking the best of each task against the unscheduled operator"))
        winners = choose_winners(self._states, self._journal, self._pool)
        if not winners:
            raise WorkFailed("no candidate of any task could be checked and gave the right output")
        return deploy(
            self._prepared.network,
            self._prepared.module,
            self._prepared.target,
            winners,
            pool=self._pool,
            database=self._workdir.path,
            model=self._workdir.model,
            seed=self._settings.seed,
            stage=lambda name: self._listener(Stage(name)),
        )

    def _end(self, status: Status, deployment: Deployment | None = None) -> Result:
        self._journal.end(status)
        result = self._progress.write(status, deployment)
        if self._storage is not None:
            self._storage.sync(self._workdir.path)
        return result


def _reasons(states: Sequence[TaskState]) -> str:
    """Why nothing could be measured: the failures' messages, most frequent first."""
    messages: Counter[str] = Counter()
    for state in states:
        messages.update(state.messages)
    if not messages:
        return "nothing was measured within the budget"
    told = "; ".join(f"{count}x {message}" for message, count in messages.most_common(3))
    return f"nothing could be measured, so nothing is called best: {told}"
