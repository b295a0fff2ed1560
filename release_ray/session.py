"""One tuning run from end to end: the network in, records, results and a checked library out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import policies
from release_ray import cluster, networks, tvm_setup
from release_ray.accounting import Stopwatch
from release_ray.configuration import load_settings
from release_ray.core.errors import Interrupted, WorkFailed
from release_ray.core.settings import TuneSettings
from release_ray.deploy import Deployment, choose_winners, deploy
from release_ray.events import Listener, RunStarted, Stage, TaskSummary
from release_ray.journal import Journal
from release_ray.measure.devices import device_kind, expand
from release_ray.measure.jobs import DeviceSpec
from release_ray.measure.pool import MeasurePool
from release_ray.planner import TaskPlanner
from release_ray.prepare import Prepared, builders_for, prepare, target_for
from release_ray.progress import Progress, Status
from release_ray.records import Records
from release_ray.result import Result, TaskResult
from release_ray.storage import Storage, restore
from release_ray.targets import back_end, target_json
from release_ray.tasks import dump_tasks
from release_ray.tuner import Recorded, TaskState, Tuner
from release_ray.workdir import RECORDS, Identity, WorkDir, write_atomic
from samplers.actor import RemoteSampler


@dataclass(frozen=True)
class TuneResult:
    """What `tune` gives back: `result.json`'s contents, and the compiled network."""

    result: Result
    work_dir: Path

    @property
    def default_latency_ms(self) -> float | None:
        return self.result.latency_ms.default

    @property
    def tuned_latency_ms(self) -> float | None:
        return self.result.latency_ms.tuned

    @property
    def tasks(self) -> tuple[TaskResult, ...]:
        return self.result.tasks

    @cached_property
    def executable(self) -> Any:
        """The compiled network as TVM's module; give it to `tvm.relax.VirtualMachine`.

        None on simulated devices.
        """
        from tvm.runtime import load_module

        model = WorkDir(self.work_dir).model
        return load_module(str(model)) if model.exists() else None


def tune(
    network: str,
    *,
    work_dir: str | Path | None = None,
    config: str | Path | None = None,
    address: str | None = None,
    storage: str | None = None,
    fresh: bool = False,
    trials: int | None = None,
    trials_per_task: int | None = None,
    time_budget: str | float | None = None,
    listener: Listener = lambda _: None,
    **settings: Any,
) -> TuneResult:
    """Tunes a network; the arguments are the options of `release-ray tune`.

    Args:
        network: a built-in's name, or a path to an `.onnx` or a `.pt2` file.
        settings: any setting by name, as `target="native"`, `policy="random"`,
            `agent={"lr": 1e-3}`.
        listener: is called with each event of the run (`release_ray.events`).

    Raises:
        InputError: bad input; the message names it and the remedy.
        WorkFailed: nothing could be measured or compiled.
        Interrupted: a `KeyboardInterrupt`; everything measured is kept.
    """
    path = Path(work_dir) if work_dir is not None else default_work_dir(network)
    budget = {
        "budget.trials": trials,
        "budget.trials_per_task": trials_per_task,
        "budget.time_budget": time_budget,
    }
    loaded = load_settings(Path(config) if config else None, {**settings, **budget})
    result = run_tuning(
        network,
        loaded,
        work_dir=path,
        address=address,
        storage=storage,
        fresh=fresh,
        listener=listener,
    )
    return TuneResult(result, path)


def default_work_dir(network: str) -> Path:
    """`tuning/NAME`: the built-in's name, or the file's stem."""
    return Path("tuning") / Path(network).stem


def run_tuning(
    network: str,
    settings: TuneSettings,
    *,
    work_dir: Path | None,
    address: str | None,
    storage: str | None,
    fresh: bool,
    listener: Listener,
) -> Result:
    """Tunes a network and returns what `result.json` holds in the end.

    Raises `InputError` for bad input; `WorkFailed` where nothing could be measured or compiled;
    `Interrupted`, a `KeyboardInterrupt`, where one came. The last two carry the result, and
    everything measured is kept.
    """
    return _Session(network, settings, work_dir, address, storage, fresh, listener).run()


class _Session:
    def __init__(
        self,
        network: str,
        settings: TuneSettings,
        work_dir: Path | None,
        address: str | None,
        storage: str | None,
        fresh: bool,
        listener: Listener,
    ) -> None:
        self._source = network
        self._settings = settings
        self._path = work_dir or default_work_dir(network)
        self._address = address
        self._storage_url = storage
        self._fresh = fresh
        self._listener = listener
        self._watch = Stopwatch()

    def run(self) -> Result:
        settings = self._settings
        # What can be known to be wrong at once is said before anything starts.
        tvm_setup.check_pins()
        networks.find(self._source)
        policies.create(settings.policy, settings.agent).close()
        devices = expand(settings.devices)
        simulated = device_kind(devices[0].kind).simulated
        storage = Storage(self._storage_url) if self._storage_url else None
        with ExitStack() as stack:
            prepared, pool, sampler = self._start(stack, devices)
            identity = Identity(
                prepared.network.name, prepared.network.fingerprint, target_json(prepared.target)
            )
            if self._storage_url and not (self._path / RECORDS).exists():
                restore(self._storage_url, self._path)
            workdir = stack.enter_context(WorkDir.locked(self._path, identity))
            records = stack.enter_context(Records.open(workdir.records))
            write_atomic(workdir.tasks, dump_tasks(prepared.tasks))
            if self._fresh:
                workdir.forget_learning()
            journal = Journal(
                records, settings, simulated=simulated, fresh=self._fresh, watch=self._watch
            )
            run = _Run(
                prepared=prepared,
                settings=settings,
                devices=devices,
                pool=pool,
                sampler=sampler,
                workdir=workdir,
                journal=journal,
                storage=storage,
                listener=self._listener,
                watch=self._watch,
            )
            return run.deployed() if not simulated else run.simulated()

    def _start(
        self, stack: ExitStack, devices: Sequence[DeviceSpec]
    ) -> tuple[Prepared, MeasurePool, RemoteSampler]:
        """Starts Ray and the pool while the network is loaded: each takes seconds."""
        settings = self._settings
        with ThreadPoolExecutor(1, "load") as loader:
            self._listener(Stage(f"loading {self._source}, starting Ray"))
            loading: Future[Prepared] = loader.submit(prepare, self._source, settings, devices)
            stack.enter_context(cluster.connected(self._address, devices))
            pool = MeasurePool.start(
                devices,
                builders_for(settings, devices),
                settings.measure,
                back_end(target_for(settings, devices)),
            )
            stack.callback(pool.shutdown)
            sampler = RemoteSampler(settings.sampler)
            stack.callback(sampler.close)
            prepared = loading.result()
        return prepared, pool, sampler


class _Run:
    """What follows once everything is up: tune, deploy, report."""

    def __init__(
        self,
        *,
        prepared: Prepared,
        settings: TuneSettings,
        devices: Sequence[DeviceSpec],
        pool: MeasurePool,
        sampler: RemoteSampler,
        workdir: WorkDir,
        journal: Journal,
        storage: Storage | None,
        listener: Listener,
        watch: Stopwatch,
    ) -> None:
        self._prepared = prepared
        self._settings = settings
        self._devices = devices
        self._pool = pool
        self._workdir = workdir
        self._journal = journal
        self._storage = storage
        self._listener = listener
        self._watch = watch
        self._states = [
            TaskState(TaskPlanner(task, settings, sampler), task.weight, task.flops)
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
            search_cpu_s=lambda: self._tuner.search_cpu_s + sampler.cpu_s,
        )

    def simulated(self) -> Result:
        """Tunes on simulated devices: there is nothing to deploy."""
        return self._guarded(lambda: None)

    def deployed(self) -> Result:
        """Tunes, and leaves a checked library."""
        return self._guarded(self._deploy)

    def _guarded(self, finish: Callable[[], Deployment | None]) -> Result:
        try:
            self._pool.ready()
            self._announce()
            self._tuner.run()
            self._progress.update(tuning=True)
            self._checkpoint()
            if not any(state.best_s for state in self._states):
                raise WorkFailed(_reasons(self._states))
            deployment = finish()
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
        caps = [budget.trials, per_task and per_task * len(self._states)]
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
            raise WorkFailed("no candidate of any task gives the right output")
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
