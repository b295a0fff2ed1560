"""A sweep's file: what it unfolds into, and what is wrong with a wrong one."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from release_ray.core.errors import InputError
from release_ray.sweep import load_sweep

NETWORKS = ["tiny", "resnet18"]


def load(folder, **content):
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump({"networks": NETWORKS, **content}))
    return load_sweep(file)


def test_runs_are_networks_by_grid_by_samples(tmp_path):
    spec = load(
        tmp_path,
        space={
            "policy": {"grid": ["ppo", "random"]},
            "agent.lr": {"loguniform": [1e-4, 1e-2]},
            "sampler.threshold": {"uniform": [1.5, 4.0]},
            "sampler.min_clusters": {"randint": [2, 6]},
            "sampler": {"choice": ["adaptive", "greedy"]},
        },
        num_samples=5,
        budget={"trials_per_task": 32},
    )
    assert len(spec.runs) == len({run.name for run in spec.runs}) == 2 * 2 * 5
    assert Counter(run.settings.policy for run in spec.runs) == {"ppo": 10, "random": 10}
    for run in spec.runs:
        assert 1e-4 <= run.settings.agent.lr <= 1e-2
        assert 1.5 <= run.settings.sampler.threshold <= 4.0
        assert 2 <= run.settings.sampler.min_clusters < 6
        assert run.settings.sampler.name == run.values["sampler"]
        assert run.settings.budget.trials_per_task == 32
        assert run.settings.agent.lr == run.values["agent.lr"]
    assert len({run.settings.agent.lr for run in spec.runs}) == 10


def test_a_setting_is_the_same_for_all_networks(tmp_path):
    spec = load(tmp_path, space={"agent.lr": {"uniform": [0.1, 0.2]}}, num_samples=3)
    assert [run.name for run in spec.runs] == [
        f"{network}-{number:02}" for number in range(3) for network in NETWORKS
    ]
    for first, second in zip(spec.runs[::2], spec.runs[1::2], strict=True):
        assert first.setting == second.setting and first.settings == second.settings


def test_the_seed_decides_what_is_drawn(tmp_path):
    space = {"agent.lr": {"uniform": [0.1, 0.2]}, "policy": {"choice": ["ppo", "random"]}}

    def drawn(seed):
        spec = load(tmp_path, space=space, num_samples=4, seed=seed)
        return [tuple(run.values.values()) for run in spec.runs]

    assert drawn(3) == drawn(3) != drawn(4)


def test_repeats_without_anything_to_draw_differ_in_their_seed(tmp_path):
    spec = load(tmp_path, space={"policy": {"grid": ["ppo"]}}, num_samples=3, seed=7)
    assert [run.settings.seed for run in spec.runs] == [7, 7, 8, 8, 9, 9]
    assert spec.runs[0].values == {"policy": "ppo", "seed": 7}
    varied = load(tmp_path, space={"seed": {"grid": [1, 2]}}, num_samples=2)
    assert [run.settings.seed for run in varied.runs] == [1, 1, 2, 2] * 2


def test_networks_of_the_same_name_are_told_apart(tmp_path):
    files = [tmp_path / folder / "model.onnx" for folder in "ab"]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(b"not looked into yet")
    spec = load(tmp_path, networks=[str(file) for file in files])
    assert [run.name for run in spec.runs] == ["model-0-00", "model-1-00"]


def test_names_never_collide(tmp_path):
    files = [tmp_path / name for name in ("a/x.onnx", "b/x.onnx", "x-0.onnx")]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"not looked into yet")
    spec = load(tmp_path, networks=[str(file) for file in files], num_samples=2)
    assert len({run.name for run in spec.runs}) == 6
    assert [run.name for run in spec.runs][:3] == ["0-x-00", "1-x-00", "2-x-0-00"]


def test_another_file_of_the_same_name_makes_it_another_sweep(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"one")
    first = load(tmp_path, networks=[str(file)]).identity
    file.write_bytes(b"two")
    assert load(tmp_path, networks=[str(file)]).identity != first


def test_a_networks_file_is_found_from_other_folders_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(b"not looked into yet")
    (run,) = load(tmp_path, networks="model.onnx").runs
    assert (run.network, run.source) == ("model.onnx", str(tmp_path / "model.onnx"))


def test_what_makes_it_another_sweep(tmp_path):
    first = load(tmp_path).identity
    for same in ({"max_concurrent": 5}, {"work_dir": "x"}, {"storage": "x"}, {"builders": 2}):
        assert load(tmp_path, **same).identity == first
    for other in ({"num_samples": 2}, {"seed": 1}, {"scheduler": {"asha": {}}}):
        assert load(tmp_path, **other).identity != first


def test_the_order_of_what_is_drawn_makes_it_another_sweep(tmp_path):
    def identity(*names):
        lines = "".join(f"  {name}: {{uniform: [0.1, 0.2]}}\n" for name in names)
        file = tmp_path / "sweep.yaml"
        file.write_text(f"networks: [tiny]\nspace:\n{lines}")
        return load_sweep(file).identity

    assert identity("agent.lr", "agent.gamma") == identity("agent.lr", "agent.gamma")
    assert identity("agent.lr", "agent.gamma") != identity("agent.gamma", "agent.lr")


def test_numbers_that_yaml_takes_for_text(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text("networks: [tiny]\nspace: {agent.lr: {loguniform: [1e-4, 1e-2]}}")
    assert load_sweep(file).axes[0].values == (1e-4, 1e-2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"networks": []}, "setting networks"),
        ({"networks": ["resnet81"]}, "did you mean resnet18?"),
        ({"networks": ["tiny", "tiny"]}, "one is there twice"),
        ({"netwroks": ["tiny"]}, "unknown setting netwroks; did you mean networks?"),
        ({"buget": {"trials": 3}}, "unknown setting buget; did you mean budget?"),
        ({"num_samples": 0}, "setting num_samples"),
        ({"max_concurrent": "many"}, "setting max_concurrent"),
        ({"scheduler": {"ahsa": {}}}, "unknown setting scheduler.ahsa"),
        ({"scheduler": {"asha": {"grace": 1}}}, "did you mean scheduler.asha.grace_rounds?"),
        ({"scheduler": {"asha": {"reduction_factor": 1}}}, "reduction_factor"),
        ({"space": {"agent.lrr": {"grid": [1]}}}, "did you mean agent.lr?"),
        ({"space": {"agent.lr": {"gird": [1]}}}, "give one of grid, choice, uniform"),
        ({"space": {"agent.lr": {"grid": [1], "choice": [1]}}}, "give one of grid"),
        ({"space": {"agent.lr": {"grid": 3}}}, "grid takes a list, not 3"),
        ({"space": {"agent.lr": {"grid": []}}}, "grid takes a list"),
        ({"space": {"agent.lr": {"uniform": [1]}}}, "uniform takes two numbers"),
        ({"space": {"agent.lr": {"uniform": [2, 1]}}}, "the first must be the smaller"),
        ({"space": {"agent.lr": {"loguniform": [0, 1]}}}, "both must be above 0"),
        ({"space": {"agent.lr": {"uniform": ["low", 1]}}}, "uniform takes two numbers"),
        ({"space": {"agent.steps": {"randint": [1, 2.5]}}}, "two whole numbers"),
        ({"space": {"agent.steps": {"uniform": [1, 5]}}}, "setting agent.steps"),
        ({"space": {"agent.lr": {"grid": [0.1, -1]}}}, "setting agent.lr"),
        ({"space": {"policy": {"grid": ["pop"]}}}, "did you mean 'ppo'?"),
        ({"space": {"sampler": {"grid": ["greedi"]}}}, "did you mean 'greedy'?"),
        ({"space": {"devices": {"grid": ["cpu"]}}}, "all runs share one pool"),
        ({"space": ["agent.lr"]}, "setting space"),
        ({"target": 3}, "setting target"),
        ({"work_dir": "a\0b"}, "no path has a NUL"),
        ({"space": {"agent.lr": {"uniform": [0, float("inf")]}}}, "too far apart"),
        ({"space": {"agent.lr": {"loguniform": [1e-4, float("inf")]}}}, "too far apart"),
        ({"space": {"agent.lr": {"uniform": [-1.7e308, 1.7e308]}}}, "too far apart"),
        ({"space": {"agent.lr": {"uniform": [float("nan"), 1]}}}, "too far apart"),
        ({"space": {"agent.lr": {"uniform": [0, 10**400]}}}, "uniform takes two numbers"),
        ({"space": {"seed": {"randint": [0, 1e30]}}}, "too far apart"),
        ({"num_samples": 10**9}, "setting num_samples"),
        ({"num_samples": 9000}, "18000 runs are more than 10000"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, content, message):
    with pytest.raises(InputError) as caught:
        load(tmp_path, **content)
    assert message in str(caught.value) and "\n" not in str(caught.value)
