"""Code that is generated sooner is as good as what TVM generates."""

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.ir.transform import PassContext
from tvm.s_tir.schedule import Schedule
from tvm.target import Target

from release_ray.codegen import compiled

WORDS = 256
"""More accesses in one basic block than the scheduler's window, fewer than LLVM's default."""
LLVM = {"kind": "llvm", "num-cores": 1}


@pytest.fixture(scope="module")
def unrolled():
    """Element-wise code, whose one basic block is as long as the array."""
    a = te.placeholder((WORDS,), name="a")
    b = te.placeholder((WORDS,), name="b")
    c = te.compute((WORDS,), lambda i: a[i] * b[i] + a[i], name="c")
    schedule = Schedule(te.create_prim_func([a, b, c]))
    (loop,) = schedule.get_loops(schedule.get_sblock("c"))
    schedule.unroll(loop)
    return schedule.mod


def arithmetic(executable):
    """The floating-point instructions, with their operands."""
    lines = executable.mod.inspect_source("s").splitlines()
    return [line.strip() for line in lines if "ss\t" in line or "ps\t" in line]


def test_the_arithmetic_is_what_tvm_makes(unrolled):
    target = Target(LLVM)
    ours = arithmetic(compiled(unrolled, target))
    assert ours == arithmetic(tvm.compile(unrolled, target=target))
    assert len(ours) > WORDS


def test_it_computes_what_it_should(unrolled):
    a, b = np.random.default_rng(0).random((2, WORDS), np.float32)
    c = tvm.runtime.empty((WORDS,), "float32")
    kernel = compiled(unrolled, Target(LLVM)).jit()
    kernel["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
    np.testing.assert_allclose(c.numpy(), a * b + a, rtol=1e-6)


def test_options_of_the_target_are_kept(unrolled):
    executable = compiled(unrolled, Target({**LLVM, "cl-opt": ["-unroll-threshold:uint=7"]}))
    assert "unroll-threshold" in executable.mod.inspect_source("ll")


def test_the_pass_context_is_kept(unrolled):
    with PassContext(config={"tirx.disable_assert": True}) as mine:
        without = compiled(unrolled, Target(LLVM)).mod.inspect_source("ll")
        assert PassContext.current().same_as(mine)
    assert len(without) < len(compiled(unrolled, Target(LLVM)).mod.inspect_source("ll"))


def test_another_kind_of_target_is_left_alone(unrolled):
    assert "main" in compiled(unrolled, Target("c")).mod.inspect_source("c")
