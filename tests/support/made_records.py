"""A record with everything in it, of which a test says what matters to it."""

from __future__ import annotations

from release_ray.core.statuses import Purpose, Status
from release_ray.records import Record, now


def a_record(run_id: str, **changed: object) -> Record:
    """A trial that took a millisecond, but for what is changed."""
    values = {
        "task": "conv",
        "workload": "k",
        "target": "{}",
        "sketch": 0,
        "decisions": "[]",
        "purpose": Purpose.TRIAL,
        "status": Status.OK,
        "latency_s": 1e-3,
        "bound_s": None,
        "message": "",
        "device": "cpu:0",
        "host": "here",
        "measure_settings": "{}",
        "build_s": 0.1,
        "run_s": 0.1,
        "round": 0,
        "policy": "ppo",
        "sampler": "adaptive",
        "seed": 0,
        "run_id": run_id,
        "created_at": now(),
        "tvm_version": "0.27.0",
    }
    return Record(**{**values, **changed})  # type: ignore[arg-type]
