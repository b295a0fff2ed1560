"""Ray Tune's events, as a sweep needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from ray.tune import Callback

from release_ray.sweep.ledger import Report


class SweepCallback(Callback):
    """Calls back with the names of runs."""

    def __init__(
        self,
        began: Callable[[str], None],
        reported: Callable[[str, Report], None],
        ended: Callable[[str, BaseException | None], None],
    ) -> None:
        self._began = began
        self._reported = reported
        self._ended = ended

    def __getstate__(self) -> dict[str, Any]:
        """Tune writes it to disk, with the rest of the experiment; whom it calls is here alone."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        self._began(trial.config["run"])

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        report = Report(**{field.name: result[field.name] for field in fields(Report)})
        self._reported(trial.config["run"], report)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        self._ended(trial.config["run"], None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        error = trial.get_pickled_error() or RuntimeError("it failed, and Tune does not say why")
        self._ended(trial.config["run"], error)
