"""How TVM is made to generate code: as `tvm.compile` does, but sooner."""

from __future__ import annotations

import json
from typing import Any, Final

import tvm
from tvm.ir import IRModule
from tvm.target import Target

_SCHEDULER_WINDOW: Final = "-dag-maps-huge-region:uint=200"
"""How many memory accesses LLVM's instruction scheduler compares with each other.

In an unrolled kernel it spends most of LLVM's time on this, which is quadratic in the size of a
basic block up to the default of 1000. With 200 the machine code of convolutions was the same to the
byte, made three to five times as fast; with 50 it began to differ.
"""


def compiled(module: IRModule, target: Target) -> Any:
    """What `tvm.compile(module, target)` gives: a `tvm.runtime.Executable` or a `VMExecutable`.

    A target's own `cl-opt` is kept and has the last word.
    """
    if target.kind.name == "llvm":
        config = json.loads(str(target))
        config["cl-opt"] = [_SCHEDULER_WINDOW, *config.get("cl-opt", ())]
        target = Target(config)
    return tvm.compile(module, target=target)
