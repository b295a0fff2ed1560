"""What is recorded: measurements, and the runs that made them."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from math import inf
from typing import TextIO

from release_ray.core.statuses import Purpose, Status


@dataclass(frozen=True)
class Record:
    """One measurement, or the refusal of one. `records.db` has a column for each field.

    `decisions` is canonical JSON of the applied knob values; `latency_s` is there for `ok` alone,
    `bound_s`, a lower bound of the latency, for `slow` alone; `created_at` as `now` gives it.
    `id` is given by the store. Raises `ValueError` where they contradict each other.
    """

    task: str
    workload: str
    target: str
    sketch: int
    decisions: str
    purpose: Purpose
    status: Status
    latency_s: float | None
    bound_s: float | None
    message: str
    device: str
    host: str
    measure_settings: str
    build_s: float
    run_s: float
    round: int
    policy: str
    sampler: str
    seed: int
    run_id: str
    created_at: str
    tvm_version: str
    id: int | None = None

    def __post_init__(self) -> None:
        if (self.latency_s is not None) != (self.status is Status.OK):
            raise ValueError(f"a latency of {self.latency_s} with the status {self.status}")
        if self.latency_s is not None and not 0 < self.latency_s < inf:
            raise ValueError(f"a latency of {self.latency_s} s")
        if self.bound_s is not None and self.status is not Status.SLOW:
            raise ValueError(f"a lower bound with the status {self.status}")

    @property
    def candidate(self) -> tuple[int, str]:
        """Sketch and decisions: which candidate of its task it is of."""
        return self.sketch, self.decisions


COLUMNS = tuple(field.name for field in fields(Record) if field.name != "id")


@dataclass(frozen=True)
class Run:
    """One call of the program; `active_s` is how long it worked, as far as it could say."""

    run_id: str
    command: str
    settings: str
    simulated: bool
    fresh: bool
    status: str
    started_at: str
    active_s: float


def now() -> str:
    """The time as records hold it: ISO 8601 in UTC, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def write_csv(records: Iterable[Record], stream: TextIO) -> None:
    """Writes records as CSV with a header; an absent number is an empty field."""
    writer = csv.DictWriter(stream, ("id", *COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(record) for record in records)
