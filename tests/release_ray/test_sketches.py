"""MetaSchedule's sketches as knob spaces: every schedule can be named, replayed and recognised."""

import json

import numpy as np
import pytest
from operators import convolution, dense, nothing, task
from tvm.s_tir.schedule import Schedule, Trace
from tvm_ffi import structural_equal

from release_ray.core.knobs import ChoiceKnob, TileKnob
from release_ray.sketches import Sketches, values_from_json, values_to_json


@pytest.fixture(scope="module")
def made():
    return {operator.__name__: Sketches(task(operator)) for operator in (convolution, dense)}


@pytest.fixture(scope="module", params=["convolution", "dense"])
def sketches(request, made):
    return made[request.param]


@pytest.fixture(scope="module")
def applied(sketches):
    """(the point asked for, what came of it) of random points of all sketches."""
    points = sketches.space.random(np.random.default_rng(1), 60)
    return [(point, sketches.apply(point)) for point in points]


def test_knobs_are_the_sampling_instructions(made):
    convolution = made["convolution"].space
    assert len(convolution.sketches) >= 3
    tiles = [
        {(knob.extent, knob.levels) for knob in knobs if isinstance(knob, TileKnob)}
        for knobs in convolution.sketches
    ]
    # Rows and columns in four levels, the reductions in two.
    assert any({(4, 4), (8, 4), (3, 2), (8, 2)} <= found for found in tiles)
    assert any(
        isinstance(knob, ChoiceKnob) and knob.role == "choice"
        for knobs in convolution.sketches
        for knob in knobs
    )
    assert len(made["dense"].space.sketches) >= 1
    assert made["dense"].space.size > 100


def test_every_sketch_gives_schedules(sketches, applied):
    schedulable = {int(point[0]) for point, result in applied if result.point is not None}
    assert schedulable == set(range(len(sketches.space.sketches)))


def test_a_canonical_configuration_reproduces_itself(sketches, applied):
    seen = set()
    for _, result in applied:
        if result.point is None or result.point.tobytes() in seen:
            continue
        seen.add(result.point.tobytes())
        again = sketches.apply_decisions(int(result.point[0]), sketches.decisions(result.point))
        assert again.point is not None, again.message
        assert np.array_equal(again.point, result.point)
        assert structural_equal(again.schedule.mod, result.schedule.mod)


def test_an_alias_gives_the_schedule_of_its_canonical_configuration(made):
    """TVM replaces compute locations that the other knobs rule out."""
    sketches = made["convolution"]
    rng = np.random.default_rng(2)
    for point in sketches.space.random(rng, 200):
        result = sketches.apply(point)
        if result.point is not None and not np.array_equal(result.point, point):
            break
    else:
        pytest.fail("no alias found")
    assert result.point[0] == point[0]
    canonical = sketches.apply(result.point)
    assert np.array_equal(canonical.point, result.point)
    assert structural_equal(canonical.schedule.mod, result.schedule.mod)


def test_decisions_are_values_and_come_back(sketches, applied):
    for point, result in applied:
        for named in (point, result.point):
            if named is None:
                continue
            values = values_from_json(sketches.decisions(named))
            assert values == sketches.space.values(named)
            assert values_to_json(values) == sketches.decisions(named)
            knobs = sketches.space.sketches[int(named[0])]
            for knob, value in zip(knobs, values, strict=True):
                if isinstance(knob, TileKnob):
                    assert np.prod(value) == knob.extent
                else:
                    assert value in knob.choices
            assert np.array_equal(sketches.space.point(int(named[0]), values), named)


@pytest.mark.parametrize(
    ("sketch", "decisions"),
    [
        (0, "[]"),
        (0, "[1,2,3]"),
        (0, "nonsense"),
        (0, "null"),
        (0, '{"a":1}'),
        (0, '["a"]'),
        (0, "[null]"),
        (0, "[[2,2,2,[1]]]"),
        (99, None),
        (-1, None),
    ],
)
def test_decisions_that_do_not_fit_are_a_value_error(made, sketch, decisions):
    sketches = made["dense"]
    if decisions is None:
        decisions = sketches.decisions(np.zeros(sketches.space.width, np.int32))
    with pytest.raises(ValueError):
        sketches.apply_decisions(sketch, decisions)


def test_a_value_outside_of_a_knob_is_a_value_error(made):
    sketches = made["dense"]
    point = next(p for p in sketches.space.random(np.random.default_rng(0), 20))
    values = list(sketches.space.values(point))
    tile = next(i for i, value in enumerate(values) if isinstance(value, tuple))
    values[tile] = tuple(7 for _ in values[tile])
    with pytest.raises(ValueError, match="do not fit"):
        sketches.apply_decisions(int(point[0]), values_to_json(values))


def test_the_trace_is_complete(sketches, applied):
    """MetaSchedule's mutators draw with the probabilities of a categorical choice."""
    (trace,) = (r.trace_json for _, r in applied[-1:] if r.point is not None)
    categorical = [i for i in json.loads(trace)[0] if i[0] == "SampleCategorical"]
    assert all(sum(attributes[1]) == pytest.approx(1) for _, _, attributes, _ in categorical)
    assert any(attributes[0] == [0, 16, 64, 512] for _, _, attributes, _ in categorical)


def test_the_trace_replays_to_the_same_schedule(sketches, applied):
    for _, result in applied[:20]:
        if result.point is None:
            continue
        schedule = Schedule(sketches.task.module)
        Trace.apply_json_to_schedule(json.loads(result.trace_json), schedule)
        assert structural_equal(schedule.mod, result.schedule.mod)


def test_a_trace_is_recognised(sketches, applied):
    for _, result in applied[:20]:
        if result.point is None:
            continue
        sketch, decisions = sketches.recognise(json.loads(result.trace_json))
        assert (sketch, decisions) == (int(result.point[0]), sketches.decisions(result.point))


def test_metaschedule_s_own_candidates_are_recognised():
    """What stock MetaSchedule samples from its design space has a name here."""
    from tvm.s_tir import meta_schedule

    own = task(dense)
    sketches = Sketches(own)
    context = meta_schedule.TuneContext(
        mod=own.module,
        target=own.target,
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        num_threads=1,
        rand_state=5,
    )
    context.pre_tuning(
        max_trials=8, num_trials_per_iter=8, design_spaces=context.generate_design_space()
    )
    candidates = context.generate_measure_candidates()
    assert candidates
    for candidate in candidates:
        trace = json.loads(json.dumps(candidate.sch.trace.as_json(), default=_plain))
        sketch, decisions = sketches.recognise(trace)
        again = sketches.apply_decisions(sketch, decisions)
        assert sketches.decisions(again.point) == decisions
        assert structural_equal(again.schedule.mod, candidate.sch.mod)


def _plain(value):
    return list(value) if hasattr(value, "__iter__") else value.value


def test_a_trace_of_another_operator_is_not_recognised(made, applied):
    other = next(r for p, r in applied if r.point is not None)
    foreign = made["dense"] if len(json.loads(other.trace_json)[0]) > 60 else made["convolution"]
    with pytest.raises(ValueError):
        Sketches(task(nothing)).recognise(json.loads(other.trace_json))
    with pytest.raises(ValueError):
        foreign.recognise([[], []])
    with pytest.raises(ValueError):
        foreign.recognise("no trace")


def test_an_operator_without_knobs():
    sketches = Sketches(task(nothing))
    assert sketches.space.size == 1
    (point,) = sketches.space.enumerate()
    result = sketches.apply(point)
    assert np.array_equal(result.point, point)
    assert sketches.decisions(point) == "[]"
    assert sketches.recognise(json.loads(result.trace_json)) == (0, "[]")
