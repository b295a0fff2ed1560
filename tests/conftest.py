"""Fixtures of the whole suite."""

import logging
import os

import pytest

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


@pytest.fixture(scope="session")
def ray_local():
    """One local Ray for the whole session, started by the first test that asks for it."""
    import ray

    if not ray.is_initialized():
        ray.init(
            address="local",
            # For the books of Ray alone: pools of several tests may stand side by side.
            num_cpus=16,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=256 * 2**20,
        )
    yield ray
    ray.shutdown()
