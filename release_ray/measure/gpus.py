"""`python -m release_ray.measure.gpus`: this machine's GPUs as JSON, from the CUDA driver itself.

Asks `libcuda` and nothing else: TVM's wheel may come without CUDA, and a management library need
not be installed. A machine without the driver has no GPUs.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

LIBRARY = "libcuda.so.1"
# CUdevice_attribute of cuda.h.
_BOUNDS = {
    "max_threads_per_block": 1,
    "max_shared_memory_per_block": 8,
    "thread_warp_size": 10,
    "registers_per_block": 12,
}
_MAJOR, _MINOR = 75, 76


def gpus(library: str = LIBRARY) -> list[dict[str, Any]]:
    """A dictionary a GPU, as `hosts.Gpu` takes it. Empty without the driver or any GPU."""
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return []
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    return [_gpu(cuda, index) for index in range(count.value)]


def _gpu(cuda: Any, index: int) -> dict[str, Any]:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    _check(cuda.cuDeviceGet(ctypes.byref(device), index))
    _check(cuda.cuDeviceGetName(name, len(name), device))

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        _check(cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device))
        return value.value

    bounds = {key: attribute(number) for key, number in _BOUNDS.items()}
    arch = f"sm_{attribute(_MAJOR)}{attribute(_MINOR)}"
    return {"model": name.value.decode(), "target": {"arch": arch, **bounds}}


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"the CUDA driver answers with error {status}")


if __name__ == "__main__":
    json.dump(gpus(), sys.stdout)
