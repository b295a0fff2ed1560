"""What goes into the measurement pool and what comes out of it. Plain data, no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Purpose, Status


@dataclass(frozen=True)
class Workload:
    """A task's operator, ready to be sent anywhere."""

    key: str
    """Hex of the structural hash; with the target, a part of a record's identity."""
    name: str
    """The task's name."""
    module_json: str
    """`tvm.ir.save_json` of an IRModule whose one PrimFunc is `main`."""
    target_json: str
    """JSON of the TVM target."""
    flops: float
    """Floating-point operations of one run."""


@dataclass(frozen=True)
class Job:
    """One candidate to be built and timed."""

    id: int
    """Unique in a run."""
    workload: Workload
    trace_json: str
    """The full trace as MetaSchedule's database stores it, postprocs included: it replays onto the
    workload and gives the scheduled module. Empty for the operator untuned, whose `purpose` says
    so. `measure.kernels.job_of` makes a job of a module that is scheduled already."""
    decisions: str
    """Canonical JSON of the applied knob values."""
    best_s: float | None
    """The best latency known when the job was planned: it bounds how long a slow one runs."""
    purpose: Purpose = Purpose.TRIAL
    """`remeasure` is timed to the end, and with cold caches; `default` has no trace."""
    settings: MeasureSettings = MeasureSettings()
    """How it is built and timed."""
    artifact: Artifact | None = None
    """What somebody else has built: it is only timed."""

    @classmethod
    def untuned(
        cls, number: int, workload: Workload, settings: MeasureSettings, best_s: float | None = None
    ) -> Job:
        """The operator as TVM compiles it untuned. With no `best_s` it is timed to the end."""
        return cls(number, workload, "", "[]", best_s, Purpose.DEFAULT, settings)


@dataclass(frozen=True)
class Outcome:
    """What became of a job. Seconds are wall time, `*_cpu_s` CPU time in the child process."""

    job_id: int
    status: Status
    latency_s: float | None
    """Set only where `status` is `ok`."""
    bound_s: float | None
    """Set only where `status` is `slow`: a lower bound of the latency."""
    message: str
    device: str
    host: str
    build_s: float
    run_s: float
    build_cpu_s: float
    run_cpu_s: float
    canary_s: float | None = None
    """What the canary took around the run; None for devices that have none."""


@dataclass(frozen=True)
class DeviceSpec:
    """One device of a pool, as its kind understood the user's `--devices`."""

    name: str
    """Unique in a pool on one host, such as `cpu:1`."""
    kind: str
    """The registered name of its `DeviceKind`."""
    cores: tuple[int, ...] = ()
    """CPU cores that belong to the device alone."""
    options: Mapping[str, float] = field(default_factory=dict)
    """Numbers that only the kind understands."""
    node: str = ""
    """Ray's id of the node where it is; empty: Ray has one node, or it does not matter."""
    gpus: int = 0
    """GPUs that Ray gives the device's actor."""
    model: str = ""
    """What is measured on: the processor's or the GPU's name."""
    target: Mapping[str, Any] = field(default_factory=dict)
    """What a target for the device must say of it."""
    address: str = ""
    """Of the tracker that hands it out."""


@dataclass(frozen=True)
class Artifact:
    """A built candidate, ready to be loaded where its target is."""

    form: str
    """How to load it: `so` (shared library), `ll` (LLVM text), or `kept` (it never left the
    process that built it, and `payload` is empty)."""
    payload: bytes = field(repr=False)
    arguments: tuple[tuple[tuple[int, ...], str], ...]
    """Shape and dtype of each argument; the weight's after its layout was rewritten."""
    build_s: float = 0.0
    build_cpu_s: float = 0.0


@dataclass(frozen=True)
class Canary:
    """A fixed kernel's speed: what a device is worth, and how noisy it is."""

    gflops: float
    spread: float
    """(slowest - fastest) / median over the repeats."""
