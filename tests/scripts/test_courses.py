"""How the benchmarks compare tuners."""

import importlib.util
from math import inf
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.fixture(scope="module")
def courses():
    spec = importlib.util.spec_from_file_location("courses", BENCH / "courses.py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up there.
    import sys

    sys.modules["courses"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["courses"]


@pytest.fixture
def course(courses):
    return courses.Course(((9.0, inf), (10.0, 3e-3), (12.0, 1e-3), (15.0, 2e-3)), 8.0, 15.0)


def test_a_course_reaches_a_latency_with_the_first_trial_that_is_as_fast(course):
    assert course.best_s == 1e-3
    assert course.reaches(2e-3) == (12.0, 3)
    assert course.reaches(3e-3) == (10.0, 2)
    assert course.reaches(0.5e-3) is None


def test_what_is_known_by_a_time_is_the_best_until_then(course):
    assert course.best_within(9.5) == inf
    assert course.best_within(11) == 3e-3
    assert course.best_within(99) == 1e-3


def test_courses_are_read_back_from_their_file(courses, course, tmp_path):
    path = tmp_path / "courses.csv"
    slower = courses.Course(((1.0, 5e-3),), 0.5, 1.0)
    courses.append(path, "layer", 0, "a", course)
    courses.append(path, "layer", 0, "b", slower)
    courses.append(path, "layer", 1, "a", slower)
    read = courses.read(path)
    assert list(read) == [("layer", "0"), ("layer", "1")]
    assert read["layer", "0"] == {"a": course, "b": slower}
    assert read["layer", "1"] == {"a": slower}


def test_means_are_geometric_and_within_their_interval(courses):
    figure = courses.mean([1.0, 4.0])
    assert figure["ratio"] == 2.0
    low, high = figure["interval"]
    assert low <= 2.0 <= high
    assert figure["contests"] == 2
    assert courses.mean([3.0, 3.0])["interval"] == [3.0, 3.0]


def test_a_tuner_that_never_gets_there_counts_as_at_its_end(course):
    assert course.until(2e-3) == (12.0, 3)
    assert course.until(0.5e-3) == (15.0, 4)
