"""How TVM is made to generate code: as `tvm.compile` does, but sooner.

Building is most of what tuning costs. What is left out here costs time and changes no speed: the
best kernels of all tasks of ResNet-18 were as fast, in turns, to 0.3 % in sum.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import Any, Final

import tvm
from tvm.ir import IRModule
from tvm.ir.transform import PassContext
from tvm.target import Target

_SCHEDULER_WINDOW: Final = "-dag-maps-huge-region:uint=200"
"""How many memory accesses LLVM's instruction scheduler compares with each other.

In an unrolled kernel it spends most of LLVM's time on this, which is quadratic in the size of a
basic block up to the default of 1000. With 200 the machine code of convolutions was the same to the
byte, made three to five times as fast; with 50 it began to differ.
"""
_LEFT_TO_LLVM: Final = ("s_tir.RenormalizeSplitPattern", "tirx.RemoveNoOp")
"""Passes over code that is unrolled already: a tenth of building, for what LLVM does as well.

Without them the loops of a kernel are the same instructions, but for the 7 x 7 convolution's.
"""


def compiled(module: IRModule, target: Target) -> Any:
    """What `tvm.compile(module, target)` gives: a `tvm.runtime.Executable` or a `VMExecutable`.

    A target's own `cl-opt` is kept and has the last word; so is the current `PassContext`.
    """
    if target.kind.name == "cuda":
        _choose_cuda_compiler()
    if target.kind.name != "llvm":
        # CUDA's compiler is told the architecture of the current target, or that of a GPU here.
        with target:
            return tvm.compile(module, target=target)
    config = json.loads(str(target))
    config["cl-opt"] = [_SCHEDULER_WINDOW, *config.get("cl-opt", ())]
    now = PassContext.current()
    with PassContext(
        opt_level=now.opt_level,
        required_pass=now.required_pass,
        disabled_pass=[*now.disabled_pass, *_LEFT_TO_LLVM],
        instruments=now.instruments,
        config=now.config,
    ):
        return tvm.compile(module, target=Target(config))


def _choose_cuda_compiler() -> None:
    """TVM's own choice is NVRTC, which nothing installs, and takes twice as long (1.0 against 0.5 s
    for the canary's kernel, CUDA 13)."""
    if shutil.which("nvcc"):
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
