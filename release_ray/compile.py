"""From a prepared network and its best schedules to a library that stock TVM loads."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.ir.transform import Pass
from tvm.relax import VMExecutable
from tvm.s_tir import dlight
from tvm.s_tir.meta_schedule.database import Database
from tvm.target import Target

from release_ray.targets import is_cpu


def compile_network(
    module: IRModule, target: Target, database: Database | None = None
) -> VMExecutable:
    """Compile a network for Relax's virtual machine.

    Operators without a record get what TVM gives by default: on a CPU the plain loop nest, on a
    GPU dlight's schedules, without which nothing would run there.

    Args:
        module: as `networks.pipeline.prepare_graph` leaves it.
        target: what it will run on.
        database: of the best schedules; None compiles the untuned network.
    """
    with ExitStack() as context:
        context.enter_context(target)
        if database is not None:
            context.enter_context(database)
        module = tvm.transform.Sequential(_passes(target, database is not None))(module)
    return tvm.compile(module, target=target)


def export(executable: VMExecutable, path: Path) -> None:
    """Write a shared library that `tvm.runtime.load_module` loads; replaces it atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as scratch:
        library = Path(scratch) / "model.so"
        executable.export_library(str(library))
        os.replace(library, path)


def _passes(target: Target, tuned: bool) -> list[Pass]:
    """Passes for the target in scope, and for the database in scope if there is one."""
    passes: list[Pass] = []
    if tuned:
        passes += [
            relax.transform.MetaScheduleApplyDatabase(),
            # The weights are constants: where a schedule wants them packed, they are packed now.
            relax.transform.SplitLayoutRewritePreproc(),
            relax.transform.FoldConstant(),
            relax.transform.DeadCodeElimination(),
        ]
    if not is_cpu(target):
        passes.append(
            dlight.ApplyDefaultSchedule(
                dlight.gpu.Matmul(),
                dlight.gpu.GEMV(),
                dlight.gpu.Reduction(),
                dlight.gpu.GeneralReduction(),
                dlight.gpu.Fallback(),
            )
        )
    return passes
