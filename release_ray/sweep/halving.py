"""ASHA within each network: runs of different networks say nothing of each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler

from release_ray.sweep.ledger import Entry
from release_ray.sweep.spec import HalvingSettings, Run

METRIC, TIME = "speedup", "round"
_LAST_ROUND = 10_000
"""No run has so many; Tune's scheduler wants to know."""


class HalvingWithinNetworks(FIFOScheduler):
    """Ray Tune's ASHA, one for each network; remembers what runs of earlier calls reported.

    Its unit of time is the `round` of a report.
    """

    def __init__(
        self,
        settings: HalvingSettings,
        runs: Sequence[Run],
        entries: Mapping[str, Entry],
        stopped: Callable[[str], None],
    ) -> None:
        """`stopped` is told the name of each run that is stopped, before it is."""
        super().__init__()
        self._stopped = stopped
        self._of_run = {run.name: run.network for run in runs}
        self._halving: dict[str, Any] = {
            network: AsyncHyperBandScheduler(
                time_attr=TIME,
                metric=METRIC,
                mode="max",
                grace_period=settings.grace_rounds,
                reduction_factor=settings.reduction_factor,
                max_t=_LAST_ROUND,
            )
            for network in dict.fromkeys(self._of_run.values())
        }
        for name, entry in entries.items():
            halving, trial = self._halving[self._of_run[name]], SimpleNamespace(trial_id=name)
            halving.on_trial_add(None, trial)
            for report in entry.reports:
                halving.on_trial_result(None, trial, {TIME: report.round, METRIC: report.speedup})

    def __getstate__(self) -> dict[str, Any]:
        """Tune writes it to disk, with the rest of the experiment; whom it calls is here alone."""
        return {name: value for name, value in self.__dict__.items() if name != "_stopped"}

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Stops the run, or lets it go on."""
        name = trial.config["run"]
        halving = self._halving[self._of_run[name]]
        decision: str = halving.on_trial_result(
            tune_controller, SimpleNamespace(trial_id=name), result
        )
        if decision == self.STOP:
            self._stopped(name)
        return decision
