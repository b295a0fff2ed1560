"""A tuning run once Ray, the pool and the network are there: tune, deploy, report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import policies
from release_ray.accounting import CpuMeter, Stopwatch
from release_ray.core.errors import InputError, Interrupted, WorkFailed
from release_ray.core.prior import Prior, shipped
from release_ray.core.settings import TuneSettings
from release_ray.database import sole_writer, write_database
from release_ray.deploy import Deployment, choose_winners, deploy
from release_ray.events import DeviceLost, Listener, RunStarted, Stage, TaskSummary
from release_ray.finals import hold_finals
from release_ray.journal import Journal
from release_ray.measure.devices import device_kind
from release_ray.measure.devices.base import DeviceKind
from release_ray.measure.jobs import DeviceSpec
from release_ray.measure.pool import MeasurePool
from release_ray.networks.files import first_line
from release_ray.planner import TaskPlanner
from release_ray.prepare import Prepared
from release_ray.progress import Progress, Status
from release_ray.records import Records
from release_ray.result import Result
from release_ray.storage import Storage
from release_ray.targets import target_json
from release_ray.tasks import dump_tasks
from release_ray.tuner import Recorded, TaskState, Tuner
from release_ray.workdir import Identity, WorkDir, write_atomic
from samplers.actor import RemoteSampler


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a run is made of, all of it started, and the work dir locked."""

    prepared: Prepared
    settings: TuneSettings
    devices: Sequence[DeviceSpec]
    pool: MeasurePool
    sampler: RemoteSampler
    workdir: WorkDir
    fresh: bool
    storage: Storage | None
    listener: Listener
    watch: Stopwatch
    meter: CpuMeter
    deploys: bool = True
    """Whether a library of the whole network is made in the end, on devices that run such."""
    anew: bool = False
    """Whether the run searches from the start, and only measures what it has not before."""
    steady: int | None = None
    """For how many devices it plans ahead, always; None: for as many as there are."""
    shared: Records | None = None
    """Where measurements are looked up, and left, that other runs may use."""
    after_round: Callable[[Sequence[TaskState]], None] = lambda _: None
    """Is called when a round of any task is complete, and when there will be no further one."""

    @property
    def kind(self) -> DeviceKind:
        """Of the devices, which are all of one."""
        return device_kind(self.devices[0].kind)


def execute(parts: Parts) -> Result:
    """Tunes and, on real devices, leaves a checked library.

    Raises `InputError` where the work dir is another network's or target's, and `WorkFailed` and
    `Interrupted`, which carry the result so far.
    """
    network, workdir = parts.prepared.network, parts.workdir
    target = target_json(parts.prepared.target)
    workdir.claim(Identity(network.name, network.fingerprint, target))
    with sole_writer(workdir.path), Records.open(workdir.records) as records:
        write_atomic(workdir.tasks, dump_tasks(parts.prepared.tasks))
        if parts.fresh:
            workdir.forget_learning()
        journal = Journal(
            records,
            parts.settings,
            simulated=parts.kind.simulated,
            fresh=parts.fresh,
            watch=parts.watch,
            shared=parts.shared,
        )
        return _Run(parts, journal).execute()


class _Run:
    """One run with its journal: tune, deploy, report."""

    def __init__(self, parts: Parts, journal: Journal) -> None:
        settings, prepared = parts.settings, parts.prepared
        self._parts = parts
        self._journal = journal
        self._told_lost: set[str] = set()
        # What hardware has measured tells nothing of latencies that are made up.
        prior = Prior if parts.kind.simulated else shipped
        self._states = [
            TaskState(
                TaskPlanner(task, settings, parts.sampler, prior=prior),
                task.weight,
                task.flops,
                task.bytes,
                tuned=task.name in prepared.chosen,
            )
            for task in prepared.tasks
        ]
        if not parts.anew:
            journal.restore(self._states)
        self._tuner = Tuner(
            self._states,
            pool=parts.pool,
            devices=parts.steady or len(parts.devices),
            make_policy=self._make_policy,
            settings=settings,
            record=self._record,
            after_round=self._after_round,
            listener=parts.listener,
            active_s=parts.watch.active_s,
            recall=journal.recall() if parts.anew else None,
            opening=policies.opening(settings.policy, settings.agent, settings.seed),
            # A sweep has its own, the same for all of its runs.
            untuned=not parts.anew,
        )
        self._progress = Progress(
            parts.workdir.result,
            network=prepared.network.name,
            target=target_json(prepared.target),
            settings=settings,
            states=self._states,
            devices=len(parts.devices),
            pool=parts.pool,
            journal=journal,
            watch=parts.watch,
            meter=parts.meter,
            search_cpu_s=lambda: self._tuner.search_cpu_s + parts.sampler.cpu_s,
        )

    def execute(self) -> Result:
        """As the function of that name."""
        try:
            self._tuner.begin()
            self._parts.pool.ready()
            self._announce()
            self._progress.began()
            self._tune()
            if not self._tuner.submitted:
                self._parts.listener(
                    Stage("nothing was left to measure: a larger budget would go on, or --fresh")
                )
            self._parts.after_round(self._states)
            self._progress.update(tuning=True)
            self._tell_losses()
            self._checkpoint()
            if not any(state.best_s for state in self._states):
                raise WorkFailed(_reasons(self._states))
            if self._tuner.devices_lost:
                raise WorkFailed(f"{self._tuner.devices_lost}; everything measured is kept")
            # What a simulated device says is no reason to compile anything.
            if self._parts.kind.simulated:
                self._parts.listener(Stage("simulated devices, so nothing is compiled"))
                deployment = None
            else:
                deployment = self._deploy()
            self._progress.update(tuning=False)
        except KeyboardInterrupt:
            raise Interrupted(self._end("interrupted")) from None
        except WorkFailed as failure:
            failure.result = self._end("failed")
            raise
        except InputError:
            # As of a full disk, on which this cannot be written either.
            with suppress(InputError):
                self._end("failed")
            raise
        finally:
            self._tuner.close()
            if self._tuner.policy is not None:
                self._tuner.policy.close()
        return self._end("done", deployment)

    def _tune(self) -> None:
        try:
            self._tuner.run()
        except KeyboardInterrupt:
            # A Ray that dies of the same signal has no more results, and may end this process.
            self._progress.write("interrupted")
            with suppress(WorkFailed):
                self._tuner.rescue()
            raise

    def _announce(self) -> None:
        prepared, budget = self._parts.prepared, self._parts.settings.budget
        per_task = budget.trials_per_task
        caps = [budget.trials, per_task and per_task * len(prepared.chosen)]
        self._parts.listener(
            RunStarted(
                prepared.network.name,
                target_json(prepared.target),
                tuple(device.name for device in self._parts.devices),
                tuple(
                    TaskSummary(s.name, s.weight, s.flops, s.trials, s.best_s) for s in self._states
                ),
                min((cap for cap in caps if cap is not None), default=None),
                budget.time_budget,
                self._parts.watch.earlier_s,
            )
        )

    def _make_policy(self) -> policies.Policy:
        settings = self._parts.settings
        policy = policies.create(settings.policy, settings.agent, settings.seed)
        policy.prepare()
        if not self._parts.anew:
            checkpoints = self._parts.workdir.checkpoints
            try:
                policy.restore(checkpoints)
            except Exception as error:  # what a damaged file may raise is anybody's guess
                raise InputError(
                    f"{checkpoints} cannot be taken up ({first_line(error)}): delete it, and the"
                    " agent begins anew; or go back to the agent's settings that it was made with"
                ) from error
        return policy

    def _record(self, recorded: Recorded) -> None:
        self._journal.write(recorded)
        if recorded.outcome is not None:
            self._progress.measured()

    def _after_round(self) -> None:
        self._progress.update(tuning=True)
        self._tell_losses()
        if self._parts.steady is None:
            self._tuner.feed(self._progress.devices)
        self._progress.write("running")
        if self._parts.storage is not None:
            self._parts.storage.sync(self._parts.workdir.path)
        self._parts.after_round(self._states)

    def _tell_losses(self) -> None:
        lost = self._progress.devices_lost
        for name in sorted(lost.keys() - self._told_lost):
            self._told_lost.add(name)
            left = self._progress.devices - len(lost)
            self._parts.listener(DeviceLost(name, lost[name], left))

    def _checkpoint(self) -> None:
        with self._parts.workdir.new_checkpoints() as checkpoints:
            if self._tuner.policy is not None:
                self._tuner.policy.save(checkpoints)
            models = checkpoints / "cost_model"
            models.mkdir(exist_ok=True)
            for state in self._states:
                state.planner.save(models)

    def _deploy(self) -> Deployment | None:
        """Leaves the database, and where devices run whole networks the checked library."""
        prepared, pool, workdir = self._parts.prepared, self._parts.pool, self._parts.workdir

        def stage(name: str) -> None:
            self._parts.listener(Stage(name))

        if self._parts.deploys:
            stage("measuring the fastest of each task side by side")
            hold_finals(
                self._states,
                self._journal,
                pool,
                self._parts.settings.measure,
                self._tuner.submitted,
            )
        stage("checking the best of each task against the unscheduled operator")
        winners = choose_winners(self._states, self._journal, pool)
        if not (self._parts.deploys and self._parts.kind.runs_networks):
            stage("writing the database; no model is made of the whole network")
            write_database(workdir.path, winners)
            return None
        return deploy(
            prepared.network,
            prepared.module,
            prepared.target,
            winners,
            pool=pool,
            database=workdir.path,
            model=workdir.model,
            seed=self._parts.settings.seed,
            stage=stage,
        )

    def _end(self, status: Status, deployment: Deployment | None = None) -> Result:
        self._journal.end(status)
        result = self._progress.write(status, deployment)
        if self._parts.storage is not None:
            self._parts.storage.sync(self._parts.workdir.path)
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
