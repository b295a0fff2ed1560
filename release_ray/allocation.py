"""Which task gets the next round: the one whose expected gain for the network is greatest.

The gain is the gradient of the network's latency (the weighted sum over tasks) with respect to a
task's trials, estimated as in Ansor (Zheng et al. 2020, section 6), whose scheduler MetaSchedule
carries on: partly from the latest rounds' progress, partly from the optimism that a task goes on
as it began and that it can reach the speed of the best task. Ansor's speed is that of computing
alone; ours is a roofline (Williams et al. 2009) with the bandwidth of other tasks as its slope,
lest all rounds go to dense layers whose weights come from memory no sooner for them.
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
# Of a task that moves less than such a share, more may stay in the caches.
_AS_LARGE = 1 / 8


@dataclass
class TaskProgress:
    """What the allocation knows of a task. `bests` holds the best latency (s) after each round.

    `remaining` is how many more trials the task may have; None for as many as it likes.
    """

    weight: float
    flops: float
    bytes: float = 0.0
    """Of its inputs and outputs, all of which it moves once at the least; 0 if unknown."""
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
    return max(idle, key=lambda i: (_gain(tasks[i], tasks), -i))


def _gain(task: TaskProgress, tasks: Sequence[TaskProgress]) -> float:
    """Expected decrease of the network's latency (s) a trial."""
    fastest = max(_per_second(other, other.flops) for other in tasks)
    if not task.bests:
        # Nothing measured yet, though tried: worth as much as an operator at the best speed.
        return task.weight * task.flops / max(fastest, 1.0) / max(task.trials, 1)
    best = task.bests[-1]
    window = min(_WINDOW, len(task.bests) - 1)
    observed = (task.bests[-1 - window] - best) / window if window else best
    rounds = len(task.bests)
    as_it_began = best / rounds
    computing = task.flops / fastest if fastest else 0.0
    reachable = _HOPE * max(computing, _moving(task, tasks))
    hoped = min(as_it_began, max(best - reachable, _LEAST * as_it_began))
    return task.weight * (_OBSERVED * observed + (1 - _OBSERVED) * hoped)


def _moving(task: TaskProgress, tasks: Sequence[TaskProgress]) -> float:
    """Seconds that its bytes take as fast as those of any other task of its size."""
    others = (o for o in tasks if o is not task and o.bytes >= _AS_LARGE * task.bytes)
    bandwidth = max((_per_second(other, other.bytes) for other in others), default=0.0)
    return task.bytes / bandwidth if bandwidth else 0.0


def _per_second(task: TaskProgress, amount: float) -> float:
    return amount / task.bests[-1] if task.bests else 0.0
