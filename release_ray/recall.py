"""What has been measured before and need not be again: by the run itself, or by others like it.

A search is a function of its seed and of the results it is given. So a run that was killed can be
taken up by letting it search anew from the start: what it plans again is answered from its own
records, at no cost but the search's, and it comes to where it was, agent and all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from release_ray.core.statuses import Purpose, Status
from release_ray.measure.jobs import Outcome, Workload
from release_ray.measure.scheduler import NOTHING_DONE
from release_ray.records import History, Record, Records


@dataclass(frozen=True)
class Recalled:
    """An outcome out of the records.

    `at_s` is when the run itself measured it, in seconds of its active time; None where another
    run did.
    """

    outcome: Outcome
    at_s: float | None

    @property
    def own(self) -> bool:
        return self.at_s is not None


class Recall:
    """Answers for what the run has measured, and, where there is a store of all, others have."""

    def __init__(self, own: History, shared: Records | None, measure_settings: str) -> None:
        """`measure_settings`: others' measurements count where they were made with the same."""
        self._shared = shared
        self._measure_settings = measure_settings
        seconds = own.seconds()
        records = own.all()
        # Where nothing worked, it was perhaps no fault of the candidates.
        worked = any(record.status is Status.OK for record in records)
        self._own: dict[tuple[str, int, str], Recalled] = {}
        self._refused: set[tuple[str, int, str]] = set()
        for record in records:
            if not record.purpose.counts:
                continue
            key = (record.workload, record.sketch, record.decisions)
            if record.status is Status.INVALID:
                self._refused.add(key)
            elif record.status is not Status.DEVICE_LOST and (worked or record.status.measured):
                self._own[key] = Recalled(_outcome(record), seconds(record))

    def __call__(self, workload: Workload, sketch: int, decisions: str) -> Recalled | None:
        """What became of a candidate; None where nobody knows."""
        mine = self._own.get((workload.key, sketch, decisions))
        if mine is not None or self._shared is None:
            return mine
        found = self._shared.everything().of_candidate(
            workload.key, workload.target_json, sketch, decisions
        )
        for record in reversed(found):
            if record.measure_settings == self._measure_settings and _says_something(record):
                return Recalled(replace(_outcome(record), run_s=0.0, build_s=0.0), None)
        return None

    def knows_refusal(self, workload: Workload, sketch: int, decisions: str) -> bool:
        """Whether the run has recorded before that a configuration has no schedule."""
        return (workload.key, sketch, decisions) in self._refused


def _says_something(record: Record) -> bool:
    """Others' failures may be those of their time and place."""
    known = record.status.measured or record.status is Status.WRONG_RESULT
    return record.purpose is Purpose.TRIAL and known


def _outcome(record: Record) -> Outcome:
    return replace(
        NOTHING_DONE,
        status=record.status,
        latency_s=record.latency_s,
        bound_s=record.bound_s,
        message=record.message,
        device=record.device,
        host=record.host,
        build_s=record.build_s,
        run_s=record.run_s,
    )
