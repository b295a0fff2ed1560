"""A sweep from end to end: the file's runs on one pool, by Ray Tune, and what came out of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release_ray import cluster, tvm_setup
from release_ray.core.errors import InputError, ReleaseRayError
from release_ray.core.settings import TuneSettings
from release_ray.measure.devices import expand
from release_ray.measure.pool import MeasurePool
from release_ray.records import Records
from release_ray.result import Result
from release_ray.site import Site
from release_ray.storage import Storage, restore
from release_ray.sweep.baseline import Baseline, Baselines
from release_ray.sweep.ledger import Entry, Ledger, Report
from release_ray.sweep.plots import draw
from release_ray.sweep.results import PLOTS, Outcome, write_results
from release_ray.sweep.spec import Run, SweepSpec
from release_ray.sweep.trial import MEASURED, RUNS, Plan, tune_run
from release_ray.workdir import SWEEP, WorkDir

TUNE = "tune"
"""The folder of Tune's own files."""
BASELINES = "untuned.json"


@dataclass(frozen=True)
class RunUpdate:
    """Something happened to a run: it began, reported, or ended."""

    run: Run
    entry: Entry
    over: int
    """How many of the sweep's runs are."""
    total: int


Listener = Callable[[RunUpdate | str], None]
"""Is called with each update, and with a line for each stage of the sweep."""


def run_sweep(
    spec: SweepSpec,
    *,
    work_dir: Path | None = None,
    address: str | None = None,
    storage: str | None = None,
    listener: Listener = lambda _: None,
) -> Outcome:
    """Runs what of a sweep is left to run, and returns what all of it has found.

    Args:
        work_dir: instead of the file's.
        address: of a Ray cluster, as for `tune`.
        storage: a URL where the sweep's results, and each run's after each round, are copied.

    Raises:
        InputError: bad input, told before anything starts.
        WorkFailed: the network's operators cannot be measured, or no run succeeded.
        KeyboardInterrupt: everything measured is kept, and the next call goes on from there.
    """
    tvm_setup.check_pins()
    path = (work_dir or spec.work_dir).resolve()
    storage = _absolute(storage or spec.settings.storage)
    kept = Storage(storage) if storage else None
    if kept is not None:
        kept.require_apart(path)
    with ExitStack() as stack:
        workdir = stack.enter_context(WorkDir.locked(path))
        if workdir.records.exists():
            raise InputError(f"{path} is the work dir of a network: choose another for the sweep")
        if storage and not (path / SWEEP).exists():
            restore(storage, path, mark=SWEEP)
        ledger = Ledger(path / SWEEP, spec.identity, [run.name for run in spec.runs])
        try:
            if ledger.unfinished:
                _Sweep(spec, path, ledger, kept, storage, listener).run(address)
        except BaseException:
            for name in ledger.entries:
                _mark_interrupted(path / RUNS / name)
            # Whoever is stopped has seconds left: too few for pictures, and for Tune's files.
            write_results(path, spec, ledger.entries)
            if kept is not None:
                kept.sync(path, leave_out=(TUNE,))
            raise
        outcome = write_results(path, spec, ledger.entries)
        try:
            draw(path / PLOTS, spec, outcome.rows)
        finally:
            if kept is not None:
                kept.sync(path)
        return outcome


class _Sweep:
    """The runs that are left, from the first that starts to the last that ends."""

    def __init__(
        self,
        spec: SweepSpec,
        path: Path,
        ledger: Ledger,
        kept: Storage | None,
        storage: str | None,
        listener: Listener,
    ) -> None:
        self._spec = spec
        self._path = path
        self._ledger = ledger
        self._kept = kept
        self._storage = storage
        self._listener = listener
        self._runs = {run.name: run for run in spec.runs}

    def run(self, address: str | None) -> None:
        spec = self._spec
        with ExitStack() as stack:
            hosts = cluster.hosts(stack, address)
            devices = expand(spec.base.devices, hosts, target=spec.base.target)
            _check_targets(spec)
            self._listener(cluster.stage(address))
            stack.enter_context(cluster.connected(address))
            site = Site.of(spec.base, hosts, devices)
            # It is the driver's too, or it would end with each run that has it for itself.
            pool = site.pool(spec.base)
            stack.callback(pool.shutdown)
            pool.ready()
            plan = self._plan(site, self._measure_untuned(site, pool))
            if spec.settings.reuse:
                (self._path / MEASURED).parent.mkdir(exist_ok=True)
                Records.open(self._path / MEASURED).close()
            self._ledger.settle(len(site.devices))
            self._copy()
            self._listener(
                f"{len(self._ledger.unfinished)} of {len(spec.runs)} runs to do, on"
                f" {', '.join(device.name for device in site.devices)}"
            )
            self._tune(plan)

    def _measure_untuned(self, site: Site, pool: MeasurePool) -> Baselines:
        from release_ray.prepare import prepare

        spec = self._spec
        baselines = Baselines(self._path / BASELINES)
        wanted = [(network, spec.base) for network in spec.settings.networks]
        wanted += [(run.network, run.settings) for run in spec.runs]
        for network, settings in wanted:
            if baselines.get(network, settings) is None:
                self._listener(f"measuring {network} untuned")
                prepared = prepare(network, settings, site.devices)
                baselines.measure(network, settings, prepared.tasks, pool)
        return baselines

    def _plan(self, site: Site, baselines: Baselines) -> Plan:
        def of(network: str, settings: TuneSettings) -> Baseline:
            found = baselines.get(network, settings)
            assert found is not None
            return found

        runs, entries = self._runs.values(), self._ledger.entries
        return Plan(
            runs=self._runs,
            work_dir=self._path,
            storage=self._storage,
            site=site,
            baselines={run.name: of(run.network, run.settings) for run in runs},
            untuned_s={run.name: of(run.network, self._spec.base).total_s for run in runs},
            steady=self._ledger.devices,
            reported={
                name: entry.last.round for name, entry in entries.items() if entry.last is not None
            },
        )

    def _tune(self, plan: Plan) -> None:
        # The command line handles signals; Tune would only finish what it is at.
        os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
        # Its newer output prints a table even where it is told to be quiet.
        os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
        import ray
        from ray import tune

        from release_ray.sweep.callback import SweepCallback
        from release_ray.sweep.halving import METRIC, HalvingWithinNetworks

        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        chosen = self._spec.settings
        scheduler = None
        if chosen.scheduler is not None:
            scheduler = HalvingWithinNetworks(
                chosen.scheduler.asha, self._spec.runs, self._ledger.entries
            )
        here = ray.util.get_node_ip_address()
        tune.Tuner(
            tune.with_resources(
                tune.with_parameters(tune_run, plan=plan),
                # Beside the driver, where the work dirs are; no CPU, for the pool has them all.
                tune.PlacementGroupFactory([{f"node:{here}": 0.001}]),
            ),
            param_space=self._space(),
            tune_config=tune.TuneConfig(
                metric=METRIC,
                mode="max",
                max_concurrent_trials=chosen.max_concurrent,
                scheduler=scheduler,
                reuse_actors=True,
                trial_name_creator=_name,
                trial_dirname_creator=_name,
            ),
            run_config=tune.RunConfig(
                name=TUNE,
                storage_path=str(self._path),
                verbose=0,
                callbacks=[
                    SweepCallback(self._began, self._reported, self._ended, _stopped_by(scheduler))
                ],
            ),
        ).fit()

    def _space(self) -> dict[str, Any]:
        """For Tune: runs one after the other, and of each what is drawn already."""
        from ray import tune

        left = self._ledger.unfinished
        known = {
            name: {"network": self._runs[name].network, **self._runs[name].values} for name in left
        }

        def of_run(setting: str) -> Any:
            return tune.sample_from(lambda config: known[config["run"]][setting])

        return {"run": tune.grid_search(left)} | {name: of_run(name) for name in known[left[0]]}

    def _began(self, name: str) -> None:
        self._ledger.begin(name)
        self._tell(name)

    def _reported(self, name: str, report: Report, stopped: bool) -> None:
        self._ledger.report(name, report, stopped=stopped)
        self._copy()
        self._tell(name)

    def _copy(self) -> None:
        """Copies what the runs, which copy their own folders, do not: with it one can go on."""
        if self._kept is not None:
            self._kept.sync(self._path, leave_out=(RUNS, TUNE))

    def _ended(self, name: str, error: BaseException | None) -> None:
        if error is not None:
            self._ledger.end(name, "failed", _message(error))
        elif self._ledger.entries[name].status != "stopped":
            self._ledger.end(name, "done")
        self._tell(name)
        write_results(self._path, self._spec, self._ledger.entries)
        self._copy()

    def _tell(self, name: str) -> None:
        entries: Mapping[str, Entry] = self._ledger.entries
        over = len(entries) - len(self._ledger.unfinished)
        self._listener(RunUpdate(self._runs[name], entries[name], over, len(entries)))


def _stopped_by(scheduler: Any) -> Callable[[str], bool]:
    """Whether a run's last report made a scheduler stop it."""
    return lambda name: scheduler is not None and name in scheduler.stopped


def _check_targets(spec: SweepSpec) -> None:
    """Raises `InputError` for a target that TVM does not know."""
    given = {run.settings.target for run in spec.runs} - {"native", "cuda"}
    if given:
        from release_ray.targets import resolve

        for target in sorted(given):
            resolve(target, 1)


def _absolute(url: str | None) -> str | None:
    """A URL, or a folder's path, as processes with other working directories find it."""
    return os.path.abspath(url) if url and "://" not in url else url


def _mark_interrupted(run: Path) -> None:
    """Says in a run's `result.json` that it is not going on: its process was ended with Ray."""
    file = WorkDir(run).result
    with suppress(InputError):  # there is none yet
        result = Result.read(file)
        if result.status == "running":
            result.model_copy(update={"status": "interrupted"}).write(file)


def _name(trial: Any) -> str:
    return str(trial.config["run"])


def _message(error: BaseException) -> str:
    """One line. Ray wraps what was raised, in an error whose text is the traceback."""
    while (cause := getattr(error, "cause", None) or error.__cause__) is not None:
        error = cause
    told = " ".join(str(error).split())[:2000]
    return told if isinstance(error, ReleaseRayError) else f"{type(error).__name__}: {told}"
