"""Where a kernel runs: a device of this machine, or one of a board behind a TVM RPC tracker.

A board is had for one job at a time: a session of its own, which the tracker hands out. So boards
are shared with everybody else who uses the tracker, and one that hangs is somebody's time-out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from release_ray.measure.jobs import Artifact
from release_ray.measure.kernels import scratch, values
from release_ray.measure.trackers import BoardAddress

_FLUSH = {"cpu": "cache_flush_cpu_non_first_arg", "cuda": "l2_cache_flush_cuda"}

_FILL = "tvm.contrib.random.random_fill_for_measure"
# Others may be indices, which are not to lead out of bounds.
_FILLED = ("float16", "float32", "float64")


@dataclass(frozen=True)
class Place:
    """A device, and how kernels and data get there."""

    device: tvm.runtime.Device
    load: Callable[[Artifact], tvm.runtime.Module]
    tensor: Callable[[int, tuple[int, ...], str], tvm.runtime.Tensor]
    """Random numbers to time a kernel with, from (index, shape, dtype)."""
    flush: str
    """The function of TVM's runtime there that empties the caches."""
    remote: bool = False


@contextmanager
def opened(device: str, limit_s: float) -> Iterator[Place]:
    """A device by name: `cpu`, `cuda`, or `rpc://host:port/key?cpu`.

    `limit_s` is how long a board may be kept.
    """
    if not device.startswith("rpc:"):
        yield Place(
            tvm.device(device),
            _load,
            lambda index, shape, dtype: _tensor(index, shape, dtype, device),
            _FLUSH[device],
        )
        return
    address = BoardAddress.parse(device)
    session = address.session(limit_s)
    where = session.device(address.kind)

    def load(artifact: Artifact) -> tvm.runtime.Module:
        with scratch(artifact.form) as path:
            path.write_bytes(artifact.payload)
            session.upload(str(path))
            return session.load_module(Path(path).name)

    fill = _filler(session)

    def tensor(index: int, shape: tuple[int, ...], dtype: str) -> tvm.runtime.Tensor:
        if fill is None or dtype not in _FILLED:
            return tvm.runtime.tensor(values(index, shape, dtype), where)
        # Megabytes of weights would go through the network for every candidate.
        empty = tvm.runtime.empty(shape, dtype, where)
        fill(empty)
        return empty

    yield Place(where, load, tensor, _FLUSH[address.kind], remote=True)


def _filler(session: Any) -> Callable[[tvm.runtime.Tensor], None] | None:
    """What fills tensors on a board; None where its runtime has no such thing."""
    try:
        return session.get_function(_FILL)
    except AttributeError:
        return None


def _load(artifact: Artifact) -> tvm.runtime.Module:
    with scratch(artifact.form) as path:
        path.write_bytes(artifact.payload)
        # Of objects that are not linked yet, as stock builders leave them, TVM makes a library.
        load = tvm.runtime.load_module if artifact.form == "tar" else tvm_ffi.load_module
        module = load(str(path))
        module.get_function("main", query_imports=True)
    return module


@lru_cache(maxsize=32)
def _tensor(index: int, shape: tuple[int, ...], dtype: str, device: str) -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(values(index, shape, dtype), tvm.device(device))
