"""Which candidates are called best, when some are wrong and some cannot be checked."""

from types import SimpleNamespace

import pytest

from release_ray import deploy
from release_ray.core.errors import WorkFailed
from release_ray.database import Entry
from release_ray.deploy import Deployment, choose_winners
from release_ray.measure.process import Dead


class Journal:
    def __init__(self, latencies, beaten_by_untuned=()):
        self.beaten = beaten_by_untuned
        self.records = [
            SimpleNamespace(latency_s=s, decisions=f"[{i}]", sketch=0)
            for i, s in enumerate(latencies)
        ]
        self.wrong = []

    def best(self, task, count):
        return self.records[:count]

    def untuned_won(self, task):
        """As long as those that are not beaten are wrong."""
        wrong = {decisions for decisions, _ in self.wrong}
        return wrong | set(self.beaten) >= {r.decisions for r in self.records}

    def mark_wrong(self, record, message):
        self.wrong.append((record.decisions, message))

    def recount(self, state):
        state.recounted = True


@pytest.fixture
def chosen(monkeypatch):
    """Chooses winners of one task; `errors` are what the check of each candidate gives."""
    workload = SimpleNamespace(module_json="{float32}", name="t")
    task = SimpleNamespace(name="t", workload=workload)
    monkeypatch.setattr(
        deploy, "replayed", lambda task, sketches, r: Entry(task, r.decisions, r.latency_s)
    )

    def choose(errors, beaten_by_untuned=()):
        journal = Journal([1e-3 * (i + 1) for i in range(len(errors))], beaten_by_untuned)

        def check(job):
            error = errors[int(job.trace_json.strip("[]"))]
            if isinstance(error, Exception):
                raise error
            return error

        state = SimpleNamespace(name="t", planner=SimpleNamespace(task=task, sketches=None))
        winners = choose_winners([state], journal, SimpleNamespace(check=check))
        return [winner.trace_json for winner in winners], [name for name, _ in journal.wrong]

    return choose


def test_the_fastest_right_one_wins(chosen):
    assert chosen([1e-6, 1e-6]) == (["[0]"], [])


def test_a_wrong_one_is_recorded_as_wrong_and_the_next_wins(chosen):
    assert chosen([0.5, float("inf"), 1e-6]) == (["[2]"], ["[0]", "[1]"])


def test_one_that_could_not_be_checked_keeps_its_measurement(chosen):
    assert chosen([Dead("no device is left"), 1e-6]) == (["[1]"], [])
    with pytest.raises(WorkFailed, match="no candidate of any task could be checked"):
        chosen([Dead("no device is left")] * 3)


def test_a_task_that_is_faster_untuned_stays_so(chosen, caplog):
    assert chosen([1e-6, 1e-6], beaten_by_untuned=["[0]", "[1]"]) == ([], [])
    assert "t: nothing found is faster than untuned" in caplog.text


def test_nor_is_one_called_best_that_is_slower_than_untuned_when_the_best_is_wrong(chosen):
    assert chosen([0.5, 1e-6], beaten_by_untuned=["[1]"]) == ([], ["[0]"])


@pytest.mark.parametrize(
    ("tuned_ms", "default_right", "keeps_tuned"),
    [(1.0, True, True), (5.0, True, False), (5.0, False, True)],
)
def test_the_model_is_the_faster_of_those_that_are_right(tuned_ms, default_right, keeps_tuned):
    deployment = Deployment(4.0, tuned_ms, 0.0, default_right)
    assert deployment.keeps_tuned == keeps_tuned
    assert deployment.model_ms == (tuned_ms if keeps_tuned else 4.0)
