"""ASHA: of the runs of a network the worse ones are stopped, those of others do not count."""

import pickle
from types import SimpleNamespace

from release_ray.configuration import validate
from release_ray.sweep.halving import HalvingWithinNetworks
from release_ray.sweep.ledger import Entry, Report
from release_ray.sweep.spec import HalvingSettings, Run

STOP, CONTINUE = HalvingWithinNetworks.STOP, HalvingWithinNetworks.CONTINUE
RUNS = [
    Run(f"{network}-{number:02}", network, network, number, {}, validate({}, "test"))
    for network in ("slow", "fast")
    for number in range(4)
]


def halving(entries=None):
    return HalvingWithinNetworks(HalvingSettings(grace_rounds=2), RUNS, entries or {})


def decide(scheduler, name, round_, speedup):
    trial = SimpleNamespace(trial_id=f"tune calls it {name}", config={"run": name})
    return scheduler.on_trial_result(None, trial, {"round": round_, "speedup": speedup})


def begun(*names):
    return {name: Entry("running") for name in names}


def test_the_worse_half_is_stopped_and_its_name_is_told():
    scheduler = halving(begun("slow-00", "slow-01", "slow-02"))
    assert decide(scheduler, "slow-00", 2, 2.0) == CONTINUE
    assert decide(scheduler, "slow-01", 2, 1.5) == STOP
    assert decide(scheduler, "slow-02", 2, 2.5) == CONTINUE
    assert scheduler.stopped == {"slow-01"}


def test_nothing_is_stopped_before_the_grace_period_is_over():
    scheduler = halving(begun("slow-00", "slow-01"))
    assert decide(scheduler, "slow-00", 1, 2.0) == CONTINUE
    assert decide(scheduler, "slow-01", 1, 1.0) == CONTINUE


def test_networks_are_judged_apart():
    scheduler = halving(begun("slow-00", "fast-00", "fast-01"))
    assert decide(scheduler, "fast-00", 2, 9.0) == CONTINUE
    # Bad beside the other network's, and the best of its own.
    assert decide(scheduler, "slow-00", 2, 1.1) == CONTINUE
    assert decide(scheduler, "fast-01", 2, 8.0) == STOP


def test_what_runs_of_earlier_calls_reported_still_counts():
    past = {
        "slow-00": Entry("done", [Report(2, 3.0, 1.0, 8, 1.0), Report(4, 4.0, 1.0, 16, 2.0)]),
        "slow-01": Entry("stopped", [Report(2, 1.0, 3.0, 8, 1.0)]),
        "slow-02": Entry("running", [Report(2, 2.9, 3.0, 8, 1.0)]),
        "slow-03": Entry(),
    }
    scheduler = halving(past)
    assert decide(scheduler, "slow-03", 2, 2.0) == STOP
    assert decide(scheduler, "slow-02", 4, 3.5) == STOP
    assert decide(halving(past), "slow-02", 4, 4.5) == CONTINUE


def test_tune_can_write_it_down():
    assert pickle.loads(pickle.dumps(halving(begun("slow-00"))))
