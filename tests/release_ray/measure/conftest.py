"""Real candidates for the tests that build and run them."""

import os

import pytest

from release_ray.measure.process import Child


@pytest.fixture(scope="session")
def compiler():
    """A child process with TVM in it, and the test helpers of this folder importable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.path.dirname(__file__))
        child = Child(cores=[], threads=1, kinds=["llvm"], jobs_per_worker=1000)
    yield child
    child.close()


@pytest.fixture(scope="session")
def matmul(compiler):
    """A workload and the traces of 6 schedules of it."""
    return compiler.call("candidates:matmul_candidates", 6, timeout_s=60).value
