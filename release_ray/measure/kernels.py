"""Kernels as files and as modules: schedules, arguments, packing, and the canary's own kernel."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.schedule import Schedule, Trace

from release_ray.core.settings import MeasureSettings
from release_ray.measure.jobs import Job, Workload
from release_ray.targets import target_json

Arguments = tuple[tuple[tuple[int, ...], str], ...]

_NO_STEPS = json.dumps([[], []])
"""The trace of a schedule that changes nothing."""
_SEED = 7
_names = itertools.count()


@lru_cache(maxsize=64)
def workload_module(module_json: str) -> tvm.IRModule:
    return tvm.ir.load_json(module_json)


@lru_cache(maxsize=8)
def target_of(target_json: str) -> tvm.target.Target:
    return tvm.target.Target(json.loads(target_json))


def job_of(
    number: int,
    module: tvm.IRModule,
    target: tvm.target.Target,
    settings: MeasureSettings | None = None,
) -> Job:
    """A job for the pool: times a module that is scheduled already, its one PrimFunc being `main`.

    Args:
        number: the job's id, by which its outcome is known.
        settings: how it is built and timed; default: `MeasureSettings()`.
    """
    workload = Workload(
        key="",
        name="kernel",
        module_json=tvm.ir.save_json(module),
        target_json=target_json(target),
        flops=0.0,
    )
    settings = settings or MeasureSettings()
    return Job(number, workload, _NO_STEPS, "", best_s=None, settings=settings)


def scheduled(module_json: str, trace_json: str) -> tvm.IRModule:
    schedule = Schedule(workload_module(module_json), error_render_level="none")
    Trace.apply_json_to_schedule(json.loads(trace_json), schedule)
    return schedule.mod


def untuned(module_json: str, target: tvm.target.Target) -> tvm.IRModule:
    """What TVM's default pipeline makes of an operator: plain loops on a CPU, dlight's on a GPU."""
    module = workload_module(module_json)
    if is_cpu(target):
        return module
    from tvm.s_tir import dlight

    rules = dlight.gpu
    with target:
        return dlight.ApplyDefaultSchedule(
            rules.Matmul(),
            rules.GEMV(),
            rules.Reduction(),
            rules.GeneralReduction(),
            rules.Fallback(),
        )(module)


def arguments_of(module: tvm.IRModule) -> Arguments:
    return tuple(
        (tuple(int(extent) for extent in info.shape), str(info.dtype))
        for info in ArgInfo.from_entry_func(module, False)
    )


def pack(executable: Any, target: tvm.target.Target) -> tuple[str, bytes]:
    """Form and bytes. A shared library: its device loads it in 0.2 ms, LLVM text takes 150 ms.

    `ld` links it in 4 ms; `export_library` calls a C++ compiler, which takes 40 ms, and is for
    modules that have others of another device inside. What is for another sort of machine is
    linked there.
    """
    library = executable.mod
    if str(target.attrs.get("mtriple", "")) not in ("", _host_triple()):
        with scratch("tar") as path:
            executable.export_library(str(path))
            return "tar", path.read_bytes()
    if library.imports:
        with scratch("so") as path:
            executable.export_library(str(path))
            return "so", path.read_bytes()
    linker = _linker()
    if linker is None:
        with scratch("ll") as path:
            library.write_to_file(str(path))
            return "ll", path.read_bytes()
    with scratch("o") as source, scratch("so") as path:
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
def _host_triple() -> str:
    return str(tvm.target.codegen.llvm_get_system_triple())


@lru_cache(maxsize=1)
def _linker() -> str | None:
    return shutil.which("ld")


class scratch:  # noqa: N801 - used as a function
    """A path in memory for a file that lives as long as the block."""

    def __init__(self, suffix: str) -> None:
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
        self._path = Path(folder, f"release_ray-{os.getpid()}-{next(_names)}.{suffix}")

    def __enter__(self) -> Path:
        return self._path

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)


def values(index: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random numbers, the same every time. Multiples of 2^-24, so none is denormal.

    Integers are 0 or 1: they may be indices, and others could lead out of bounds.
    """
    rng = np.random.default_rng((_SEED, index))
    if dtype.startswith(("int", "uint", "bool")):
        return rng.integers(0, 2, shape).astype(dtype)
    numbers = rng.random(shape, np.float32)
    try:
        return numbers.astype(dtype)
    except TypeError:
        import ml_dtypes  # bfloat16 and the 8-bit floats

        return numbers.astype(getattr(ml_dtypes, dtype))


def is_cpu(target: tvm.target.Target) -> bool:
    return str(target.kind.name) in ("llvm", "c")


def host_target() -> tvm.target.Target:
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": 1})


def canary_module(size: int, threads: bool = False) -> tvm.IRModule:
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
