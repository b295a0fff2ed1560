"""`result.json`: what a run has achieved so far. Its fields are an interface for scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from release_ray.core.errors import InputError
from release_ray.core.statuses import Status
from release_ray.workdir import write_atomic


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CpuSeconds(_Model):
    """CPU-seconds over all processes."""

    search: float = 0.0
    build: float = 0.0
    run: float = 0.0
    other: float = 0.0


class LatencyMs(_Model):
    """Latency of the whole network, untuned and tuned; null while unknown."""

    default: float | None = Field(None, gt=0)
    tuned: float | None = Field(None, gt=0)


class TaskResult(_Model):
    """One task. `curve` is (trials, active seconds, best latency so far) at every improvement."""

    name: str
    weight: int = Field(ge=1, description="how often the network calls it")
    flops: float = Field(ge=0)
    trials: int = Field(0, ge=0)
    best_latency_s: float | None = Field(None, gt=0)
    best_gflops: float | None = Field(None, ge=0)
    status: Literal["waiting", "running", "done", "interrupted", "failed"] = "waiting"
    curve: tuple[tuple[int, float, float], ...] = ()


class Result(_Model):
    """The whole of `result.json`. Seconds are of active time, over all calls."""

    network: str
    target: str
    seed: int
    status: Literal["running", "done", "interrupted", "failed"]
    trials: int = Field(0, ge=0)
    failures: dict[Status, int] = {}
    wall_s: float = Field(0.0, ge=0)
    start_s: float | None = Field(None, ge=0, description="to the first measurement")
    device_idle_share: float | None = Field(
        None, le=1, description="1 - run time / (wall x devices)"
    )
    devices_lost: dict[str, str] = Field({}, description="devices given up in the last call, why")
    cpu_s: CpuSeconds = CpuSeconds()
    latency_ms: LatencyMs = LatencyMs()
    max_rel_error: float | None = Field(
        None, ge=0, description="max|a-b| / max|b| of the tuned output against the reference"
    )
    tasks: tuple[TaskResult, ...] = ()
    versions: dict[str, str] = {}

    def to_json_line(self) -> str:
        """The object on one line, without a line's end."""
        return self.model_dump_json()

    def write(self, path: Path) -> None:
        """Replaces the file in one step. Raises `InputError` where it cannot be written."""
        write_atomic(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Result:
        """Reads the file again. Raises `InputError` where it is missing or damaged."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise InputError(f"{path} does not exist: tune first") from None
        except (OSError, ValidationError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{path} cannot be read ({reason}): run `tune` again") from error
