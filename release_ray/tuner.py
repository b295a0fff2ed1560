"""The loop over a network: plans rounds, feeds the pool, records what comes back.

Searching overlaps with building and measuring: while rounds are on the hardware a thread plans the
next. So that a seed gives the same plans whatever the timing, round r is planned from the results
of the rounds up to r - lookahead, all of them and no others, absorbed in the order in which they
were planned.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from policies.base import Policy
from release_ray.allocation import TaskProgress, next_task
from release_ray.core.settings import DEFAULT_TRIALS_PER_TASK, TuneSettings
from release_ray.core.statuses import Purpose, Status
from release_ray.events import (
    Listener,
    Measured,
    MeasuredUntuned,
    RoundFinished,
    RoundPlanned,
)
from release_ray.measure.jobs import Job, Outcome, Workload
from release_ray.measure.pool import MeasurePool
from release_ray.planner import Candidate, Observation, Plan, Refused, TaskPlanner
from release_ray.recall import Recalled

# How long the loop waits for results before it looks at the plan and the clock again.
_POLL_S = 0.2
# With nothing measured after so many failures in a call, the rest would fail too.
_HOPELESS = 48
# After so many lost ones in a row there is no device left to measure the rest.
_ALL_LOST = 8
# Plain loops run about a billion operations a second: more would keep a device for too long.
_PLAIN_FLOPS = 5e8
# What a round under way may still take after the budget is spent.
_DRAIN_S = 30.0


@dataclass
class TaskState:
    """A task during a run: its planner, and what views and results show of it.

    One that is not `tuned` keeps what earlier runs measured and gets no rounds.
    `curve` holds (trials, seconds of active time, best latency in s) at each improvement.
    """

    planner: TaskPlanner
    weight: int
    flops: float
    bytes: float = 0.0
    tuned: bool = True
    trials: int = 0
    best_s: float | None = None
    untuned_s: float | None = None
    """Latency of the operator as TVM compiles it untuned; None while unknown, or far longer."""
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    rounds: int = 0
    """That are complete."""
    failures: Counter[Status] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    progress: TaskProgress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = TaskProgress(self.weight, self.flops, self.bytes, exhausted=not self.tuned)

    @property
    def name(self) -> str:
        return self.planner.task.name

    @property
    def finished(self) -> bool:
        """Whether it will have no further round, and has none under way."""
        return not self.progress.open and self.trials == self.progress.trials

    def forget(self) -> None:
        """Forgets what was counted."""
        self.trials, self.best_s = 0, None
        self.curve.clear()
        self.failures.clear()
        self.messages.clear()

    def count(self, status: Status, latency_s: float | None, message: str, at_s: float) -> None:
        """Counts one trial's outcome."""
        self.trials += 1
        if status is Status.OK and latency_s is not None:
            if self.best_s is None or latency_s < self.best_s:
                self.best_s = latency_s
                self.curve.append((self.trials, round(at_s, 3), latency_s))
        elif not status.measured:
            self.failures[status] += 1
            self.messages[message] += 1


@dataclass
class _Round:
    task: int
    plan: Plan
    jobs: dict[int, Candidate]
    outcomes: dict[int, Outcome] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.outcomes) == len(self.jobs)


@dataclass(frozen=True)
class Recorded:
    """What a recorder is given for each outcome and each refused configuration."""

    state: TaskState
    candidate: Candidate | Refused
    round: int
    outcome: Outcome | None
    recalled: Recalled | None = None
    """Where the outcome is from, if nothing was measured."""

    @property
    def reason(self) -> str:
        """Why a configuration was refused; empty for a candidate."""
        return self.candidate.message if isinstance(self.candidate, Refused) else ""


class Tuner:
    """Runs rounds until the budget is spent or everything is measured."""

    def __init__(
        self,
        states: Sequence[TaskState],
        *,
        pool: MeasurePool,
        devices: int,
        make_policy: Callable[[], Policy],
        settings: TuneSettings,
        record: Callable[[Recorded], None],
        after_round: Callable[[], None],
        listener: Listener,
        active_s: Callable[[], float],
        recall: Callable[[Workload, int, str], Recalled | None] | None = None,
        opening: tuple[str, Policy] | None = None,
        untuned: bool = False,
    ) -> None:
        """`recall` is asked for the outcome of each candidate before it is sent to the pool.

        `untuned`: whether operators are also timed as TVM compiles them untuned, for views.
        `opening`, a policy and its name, proposes while `make_policy` makes the one that is
        wanted; without it candidates are random until then.
        """
        self._opening = opening
        self._search = ThreadPoolExecutor(1, "search")
        self._untuned = {-1 - i: state for i, state in enumerate(states) if untuned}
        self._begun = False
        self._warming: Future[None] | None = None
        self._planning: Future[tuple[int, Plan, float]] | None = None
        self._recall = recall
        self._recalled: dict[int, Recalled] = {}
        self._states = states
        self._pool = pool
        self._make_policy = make_policy
        self._settings = settings
        self._record = record
        self._after_round = after_round
        self._listener = listener
        self._active_s = active_s
        self._lookahead = 0
        self.feed(devices)
        self._rounds: list[_Round] = []
        self._absorbed = 0
        self._round_of_job: dict[int, int] = {}
        self._inbox: deque[Outcome] = deque()
        self._spent = sum(state.trials for state in states)
        self._failed_before = self._failed
        self._policy: Policy | None = None
        self.search_cpu_s = 0.0
        self._lost_in_a_row = 0
        self.devices_lost = ""
        """Why no device is left; empty while there is one."""
        for state in states:
            state.progress.trials = state.trials
            if state.best_s is not None:
                state.progress.bests.append(state.best_s)

    def feed(self, devices: int) -> None:
        """Keeps so many rounds under way that each device has its next artifact while one is
        planned; more than before if the pool has grown, never fewer."""
        enough = 1 + math.ceil(2 * devices / self._settings.sampler.min_clusters)
        self._lookahead = max(2, enough, self._lookahead)

    # -- the loop ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Returns when the run ends; results are in the states and with the recorder."""
        self.begin()
        try:
            self._run()
            self._drain()
        finally:
            self.close()

    def rescue(self) -> None:
        """Takes in what the pool has finished when `run` was interrupted."""
        self._collect(0.0)

    def begin(self) -> None:
        """Starts to plan the first round ahead of `run`, while the devices come up."""
        if not self._begun and self._open:
            if self._any_measured:
                self._warming = self._search.submit(self._warm)
            self._planning = self._begin_plan()
        self._begun = True

    def close(self) -> None:
        """Ends the search where `run` is not reached, or has ended."""
        self._search.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        for state in self._states:
            if state.tuned and state.best_s is not None:
                self._ask_untuned(state)
        planning, warming = self._planning, self._warming
        while not self._out_of_time and not self._hopeless and not self.devices_lost:
            if planning is not None and planning.done():
                self._begin_round(*planning.result())
                planning = None
                if warming is None and len(self._rounds) >= self._lookahead:
                    warming = self._search.submit(self._warm)
            if planning is None:
                planning = self._begin_plan()
                if planning is None and self._done:
                    break
            if planning is not None:
                # The hardware is to have the plan at once; results can wait a moment.
                wait([planning], _POLL_S)
            self._collect(0.0 if planning is not None else _POLL_S)
            if warming is not None and warming.done():
                warming.result()
        if planning is not None and not planning.cancel():
            planning.result()

    @property
    def policy(self) -> Policy | None:
        """The policy, once it has been made."""
        return self._policy

    @property
    def submitted(self) -> int:
        """How many jobs the pool was given; their ids are the numbers below."""
        return len(self._round_of_job)

    @property
    def _any_measured(self) -> bool:
        return any(state.best_s is not None for state in self._states)

    @property
    def _open(self) -> bool:
        """Whether the budget allows another candidate."""
        tuned = (state for state in self._states if state.tuned)
        return not self._out_of_time and any(self._remaining(state) != 0 for state in tuned)

    @property
    def _out_of_time(self) -> bool:
        limit = self._settings.budget.time_budget
        return limit is not None and self._active_s() >= limit

    @property
    def _hopeless(self) -> bool:
        return not self._any_measured and self._failed - self._failed_before >= _HOPELESS

    @property
    def _failed(self) -> int:
        return sum(sum(state.failures.values()) for state in self._states)

    @property
    def _done(self) -> bool:
        return all(round_.complete for round_ in self._rounds)

    # -- planning ---------------------------------------------------------------------------------

    def _warm(self) -> None:
        """Makes the policy while the first, random rounds are on the hardware."""
        started = time.thread_time()
        self._policy = self._make_policy()
        self.search_cpu_s += time.thread_time() - started

    def _begin_plan(self) -> Future[tuple[int, Plan, float]] | None:
        """Starts the plan of the next round if the results that it needs are in."""
        needed = max(0, len(self._rounds) + 1 - self._lookahead)
        if not all(round_.complete for round_ in self._rounds[:needed]):
            return None
        for round_ in self._rounds[self._absorbed : needed]:
            self._absorb(round_)
        self._absorbed = max(self._absorbed, needed)
        busy = frozenset(round_.task for round_ in self._rounds[self._absorbed :])
        for state in self._states:
            state.progress.remaining = self._remaining(state)
        task = next_task([state.progress for state in self._states], busy)
        if task is None:
            return None
        limit = self._limit(self._states[task])
        return self._search.submit(self._plan, task, limit)

    def _plan(self, task: int, limit: int) -> tuple[int, Plan, float]:
        started = time.thread_time()
        others = [state.planner for i, state in enumerate(self._states) if i != task]
        name, policy = None, self._policy
        if policy is None and self._opening is not None:
            name, policy = self._opening
        plan = self._states[task].planner.plan(limit, policy, others, label=name)
        return task, plan, time.thread_time() - started

    def _remaining(self, state: TaskState) -> int | None:
        budget = self._settings.budget
        caps = []
        if budget.trials_per_task is not None:
            caps.append(budget.trials_per_task - state.progress.trials)
        if budget.trials is not None:
            caps.append(budget.trials - self._spent)
        return max(0, min(caps)) if caps else None

    def _limit(self, state: TaskState) -> int:
        """The size of a task's next round at most: of the first one, a quarter of its budget."""
        budget = self._settings.budget
        size = self._settings.sampler.max_clusters
        if state.planner.best_s is None:
            share = budget.trials_per_task
            if share is None and budget.trials is not None:
                share = math.ceil(budget.trials / sum(state.tuned for state in self._states))
            size = min(self._settings.first_batch, max(1, (share or DEFAULT_TRIALS_PER_TASK) // 4))
        remaining = self._remaining(state)
        return size if remaining is None else min(size, remaining)

    def _begin_round(self, task: int, plan: Plan, cpu_s: float) -> None:
        state = self._states[task]
        self.search_cpu_s += cpu_s
        for refused in plan.refused:
            self._record(Recorded(state, refused, plan.round, None))
        if not plan.candidates:
            state.progress.exhausted = True
            return
        first = len(self._round_of_job)
        jobs = {first + i: candidate for i, candidate in enumerate(plan.candidates)}
        self._round_of_job.update(dict.fromkeys(jobs, len(self._rounds)))
        self._rounds.append(_Round(task, plan, jobs))
        state.progress.trials += len(jobs)
        self._spent += len(jobs)
        workload = state.planner.task.workload
        for job, candidate in jobs.items():
            known = self._recall and self._recall(workload, candidate.sketch, candidate.decisions)
            if known is not None:
                self._recalled[job] = known
                self._inbox.append(replace(known.outcome, job_id=job))
        self._pool.submit(
            [
                Job(
                    id=job,
                    workload=workload,
                    trace_json=candidate.trace_json,
                    decisions=candidate.decisions,
                    best_s=state.planner.best_s,
                    purpose=Purpose.TRIAL,
                    settings=self._settings.measure,
                )
                for job, candidate in jobs.items()
                if job not in self._recalled
            ]
        )
        self._listener(
            RoundPlanned(
                state.name,
                plan.round,
                len(jobs),
                len(plan.refused),
                plan.clusters,
                cpu_s,
                dict(plan.metrics),
                plan.map,
            )
        )

    def _absorb(self, round_: _Round) -> None:
        state = self._states[round_.task]
        for refused in round_.plan.refused:
            state.planner.absorb([_failed(refused)])
        state.planner.absorb(
            _observation(round_.jobs[job], round_.outcomes[job]) for job in sorted(round_.jobs)
        )
        if state.planner.best_s is not None:
            state.progress.bests.append(state.planner.best_s)
        state.progress.exhausted |= state.planner.exhausted
        # Traces are long, and runs too: what has been learnt need not be kept.
        round_.plan, round_.jobs, round_.outcomes = Plan(round_.plan.round, (), ()), {}, {}

    # -- results ----------------------------------------------------------------------------------

    def _collect(self, timeout_s: float) -> None:
        """Takes in what the pool has finished. Interrupted, it goes on with the rest if called."""
        # With recalled ones to be taken in, there is no reason to wait for others.
        self._inbox.extend(self._pool.wait(0.0 if self._inbox else timeout_s))
        while self._inbox:
            self._take_in(self._inbox[0])
            self._inbox.popleft()

    def _ask_untuned(self, state: TaskState) -> None:
        """Has an operator timed untuned, unless that would take long or has been done."""
        if state.flops > _PLAIN_FLOPS:
            return
        for job_id, waiting in self._untuned.items():
            if waiting is state:
                workload, settings = state.planner.task.workload, self._settings.measure
                self._pool.submit([Job.untuned(job_id, workload, settings, state.best_s)])

    def _take_in_untuned(self, outcome: Outcome) -> None:
        state = self._untuned.pop(outcome.job_id)
        state.untuned_s = outcome.latency_s
        latency_s = outcome.latency_s or outcome.bound_s
        if latency_s is not None:
            self._listener(MeasuredUntuned(state.name, latency_s))

    def _take_in(self, outcome: Outcome) -> None:
        if outcome.job_id in self._untuned:
            return self._take_in_untuned(outcome)
        round_ = self._rounds[self._round_of_job[outcome.job_id]]
        if outcome.job_id in round_.outcomes or outcome.job_id not in round_.jobs:
            return
        state = self._states[round_.task]
        recalled = self._recalled.pop(outcome.job_id, None)
        candidate = round_.jobs[outcome.job_id]
        self._record(Recorded(state, candidate, round_.plan.round, outcome, recalled))
        round_.outcomes[outcome.job_id] = outcome
        at_s = recalled.at_s if recalled is not None else None
        if at_s is None:
            at_s = self._active_s()
        first = state.best_s is None
        state.count(outcome.status, outcome.latency_s, outcome.message, at_s)
        if first and state.best_s is not None:
            self._ask_untuned(state)
        self._lost_in_a_row += 1
        if outcome.status is not Status.DEVICE_LOST:
            self._lost_in_a_row = 0
        elif self._lost_in_a_row >= _ALL_LOST:
            self.devices_lost = outcome.message
        self._listener(
            Measured(
                state.name,
                outcome.status,
                outcome.latency_s,
                outcome.message,
                outcome.device,
                state.trials,
                state.best_s,
            )
        )
        if round_.complete:
            state.rounds += 1
            self._listener(RoundFinished(state.name, round_.plan.round, self._active_s()))
            self._after_round()

    def _drain(self) -> None:
        """Takes in what is being measured; what has not begun is called off."""
        if self._done:
            return
        called_off = set(self._pool.withdraw())
        for round_ in self._rounds:
            for job in called_off & round_.jobs.keys():
                del round_.jobs[job]
        deadline = time.monotonic() + _DRAIN_S
        while not self._done and time.monotonic() < deadline:
            self._collect(_POLL_S)


def _observation(candidate: Candidate, outcome: Outcome) -> Observation:
    latency = outcome.latency_s if outcome.status is Status.OK else outcome.bound_s
    return Observation(candidate.sketch, candidate.decisions, outcome.status, latency)


def _failed(refused: Refused) -> Observation:
    return Observation(refused.sketch, refused.decisions, Status.INVALID, None)
