"""What a person sees of a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rich.console import Console
from rich.live import Live
from rich.table import Table

from release_ray.events import (
    DeviceLost,
    Event,
    Measured,
    MeasuredUntuned,
    RoundFinished,
    RoundPlanned,
    RunStarted,
    Stage,
    TaskSummary,
)

_REFRESH_PER_S = 2


@dataclass
class _Totals:
    started: float
    earlier_s: float = 0.0
    trials: int = 0
    earlier_trials: int = 0
    planned: int | None = None
    time_budget_s: float | None = None
    search_cpu_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        return self.earlier_s + time.monotonic() - self.started

    @property
    def rate(self) -> float:
        now = max(time.monotonic() - self.started, 1e-9)
        return (self.trials - self.earlier_trials) / now

    @property
    def remaining_s(self) -> float | None:
        """Until the first budget is spent, at the present rate; None while unknown."""
        ends = []
        if self.planned is not None and self.rate > 0:
            ends.append((self.planned - self.trials) / self.rate)
        if self.time_budget_s is not None:
            ends.append(self.time_budget_s - self.elapsed_s)
        return max(0.0, min(ends)) if ends else None


class View:
    """A listener of a run's events, and a context that owns the screen while it lasts.

    `level` 0 is quiet, 1 normal, 2 also tells each measurement and each plan.
    """

    def __init__(self, console: Console, level: int = 1) -> None:
        self._console = console
        self._level = level
        self._tasks: dict[str, TaskSummary] = {}
        self._failures: Counter[str] = Counter()
        self._totals = _Totals(time.monotonic())
        self._header = ""
        self._live: Live | None = None

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update(self.table(), refresh=True)
            self._live.stop()
            self._live = None

    def __call__(self, event: Event) -> None:
        """Takes in one event."""
        match event:
            case Stage():
                self._say(f"{event.name} …")
            case RunStarted():
                self._start(event)
            case Measured():
                self._measured(event)
            case MeasuredUntuned():
                task = self._tasks[event.task]
                self._tasks[event.task] = replace(task, untuned_s=event.latency_s)
            case RoundPlanned():
                self._totals.search_cpu_s += event.search_cpu_s
                if self._level > 1:
                    self._say(
                        f"{event.task}: round {event.round}: {event.candidates} candidates, "
                        f"{event.refused} refused, {event.clusters} clusters, "
                        f"{event.search_cpu_s:.2f} CPU-s of search"
                    )
            case RoundFinished():
                self._round_finished(event)
            case DeviceLost():
                self._say(f"{event.name} is given up, {event.left} left: {event.reason}")

    def _start(self, event: RunStarted) -> None:
        self._tasks = {task.name: task for task in event.tasks}
        trials = sum(task.trials for task in event.tasks)
        self._totals = _Totals(
            time.monotonic(),
            event.earlier_s,
            trials,
            trials,
            event.trials_planned,
            event.time_budget_s,
        )
        self._header = f"{event.network} on {', '.join(event.devices)}"
        self._say(f"tuning {self._header}, {_count(len(event.tasks), 'task')} ({event.target})")
        if trials:
            self._say(f"going on from {_count(trials, 'trial')} of earlier calls")
        if event.trials_planned is not None and trials >= event.trials_planned:
            self._say("all trials of the budget were spent before; a larger one would go on")
        if self._level and self._console.is_terminal:
            self._live = Live(
                get_renderable=self.table,
                console=self._console,
                refresh_per_second=_REFRESH_PER_S,
                transient=False,
            )
            self._live.start()

    def _measured(self, event: Measured) -> None:
        self._totals.trials += 1
        known = self._tasks[event.task]
        self._tasks[event.task] = replace(known, trials=event.trials, best_s=event.best_s)
        if not event.status.measured:
            self._failures[event.status.value] += 1
        if self._level > 1:
            took = f"{event.latency_s * 1e3:.4g} ms" if event.latency_s else event.message
            self._say(f"{event.task}: {event.status.value} on {event.device}: {took}")

    def _round_finished(self, event: RoundFinished) -> None:
        if self._live is not None or not self._level:
            return
        task = self._tasks[event.task]
        self._say(
            f"{_clock(event.seconds)}  {_count(self._totals.trials, 'trial')} in all "
            f"({self._totals.rate:.2f}/s)  {task.name}: {_count(task.trials, 'trial')}, best "
            f"{_milliseconds(task.best_s)} ms"
            + (f", {_gflops(task)} GFLOPS" if task.flops else "")
            + (f", {_gain(task)} times untuned" if task.untuned_s else "")
        )

    def _say(self, line: str) -> None:
        if self._level:
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def table(self) -> Table:
        """The tasks as they stand, below a line about the whole run."""
        totals = self._totals
        left = totals.remaining_s
        title = (
            f"{self._header}   {_clock(totals.elapsed_s)}   {totals.trials}"
            f"{f' of {totals.planned}' if totals.planned else ''} trials   {totals.rate:.2f}/s"
            f"   search {totals.search_cpu_s:.0f} CPU-s"
            f"{f'   about {_clock(left)} left' if left is not None else ''}"
        )
        table = tasks_table(self._tasks.values(), title)
        if self._failures:
            table.caption = "failed: " + ", ".join(
                f"{count} {status}" for status, count in self._failures.most_common()
            )
        return table


def tasks_table(tasks: Iterable[TaskSummary], title: str) -> Table:
    """A table of tasks; against untuned where that is known of any."""
    tasks = list(tasks)
    columns = ["weight", "MFLOPs", "trials", "best ms", "GFLOPS"]
    if any(task.untuned_s for task in tasks):
        columns.append("× untuned")
    table = Table(title=title, title_justify="left", title_style="bold", expand=False)
    table.add_column("task", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    for task in tasks:
        cells = [
            str(task.weight),
            f"{task.flops / 1e6:.1f}",
            str(task.trials),
            _milliseconds(task.best_s),
            _gflops(task),
            _gain(task),
        ]
        table.add_row(task.name, *cells[: len(columns)])
    return table


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _milliseconds(seconds: float | None) -> str:
    return f"{seconds * 1e3:.4f}" if seconds else "–"


def _gflops(task: TaskSummary) -> str:
    """Of an operator that computes nothing, as a transpose, it would say nothing."""
    return f"{task.flops / task.best_s / 1e9:.1f}" if task.best_s and task.flops else "–"


def _gain(task: TaskSummary) -> str:
    """How many times as fast as TVM makes it untuned."""
    return f"{task.untuned_s / task.best_s:.1f}" if task.untuned_s and task.best_s else "–"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
