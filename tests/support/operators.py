"""Small operators as tasks, and a network of two of them."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax, te, topi

from release_ray import targets
from release_ray.tasks import Task


def convolution() -> list[te.Tensor]:
    """1 x 4 x 4 x 8 by 3 x 3 x 8 x 8, NHWC, padded, with a ReLU that can be computed inside."""
    plain = te.placeholder((1, 4, 4, 8), name="plain")
    image = topi.nn.pad(plain, (0, 1, 1, 0), name="image")
    kernel = te.placeholder((3, 3, 8, 8), name="kernel")
    y, x, c = (te.reduce_axis((0, n), name) for n, name in ((3, "ry"), (3, "rx"), (8, "rc")))
    conv = te.compute(
        (1, 4, 4, 8),
        lambda n, h, w, f: te.sum(image[n, h + y, w + x, c] * kernel[y, x, c, f], axis=[y, x, c]),
        name="conv",
    )
    relu = te.compute((1, 4, 4, 8), lambda *i: te.max(conv(*i), 0.0), name="relu")
    return [plain, kernel, relu]


def dense() -> list[te.Tensor]:
    a = te.placeholder((4, 16), name="a")
    b = te.placeholder((16, 8), name="b")
    k = te.reduce_axis((0, 16), name="k")
    return [a, b, te.compute((4, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="dense")]


def nothing() -> list[te.Tensor]:
    """A scalar's copy: there is nothing to choose."""
    a = te.placeholder((), name="a")
    return [a, te.compute((), lambda: a() + 1.0, name="b")]


def task(operator) -> Task:
    function = te.create_prim_func(operator()).with_attr("global_symbol", "main")
    module = tvm.IRModule({"main": function})
    return Task(operator.__name__, 1, 1.0, module, targets.resolve("native", 1))


def two_layers() -> tvm.IRModule:
    """A Relax module of two dense layers of different shapes, weights bound as constants."""
    rng = np.random.default_rng(0)
    first, second = (relax.const(rng.random(shape, np.float32)) for shape in ((16, 8), (8, 32)))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(relax.op.matmul(x, first)))
            result = builder.emit_output(relax.op.matmul(hidden, second))
        builder.emit_func_output(result)
    return builder.get()
