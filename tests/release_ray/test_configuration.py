import pytest

from release_ray.configuration import load_settings, to_yaml
from release_ray.core.errors import InputError
from release_ray.core.settings import TuneSettings, duration_s


def test_defaults_have_a_budget():
    assert load_settings(None, {}).budget.trials_per_task == 64


def test_any_budget_replaces_the_default_one():
    budget = load_settings(None, {"budget.time_budget": "5m"}).budget
    assert (budget.trials_per_task, budget.time_budget) == (None, 300)


def test_the_command_line_wins_over_the_file(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("policy: random\nagent: {lr: 0.01}\nsampler.threshold: 2.0\nseed: 4\n")
    settings = load_settings(path, {"seed": 7, "policy": None, "sampler": "greedy"})
    assert (settings.policy, settings.seed, settings.agent.lr) == ("random", 7, 0.01)
    assert (settings.sampler.name, settings.sampler.threshold) == ("greedy", 2.0)


def test_printed_settings_read_back_the_same(tmp_path):
    settings = load_settings(None, {"tasks": ("conv*",), "agent.hidden": (8,), "builders": 3})
    path = tmp_path / "settings.yaml"
    path.write_text(to_yaml(settings))
    assert load_settings(path, {}) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agent: {lrr: 1}", "unknown setting agent.lrr; did you mean agent.lr?"),
        ("polcy: ppo", "unknown setting polcy; did you mean policy?"),
        ("agent: {lr: -1}", "setting agent.lr: input should be greater than 0 (given: -1)"),
        ("budget: {time_budget: soon}", "'soon' is not a time: write 90s, 10m or 2h"),
        ("seed: many", "setting seed"),
        ("agent: {hidden: [0]}", "setting agent.hidden.0"),
        ("agent: {lr: .inf}", "setting agent.lr"),
        ("seed: 2001-99-99", "put such a value into quotes"),
        ("seed: 99999999999999999999999", "seed"),
        ("sampler: {min_clusters: 20}", "min_clusters must not exceed max_clusters"),
        ("- a list", "settings are `name: value` pairs"),
        ("agent: {lr: [", "line 1"),
        ("policy: ppo\npolicy.lr: 3", "setting policy"),
        ("seed: 1\nseed: 2", "line 2: seed is given twice"),
        ("agent: {lr: 0.1, lr: 0.2}", "lr is given twice"),
        ("agent.lr: 0.1\nagent: {lr: 0.2}", "agent.lr is given twice"),
        ("sampler: greedy\nsampler.name: adaptive", "sampler.name is given twice"),
        ("seed: true", "setting seed: true and false are no value of it"),
        ("cost_model.depth: 1000000", "setting cost_model.depth"),
        ("a: 1", "unknown setting a; see --print-config"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it_and_the_setting(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_settings(path, {})
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere.yaml"):
        load_settings(tmp_path / "nowhere.yaml", {})


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("7", 7)])
def test_durations(text, seconds):
    assert duration_s(text) == seconds


def test_one_glob_needs_no_list(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("tasks: conv*\n")
    assert load_settings(path, {}).tasks == ("conv*",)


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        TuneSettings().seed = 3
