"""From the records of an earlier run, without tuning: compile the network, compare it, exchange."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from release_ray import cluster, networks
from release_ray.compile import compile_network, export
from release_ray.core.errors import InputError
from release_ray.core.settings import TuneSettings
from release_ray.database import Entry, open_database, write_database
from release_ray.deploy import Deployment, deploy
from release_ray.measure.devices import expand
from release_ray.measure.pool import MeasurePool
from release_ray.prepare import Prepared, local_devices, prepare
from release_ray.records import FINALISTS, Records
from release_ray.replay import replayed
from release_ray.sketches import Sketches
from release_ray.targets import back_end, target_json
from release_ray.tasks import Task
from release_ray.workdir import Identity, WorkDir, require_file


def best_entries(tasks: Sequence[Task], records: Records) -> list[Entry]:
    """The best record of each task as MetaSchedule's database takes it; real ones alone.

    Tasks that were faster untuned are left out.
    """
    history = records.history(simulated=False)
    entries = []
    for task in tasks:
        key = (task.workload.key, task.workload.target_json)
        best = [] if history.untuned_won(*key) else history.best(*key, FINALISTS)
        if not best:
            continue
        sketches = Sketches(task)
        entry = next(filter(None, (replayed(task, sketches, record) for record in best)), None)
        if entry is not None:
            entries.append(entry)
    return entries


def entries_of(workdir: WorkDir, tasks: Sequence[Task]) -> list[Entry]:
    """`best_entries` of a work dir. Raises `InputError` where nothing real was measured there."""
    with Records.open(workdir.records, create=False) as records:
        entries = best_entries(tasks, records)
        won = records.history(simulated=False).untuned_won
        keys = [(task.workload.key, task.workload.target_json) for task in tasks]
        if not entries and not any(won(*key) for key in keys):
            raise InputError(
                f"{workdir.path} holds no real measurement of this network: tune it first"
            )
    return entries


def compile_from(network: str, settings: TuneSettings, work_dir: Path, output: Path) -> int:
    """Compiles a network with a work dir's best records into `output`; returns their number.

    Raises `InputError` where the work dir is another network's or holds no measurement.
    """
    networks.check(network)
    require_file(output)
    settings = _as_tuned(network, settings, work_dir)
    prepared = prepare(network, settings, local_devices(settings))
    entries = _entries(prepared, work_dir)
    with tempfile.TemporaryDirectory() as scratch:
        write_database(Path(scratch), entries)
        database = open_database(Path(scratch))
        export(compile_network(prepared.module, prepared.target, database), output)
    return len(entries)


def bench_from(
    network: str, settings: TuneSettings, work_dir: Path, address: str | None
) -> Deployment:
    """Measures the default network against the tuned one, in the same run, on a device.

    Raises as `compile_from`, and `WorkFailed` where one of them does not run.
    """
    if settings.devices == TuneSettings().devices:
        # For others the work dir must be meant: it is compared with what they are.
        settings = _as_tuned(network, settings, work_dir)
        settings = settings.model_copy(update={"devices": _devices_for(settings.target)})
    with ExitStack() as stack:
        hosts = cluster.hosts(stack, address)
        devices = expand(settings.devices, hosts, target=settings.target)
        prepared = prepare(network, settings, devices)
        entries = _entries(prepared, work_dir)
        stack.enter_context(cluster.connected(address))
        pool = MeasurePool.start(devices, 0, settings.measure, back_end(prepared.target))
        stack.callback(pool.shutdown)
        pool.ready()
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        return deploy(
            prepared.network,
            prepared.module,
            prepared.target,
            entries,
            pool=pool,
            database=scratch,
            model=scratch / "model.so",
            seed=settings.seed,
            stage=lambda _: None,
        )


def _entries(prepared: Prepared, work_dir: Path) -> list[Entry]:
    workdir = WorkDir.existing(work_dir)
    workdir.require(
        Identity(prepared.network.name, prepared.network.fingerprint, target_json(prepared.target))
    )
    return entries_of(workdir, prepared.tasks)


def _as_tuned(network: str, settings: TuneSettings, work_dir: Path) -> TuneSettings:
    """Settings with the target that the work dir was tuned for, which need not be this machine's.

    One that was chosen stays, and so it does for another network, which is to be told from the
    work dir's own.
    """
    if settings.target != TuneSettings().target:
        return settings
    owner = WorkDir.existing(work_dir).identity
    if owner.network != Path(network).stem:
        return settings
    return settings.model_copy(update={"target": owner.target})


def _devices_for(target: str) -> str:
    """A device with as many cores as kernels for a target, as settings hold it, are to use."""
    cores = json.loads(target).get("num-cores", 1) if target.startswith("{") else 1
    return f"cpu:1x{cores}" if cores > 1 else TuneSettings().devices
