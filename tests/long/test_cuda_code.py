"""CUDA without a GPU: from an operator to the code that a GPU machine would be sent."""

import os
import shutil
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


DRIVER = """
int cuDeviceGetName, cuFuncSetAttribute, cuGetErrorName, cuGetErrorString, cuLaunchKernelEx;
int cuModuleGetFunction, cuModuleLoadData, cuModuleUnload, cuTensorMapEncodeTiled;
"""
"""What TVM's CUDA runtime is linked with; none of it is called where nothing is run."""
COMPILED = """
import tvm
from release_ray import tvm_setup
tvm_setup.prepare(["cuda"])
from release_ray.codegen import compiled
from release_ray.measure.kernels import canary_module, pack

target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
form, library = pack(compiled(canary_module(256, threads=True), target), target)
assert form == "so"
print(library.count(b"\\x7fELF"), b"sm_80" in library)
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc makes the code")
def test_a_machine_with_the_driver_and_no_gpu_makes_machine_code_for_another_ones(tmp_path):
    """As a builder does on a node whose GPUs Ray has given to others."""
    (tmp_path / "driver.c").write_text(DRIVER)
    driver = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1"]
    subprocess.run([*driver, "driver.c"], cwd=tmp_path, check=True)
    searched = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("LD_LIBRARY_PATH")]))
    done = subprocess.run(
        [sys.executable, "-c", COMPILED],
        cwd=tmp_path,
        env={**os.environ, "LD_LIBRARY_PATH": searched, "TVM_CUDA_COMPILE_MODE": "nvcc"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # The library, and the GPU's code in it.
    assert done.stdout == "2 True\n"
