"""Every setting of a run, validated once at the edge and frozen from there on.

A YAML file holds the same names, nested: `agent: {lr: 0.003}`; sweeps write `agent.lr`. Values of
the paper that differ from the default are noted beside the field.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

DEFAULT_TRIALS_PER_TASK = 64


class Settings(BaseModel):
    """Base of all settings: frozen, and an unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        # To pydantic, as to Python, true is 1.
        asked = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and asked is not bool:
            raise ValueError("true and false are no value of it")
        return value


def duration_s(text: str) -> float:
    """Seconds of a text such as `90s`, `10m`, `1.5h` or `45`. Raises `ValueError` otherwise."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time: write 90s, 10m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


class AgentSettings(Settings):
    """The reinforcement-learning agent: PPO over knob agents (paper: section 4, and its code)."""

    walkers: int = Field(64, ge=1, description="walkers that step together (paper: 128)")
    steps: int = Field(5, ge=1, description="steps of a walk between updates (paper: up to 500)")
    model_calls: int = Field(5000, ge=1, description="configurations scored a round")
    fine_tune: float = Field(
        0.5, ge=0, le=1, description="share of these that breed the best the agent has found"
    )
    measured_starts: float = Field(
        0.5, ge=0, le=1, description="share of walkers that start from the best measured"
    )
    scored_starts: float = Field(
        0.25, ge=0, le=1, description="share of walkers that start from the best predicted so far"
    )
    best_starts: int = Field(8, ge=1, description="distinct configurations that these start from")
    stay_bias: float = Field(3.0, description="initial logit of `stay`: a step changes few knobs")
    hidden: tuple[PositiveInt, ...] = Field((64, 64), description="hidden layers (paper: 20-20)")
    lr: float = Field(3e-3, gt=0, description="Adam's learning rate (paper: 1e-3)")
    gamma: float = Field(0.9, ge=0, le=1, description="discount")
    gae_lambda: float = Field(0.99, ge=0, le=1, description="of generalised advantages")
    epochs: int = Field(1, ge=1, description="passes over a batch (paper: 3)")
    minibatch: int = Field(2048, ge=1, description="agent steps a mini-batch (paper: 32)")
    clip: float = Field(0.2, gt=0, description="PPO's clipping range")
    entropy: float = Field(0.06, ge=0, description="entropy coefficient (paper: 0.3)")
    value_coefficient: float = Field(1.0, ge=0, description="weight of the value loss")
    grad_clip: float | None = Field(0.5, gt=0, description="gradient norm at most")


class SamplerSettings(Settings):
    """Which candidates are measured (paper: Algorithm 1)."""

    name: str = Field("adaptive", description="adaptive, greedy, or module:Class")
    candidates: int = Field(64, ge=1, description="candidates the policy proposes (paper: 64)")
    threshold: float = Field(2.5, gt=0, description="the knee: clusters grow while it pays so much")
    min_clusters: int = Field(8, ge=1, description="fewest measurements a plan (paper: 8)")
    max_clusters: int = Field(16, ge=1, description="most measurements a plan (paper: 64)")
    cluster_step: int = Field(4, ge=1, description="by which k grows (paper: 8)")
    epsilon: float = Field(0.05, ge=0, le=1, description="share of a plan drawn at random")

    @model_validator(mode="after")
    def _ordered(self) -> SamplerSettings:
        if self.min_clusters > self.max_clusters:
            raise ValueError("min_clusters must not exceed max_clusters")
        return self


class CostModelSettings(Settings):
    """Gradient-boosted trees (paper's code: depth 3, eta 0.3, gamma 1e-4)."""

    trees: int = Field(200, ge=1)
    depth: int = Field(6, ge=1, le=30)
    eta: float = Field(0.1, gt=0, le=1)
    gamma: float = Field(1e-4, ge=0)
    min_child_weight: float = Field(1.0, ge=0)
    subsample: float = Field(0.8, gt=0, le=1)
    colsample: float = Field(0.8, gt=0, le=1)
    reg_lambda: float = Field(1.0, ge=0)
    transfer: int = Field(
        1024,
        ge=0,
        description="measurements of like tasks it learns from too; 0: of its task alone",
    )
    prior: int = Field(
        2048,
        ge=0,
        description="shipped measurements of like operators it learns from too; 0: none",
    )
    prior_until: int = Field(
        32,
        ge=1,
        description="measurements of the task with which it has forgotten the shipped ones",
    )


class MeasureSettings(Settings):
    """How a candidate is built and timed."""

    min_repeat_ms: float = Field(20.0, ge=0, description="each repeat runs at least this long")
    repeats: int = Field(3, ge=1, description="repeats of which the median is taken")
    flush_cache: bool = Field(
        True, description="time single runs that find the weights in memory, not in the caches"
    )
    early_stop: float = Field(
        3.0, gt=1, description="a first run this many times the best ends the measurement as slow"
    )
    build_timeout_s: float = Field(20.0, gt=0, description="a build may take so long")
    run_timeout_s: float = Field(
        10.0, gt=0, description="a run may take so long, and longer where a good kernel is slow"
    )
    jobs_per_worker: int = Field(64, ge=1, description="a child is replaced after so many jobs")
    max_in_flight: int = Field(4, ge=1, description="artifacts that wait for a device, at most")


class BudgetSettings(Settings):
    """What ends a run; the first to be reached. All count what earlier calls spent."""

    trials: int | None = Field(None, ge=1)
    trials_per_task: int | None = Field(None, ge=1, description="64 where nothing is given")
    time_budget: float | None = Field(None, gt=0, description="seconds, or a text as 90s, 10m, 2h")

    @field_validator("time_budget", mode="before")
    @classmethod
    def _time_from_text(cls, value: object) -> object:
        return duration_s(value) if isinstance(value, str) else value

    def or_default(self) -> BudgetSettings:
        """This budget, or 64 trials a task where nothing is given."""
        if self.trials is None and self.trials_per_task is None and self.time_budget is None:
            return BudgetSettings(trials_per_task=DEFAULT_TRIALS_PER_TASK)
        return self


class TuneSettings(Settings):
    """All settings of one tuning run."""

    target: str = "native"
    layout: Literal["auto", "NHWC", "NCHW"] = Field(
        "auto", description="of convolutions; auto: NHWC on CPUs, NCHW elsewhere"
    )
    policy: str = "ppo"
    sampler: SamplerSettings = SamplerSettings()
    tasks: tuple[str, ...] = Field((), description="globs of task names; empty: all")
    devices: str = "auto"
    builders: int | None = Field(None, ge=1, le=10_000)
    seed: int = Field(0, ge=0, lt=2**31)
    first_batch: int = Field(
        16, ge=1, description="the first round: random where nothing like the task is known"
    )
    first_random: float = Field(
        0.5,
        ge=0,
        le=1,
        description="share of it that is random where something is known; it fades over 64 trials",
    )
    budget: BudgetSettings = BudgetSettings()
    agent: AgentSettings = AgentSettings()
    cost_model: CostModelSettings = CostModelSettings()
    measure: MeasureSettings = MeasureSettings()

    @field_validator("tasks", mode="before")
    @classmethod
    def _one_glob(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("sampler", mode="before")
    @classmethod
    def _sampler_by_name(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value
