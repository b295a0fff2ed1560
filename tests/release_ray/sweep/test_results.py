"""The table of runs, the best setting and the pictures."""

import csv

import pytest
import yaml

from release_ray.configuration import load_settings
from release_ray.sweep import load_sweep
from release_ray.sweep.ledger import Entry, Report
from release_ray.sweep.plots import draw
from release_ray.sweep.results import write_results


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "sweep.yaml"
    content = {
        "networks": ["tiny", "resnet18"],
        "space": {
            "policy": {"grid": ["ppo", "random"]},
            "agent.lr": {"loguniform": [1e-3, 1e-2]},
            "agent.hidden": {"choice": [[8], [8, 8]]},
        },
        "num_samples": 2,
        "seed": 3,
    }
    file.write_text(yaml.safe_dump(content))
    return load_sweep(file)


def report(speedup, round_=2):
    return Report(round_, speedup, 10 / speedup, 16 * round_, 5.0)


def entries(spec, speedups):
    """Runs that are done, by (setting, network)."""
    found = {}
    for run in spec.runs:
        speedup = speedups.get((run.setting, run.network))
        found[run.name] = Entry()
        if speedup is not None:
            found[run.name] = Entry("done", [report(1.0, 1), report(speedup)])
    return found


def everywhere(spec, speedups):
    return {(s, n): speedup for s, speedup in speedups.items() for n in spec.settings.networks}


def test_a_row_a_run(spec, tmp_path):
    found = entries(spec, {(0, "tiny"): 2.5})
    found["resnet18-01"] = Entry("failed", [], "no device is left, says the pool")
    write_results(tmp_path, spec, found)
    with (tmp_path / "sweep.csv").open() as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert len(rows) == 8
    first = rows["tiny-00"]
    assert (first["network"], first["setting"], first["policy"]) == ("tiny", "0", "ppo")
    assert (first["status"], first["round"], first["trials"]) == ("done", "2", "32")
    assert (float(first["speedup"]), float(first["latency_ms"])) == (2.5, 4.0)
    assert float(first["agent.lr"]) == spec.runs[0].settings.agent.lr
    assert rows["resnet18-01"]["message"] == "no device is left, says the pool"
    assert rows["resnet18-01"]["speedup"] == ""
    assert (tmp_path / first["work_dir"]).parent.name == "runs"


def test_the_best_setting_is_that_of_the_geometric_mean(spec, tmp_path):
    speedups = everywhere(spec, {0: 2.0, 1: 2.2})
    # 1.1 and 9: an arithmetic mean of 5, a geometric one of 3.1; against 4 and 4.
    speedups |= {(2, "tiny"): 1.1, (2, "resnet18"): 9.0, (3, "tiny"): 4.0, (3, "resnet18"): 4.0}
    best = write_results(tmp_path, spec, entries(spec, speedups)).best
    assert best.setting == 3 and best.speedup == pytest.approx(4.0)
    settings = next(run.settings for run in spec.runs if run.setting == 3)
    assert load_settings(tmp_path / "best.yaml", {}) == settings


def test_a_setting_without_a_report_on_every_network_is_not_the_best(spec, tmp_path):
    speedups = everywhere(spec, {0: 2.0, 1: 3.0})
    found = entries(spec, {**speedups, (2, "tiny"): 9.0})
    found["tiny-01"].status = "failed"
    assert write_results(tmp_path, spec, found).best.setting == 0
    nothing = write_results(tmp_path / "..", spec, entries(spec, {}))
    assert nothing.best is None


def test_pictures_of_all_sorts_of_settings(spec, tmp_path):
    speedups = everywhere(spec, {0: 2.0, 1: 3.0, 2: 2.5})
    draw(tmp_path / "plots", spec, write_results(tmp_path, spec, entries(spec, speedups)).rows)
    for name in ("speedup", "parallel", "curves"):
        assert (tmp_path / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_of_nothing_but_networks_has_curves_alone(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text("networks: [tiny]")
    spec = load_sweep(file)
    rows = write_results(tmp_path, spec, entries(spec, {(0, "tiny"): 2.0})).rows
    draw(tmp_path / "plots", spec, rows)
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["curves.png"]


def test_nothing_to_draw_is_no_mistake(spec, tmp_path):
    draw(tmp_path / "plots", spec, write_results(tmp_path, spec, entries(spec, {})).rows)
    assert not (tmp_path / "plots").exists()
