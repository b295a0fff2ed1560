"""What Ray Tune calls for each run: one network tuned with one setting, in a worker's process.

A process serves run after run. What is the same for several of them it keeps: imports, the last
network, the sampler's actor.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from release_ray.accounting import CpuMeter, Stopwatch
from release_ray.core.errors import InputError, Interrupted
from release_ray.core.settings import TuneSettings
from release_ray.measure.jobs import DeviceSpec
from release_ray.records import Records
from release_ray.site import Site
from release_ray.storage import Storage
from release_ray.sweep.baseline import Baseline
from release_ray.sweep.ledger import Report
from release_ray.sweep.spec import Run
from release_ray.tuner import TaskState
from release_ray.workdir import WorkDir
from samplers.actor import RemoteSampler, start_actor

if TYPE_CHECKING:
    from release_ray.prepare import Prepared

RUNS, MEASURED = "runs", "measured/records.db"

_END_S = 60
"""What a stopped run may take to end. Else Tune throws its process away, and all that it keeps."""
_GONE_S = 10.0
"""How long the process of an earlier call may hold a run's work dir yet."""
_last_prepared: dict[tuple[str, TuneSettings], Prepared] = {}


@dataclass(frozen=True)
class Plan:
    """What the runs of a sweep are told."""

    runs: Mapping[str, Run]
    work_dir: Path
    storage: str | None
    site: Site
    """As the driver has found it, so that no run need look for itself."""
    baselines: Mapping[str, Baseline]
    """Of each run: of its own operators."""
    untuned_s: Mapping[str, float]
    """Of each run: latency of its network untuned, with the settings that all begin with."""
    steady: int
    """For how many devices runs plan ahead, whatever there are by now."""
    reported: Mapping[str, int]
    """The last round that each run has reported to an earlier call."""


def tune_run(config: dict[str, Any], plan: Plan) -> None:
    """Tunes one run and reports to Tune as it goes.

    It is tuned from the start, and what it has measured before is recalled: a run that was killed
    goes on as if it had not been.
    """
    os.environ["TUNE_FUNCTION_THREAD_TIMEOUT_S"] = str(_END_S)
    run, site = plan.runs[config["run"]], plan.site
    watch, meter = Stopwatch(), CpuMeter()
    with ExitStack() as stack:
        workdir = stack.enter_context(_locked(plan.work_dir / RUNS / run.name))
        prepared = _prepared(run, site.devices)
        pool = site.pool(run.settings)
        stack.callback(pool.shutdown)
        sampler = RemoteSampler(run.settings.sampler, _sampler_actor())
        stack.callback(sampler.close)
        measured = plan.work_dir / MEASURED
        shared = stack.enter_context(Records.open(measured)) if measured.exists() else None
        reporter = _Reporter(plan, run, watch)

        from release_ray.tuning import Parts, execute

        parts = Parts(
            prepared=prepared,
            settings=run.settings,
            devices=site.devices,
            pool=pool,
            sampler=sampler,
            workdir=workdir,
            fresh=False,
            storage=Storage(f"{plan.storage}/{RUNS}/{run.name}") if plan.storage else None,
            listener=lambda _: None,
            watch=watch,
            meter=meter,
            deploys=False,
            # What time ends is no function of the seed, and to search anew takes time.
            anew=run.settings.budget.time_budget is None,
            steady=plan.steady,
            shared=shared,
            after_round=reporter.after_round,
        )
        try:
            execute(parts)
        except Interrupted:
            # Tune has ended it: this is how a function is to answer.
            sys.exit(0)
    reporter.final()


class _Reporter:
    """Reports each time all tasks have had another round."""

    def __init__(self, plan: Plan, run: Run, watch: Stopwatch) -> None:
        self._baseline = plan.baselines[run.name]
        self._untuned_s = plan.untuned_s[run.name]
        self._reported = plan.reported.get(run.name, 0)
        self._watch = watch
        self._states: Sequence[TaskState] = ()
        self._stopped = False

    def after_round(self, states: Sequence[TaskState]) -> None:
        """Called when a round of any task is complete, and when there will be no further one."""
        self._states = states
        going_on = [state.rounds for state in states if state.tuned and not state.finished]
        if not self._stopped and going_on and min(going_on) > self._reported:
            try:
                self._report(min(going_on))
            except SystemExit:
                # Tune stops the run; from here it ends as an interrupted one does. Rounds that are
                # complete meanwhile are nobody's to hear of: Tune would not answer.
                self._stopped = True
                raise KeyboardInterrupt from None

    def final(self) -> None:
        """Called when the run is over; with this Tune knows its final state, reported or not."""
        self._report(max([self._reported, *(state.rounds for state in self._states)]))

    def _report(self, round_: int) -> None:
        from ray import tune

        latency_s = sum(
            state.weight * (state.best_s or self._baseline.latency_s[state.name])
            for state in self._states
        )
        report = Report(
            round=round_,
            speedup=self._untuned_s / latency_s,
            latency_ms=latency_s * 1e3,
            trials=sum(state.trials for state in self._states),
            wall_s=round(self._watch.active_s(), 3),
        )
        self._reported = round_
        tune.report(asdict(report))


@contextmanager
def _locked(path: Path) -> Iterator[WorkDir]:
    """The run's work dir; the process of an earlier call may need a moment to be gone."""
    deadline = time.monotonic() + _GONE_S
    with ExitStack() as stack:
        while True:
            try:
                workdir = stack.enter_context(WorkDir.locked(path))
                break
            except InputError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        yield workdir


def _about_network(settings: TuneSettings) -> TuneSettings:
    """Of settings those that decide what a network is prepared into."""
    return TuneSettings(
        target=settings.target, layout=settings.layout, tasks=settings.tasks, seed=settings.seed
    )


def _prepared(run: Run, devices: Sequence[DeviceSpec]) -> Prepared:
    """The run's network and tasks; kept until another is wanted, for weights are large."""
    from release_ray.prepare import prepare

    key = (run.source, _about_network(run.settings))
    if key not in _last_prepared:
        _last_prepared.clear()
        _last_prepared[key] = prepare(run.source, run.settings, devices)
    return _last_prepared[key]


@lru_cache(maxsize=1)
def _sampler_actor() -> Any:
    return start_actor()
