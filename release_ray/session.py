"""`tune`: one run from end to end, a network in, a checked library, records and results out.

Ray takes as long to start as TVM, torch and the network take to load. So this module imports none
of them, and a thread loads them while Ray starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from release_ray import cluster, networks, tvm_setup
from release_ray.accounting import CpuMeter, Stopwatch
from release_ray.configuration import check_search, load_settings
from release_ray.core.errors import InputError
from release_ray.core.settings import TuneSettings
from release_ray.events import Listener, Stage, all_of
from release_ray.measure.devices import device_kind, expand
from release_ray.measure.hosts import Host
from release_ray.measure.jobs import DeviceSpec
from release_ray.measure.pool import MeasurePool
from release_ray.result import Result, TaskResult
from release_ray.rounds import Rounds
from release_ray.scalars import Scalars
from release_ray.site import Site
from release_ray.storage import Storage, restore
from release_ray.workdir import WorkDir
from samplers.actor import RemoteSampler

if TYPE_CHECKING:
    from release_ray.prepare import Prepared


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
    network: str | Path,
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
    name = str(network) if isinstance(network, Path) else network
    path = Path(work_dir) if work_dir is not None else default_work_dir(name)
    budget = {
        "budget.trials": trials,
        "budget.trials_per_task": trials_per_task,
        "budget.time_budget": time_budget,
    }
    loaded = load_settings(Path(config) if config else None, {**settings, **budget})
    result = run_tuning(
        name,
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
    return Path("tuning") / Path(str(network)).stem


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
    # What can be known to be wrong at once is said before anything starts.
    tvm_setup.check_pins()
    networks.check(network)
    check_search(settings)
    path = work_dir or default_work_dir(network)
    kept = Storage(storage) if storage else None
    if kept is not None:
        kept.require_apart(path)
    watch, meter = Stopwatch(), CpuMeter()
    with ExitStack() as stack:
        # Left last, so that the next run there begins when nothing of this one is left.
        hosts = cluster.hosts(stack, address)
        devices = expand(settings.devices, hosts, target=settings.target)
        simulated = device_kind(devices[0].kind).simulated
        workdir = stack.enter_context(WorkDir.locked(path, simulated=simulated))
        listener(Stage(f"loading {network}, {cluster.stage(address)}"))
        scalars = Scalars(workdir.logs)
        stack.callback(scalars.close)
        rounds = Rounds(workdir.logs, simulated=simulated, fresh=fresh)
        started = _start(stack, network, settings, hosts, devices, address)
        if storage and not workdir.records.exists():
            restore(storage, workdir.path)
        from release_ray.tuning import Parts, execute

        return execute(
            Parts(
                prepared=started.prepared,
                settings=settings,
                devices=devices,
                pool=started.pool,
                sampler=started.sampler,
                workdir=workdir,
                fresh=fresh,
                storage=kept,
                listener=all_of(listener, scalars, rounds),
                watch=watch,
                meter=meter,
            )
        )


@dataclass(frozen=True)
class _Started:
    prepared: Prepared
    pool: MeasurePool
    sampler: RemoteSampler


def _start(
    stack: ExitStack,
    network: str,
    settings: TuneSettings,
    hosts: Sequence[Host],
    devices: Sequence[DeviceSpec],
    address: str | None,
) -> _Started:
    """Starts Ray, then the pool, while a thread loads the network."""

    def prepare() -> Prepared:
        # What follows is imported here too, while there is time.
        from release_ray import prepare, tuning  # noqa: F401

        prepared = prepare.prepare(network, settings, devices)
        # What could not be compared in the end is told before hours are spent.
        try:
            prepared.network.reference(prepared.network.example_inputs(settings.seed))
        except MemoryError as error:
            raise InputError(
                f"network {network!r} does not fit into memory ({error}): make its inputs smaller"
            ) from None
        return prepared

    loader = stack.enter_context(ThreadPoolExecutor(1, "load"))
    site: Future[Site] = loader.submit(Site.of, settings, hosts, devices)
    prepared: Future[Prepared] = loader.submit(prepare)
    stack.enter_context(cluster.connected(address))
    pool = site.result().pool(settings)
    stack.callback(pool.shutdown)
    sampler = RemoteSampler(settings.sampler)
    stack.callback(sampler.close)
    return _Started(prepared.result(), pool, sampler)
