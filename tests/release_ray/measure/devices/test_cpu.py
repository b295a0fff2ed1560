"""The CPU device without Ray: what its statuses are made of."""

from dataclasses import replace

from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Status
from release_ray.measure.devices.compiled import ChildBuilder
from release_ray.measure.devices.cpu import CpuWorker
from release_ray.measure.jobs import Artifact, DeviceSpec, Job, Outcome


def test_time_outs_are_told_apart_and_the_next_job_is_none_the_worse(matmul):
    workload, traces = matmul
    job = Job(0, workload, traces[0], "[]", None)
    hasty = replace(job, settings=MeasureSettings(build_timeout_s=0.001, run_timeout_s=0.001))
    builder = ChildBuilder([], MeasureSettings(), "llvm")
    worker = CpuWorker(DeviceSpec("cpu:0", "cpu"), MeasureSettings(), "llvm")
    for part in (builder, worker):
        part.start()
    late = builder.build(hasty)
    assert isinstance(late, Outcome)
    assert late.status is Status.BUILD_TIMEOUT and late.build_s >= 0.001
    artifact = builder.build(job)
    assert isinstance(artifact, Artifact)
    outcome = worker.measure(hasty, artifact)
    assert (outcome.status, outcome.device) == (Status.RUN_TIMEOUT, "cpu:0")
    assert outcome.build_cpu_s == artifact.build_cpu_s > 0
    assert worker.unfit == ""
    bad = Artifact("so", b"no library", artifact.arguments)
    assert worker.measure(job, bad).status is Status.RUN_ERROR
    assert worker.measure(job, artifact).status is Status.OK
    for part in (builder, worker):
        part.close()
