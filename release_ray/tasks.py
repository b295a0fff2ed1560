"""Tuning tasks: the distinct fused operators of a network, each tuned by itself."""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, IRModule
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.s_tir.meta_schedule import relax_integration
from tvm.target import Target

from release_ray.core.errors import InputError
from release_ray.measure.jobs import Workload
from release_ray.measure.kernels import arguments_of
from release_ray.targets import target_json

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """One operator to be tuned."""

    name: str
    """Unique in its network, the same in every run: `conv2d_add_relu`, `conv2d_add_relu_2`, ..."""
    weight: int
    """How often the network runs it."""
    flops: float
    """Floating-point operations of one run; 0 where it only moves data."""
    module: IRModule = field(repr=False)
    """One unscheduled PrimFunc, `main`."""
    target: Target

    @cached_property
    def bytes(self) -> int:
        """Of its inputs and outputs together."""
        return sum(
            math.prod(shape) * tvm_ffi.dtype(dtype).itemsize
            for shape, dtype in arguments_of(self.module)
        )

    @cached_property
    def workload(self) -> Workload:
        """The task as plain data."""
        return Workload(
            key=workload_key(self.module),
            name=self.name,
            module_json=tvm.ir.save_json(self.module),
            target_json=target_json(self.target),
            flops=self.flops,
        )


def extract(module: IRModule, target: Target) -> list[Task]:
    """The tasks of a network, in the order in which it first runs them.

    Args:
        module: as `networks.pipeline.prepare_graph` leaves it.
        target: what the tasks are tuned for.
    """
    position: dict[str, int] = {}
    for function in _called(module):
        position.setdefault(workload_key(_as_main(function)), len(position))
    extracted = relax_integration.extract_tasks(module, target)
    found = [(workload_key(task.dispatched[0]), task) for task in extracted]
    found.sort(key=lambda pair: (position.get(pair[0], len(position)), pair[1].task_name))
    taken: Counter[str] = Counter()
    tasks = []
    for _, task in found:
        name = _short(task.task_name)
        taken[name] += 1
        if taken[name] > 1:
            name = f"{name}_{taken[name]}"
        operator = task.dispatched[0]
        tasks.append(Task(name, int(task.weight), flops_of(operator, name), operator, target))
    return tasks


def dump_tasks(tasks: Sequence[Task]) -> str:
    """Tasks as JSON, for `load_tasks`."""
    return json.dumps(
        [
            {
                "name": task.name,
                "weight": task.weight,
                "flops": task.flops,
                "module": task.workload.module_json,
                "target": task.workload.target_json,
            }
            for task in tasks
        ]
    )


def load_tasks(path: Path) -> list[Task]:
    """The tasks that `dump_tasks` wrote to a file. Raises `InputError` where it is damaged."""
    try:
        return [
            Task(
                entry["name"],
                entry["weight"],
                entry["flops"],
                tvm.ir.load_json(entry["module"]),
                Target(json.loads(entry["target"])),
            )
            for entry in json.loads(path.read_text())
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}): run `tune` there again") from None


def workload_key(module: IRModule) -> str:
    """Hex of the structural hash: modules of one key are one workload."""
    return f"{tvm_ffi.structural_hash(module):016x}"


def _called(module: IRModule) -> Iterator[tirx.PrimFunc]:
    """The PrimFuncs that `main` calls, in order, each as often as it is called."""
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value if isinstance(binding, relax.VarBinding) else None
            if isinstance(value, Call) and value.args and isinstance(value.args[0], GlobalVar):
                function = module[value.args[0]]
                if isinstance(function, tirx.PrimFunc):
                    yield function


def _as_main(function: tirx.PrimFunc) -> IRModule:
    return IRModule({"main": function.with_attr("global_symbol", "main")})


def _short(name: str) -> str:
    """`fused_conv2d3_add3_relu21` is `conv2d_add_relu`: the digits only make TVM's names unique."""
    return re.sub(r"(?<=[a-z])\d+(?=_|$)", "", name.removeprefix("fused_"))


def flops_of(operator: IRModule, name: str) -> float:
    """The floating-point operations of one run, as far as TVM can count them; else 0."""
    try:
        return float(estimate_tir_flops(operator))
    except (ValueError, TypeError, RuntimeError) as error:
        # It only serves to report GFLOPS, so a task without it is tuned all the same.
        logger.warning("task %s: its operations cannot be counted: %s", name, error)
        return 0.0
