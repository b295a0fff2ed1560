"""Which task gets the next round: the one whose expected gain for the network is greatest.

The gain is the gradient of the network's latency (the weighted sum over tasks) with respect to a
task's trials, estimated as in Ansor (Zheng et al. 2020, section 6), whose scheduler MetaSchedule
carries on: partly from the latest rounds' progress, partly from the optimism that a task goes on
as it began and that it can reach the speed of the best task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# Ansor's constants: the weight of observed progress, the hope put in similar tasks, the look-back.
_OBSERVED = 0.2
_HOPE = 2.0
_WINDOW = 3
# The fastest task's speed is no bound for the others: so much of the optimism always stays.
_LEAST = 0.1


@dataclass
class TaskProgress:
    """What the allocation knows of a task. `bests` holds the best latency (s) after each round.

    `remaining` is how many more trials the task may have; None for as many as it likes.
    """

    weight: float
    flops: float
    trials: int = 0
    remaining: int | None = None
    exhausted: bool = False
    bests: list[float] = field(default_factory=list)

    @property
    def open(self) -> bool:
        return not self.exhausted and (self.remaining is None or self.remaining > 0)


def next_task(tasks: Sequence[TaskProgress], busy: frozenset[int] = frozenset()) -> int | None:
    """The index of the task that gets the next round; None when all are done.

    Tasks without a round come first, the heaviest first. Tasks in `busy` have a round under way,
    whose results the next would miss: they are passed over while another is open.
    """
    open_tasks = [i for i, task in enumerate(tasks) if task.open]
    if not open_tasks:
        return None
    fresh = [i for i in open_tasks if not tasks[i].trials and i not in busy]
    if fresh:
        return max(fresh, key=lambda i: (tasks[i].weight * tasks[i].flops, -i))
    idle = [i for i in open_tasks if i not in busy] or open_tasks
    fastest = max((_speed(task) for task in tasks), default=0.0)
    return max(idle, key=lambda i: (_gain(tasks[i], fastest), -i))


def _gain(task: TaskProgress, fastest: float) -> float:
    """Expected decrease of the network's latency (s) a trial."""
    if not task.bests:
        # Nothing measured yet, though tried: worth as much as an operator at the best speed.
        return task.weight * task.flops / max(fastest, 1.0) / max(task.trials, 1)
    best = task.bests[-1]
    window = min(_WINDOW, len(task.bests) - 1)
    observed = (task.bests[-1 - window] - best) / window if window else best
    rounds = len(task.bests)
    as_it_began = best / rounds
    reachable = _HOPE * task.flops / fastest if fastest else 0.0
    hoped = min(as_it_began, max(best - reachable, _LEAST * as_it_began))
    return task.weight * (_OBSERVED * observed + (1 - _OBSERVED) * hoped)


def _speed(task: TaskProgress) -> float:
    return task.flops / task.bests[-1] if task.bests else 0.0
