"""The file of a job that is submitted to a cluster: what is tuned, how, and where it lands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release_ray import networks
from release_ray.configuration import check_search, read_yaml, validate
from release_ray.core.errors import InputError
from release_ray.core.settings import TuneSettings
from release_ray.sweep.spec import SweepSpec, load_sweep, named

KEYS = ("network", "work_dir", "storage")
"""What the file of a tuning job says beside the settings."""


@dataclass(frozen=True)
class TuneJob:
    """What `release-ray tune` would be told on a command line."""

    network: str
    settings: TuneSettings
    work_dir: Path | None
    storage: str | None


def is_sweep(path: Path) -> bool:
    """Whether a job's file describes a sweep."""
    return "networks" in read_yaml(path)


def load_tune_job(path: Path) -> TuneJob:
    """Reads a tuning job's file. Raises `InputError` that names it and the first bad setting."""
    data = read_yaml(path)
    settings = validate({k: v for k, v in data.items() if k not in KEYS}, str(path), also=KEYS)
    network, work_dir, storage = (_text(path, data, name) for name in KEYS)
    if network is None:
        raise InputError(f"{path}: network is missing: add `network: resnet18`")
    with named(path):
        networks.check(network)
        check_search(settings)
    _require_kept(path, work_dir, storage)
    return TuneJob(network, settings, Path(work_dir) if work_dir else None, storage)


def load_sweep_job(path: Path) -> SweepSpec:
    """Reads a sweep job's file, as `load_sweep`, which must say where results are kept."""
    spec = load_sweep(path)
    _require_kept(path, spec.settings.work_dir, spec.settings.storage)
    return spec


def _require_kept(path: Path, work_dir: str | None, storage: str | None) -> None:
    """A job runs in a copy of the working directory that Ray deletes some time after its end."""
    copied = storage and ("://" in storage or Path(storage).is_absolute())
    if not copied and not (work_dir and Path(work_dir).is_absolute()):
        raise InputError(
            f"{path}: the results would be deleted with the job: add `storage:` with the absolute "
            "path of a shared folder or any fsspec URL, or such a `work_dir:` on the head node"
        )


def _text(path: Path, data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    if value is not None and (not isinstance(value, str) or "\0" in value):
        raise InputError(f"{path}: {name} is text, not {value!r}")
    return value
