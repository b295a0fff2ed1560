"""Building, timing and checking real candidates, in a child process."""

import json
from dataclasses import replace

import pytest

from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Purpose
from release_ray.measure.jobs import Job
from release_ray.measure.process import Raised

HANDLERS = "release_ray.measure.handlers:"
SETTINGS = MeasureSettings(min_repeat_ms=2, flush_cache=False)


def call(compiler, function, *arguments):
    return compiler.call(HANDLERS + function, *arguments, timeout_s=60).value


def job(matmul, index=0, **workload):
    described, traces = matmul
    return Job(index, replace(described, **workload), traces[index], "[]", None)


def run(compiler, artifact, settings=SETTINGS):
    """Its latency."""
    watched = call(compiler, "run", artifact, "cpu", None, settings, 10.0, None)
    return watched.value.latency_s


def test_a_candidate_is_built_shipped_and_timed(compiler, matmul):
    artifact = call(compiler, "build", job(matmul))
    assert artifact.form in ("so", "ll") and len(artifact.payload) > 1000
    assert [dtype for _, dtype in artifact.arguments] == ["float32"] * 3
    watched = call(compiler, "run", artifact, "cpu", None, SETTINGS, 10.0, None)
    assert 1e-7 < watched.value.latency_s < 0.1 and watched.value.bound_s is None
    assert len(watched.canaries_s) >= 2 and min(watched.canaries_s) > 0


def test_an_operator_untuned_is_built_and_timed_as_a_candidate_is(compiler, matmul):
    untuned = replace(job(matmul), trace_json="", purpose=Purpose.DEFAULT)
    artifact = call(compiler, "build", untuned)
    # As the operator is written: a candidate may want its weights in another layout.
    assert artifact.arguments == (((64, 64), "float32"),) * 3
    assert 1e-7 < run(compiler, artifact) < 0.1


def test_a_candidate_may_stay_where_it_was_built(compiler, matmul):
    artifact = call(compiler, "build", job(matmul), True)
    assert (artifact.form, artifact.payload) == ("kept", b"")
    assert run(compiler, artifact) > 0


def test_it_is_timed_with_cold_caches_too(compiler, matmul):
    artifact = call(compiler, "build", job(matmul))
    assert 1e-7 < run(compiler, artifact, MeasureSettings(flush_cache=True)) < 0.1


def test_far_from_the_best_there_is_a_bound_only(compiler, matmul):
    artifact = call(compiler, "build", job(matmul))
    timing = call(compiler, "run", artifact, "cpu", 1e-9, SETTINGS, 10.0, None).value
    assert timing.latency_s is None and timing.bound_s > 1e-8


def test_every_schedule_computes_what_the_operator_does(compiler, matmul):
    for index in range(3):
        assert call(compiler, "check", job(matmul, index), "cpu") < 1e-5


@pytest.mark.parametrize("trace", ["not json", "[[],[]", '[[["Nonsense",[],[],[]]],[]]'])
def test_a_trace_that_does_not_fit_raises(compiler, matmul, trace):
    with pytest.raises(Raised):
        call(compiler, "build", replace(job(matmul), trace_json=trace))


def test_a_target_that_cannot_be_built_for_raises(compiler, matmul):
    with pytest.raises(Raised):
        call(compiler, "build", job(matmul, target_json='{"kind": "no_such_kind"}'))


def test_what_is_for_another_machine_is_linked_there(compiler, matmul):
    board = json.dumps({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    assert call(compiler, "build", job(matmul, target_json=board)).form == "tar"


def test_the_canary_has_a_speed(compiler):
    canary = call(compiler, "canary", "cpu", "{}", 3)
    assert canary.gflops > 0.1 and canary.spread >= 0


def test_random_inputs_of_every_sort(compiler):
    assert compiler.call("wrong_kernels:inputs", timeout_s=10).value == []
