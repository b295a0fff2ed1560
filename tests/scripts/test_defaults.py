"""The settings whose defaults the benchmark looks for."""

import importlib
import sys
from pathlib import Path

import pytest

from release_ray.configuration import validate
from release_ray.core.settings import TuneSettings

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.fixture
def defaults(monkeypatch):
    """The benchmark, without its neighbours staying in the way of modules of the same names."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = dict(sys.modules)
    for neighbour in BENCH.glob("*.py"):
        sys.modules.pop(neighbour.stem, None)
    yield importlib.import_module("defaults")
    for neighbour in BENCH.glob("*.py"):
        sys.modules.pop(neighbour.stem, None)
        if neighbour.stem in before:
            sys.modules[neighbour.stem] = before[neighbour.stem]


def value(settings, name):
    for part in name.split("."):
        settings = getattr(settings, part)
    return settings


def test_each_change_is_of_a_setting_and_not_its_default(defaults):
    for name, values in defaults.VALUES.items():
        for changed in values:
            settings = validate(defaults.settings_of((name, changed)), "here")
            assert value(settings, name) == changed != value(TuneSettings(), name)
            assert settings.cost_model.prior == 0


def test_figures_are_relative_to_the_defaults(defaults, tmp_path):
    path = tmp_path / "defaults.csv"
    slow, fast = (
        defaults.Course(tuple((float(n), s) for n, s in enumerate(latencies, 1)), 0.0, 4.0)
        for latencies in ((8.0, 4.0, 4.0, 2.0), (4.0, 2.0, 1.0, 1.0))
    )
    defaults.append(path, "net/layer", 0, defaults.told(None), slow)
    defaults.append(path, "net/layer", 0, defaults.told(("agent.lr", 0.001)), fast)
    figures = defaults.summary(path)["settings"]
    assert {name: f["quality"]["ratio"] for name, f in figures.items()} == {
        "default": 1.0,
        "agent.lr=0.001": 2.0,
    }
    of = figures["agent.lr=0.001"]
    assert (of["halfway"]["ratio"], of["trials"]["ratio"]) == (2.0, 2.0)
