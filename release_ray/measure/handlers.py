"""What a worker process does with candidates: build, load, run, check. Only here runs TVM.

These functions are called by name through `release_ray.measure.process`. They keep between calls
what many candidates share: the workload's module, the target, the input tensors.
"""

from __future__ import annotations

import json
import time
from functools import lru_cache
from statistics import median

import numpy as np
import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from release_ray.codegen import compiled
from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Purpose
from release_ray.measure.canary import Watched, watched
from release_ray.measure.jobs import Artifact, Canary, Job
from release_ray.measure.kernels import (
    Arguments,
    arguments_of,
    canary_module,
    host_target,
    is_cpu,
    pack,
    scheduled,
    target_of,
    untuned,
    values,
    workload_module,
)
from release_ray.measure.places import Place, opened
from release_ray.measure.timing import CANARY, CANARY_FLOPS, Timing, time_kernel
from release_ray.targets import resolve
from release_ray.verify import max_rel_error

_CHECK_S = 120.0
_PAUSE_S = 0.05
_PROMISING = 1.1
"""So many times the best latency, or less, is worth a second look where a device was disturbed.

On a busy host a third of all measurements are; to repeat each would double the devices' time.
"""
_kept: list[tvm.runtime.Module] = []


def build(job: Job, keep: bool = False) -> Artifact:
    """Compiles a candidate. `keep`: for this process, which `run` must then be told to time.

    Raises what TVM raises where the trace does not fit the workload or the target has no such code.
    """
    target = target_of(job.workload.target_json)
    if job.purpose is Purpose.DEFAULT:
        module = untuned(job.workload.module_json, target)
    else:
        # The compiled network has its weights in the new layout already, so the kernel must not
        # rewrite them; and its weight argument takes the new shape.
        module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(
            scheduled(job.workload.module_json, job.trace_json)
        )
    arguments = arguments_of(module)
    executable = compiled(module, target)
    if keep:
        loaded = executable.jit()
        # Machine code is made at the first look-up; it belongs to the build.
        loaded.get_function("main", query_imports=True)
        _kept[:] = [loaded]
        return Artifact("kept", b"", arguments)
    return Artifact(*pack(executable, target), arguments)


def run(
    artifact: Artifact,
    device: str,
    best_s: float | None,
    settings: MeasureSettings,
    limit_s: float,
    usual_s: float | None,
    described: str = "{}",
) -> Watched[Timing]:
    """Times a built candidate on fresh random inputs, under the eyes of a canary.

    Args:
        device: as `places.opened` takes it.
        limit_s: what the whole call may take.
        usual_s: what the canary usually takes on this device.
        described: JSON of what the device says of itself; see `canary`.
    """
    deadline = time.perf_counter() + limit_s
    with opened(device, limit_s) as place:
        module = _kept.pop() if artifact.form == "kept" else place.load(artifact)
        tensors = [
            place.tensor(index, shape, dtype)
            for index, (shape, dtype) in enumerate(artifact.arguments)
        ]

        def evaluate(repeats: int, min_repeat_ms: float) -> list[float]:
            evaluator = module.time_evaluator(
                "main",
                place.device,
                number=1,
                repeat=repeats,
                min_repeat_ms=int(min_repeat_ms),
                f_preproc=place.flush if settings.flush_cache else "",
            )
            return [float(seconds) for seconds in evaluator(*tensors).results]

        began: list[float] = []

        def measure() -> Timing:
            began.append(time.perf_counter())
            return time_kernel(
                evaluate,
                best_s=best_s,
                settings=settings,
                budget_s=limit_s / 4,
                cold=settings.flush_cache,
            )

        def matters(timing: Timing, slowdown: float) -> bool:
            return best_s is not None and timing.seconds / slowdown < _PROMISING * best_s

        def pause() -> bool:
            now = time.perf_counter()
            # Another attempt may take longer than the last, and is no reason to lose that one.
            if now + _PAUSE_S + 3 * (now - began[-1]) > deadline:
                return False
            time.sleep(_PAUSE_S)
            return True

        kernel = _canary_at(place, device, described)
        return watched(
            measure,
            lambda: _canary_samples(place, kernel, 1)[0],
            usual_s=usual_s,
            seconds=lambda timing: timing.seconds,
            matters=matters,
            pause=pause,
        )


def check(job: Job, device: str) -> float:
    """max|a-b| / max|b| of the scheduled kernel (a) against the operator as it is written (b).

    The kernel is built with its layout rewriting inside, so that both take the same arguments.
    Infinite where the kernel's output holds a NaN.
    """
    target = target_of(job.workload.target_json)
    plain = workload_module(job.workload.module_json)
    module = scheduled(job.workload.module_json, job.trace_json)
    arguments = arguments_of(plain)
    with opened(device, _CHECK_S) as place:
        kernel = place.load(Artifact(*pack(compiled(module, target), target), arguments))
        got = _outputs(kernel, arguments, place)
    # The operator as written has no threads for a GPU, and a board may be slow: the host computes.
    here = device == "cpu" and is_cpu(target)
    with opened("cpu", _CHECK_S) as place:
        kernel = compiled(plain, target if here else host_target()).jit()
        expected = _outputs(kernel, arguments, place)
    return max_rel_error(got, expected)


def canary(device: str, described: str = "{}", repeats: int = 10) -> Canary:
    """Times a fixed 256 x 256 x 256 matrix product in a plain hand-made schedule.

    `described` is JSON: of a GPU what `targets.resolve` takes, of a board its target, of this
    host's processor nothing.
    """
    with opened(device, _CHECK_S) as place:
        samples = _canary_samples(place, _canary_at(place, device, described), repeats)
    middle = median(samples)
    return Canary(CANARY_FLOPS / middle / 1e9, (max(samples) - min(samples)) / middle)


def _canary_samples(place: Place, kernel: tvm.runtime.Module, repeats: int) -> list[float]:
    """Seconds a run; a sample is some milliseconds, longer than another process's time slice."""
    tensors = [place.tensor(index, (CANARY, CANARY), "float32") for index in range(3)]
    evaluator = kernel.time_evaluator(
        "main", place.device, number=1, repeat=repeats, min_repeat_ms=5
    )
    return [float(seconds) for seconds in evaluator(*tensors).results]


def _canary_at(place: Place, device: str, described: str) -> tvm.runtime.Module:
    if place.remote:
        return place.load(_canary_artifact(device, described))
    return _canary_here(device, described)


@lru_cache(maxsize=2)
def _canary_here(device: str, described: str) -> tvm.runtime.Module:
    with opened(device, _CHECK_S) as place:
        return place.load(_canary_artifact(device, described))


@lru_cache(maxsize=2)
def _canary_artifact(device: str, described: str) -> Artifact:
    config = json.loads(described)
    if device == "cuda":
        target = resolve("cuda", 1, config)
    else:
        target = target_of(described) if config else host_target()
    module = canary_module(CANARY, threads=not is_cpu(target))
    packed = pack(compiled(module, target), target)
    return Artifact(*packed, arguments_of(module))


def _outputs(kernel: tvm.runtime.Module, arguments: Arguments, place: Place) -> list[np.ndarray]:
    """Every argument after a run: inputs are as they were, outputs are not."""
    tensors = [
        tvm.runtime.tensor(values(index, shape, dtype), place.device)
        for index, (shape, dtype) in enumerate(arguments)
    ]
    kernel["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]
