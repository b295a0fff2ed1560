"""Which knobs are said to matter."""

import json
from dataclasses import replace

import numpy as np
from made_records import a_record

from release_ray.core.statuses import Status
from release_ray.report.importance import ENOUGH, SHOWN, importance


def rows(count, latency_s, sketch=0):
    """Random tiles of 64 and choices; `latency_s` of (outer, inner, choice)."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        inner, choice = 2 ** int(rng.integers(7)), int(rng.integers(4))
        decisions = json.dumps([[64 // inner, inner], choice])
        seconds = latency_s(64 // inner, inner, choice)
        made.append(a_record("r", sketch=sketch, decisions=decisions, latency_s=seconds))
    return made


def test_the_knob_that_decides_comes_first_with_nearly_all_of_it():
    (first, share), *_ = importance(rows(60, lambda outer, inner, choice: 1e-3 * (1 + choice)))
    assert first == "1: choice"
    assert share > 0.9


def test_a_tile_counts_as_one_knob_whatever_its_levels():
    told = importance(rows(60, lambda outer, inner, choice: 1e-3 * inner))
    assert told[0][0] == "0: tiles of 64"
    assert told[0][1] > 0.9
    assert sum(share for _, share in told) <= 1.001
    assert len(told) <= SHOWN


def test_of_too_few_nothing_is_told():
    assert importance([]) == []
    assert importance(rows(ENOUGH - 1, lambda outer, inner, choice: 1e-3 * inner)) == []


def test_failures_and_other_sketches_say_nothing():
    good = rows(40, lambda outer, inner, choice: 1e-3 * inner)
    other = rows(30, lambda outer, inner, choice: 1e-3 * (1 + choice), sketch=1)
    failed = [replace(r, status=Status.CRASH, latency_s=None) for r in other]
    assert importance([*good, *other, *failed]) == importance(good)
