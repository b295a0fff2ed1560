"""The loop of one task: what has been measured of it, and which candidates come next.

Fit the cost model, let the policy propose, let the sampler choose, make the schedules. The cost
model learns from like tasks too, whose design spaces have the same knobs: a schedule that is good
for one convolution of a network is seldom bad for the next. A plan is a function of the seed, the
task, the round and the results absorbed before it: nothing of it depends on the order in which
hardware answered.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from policies.base import Policy, SearchState
from release_ray.core.prior import Prior, shipped, thinned
from release_ray.core.round_map import RoundMap, round_map
from release_ray.core.settings import TuneSettings
from release_ray.core.space import KnobSpace, keys
from release_ray.core.statuses import Status
from release_ray.sketches import Sketches, values_from_json
from release_ray.tasks import Task
from samplers.base import Candidates, Sampler

if TYPE_CHECKING:
    from release_ray.core.cost_model import CostModel

_log = logging.getLogger(__name__)

# How often a plan asks for replacements of candidates that were refused or turned out as aliases.
_ATTEMPTS = 6
# So many are drawn more at random where chance makes a plan, and so many in all at most: with none
# of those to be built, nothing is taken to be left.
_SPARE = 8
_DRAWN_AT_MOST = 256
# Of fewer measurements no correlation is told.
_FEW = 4
# With fewer measurements of like tasks a first round is left to chance.
_ENOUGH_KIN = 32
# With so many measurements of its own a search that others' have led needs no more chance.
_CHANCE_UNTIL = 64


@dataclass(frozen=True)
class Candidate:
    """A configuration that the next round measures."""

    point: np.ndarray
    decisions: str
    trace_json: str
    policy: str

    @property
    def sketch(self) -> int:
        return int(self.point[0])


@dataclass(frozen=True)
class Refused:
    """A configuration that has no schedule, with the reason."""

    point: np.ndarray
    decisions: str
    message: str
    policy: str

    @property
    def sketch(self) -> int:
        return int(self.point[0])


@dataclass(frozen=True)
class Plan:
    """One round of a task; empty candidates where nothing is left to measure."""

    round: int
    candidates: tuple[Candidate, ...]
    refused: tuple[Refused, ...]
    clusters: int = 0
    metrics: tuple[tuple[str, float], ...] = ()
    map: RoundMap | None = None


@dataclass(frozen=True)
class Observation:
    """What was learnt of one canonical configuration.

    `latency_s` is the measured latency, the lower bound of a `slow` one, or None for a failure.
    """

    sketch: int
    decisions: str
    status: Status
    latency_s: float | None


class TaskPlanner:
    """Plans the rounds of one task. Not thread-safe: absorb and plan take turns.

    The sketches are made by the first plan, not before: with many tasks they take seconds, in
    which the hardware can already measure the first task.
    """

    def __init__(
        self,
        task: Task,
        settings: TuneSettings,
        sampler: Sampler,
        make_sketches: Callable[[Task], Sketches] = Sketches,
        prior: Callable[[], Prior] = shipped,
    ) -> None:
        self.task = task
        self._make_sketches = make_sketches
        self._prior = prior
        self.best_s: float | None = None
        self.rounds = 0
        self._settings = settings
        self._sampler = sampler
        self._visited: set[bytes] = set()
        self._unsettled: list[Observation] = []
        self._points: list[np.ndarray] = []
        self._latencies: list[float | None] = []
        self._made_sketches = False
        self._model: CostModel | None = None
        self._learnt = 0
        self._foresight: float | None = None
        self._informed = False

    @cached_property
    def sketches(self) -> Sketches:
        """The task's design space."""
        self._made_sketches = True
        return self._make_sketches(self.task)

    @property
    def space(self) -> KnobSpace:
        """The knobs of the sketches."""
        return self.sketches.space

    @property
    def exhausted(self) -> bool:
        """Whether every configuration has been visited, as far as is known without sketches."""
        return self._made_sketches and len(self._visited) >= self.space.size

    def save(self, directory: Path) -> None:
        """Writes the cost model of the last plan as `TASK.json`; nothing where none was fitted."""
        if self._model is not None:
            self._model.save(directory / f"{self.task.name}.json")

    def absorb(self, observations: Iterable[Observation]) -> None:
        """Learns results, in the order given: the order in which they were planned."""
        for seen in observations:
            self._unsettled.append(seen)
            if seen.status is Status.OK and seen.latency_s is not None:
                self.best_s = min(self.best_s or seen.latency_s, seen.latency_s)

    def _settle(self) -> None:
        """Turns what was absorbed into points.

        What does not fit the sketches (another version of TVM measured it) is left out.
        """
        for seen in self._unsettled:
            try:
                point = self.space.point(seen.sketch, values_from_json(seen.decisions))
            except (KeyError, ValueError, IndexError):
                _log.warning("%s: %s does not fit the sketches", self.task.name, seen.decisions)
                continue
            if seen.status.measured or seen.status.blames_candidate:
                self._visited.add(point.tobytes())
                self._points.append(point)
                self._latencies.append(seen.latency_s)
        self._unsettled.clear()

    def plan(
        self,
        limit: int,
        policy: Policy | None,
        others: Sequence[TaskPlanner] = (),
        *,
        label: str | None = None,
    ) -> Plan:
        """At most `limit` new candidates; at random without a policy.

        `others` are the other tasks of the run: the cost model learns from those that are alike,
        as it does from operators measured before. With nothing measured of this task, and too
        little known of others, the plan is random. `label` is the policy's name, else that of the
        settings.
        """
        self._settle()
        round_number = self.rounds
        self.rounds += 1
        rng = np.random.default_rng(
            (self._settings.seed, _stable_hash(self.task.workload.key), round_number)
        )
        admission = _Admission(self.sketches, self._visited)
        first = self.best_s is None
        kin = self._kin(others) if policy is not None else None
        if policy is None or kin is None or (first and len(kin[1]) < _ENOUGH_KIN):
            self._fill_at_random(admission, limit, rng)
            return Plan(round_number, tuple(admission.admitted), tuple(admission.refused))
        self._informed |= first
        chance = self._chance()
        proposals = policy.propose(self._state(rng, kin), self._settings.sampler.candidates)
        clusters, picture = 0, None
        name = label or self._settings.policy
        wanted = limit - int(chance * limit)
        for attempt in range(_ATTEMPTS):
            selection = self._sampler.select(
                proposals, self.space, self._visited, wanted - len(admission.admitted), rng
            )
            if attempt == 0:
                clusters, wanted = selection.clusters, len(selection.points)
                picture = round_map(
                    self.space,
                    proposals.points,
                    proposals.scores,
                    selection.labels,
                    selection.points,
                )
            for point, origin in zip(selection.points, selection.origins, strict=True):
                admission.admit(point, "random" if origin == "random" else name)
            if len(admission.admitted) >= wanted or not len(selection.points):
                break
            proposals = _unvisited(proposals, self._visited)
        if first:
            self._fill_at_random(admission, limit, rng)
        elif not admission.admitted:
            self._fill_at_random(admission, wanted or limit, rng)
        else:
            of_both = round(len(admission.admitted) / (1 - chance))
            self._fill_at_random(admission, min(of_both, limit), rng)
        metrics = dict(policy.metrics)
        if self._foresight is not None:
            metrics["foresight"] = self._foresight
        return Plan(
            round_number,
            tuple(admission.admitted),
            tuple(admission.refused),
            clusters,
            tuple(sorted(metrics.items())),
            picture,
        )

    def _chance(self) -> float:
        """The share of a plan that is random, beyond what the sampler draws.

        A search that others' measurements have led to good schedules at once has seen little else.
        Where it has forgotten them, its model knows one corner of the space: without more chance
        the best on another processor than theirs was missed by 2 %.
        """
        if not self._informed:
            return 0.0
        fades = max(0.0, 1.0 - len(self._points) / _CHANCE_UNTIL)
        return self._settings.first_random * fades

    def _kin(self, others: Sequence[TaskPlanner]) -> tuple[np.ndarray, np.ndarray]:
        """Features and fitness of measurements of like tasks; evenly chosen where there are many.

        Each task's fitness is relative to its own best. The sums over tile levels among the
        features tell the model how large a task is.
        """
        like = [
            other
            for other in others
            if other._made_sketches and other.space.family == self.space.family
        ]
        for other in like:
            other._settle()
        measured = thinned(
            [other.space.features(other._measured()) for other in like],
            [other._fitness() for other in like],
            self.space,
            self._settings.cost_model.transfer,
        )
        shipped = self._known_before()
        return np.concatenate([shipped[0], measured[0]]), np.concatenate([shipped[1], measured[1]])

    def _known_before(self) -> tuple[np.ndarray, np.ndarray]:
        """Features and fitness of like operators that were measured before this run.

        They show where to begin, and in the end would be in the way: the more has been measured of
        the task itself, the fewer they are.
        """
        settings = self._settings.cost_model
        forgotten = min(1.0, len(self._points) / settings.prior_until)
        at_most = int(settings.prior * (1.0 - forgotten))
        return (self._prior() if at_most else Prior()).of(self.space, at_most)

    def _measured(self) -> np.ndarray:
        return np.array(self._points, np.int32).reshape(len(self._points), self.space.width)

    def _state(self, rng: np.random.Generator, kin: tuple[np.ndarray, np.ndarray]) -> SearchState:
        points, fitness = self._measured(), self._fitness()
        if self._model is not None:
            unseen = slice(self._learnt, None)
            predicted = self._model.predict(self.space.features(points[unseen]))
            self._foresight = rank_correlation(predicted, fitness[unseen])
        self._learnt = len(points)
        # XGBoost takes seconds to import; the first rounds are random and do without.
        from release_ray.core.cost_model import CostModel

        model = CostModel(self._settings.cost_model, seed=self._settings.seed)
        self._model = model
        model.fit(
            np.concatenate([kin[0], self.space.features(points)]),
            np.concatenate([kin[1], fitness]),
        )
        return SearchState(
            space=self.space,
            score=lambda batch: model.predict(self.space.features(batch)),
            measured=points,
            fitness=fitness,
            visited=self._visited,
            rng=rng,
            schedules=self.sketches,
        )

    def _fitness(self) -> np.ndarray:
        """Best latency over each one's own; 0 for failures."""
        best = self.best_s or 0.0
        return np.array([best / s if s else 0.0 for s in self._latencies], np.float32)

    def _fill_at_random(self, admission: _Admission, limit: int, rng: np.random.Generator) -> None:
        left = max(limit, _DRAWN_AT_MOST)
        while left > 0 and len(admission.admitted) < limit:
            count = min(left, limit - len(admission.admitted) + _SPARE)
            drawn = self.space.random_unvisited(rng, count, self._visited)
            if not len(drawn):
                return
            left -= len(drawn)
            for point in drawn:
                if len(admission.admitted) < limit:
                    admission.admit(point, "random")


class _Admission:
    """Turns points into candidates; refused ones and aliases of visited ones stay out."""

    def __init__(self, sketches: Sketches, visited: set[bytes]) -> None:
        self._sketches = sketches
        self._visited = visited
        self.admitted: list[Candidate] = []
        self.refused: list[Refused] = []

    def admit(self, point: np.ndarray, policy: str) -> None:
        asked = point.tobytes()
        if asked in self._visited:
            return
        self._visited.add(asked)
        applied = self._sketches.apply(point)
        if applied.point is None:
            decisions = self._sketches.decisions(point)
            self.refused.append(Refused(point, decisions, applied.message, policy))
            return
        canonical = applied.point.tobytes()
        if canonical != asked and canonical in self._visited:
            return
        self._visited.add(canonical)
        decisions = self._sketches.decisions(applied.point)
        self.admitted.append(Candidate(applied.point, decisions, applied.trace_json, policy))


def _unvisited(candidates: Candidates, visited: set[bytes]) -> Candidates:
    fresh = np.array([key not in visited for key in keys(candidates.points)], bool)
    return Candidates(candidates.points[fresh], candidates.scores[fresh])


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    """Spearman's; None where there are too few to say, or all are alike."""
    if len(one) < _FEW or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    first, second = (np.argsort(np.argsort(values, kind="stable")) for values in (one, other))
    return float(np.corrcoef(first, second)[0, 1])


def _stable_hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
