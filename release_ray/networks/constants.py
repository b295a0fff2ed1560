"""Folding of constants with numpy.

`relax.transform.FoldConstant` compiles an own little kernel for each operator that it folds, about
0.1 s each: 6 to 12 s for the batch norms and weight transpositions of ResNet-18. The few operators
that these consist of are folded here; what else there is remains for TVM's pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call, Expr, GenericConst, IRModule, Op, Var, transform
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.tirx import FloatImm, IntImm

ELEMENT_WISE: Final[dict[str, Callable[..., np.ndarray]]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.sqrt": np.sqrt,
    "relax.rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
    "relax.negative": np.negative,
}
"""Element-wise operators, by what they compute of arrays."""


@transform.module_pass(opt_level=0, name="FoldWithNumpy")
class FoldWithNumpy:
    """Replace calls of known operators on constants by their values, in every Relax function."""

    def transform_module(self, module: IRModule, _: transform.PassContext) -> IRModule:
        """The module with folded constants."""
        folder = _Folder(module)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                folder.builder_.update_func(variable, folder.visit_expr(function))
        return folder.builder_.get()


@mutator
class _Folder(PyExprMutator):
    """Works on what a call's arguments have become: folded chains end in one constant."""

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        value = self._value(call)
        return call if value is None else relax.const(value, call.ty.dtype)

    def _value(self, call: Call) -> np.ndarray | None:
        """What the call computes, or None if that is not known here."""
        arrays = [self._array(argument) for argument in call.args]
        if not arrays or arrays[0] is None:
            return None
        name, first = call.op.name, arrays[0]
        if name == "relax.permute_dims":
            axes = call.attrs.axes
            return np.ascontiguousarray(first.transpose(axes and [int(axis) for axis in axes]))
        if name == "relax.reshape":
            return first.reshape(_shape(call))
        if name == "relax.expand_dims":
            return np.expand_dims(first, tuple(int(axis) for axis in call.attrs.axis))
        if name not in ELEMENT_WISE:
            return None
        known = [array for array in arrays if array is not None]
        return ELEMENT_WISE[name](*known) if len(known) == len(arrays) else None

    def _array(self, expr: Expr) -> np.ndarray | None:
        if isinstance(expr, Var):
            expr = self.lookup_binding(expr)
        if isinstance(expr, GenericConst):
            return expr.value.numpy()
        if isinstance(expr, FloatImm | IntImm):
            return np.array(expr.value, str(expr.ty.dtype))
        return None


def _shape(call: Call) -> tuple[int, ...]:
    """The static shape of a call's result."""
    return tuple(int(extent) for extent in call.ty.shape)
