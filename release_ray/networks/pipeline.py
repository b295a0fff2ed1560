"""The graph passes before a network is cut into tasks."""

from __future__ import annotations

from typing import Literal

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from release_ray.networks.constants import FoldWithNumpy
from release_ray.targets import is_cpu


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
    if layout == "auto":
        layout = "NHWC" if is_cpu(target) else "NCHW"
    passes = relax.transform
    # TVM 0.27 crashes on other orders of the first ones: canonical bindings must come after the
    # folding and before the conversion of layouts.
    convert = [passes.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]})]
    sequence = [
        passes.FoldBatchnormToConv2D(),
        FoldWithNumpy(),
        passes.FoldConstant(),
        passes.Normalize(),
        passes.DecomposeOpsForInference(),
        passes.CanonicalizeBindings(),
        *(convert if layout == "NHWC" else []),
        passes.Normalize(),
        FoldWithNumpy(),
        passes.FoldConstant(),
        passes.DeadCodeElimination(),
        relax.get_pipeline("zero"),
        passes.AttachAttrLayoutFreeBuffers(),
    ]
    with target:
        return tvm.transform.Sequential(sequence)(module)
