"""The default network against the tuned one, in one run.

`compare` runs native code that may crash or hang: call it in a child process that is pinned to
the device's cores, with TVM's thread pool set to their number before TVM is imported.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax

SLOW_S: Final = 2.0
"""A network that takes longer is run once a turn and few times: noise is small beside it."""


@dataclass(frozen=True)
class Comparison:
    """Two builds of one network on the same inputs, measured in turns."""

    default_ms: float
    tuned_ms: float
    default_outputs: list[np.ndarray]
    tuned_outputs: list[np.ndarray]


@dataclass(frozen=True)
class Timing:
    """One build of a network on the given inputs."""

    latency_ms: float
    outputs: list[np.ndarray]


def compare(
    default_so: str,
    tuned_so: str,
    inputs: Sequence[np.ndarray],
    device: str = "cpu",
    *,
    turns: int = 5,
    min_turn_ms: float = 100.0,
) -> Comparison:
    """Median latencies of two builds, measured alternately so that the machine's mood is shared.

    Args:
        default_so, tuned_so: libraries of `compile.export`.
        inputs: as the network takes them.
        device: TVM's name of the device.
        turns: how often each build is timed; fewer for one that takes seconds.
        min_turn_ms: a turn repeats the network for at least this long.
    """
    builds = [_Build(path, inputs, device) for path in (default_so, tuned_so)]
    turn_times: list[list[float]] = [[], []]
    for turn in range(turns):
        for build, times in zip(builds, turn_times, strict=True):
            if turn and build.first_s > SLOW_S:
                continue  # its turn has been had: once, and the run that gave its outputs
            times.append(build.turn_s(min_turn_ms / 1e3))
    default, tuned = builds
    return Comparison(
        default_ms=median(turn_times[0]) * 1e3,
        tuned_ms=median(turn_times[1]) * 1e3,
        default_outputs=default.outputs,
        tuned_outputs=tuned.outputs,
    )


def compare_shipped(
    default_so: bytes, tuned_so: bytes, inputs: Sequence[np.ndarray], device: str = "cpu"
) -> Comparison:
    """`compare`, for libraries that come from another machine."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("default.so", "tuned.so")]
        for path, content in zip(paths, (default_so, tuned_so), strict=True):
            path.write_bytes(content)
        return compare(str(paths[0]), str(paths[1]), inputs, device)


def measure_network(
    so_path: str,
    inputs: Sequence[np.ndarray],
    *,
    device: str = "cpu",
    turns: int = 5,
    min_turn_ms: float = 100.0,
) -> Timing:
    """The median latency of one build and its outputs; arguments as for `compare`."""
    build = _Build(so_path, inputs, device)
    slow = build.first_s > SLOW_S
    times = [build.turn_s(min_turn_ms / 1e3) for _ in range(1 if slow else turns)]
    return Timing(median(times) * 1e3, build.outputs)


class _Build:
    """A loaded library, its inputs on the device, and what its first run gave."""

    def __init__(self, path: str, inputs: Sequence[np.ndarray], device: str) -> None:
        self._device = tvm.device(device)
        # The virtual machine must outlive the function that it gave.
        self._machine = relax.VirtualMachine(tvm.runtime.load_module(path), self._device)
        self._main = self._machine["main"]
        self._inputs = [tvm.runtime.tensor(np.asarray(x), self._device) for x in inputs]
        started = time.perf_counter()
        self.outputs = _arrays(self._main(*self._inputs))
        self.first_s = time.perf_counter() - started

    def turn_s(self, at_least_s: float) -> float:
        """Seconds a run, over as many runs as the time asks for."""
        runs = 0
        started = time.perf_counter()
        while True:
            self._main(*self._inputs)
            runs += 1
            if self._device.dlpack_device_type() != tvm.cpu().dlpack_device_type():
                self._device.sync()
            elapsed = time.perf_counter() - started
            if elapsed >= at_least_s:
                return elapsed / runs


def _arrays(outputs: Any) -> list[np.ndarray]:
    """The virtual machine gives a tensor, or nested containers of them."""
    if hasattr(outputs, "numpy"):
        return [outputs.numpy()]
    return [array for part in outputs for array in _arrays(part)]
