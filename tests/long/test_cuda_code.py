"""CUDA without a GPU: from an operator to the code that a GPU machine would be sent."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

# In a process of its own: TVM registers the intrinsics of a back end once, and slowly.
PROGRAM = """
import sys, json
from dataclasses import replace
import numpy as np, tvm
from release_ray import tvm_setup, targets
tvm_setup.prepare(["cuda"])
import operators
from release_ray.core.settings import MeasureSettings
from release_ray.measure import handlers
from release_ray.measure.jobs import Job
from release_ray.sketches import Sketches

gpu = {"arch": "sm_90", "max_shared_memory_per_block": 232448}
target = targets.resolve("cuda", 1, gpu)
assert str(target.attrs["arch"]) == "sm_90"
for name in ("convolution", "dense"):
    task = replace(operators.task(getattr(operators, name)), target=target)
    sketches = Sketches(task)
    rng = np.random.default_rng(0)
    built = 0
    for point in sketches.space.random(rng, 2000):
        applied = sketches.apply(point)
        if applied.point is None:
            continue
        job = Job(0, task.workload, applied.trace_json, "[]", None)
        module = handlers.scheduled(task.workload.module_json, job.trace_json)
        (device,) = tvm.compile(module, target=target).mod.imports
        source = device.inspect_source()
        assert "__global__" in source and "threadIdx.x" in source
        built += 1
        if built == 3:
            break
    assert built == 3, name
    untuned = handlers.untuned(task.workload.module_json, target)
    (device,) = tvm.compile(untuned, target=target).mod.imports
    assert "threadIdx.x" in device.inspect_source()
kernel = tvm.compile(handlers.canary_module(256, threads=True), target=target)
assert "blockIdx.y" in kernel.mod.imports[0].inspect_source()
print("generated")
"""


def test_a_conv2d_and_a_matmul_become_cuda_code_tuned_and_untuned(pytestconfig):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=pytestconfig.rootpath / "tests" / "support",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("generated\n")
