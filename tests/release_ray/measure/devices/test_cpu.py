"""The CPU device without Ray: what its statuses are made of."""

from release_ray.core.settings import MeasureSettings
from release_ray.core.statuses import Status
from release_ray.measure.devices.compiled import ChildBuilder
from release_ray.measure.devices.cpu import CpuWorker
from release_ray.measure.jobs import Artifact, DeviceSpec, Job


def test_time_outs_are_told_apart_and_the_next_job_is_none_the_worse(matmul):
    workload, traces = matmul
    job = Job(0, workload, traces[0], "[]", None)
    builder = ChildBuilder([], MeasureSettings(build_timeout_s=0.001), "llvm")
    hasty = CpuWorker(DeviceSpec("cpu:0", "cpu"), MeasureSettings(run_timeout_s=0.001), "llvm")
    patient = ChildBuilder([], MeasureSettings(), "llvm")
    for part in (builder, hasty, patient):
        part.start()
    late = builder.build(job)
    assert late.status is Status.BUILD_TIMEOUT and late.build_s >= 0.001
    artifact = patient.build(job)
    assert isinstance(artifact, Artifact)
    outcome = hasty.measure(job, artifact)
    assert (outcome.status, outcome.device) == (Status.RUN_TIMEOUT, "cpu:0")
    assert outcome.build_cpu_s == artifact.build_cpu_s > 0
    bad = Artifact("so", b"no library", artifact.arguments)
    assert hasty.measure(job, bad).status in (Status.RUN_ERROR, Status.RUN_TIMEOUT)
    for part in (builder, hasty, patient):
        part.close()
