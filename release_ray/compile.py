"""From a prepared network and its best schedules to a library that stock TVM loads."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import VMExecutable
from tvm.s_tir.meta_schedule.database import Database
from tvm.target import Target

from release_ray.codegen import compiled


def compile_network(
    module: IRModule, target: Target, database: Database | None = None
) -> VMExecutable:
    """Compile a network for Relax's virtual machine.

    Operators without a record get what TVM's default pipeline for the target gives: the plain loop
    nest on a CPU, dlight's schedules on a GPU.

    Args:
        module: as `networks.pipeline.prepare_graph` leaves it, or, without a database, as a
            network source gives it.
        target: what it will run on.
        database: of the best schedules; None compiles the untuned network.
    """
    if database is not None:
        with target, database:
            passes = [
                relax.transform.MetaScheduleApplyDatabase(),
                # The weights are constants: where a schedule wants them packed, it is done now.
                relax.transform.SplitLayoutRewritePreproc(),
                relax.transform.FoldConstant(),
                relax.transform.DeadCodeElimination(),
            ]
            module = tvm.transform.Sequential(passes)(module)
    executable: VMExecutable = compiled(module, target)
    return executable


def export(executable: VMExecutable, path: Path) -> None:
    """Write a shared library that `tvm.runtime.load_module` loads; replaces it atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as scratch:
        library = Path(scratch) / "model.so"
        executable.export_library(str(library))
        os.replace(library, path)
