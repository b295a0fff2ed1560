"""ASHA within each network: runs of different networks say nothing of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    ) -> None:
        super().__init__()
        self.stopped: set[str] = set()
        """The runs that were stopped."""
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

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Stops the run, or lets it go on."""
        name = trial.config["run"]
        halving = self._halving[self._of_run[name]]
        decision: str = halving.on_trial_result(
            tune_controller, SimpleNamespace(trial_id=name), result
        )
        if decision == self.STOP:
            self.stopped.add(name)
        return decision
