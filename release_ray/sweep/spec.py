"""A sweep's YAML file: read, validated and unfolded into runs before anything starts."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import Field, ValidationError, field_validator

from release_ray import networks
from release_ray.configuration import check_search, explain, names, put, read_yaml, validate
from release_ray.core.errors import InputError
from release_ray.core.settings import Settings, TuneSettings

SHARED: Final = ("devices", "builders")
"""Settings that all runs have in common, for they share one pool."""
KINDS: Final = ("grid", "choice", "uniform", "loguniform", "randint")
MOST_RUNS: Final = 10_000
_MOST_INTEGER: Final = 2**31
"""As far from 0 as the bounds of a `randint` may be."""


class HalvingSettings(Settings):
    """Asynchronous successive halving (Li et al. 2020), of runs of the same network."""

    grace_rounds: int = Field(2, ge=1, description="rounds before a run may be stopped")
    reduction_factor: float = Field(2, gt=1, description="one in so many goes on at each rung")


class SchedulerSettings(Settings):
    """What stops runs early."""

    asha: HalvingSettings


class SweepSettings(Settings):
    """What a sweep's file says beside the settings that all its runs begin with."""

    networks: tuple[str, ...] = Field(min_length=1)
    space: dict[str, dict[str, Any]] = {}
    num_samples: int = Field(1, ge=1, le=MOST_RUNS)
    scheduler: SchedulerSettings | None = None
    max_concurrent: int = Field(2, ge=1)
    work_dir: str | None = None
    storage: str | None = Field(None, description="copies go there after each round")
    reuse: bool = Field(
        False, description="runs take over what others have measured of the same candidate"
    )

    @field_validator("work_dir", "storage")
    @classmethod
    def _a_path(cls, value: str | None) -> str | None:
        if value is not None and "\0" in value:
            raise ValueError("no path has a NUL in it")
        return value

    @field_validator("networks", mode="before")
    @classmethod
    def _one_network(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


@dataclass(frozen=True)
class Axis:
    """A setting that varies. `values` are those to choose from, or the bounds."""

    name: str
    kind: str
    values: tuple[Any, ...]

    def draw(self, rng: np.random.RandomState) -> Any:
        """A value, by Ray Tune's own sampling; of a grid none is drawn."""
        from ray import tune

        if self.kind == "choice":
            # Tune would draw from what numpy makes of the values: text, if one of them is.
            return self.values[int(tune.randint(0, len(self.values)).sample(random_state=rng))]
        domain: Any = getattr(tune, self.kind)(*self.values)
        return domain.sample(random_state=rng)


@dataclass(frozen=True)
class Run:
    """One network tuned with one setting."""

    name: str
    network: str
    """As the file names it."""
    source: str
    """As a process with another working directory finds it."""
    setting: int
    values: Mapping[str, Any]
    """Of the axes, by name."""
    settings: TuneSettings


@dataclass(frozen=True)
class SweepSpec:
    """A sweep as its file describes it, all of it checked."""

    source: str
    settings: SweepSettings
    base: TuneSettings
    axes: tuple[Axis, ...]
    runs: tuple[Run, ...]

    @property
    def work_dir(self) -> Path:
        return Path(self.settings.work_dir or Path("tuning") / Path(self.source).stem)

    @property
    def identity(self) -> dict[str, Any]:
        """What makes it this sweep and no other: all that decides what its runs find."""
        places = {"max_concurrent", "work_dir", "storage", "space"}
        ours = self.settings.model_dump(mode="json", exclude=places)
        files = {run.network: _fingerprint(run) for run in self.runs}
        base = self.base.model_dump(mode="json", exclude={"builders"})
        # Not the space: what was drawn from it depends on the order of its settings too.
        drawn = {run.name: dict(run.values) for run in self.runs}
        return {**ours, "files": files, "base": base, "runs": json.loads(json.dumps(drawn))}


def load_sweep(path: Path) -> SweepSpec:
    """Reads a sweep's file. Raises `InputError` that names the file and the first bad setting."""
    data = read_yaml(path)
    mine = {name: data.pop(name) for name in SweepSettings.model_fields if name in data}
    try:
        settings = SweepSettings.model_validate(mine)
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, SweepSettings)}") from None
    base = validate(data, str(path), also=tuple(SweepSettings.model_fields))
    with named(path):
        for network in settings.networks:
            networks.check(network)
    if len(set(settings.networks)) < len(settings.networks):
        raise InputError(f"{path}: networks: one is there twice; num_samples repeats runs")
    axes = tuple(_axis(path, name, form) for name, form in settings.space.items())
    cells = math.prod(len(axis.values) for axis in axes if axis.kind == "grid")
    count = len(settings.networks) * cells * settings.num_samples
    if count > MOST_RUNS:
        raise InputError(f"{path}: {count} runs are more than {MOST_RUNS}; sweep over less")
    runs = tuple(_runs(path, data, settings, axes, base.seed))
    return SweepSpec(str(path), settings, base, axes, runs)


def _axis(path: Path, name: str, form: Mapping[str, Any]) -> Axis:
    where = f"{path}: space: {name}"
    known = [*names(), "sampler"]
    if name in SHARED:
        raise InputError(f"{where}: all runs share one pool; give it outside the space")
    if name not in known:
        near = difflib.get_close_matches(name, known, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else "see `release-ray tune tiny --print-config`"
        raise InputError(f"{where} is no setting; {hint}")
    if len(form) != 1 or next(iter(form)) not in KINDS:
        raise InputError(f"{where}: give one of {', '.join(KINDS)}, as `{name}: {{grid: [1, 2]}}`")
    ((kind, given),) = form.items()
    if not isinstance(given, list) or not given:
        raise InputError(f"{where}: {kind} takes a list, not {given!r}")
    values = tuple(given)
    if kind not in ("grid", "choice"):
        values = _bounds(where, kind, values)
    return Axis(name, kind, values)


def _bounds(where: str, kind: str, values: tuple[Any, ...]) -> tuple[float, ...]:
    try:
        # YAML takes 1e-4, without a point, for text.
        low, high = (float(value) for value in values)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where}: {kind} takes two numbers, not {list(values)!r}") from None
    if not math.isfinite(high - low) or (kind == "randint" and max(-low, high) > _MOST_INTEGER):
        raise InputError(f"{where}: {kind} [{low:g}, {high:g}]: the bounds are too far apart")
    if not low < high:
        raise InputError(f"{where}: {kind} [{low:g}, {high:g}]: the first must be the smaller")
    if kind == "loguniform" and low <= 0:
        raise InputError(f"{where}: loguniform [{low:g}, {high:g}]: both must be above 0")
    if kind == "randint":
        if not (low.is_integer() and high.is_integer()):
            raise InputError(f"{where}: randint takes two whole numbers, not {list(values)!r}")
        return int(low), int(high)
    return low, high


def _fingerprint(run: Run) -> str:
    """Of a network's file; empty for a built-in."""
    if run.network in networks.BUILT_IN_NAMES:
        return ""
    return hashlib.sha256(Path(run.source).read_bytes()).hexdigest()


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Puts a file's name before what is wrong with its contents."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _short_names(given: Sequence[str]) -> list[str]:
    """A name for each network, all different: its file's stem, with its number where need be."""
    stems = [Path(network).stem for network in given]
    shared = {stem for stem, count in Counter(stems).items() if count > 1}
    short = [f"{stem}-{i}" if stem in shared else stem for i, stem in enumerate(stems)]
    return short if len(set(short)) == len(short) else [f"{i}-{s}" for i, s in enumerate(stems)]


def _runs(
    path: Path,
    data: Mapping[str, Any],
    settings: SweepSettings,
    axes: Sequence[Axis],
    seed: int,
) -> Iterator[Run]:
    """Settings are drawn once, and each is for all networks, so that these can be averaged."""
    drawn = list(_settings(axes, settings.num_samples, seed))
    shorts = _short_names(settings.networks)
    digits = max(2, len(str(len(drawn) - 1)))
    for number, values in enumerate(drawn):
        merged: dict[str, Any] = {}
        for name, value in (*deepcopy(dict(data)).items(), *values.items()):
            put(merged, name, value)
        chosen = validate(merged, f"{path}: space")
        with named(path):
            check_search(chosen)
        for network, short in zip(settings.networks, shorts, strict=True):
            yield Run(
                name=f"{short}-{number:0{digits}}",
                network=network,
                source=network if network in networks.BUILT_IN_NAMES else os.path.abspath(network),
                setting=number,
                values=values,
                settings=chosen,
            )


def _settings(axes: Sequence[Axis], samples: int, seed: int) -> Iterator[dict[str, Any]]:
    grids = [axis for axis in axes if axis.kind == "grid"]
    free = [axis for axis in axes if axis.kind != "grid"]
    rng = np.random.RandomState(seed)
    for sample in range(samples):
        for cell in itertools.product(*(axis.values for axis in grids)):
            chosen = dict(zip((axis.name for axis in grids), cell, strict=True))
            chosen |= {axis.name: axis.draw(rng) for axis in free}
            if samples > 1 and not free and "seed" not in chosen:
                # The same once more would give the same once more.
                chosen["seed"] = seed + sample
            # In the order of the file.
            order = [axis.name for axis in axes] + ["seed"]
            yield {name: chosen[name] for name in order if name in chosen}
