"""Stand-ins for a task, its sketches and the pool, over a synthetic design space."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

import samplers
from policies import Policy, create
from release_ray.configuration import validate
from release_ray.core.prior import Prior
from release_ray.core.recorded import RecordedTask
from release_ray.core.settings import TuneSettings
from release_ray.core.statuses import Purpose, Status
from release_ray.measure.jobs import Job, Outcome, Workload
from release_ray.measure.scheduler import NOTHING_DONE
from release_ray.planner import TaskPlanner
from release_ray.sketches import values_from_json, values_to_json
from release_ray.testing.synthetic import SyntheticTask
from release_ray.tuner import TaskState, Tuner

BEST_S = 1e-4
UNTUNED_S = 0.5
NOTHING = Prior()


class FakeSketches:
    """The sketches of a synthetic task.

    The last knob has an alias: its last index gives the schedule of its first. A third of the
    configurations, where `refuses` says so, have no schedule. What was applied is kept.
    """

    def __init__(self, synthetic: SyntheticTask, refuses: Callable[[np.ndarray], bool]) -> None:
        self.space = synthetic.space
        self.applied: list[bytes] = []
        self._refuses = refuses

    def apply(self, point: np.ndarray) -> SimpleNamespace:
        self.applied.append(point.tobytes())
        canonical = point.copy()
        last = len(self.space.sketches[int(point[0])])
        if point[last] == self.space.sketches[int(point[0])][-1].cardinality - 1:
            canonical[last] = 0
        if self._refuses(canonical):
            return SimpleNamespace(point=None, message="refused", trace_json="")
        return SimpleNamespace(
            point=canonical, message="", trace_json=json.dumps(canonical.tolist())
        )

    def decisions(self, point: np.ndarray) -> str:
        return values_to_json(self.space.values(point))


def refuses_a_third(point: np.ndarray) -> bool:
    return int(point.sum()) % 3 == 0


def refuses_none(point: np.ndarray) -> bool:
    return False


class FakePool:
    """Answers jobs in the order that `choose` picks: it is given the ids that wait.

    `status` decides what becomes of a job. `started` are never given back by `withdraw`.
    """

    def __init__(
        self,
        synthetic: SyntheticTask,
        choose: Callable[[list[int]], list[int]] = lambda waiting: waiting[:1],
        status: Callable[[Job], Status] = lambda job: Status.OK,
    ) -> None:
        self.synthetic = synthetic
        self.jobs: dict[int, Job] = {}
        self.waiting: list[int] = []
        self.answered: list[int] = []
        self.withdrawn: list[int] = []
        self._choose = choose
        self._status = status

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            assert job.id not in self.jobs
            self.jobs[job.id] = job
            self.waiting.append(job.id)

    def wait(self, timeout_s: float) -> list[Outcome]:
        if not self.waiting:
            time.sleep(min(timeout_s, 0.001))
            return []
        chosen = self._choose(list(self.waiting))
        for job_id in chosen:
            self.waiting.remove(job_id)
        self.answered += chosen
        return [self.outcome(self.jobs[job_id]) for job_id in chosen]

    def withdraw(self) -> list[int]:
        gone, self.waiting = self.waiting[1:], self.waiting[:1]
        self.withdrawn += gone
        return gone

    def outcome(self, job: Job) -> Outcome:
        if job.purpose is Purpose.DEFAULT:
            assert (job.trace_json, job.decisions) == ("", "[]")
            return replace(NOTHING_DONE, job_id=job.id, status=Status.SLOW, bound_s=UNTUNED_S)
        point = np.array(json.loads(job.trace_json), np.int32)
        assert self.synthetic.space.values(point) == values_from_json(job.decisions)
        fitness = float(self.synthetic.fitness(point[None])[0])
        status = self._status(job)
        return Outcome(
            job_id=job.id,
            status=status,
            latency_s=BEST_S / max(fitness, 0.01) if status is Status.OK else None,
            bound_s=1.0 if status is Status.SLOW else None,
            message="" if status.measured else f"{status.value} of a fake",
            device="fake:0",
            host="here",
            build_s=0.1,
            run_s=0.1,
            build_cpu_s=0.1,
            run_cpu_s=0.1,
        )


def settings(**more: object) -> TuneSettings:
    """Settings of a quick search."""
    return validate(
        {
            "policy": "random",
            "agent": {"model_calls": 300},
            "cost_model": {"trees": 10},
            **more,
        },
        "test",
    )


def planner(
    synthetic: SyntheticTask,
    chosen: TuneSettings,
    *,
    name: str = "task",
    refuses: Callable[[np.ndarray], bool] = refuses_a_third,
    prior: Prior = NOTHING,
) -> TaskPlanner:
    workload = Workload(f"{name:>016}", name, "{}", '{"kind":"fake"}', 1e6)
    made = TaskPlanner(
        SimpleNamespace(name=name, workload=workload),
        chosen,
        samplers.create(chosen.sampler.name, chosen.sampler),
        make_sketches=lambda task: FakeSketches(synthetic, refuses),
        prior=lambda: prior,
    )
    assert made.sketches.space == synthetic.space  # made, so that it can be asked for its size
    return made


def known(synthetic: SyntheticTask, count: int = 200) -> Prior:
    """A prior that has seen so many of the task's own configurations."""
    points = synthetic.space.random_unvisited(np.random.default_rng(9), count, set())
    latency = BEST_S / np.maximum(synthetic.fitness(points), 0.01)
    return Prior((RecordedTask("like", synthetic.space, points, latency),))


class Run:
    """A tuner over synthetic tasks, and all that it recorded."""

    def __init__(
        self,
        synthetic: SyntheticTask,
        chosen: TuneSettings,
        pool: FakePool | None = None,
        *,
        tasks: int = 3,
        devices: int = 1,
        refuses: Callable[[np.ndarray], bool] = refuses_a_third,
        active_s: Callable[[], float] = lambda: 0.0,
        make_policy: Callable[[], object] | None = None,
        tuned: Callable[[int], bool] = lambda number: True,
        prior: Prior = NOTHING,
        opening: tuple[str, Policy] | None = None,
        untuned: bool = False,
    ) -> None:
        self.pool = pool or FakePool(synthetic)
        self.records = []
        self.events = []
        self.rounds = 0
        self.states = [
            TaskState(
                planner(synthetic, chosen, name=f"task_{i}", refuses=refuses, prior=prior),
                i + 1,
                1e6 * (i + 1),
                tuned=tuned(i),
            )
            for i in range(tasks)
        ]
        self._arguments = {
            "pool": self.pool,
            "devices": devices,
            "make_policy": make_policy or (lambda: create(chosen.policy, chosen.agent)),
            "settings": chosen,
            "record": self.record,
            "after_round": self.after_round,
            "listener": self.events.append,
            "active_s": active_s,
            "opening": opening,
            "untuned": untuned,
        }

    def record(self, recorded) -> None:
        self.records.append(recorded)

    def after_round(self) -> None:
        self.rounds += 1

    def run(self, *, begins: bool = False) -> Run:
        self.tuner = Tuner(self.states, **self._arguments)
        if begins:
            self.tuner.begin()
        self.tuner.run()
        return self

    @property
    def trials(self) -> list[tuple[str, str]]:
        """(task, decisions) of everything measured, in the order of recording."""
        return [(r.state.name, r.candidate.decisions) for r in self.records if r.outcome]

    @property
    def plans(self) -> list[tuple]:
        """What was planned, in the order of planning."""
        return [(job.workload.name, job.decisions, job.best_s) for job in self.pool.jobs.values()]
