"""Code that is generated sooner is the code that TVM generates anyway."""

import pytest
import tvm
from tvm import te
from tvm.s_tir.schedule import Schedule
from tvm.target import Target

from release_ray.codegen import compiled

WORDS = 256
"""More accesses in one basic block than the scheduler's window, fewer than LLVM's default."""


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


def test_the_machine_code_is_what_tvm_makes(unrolled):
    target = Target({"kind": "llvm", "num-cores": 1})
    ours = compiled(unrolled, target).mod.inspect_source("s")
    assert ours == tvm.compile(unrolled, target=target).mod.inspect_source("s")
    assert ours.count("\n") > WORDS


def test_options_of_the_target_are_kept(unrolled):
    config = {"kind": "llvm", "num-cores": 1, "cl-opt": ["-unroll-threshold:uint=7"]}
    executable = compiled(unrolled, Target(config))
    assert "unroll-threshold" in executable.mod.inspect_source("ll")


def test_another_kind_of_target_is_left_alone(unrolled):
    assert "main" in compiled(unrolled, Target("c")).mod.inspect_source("c")
