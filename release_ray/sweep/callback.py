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
        reported: Callable[[str, Report, bool], None],
        ended: Callable[[str, BaseException | None], None],
        stopped: Callable[[str], bool],
    ) -> None:
        """`stopped` says whether the scheduler, which is asked before, stops a run now."""
        self._stopped = stopped
        self._began = began
        self._reported = reported
        self._ended = ended
        self._failed: list[Any] = []

    def __getstate__(self) -> dict[str, Any]:
        """Tune writes it to disk, with the rest of the experiment; whom it calls is here alone."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        self._began(trial.config["run"])

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        report = Report(**{field.name: result[field.name] for field in fields(Report)})
        name = trial.config["run"]
        self._reported(name, report, self._stopped(name))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        self._ended(trial.config["run"], None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        # What the error was a trial is told only after this.
        self._failed.append(trial)

    def on_step_end(self, iteration: int, trials: list[Any], **_: Any) -> None:
        waiting, self._failed = self._failed, []
        for trial in waiting:
            error = trial.get_pickled_error()
            if error is None:
                self._failed.append(trial)
            else:
                self._ended(trial.config["run"], error)

    def on_experiment_end(self, trials: list[Any], **_: Any) -> None:
        self.on_step_end(0, trials)
        for trial in self._failed:
            self._ended(trial.config["run"], RuntimeError("Tune does not say why"))
