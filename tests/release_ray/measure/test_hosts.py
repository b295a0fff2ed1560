"""What a host has; and the GPUs that a CUDA driver describes, here a stand-in for it."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import ray
from ray.exceptions import RaySystemError

from release_ray.core.errors import InputError
from release_ray.measure.gpus import gpus
from release_ray.measure.hosts import Gpu, cluster_hosts, require_same_compiler, this_host

DRIVER = r"""
#include <string.h>
int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int length, int device) {
    strncpy(name, device ? "NVIDIA H200" : "NVIDIA A10", length);
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (attribute == 75) *value = device ? 9 : 8;
    else if (attribute == 76) *value = device ? 0 : 6;
    else *value = 1000 + attribute;
    return 0;
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A library with the five functions of libcuda that are called."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "driver.c").write_text(DRIVER)
    library = folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "driver.c"], check=True)
    return library


def test_the_driver_says_what_its_gpus_are(driver):
    a10, h200 = gpus(str(driver))
    assert a10 == {
        "model": "NVIDIA A10",
        "target": {
            "arch": "sm_86",
            "max_threads_per_block": 1001,
            "max_shared_memory_per_block": 1008,
            "thread_warp_size": 1010,
            "registers_per_block": 1012,
        },
    }
    assert (h200["model"], h200["target"]["arch"]) == ("NVIDIA H200", "sm_90")


def test_a_machine_without_the_driver_has_no_gpus(tmp_path):
    assert gpus(str(tmp_path / "libcuda.so.1")) == []
    printed = subprocess.run(
        [sys.executable, "-m", "release_ray.measure.gpus"], capture_output=True, check=True
    )
    assert isinstance(json.loads(printed.stdout), list)


def test_this_host():
    host = this_host()
    assert host.name and host.machine.startswith(host.name) and host.processor
    assert host.cores == tuple(sorted(host.cores)) and host.memory_bytes > 2**28
    assert this_host(gpus=0).gpus == ()
    # Ray may have been told that there are some.
    assert len(this_host(gpus=2).gpus) == 2
    assert isinstance(this_host(gpus=1).gpus[0], Gpu)


def test_a_cluster_of_one_node_is_this_host(ray_local):
    (host,) = cluster_hosts()
    assert host.node == ray_local.get_runtime_context().get_node_id()
    assert host.machine == this_host().machine


def test_another_compiler_on_a_node_is_named():
    here = this_host()
    require_same_compiler([here, replace(here, node="other")])
    old = replace(here, name="gpu-7", compiler="apache-tvm 0.25.0 and apache-tvm-ffi 0.1.9")
    with pytest.raises(InputError, match=r"the node gpu-7 has apache-tvm 0\.25\.0 and"):
        require_same_compiler([here, old])


def test_a_node_that_cannot_run_the_package_is_one_line(ray_local, monkeypatch):
    def failed(*_, **__):
        raise RaySystemError("Traceback\n  in a file\nModuleNotFoundError: No module named 'x'")

    monkeypatch.setattr(ray, "get", failed)
    with pytest.raises(InputError, match=r"cannot run release_ray \(ModuleNotFoundError: No"):
        cluster_hosts()
