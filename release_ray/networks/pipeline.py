"""The graph passes before a network is cut into tasks."""

from __future__ import annotations

import logging
from typing import Literal

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from release_ray.networks.constants import FoldWithNumpy
from release_ray.targets import is_cpu

_log = logging.getLogger(__name__)

_CONV2D = tvm.ir.Op.get("relax.nn.conv2d")


def prepare_graph(
    module: IRModule, target: Target, layout: Literal["auto", "NHWC", "NCHW"] = "auto"
) -> IRModule:
    """A network's module with fused operators, ready for task extraction and compilation.

    Batch norms vanish into the convolutions before them, and weights are marked as free to change
    their layout, so that a schedule may pack them.

    Args:
        module: as a network source gives it: weights are constants, convolutions are NCHW.
        target: what it will run on.
        layout: of convolutions; auto is NHWC on CPUs, where the channels fill vectors.
    """
    wanted = layout
    if layout == "auto":
        wanted = "NHWC" if is_cpu(target) else "NCHW"
    passes = relax.transform
    # TVM 0.27 crashes on other orders of the first ones: canonical bindings must come after the
    # folding and before the conversion of layouts.
    first = [
        passes.FoldBatchnormToConv2D(),
        FoldWithNumpy(),
        passes.FoldConstant(),
        passes.Normalize(),
        passes.DecomposeOpsForInference(),
        passes.CanonicalizeBindings(),
    ]
    rest = [
        passes.Normalize(),
        FoldWithNumpy(),
        passes.FoldConstant(),
        passes.DeadCodeElimination(),
        relax.get_pipeline("zero"),
        passes.AttachAttrLayoutFreeBuffers(),
    ]
    with target:
        module = tvm.transform.Sequential(first)(module)
        # The conversion fails on some operators that it need not know, such as those of attention.
        if wanted == "NHWC" and _has_convolution(module):
            try:
                module = passes.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]})(module)
            except RuntimeError as error:
                if layout == "NHWC":
                    raise
                _log.warning("the layout stays NCHW, as TVM fails to convert it: %s", error)
        return tvm.transform.Sequential(rest)(module)


def _has_convolution(module: IRModule) -> bool:
    found = False

    def visit(expression: relax.Expr) -> None:
        nonlocal found
        found |= isinstance(expression, relax.Call) and expression.op == _CONV2D

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function.body, visit)
    return found
