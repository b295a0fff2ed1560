"""How fast the operators of a network are untuned: what speed-ups are relative to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from release_ray.core.errors import WorkFailed
from release_ray.core.settings import TuneSettings
from release_ray.measure.jobs import Job
from release_ray.measure.pool import MeasurePool
from release_ray.sweep.ledger import Positive, damaged
from release_ray.tasks import Task
from release_ray.workdir import write_atomic

_LONGEST_S = 300.0
_POLL_S = 1.0


@dataclass(frozen=True)
class Baseline:
    """Of one network with one target and layout: seconds of each task, untuned."""

    latency_s: Annotated[Mapping[str, Positive], Field(min_length=1)]
    total_s: Positive
    """Of one inference: their sum, each as often as the network calls it."""


class Baselines:
    """All of a sweep's, in one file; measured once, so that all runs compare with the same."""

    def __init__(self, path: Path) -> None:
        """Raises `InputError` where the file is damaged."""
        self._path = path
        self._known: dict[str, Baseline] = {}
        if path.exists():
            try:
                self._known = TypeAdapter(dict[str, Baseline]).validate_json(path.read_bytes())
            except (OSError, ValidationError) as error:
                raise damaged(path, error) from error

    def get(self, network: str, settings: TuneSettings) -> Baseline | None:
        return self._known.get(_key(network, settings))

    def measure(
        self, network: str, settings: TuneSettings, tasks: Sequence[Task], pool: MeasurePool
    ) -> Baseline:
        """Times every task untuned on the pool, each exactly as candidates are.

        Raises `WorkFailed` where one of them cannot be.
        """
        # The plain loops of a convolution take seconds where a tuned kernel takes milliseconds.
        patient = settings.measure.model_copy(
            update={"run_timeout_s": _LONGEST_S, "build_timeout_s": _LONGEST_S}
        )
        pool.submit(
            [Job.untuned(number, task.workload, patient) for number, task in enumerate(tasks)]
        )
        latency_s: dict[str, float] = {}
        while len(latency_s) < len(tasks):
            for outcome in pool.wait(_POLL_S):
                name = tasks[outcome.job_id].name
                if outcome.latency_s is None:
                    raise WorkFailed(
                        f"network {network!r}: its operator {name} cannot be measured untuned"
                        f" ({outcome.status}: {outcome.message}), so there are no speed-ups"
                    )
                latency_s[name] = outcome.latency_s
        total_s = sum(task.weight * latency_s[task.name] for task in tasks)
        # In the order of the tasks, not in that in which they came.
        baseline = Baseline({task.name: latency_s[task.name] for task in tasks}, total_s)
        self._known[_key(network, settings)] = baseline
        content = {key: asdict(known) for key, known in self._known.items()}
        write_atomic(self._path, json.dumps(content, indent=1) + "\n")
        return baseline


def _key(network: str, settings: TuneSettings) -> str:
    """What decides the operators of a network."""
    return json.dumps([network, settings.target, settings.layout])
