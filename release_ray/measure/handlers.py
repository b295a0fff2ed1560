"""What a worker process does with candidates: build, load, run, check. Only here runs TVM.

These functions are called by name through `release_ray.measure.process`. They keep between calls
what many candidates share: the workload's module, the target, the input tensors.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.schedule import Schedule, Trace
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from release_ray.core.settings import MeasureSettings
from release_ray.measure.canary import Watched, watched
from release_ray.measure.jobs import Artifact, Canary, Job
from release_ray.measure.timing import Timing, time_kernel
from release_ray.targets import resolve
from release_ray.verify import max_rel_error

Arguments = tuple[tuple[tuple[int, ...], str], ...]

_SEED = 7
_PAUSE_S = 0.1
_CANARY = 256
_FLUSH = {"cpu": "cache_flush_cpu_non_first_arg", "cuda": "l2_cache_flush_cuda"}
_names = itertools.count()
_kept: list[tvm.runtime.Module] = []


def build(job: Job, keep: bool = False) -> Artifact:
    """Compiles a candidate. `keep`: for this process, which `run` must then be told to time.

    Raises what TVM raises where the trace does not fit the workload or the target has no such code.
    """
    workload = job.workload
    target = _target(workload.target_json)
    scheduled = _schedule(workload.module_json, job.trace_json)
    # The compiled network has its weights in the new layout already, so the kernel must not
    # rewrite them; and its weight argument takes the new shape.
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(scheduled)
    arguments = _arguments(module)
    executable = tvm.compile(module, target=target)
    if keep:
        loaded = executable.jit()
        # Machine code is made at the first look-up; it belongs to the build.
        loaded.get_function("main", query_imports=True)
        _kept[:] = [loaded]
        return Artifact("kept", b"", arguments)
    return Artifact(*_pack(executable), arguments)


def run(
    artifact: Artifact,
    device: str,
    best_s: float | None,
    settings: MeasureSettings,
    limit_s: float,
    usual_s: float | None,
    gpu_json: str = "{}",
) -> Watched[Timing]:
    """Times a built candidate on fresh random inputs, under the eyes of a canary.

    Args:
        limit_s: what the whole call may take.
        usual_s: what the canary usually takes on this device.
        gpu_json: what a GPU says of itself, as `targets.resolve` takes it.
    """
    deadline = time.perf_counter() + limit_s / 2
    module = _kept.pop() if artifact.form == "kept" else _load(artifact)
    where = tvm.device(device)
    tensors = [
        _tensor(index, shape, dtype, device)
        for index, (shape, dtype) in enumerate(artifact.arguments)
    ]

    def evaluate(repeats: int, min_repeat_ms: float) -> list[float]:
        evaluator = module.time_evaluator(
            "main",
            where,
            number=1,
            repeat=repeats,
            min_repeat_ms=int(min_repeat_ms),
            f_preproc=_FLUSH[device] if settings.flush_cache else "",
        )
        return [float(seconds) for seconds in evaluator(*tensors).results]

    def measure() -> Timing:
        return time_kernel(
            evaluate,
            best_s=best_s,
            settings=settings,
            budget_s=limit_s / 4,
            cold=settings.flush_cache,
        )

    def pause() -> bool:
        time.sleep(_PAUSE_S)
        return time.perf_counter() < deadline

    return watched(
        measure,
        lambda: _canary_samples(device, gpu_json, 1)[0],
        usual_s=usual_s,
        pause=pause,
    )


def check(job: Job, device: str) -> float:
    """max|a-b| / max|b| of the scheduled kernel (a) against the operator as it is written (b).

    The kernel is built with its layout rewriting inside, so that both take the same arguments.
    Infinite where the kernel's output holds a NaN.
    """
    target = _target(job.workload.target_json)
    plain = _module(job.workload.module_json)
    scheduled = _schedule(job.workload.module_json, job.trace_json)
    inputs = [_values(i, shape, dtype) for i, (shape, dtype) in enumerate(_arguments(plain))]
    got = _outputs(scheduled, target, inputs, device)
    # The operator as written has no threads for a GPU: the host computes it.
    expected = _outputs(plain, target if _is_cpu(target) else _host_target(), inputs, "cpu")
    return max_rel_error(got, expected)


def canary(device: str, gpu_json: str = "{}", repeats: int = 10) -> Canary:
    """Times a fixed 256 x 256 x 256 matrix product in a plain hand-made schedule."""
    samples = _canary_samples(device, gpu_json, repeats)
    middle = median(samples)
    return Canary(2 * _CANARY**3 / middle / 1e9, (max(samples) - min(samples)) / middle)


def _canary_samples(device: str, gpu_json: str, repeats: int) -> list[float]:
    """Seconds a run; a sample is some milliseconds, longer than another process's time slice."""
    kernel = _canary_kernel(device, gpu_json)
    tensors = [_tensor(index, (_CANARY, _CANARY), "float32", device) for index in range(3)]
    evaluator = kernel.time_evaluator(
        "main", tvm.device(device), number=1, repeat=repeats, min_repeat_ms=5
    )
    return [float(seconds) for seconds in evaluator(*tensors).results]


@lru_cache(maxsize=2)
def _canary_kernel(device: str, gpu_json: str) -> tvm.runtime.Module:
    if device == "cpu":
        return tvm.compile(_canary_module(_CANARY), target=_host_target()).jit()
    target = resolve(device, 1, json.loads(gpu_json))
    return tvm.compile(_canary_module(_CANARY, threads=True), target=target).jit()


@lru_cache(maxsize=64)
def _module(module_json: str) -> tvm.IRModule:
    return tvm.ir.load_json(module_json)


@lru_cache(maxsize=8)
def _target(target_json: str) -> tvm.target.Target:
    return tvm.target.Target(json.loads(target_json))


def _schedule(module_json: str, trace_json: str) -> tvm.IRModule:
    schedule = Schedule(_module(module_json), error_render_level="none")
    Trace.apply_json_to_schedule(json.loads(trace_json), schedule)
    return schedule.mod


def _arguments(module: tvm.IRModule) -> Arguments:
    return tuple(
        (tuple(int(extent) for extent in info.shape), str(info.dtype))
        for info in ArgInfo.from_entry_func(module, False)
    )


def _pack(executable: Any) -> tuple[str, bytes]:
    """Form and bytes. A shared library: its device loads it in 0.2 ms, LLVM text takes 150 ms.

    `ld` links it in 4 ms; `export_library` calls a C++ compiler, which takes 40 ms, and is for
    modules that have others of another device inside.
    """
    library = executable.mod
    if library.imports:
        with _scratch("so") as path:
            executable.export_library(str(path))
            return "so", path.read_bytes()
    linker = _linker()
    if linker is None:
        with _scratch("ll") as path:
            library.write_to_file(str(path))
            return "ll", path.read_bytes()
    with _scratch("o") as source, _scratch("so") as path:
        library.write_to_file(str(source))
        linked = subprocess.run(
            [linker, "-shared", "-o", path, source],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if linked.returncode:
            # Without the name of the file, or no two candidates would fail for the same reason.
            complaint = (linked.stderr.strip().splitlines() or [f"status {linked.returncode}"])[0]
            raise RuntimeError(complaint.replace(str(source), "the kernel"))
        return "so", path.read_bytes()


@lru_cache(maxsize=1)
def _linker() -> str | None:
    return shutil.which("ld")


def _load(artifact: Artifact) -> tvm.runtime.Module:
    with _scratch(artifact.form) as path:
        path.write_bytes(artifact.payload)
        module = tvm_ffi.load_module(str(path))
        module.get_function("main", query_imports=True)
    return module


class _scratch:  # noqa: N801
    """A path in memory for a file that lives as long as the block."""

    def __init__(self, suffix: str) -> None:
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
        self._path = Path(folder, f"release_ray-{os.getpid()}-{next(_names)}.{suffix}")

    def __enter__(self) -> Path:
        return self._path

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)


@lru_cache(maxsize=32)
def _tensor(index: int, shape: tuple[int, ...], dtype: str, device: str) -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(_values(index, shape, dtype), tvm.device(device))


def _values(index: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random numbers, the same every time. Multiples of 2^-24, so none is denormal.

    Integers are 0 or 1: they may be indices, and others could lead out of bounds.
    """
    rng = np.random.default_rng((_SEED, index))
    if dtype.startswith(("int", "uint", "bool")):
        return rng.integers(0, 2, shape).astype(dtype)
    values = rng.random(shape, np.float32)
    try:
        return values.astype(dtype)
    except TypeError:
        import ml_dtypes  # bfloat16 and the 8-bit floats

        return values.astype(getattr(ml_dtypes, dtype))


def _outputs(
    module: tvm.IRModule, target: tvm.target.Target, inputs: list[np.ndarray], device: str
) -> list[np.ndarray]:
    """Every argument after a run: inputs are as they were, outputs are not."""
    kernel = tvm.compile(module, target=target).jit()["main"]
    tensors = [tvm.runtime.tensor(value, tvm.device(device)) for value in inputs]
    kernel(*tensors)
    return [tensor.numpy() for tensor in tensors]


def _is_cpu(target: tvm.target.Target) -> bool:
    return str(target.kind.name) in ("llvm", "c")


def _host_target() -> tvm.target.Target:
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": 1})


def _canary_module(size: int, threads: bool = False) -> tvm.IRModule:
    from tvm import te

    a = te.placeholder((size, size), name="a")
    b = te.placeholder((size, size), name="b")
    k = te.reduce_axis((0, size), "k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    schedule = Schedule(te.create_prim_func([a, b, c]))
    block = schedule.get_sblock("c")
    rows, columns, inner = schedule.get_loops(block)
    if threads:
        for loop, block_index, thread_index in (
            (rows, "blockIdx.y", "threadIdx.y"),
            (columns, "blockIdx.x", "threadIdx.x"),
        ):
            outside, inside = schedule.split(loop, [None, 16])
            schedule.bind(outside, block_index)
            schedule.bind(inside, thread_index)
        order = schedule.get_loops(block)
        schedule.reorder(order[0], order[2], order[1], order[3], inner)
        return schedule.mod
    row_outer, row_inner = schedule.split(rows, [None, 4])
    column_outer, column_inner = schedule.split(columns, [None, 32])
    schedule.reorder(row_outer, column_outer, inner, row_inner, column_inner)
    schedule.parallel(row_outer)
    schedule.vectorize(column_inner)
    schedule.unroll(row_inner)
    schedule.decompose_reduction(block, inner)
    return schedule.mod
