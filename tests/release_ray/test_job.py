"""The files of jobs, and the files that go with them."""

import configparser
import re
from importlib.metadata import requires

import pytest
import yaml

from release_ray.core.errors import InputError
from release_ray.job import is_sweep, load_sweep_job, load_tune_job


def written(folder, content):
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def test_a_tuning_job_is_a_command_line_in_a_file(tmp_path):
    content = {"network": "tiny", "storage": "s3://bucket/tiny", "budget": {"trials": 9}}
    job = load_tune_job(written(tmp_path, content))
    assert (job.network, job.storage, job.work_dir) == ("tiny", "s3://bucket/tiny", None)
    assert job.settings.budget.trials == 9


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"storage": "x"}, "network is missing"),
        ({"network": 3, "storage": "x"}, "network is text"),
        ({"network": "resnet81", "storage": "/x"}, "did you mean resnet18?"),
        ({"network": "tiny", "storrage": "x"}, "did you mean storage?"),
        ({"network": "tiny", "storage": "kept"}, "the results would be deleted with the job"),
        ({"network": "tiny", "storage": ""}, "the results would be deleted with the job"),
        ({"netwrk": "tiny"}, "unknown setting netwrk; did you mean network?"),
        ({"network": "tiny"}, "the results would be deleted with the job"),
        ({"network": "tiny", "work_dir": "tuning/tiny"}, "the results would be deleted"),
        ({"network": "tiny", "storage": "x", "policy": "pop"}, "did you mean 'ppo'?"),
    ],
)
def test_a_wrong_job_is_one_line(tmp_path, content, message):
    with pytest.raises(InputError) as caught:
        load_tune_job(written(tmp_path, content))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_sweep_job_must_say_where_its_results_are_kept(tmp_path):
    with pytest.raises(InputError, match="would be deleted with the job"):
        load_sweep_job(written(tmp_path, {"networks": ["tiny"]}))
    kept = written(tmp_path, {"networks": ["tiny"], "work_dir": "/data/sweep"})
    assert is_sweep(kept) and str(load_sweep_job(kept).work_dir) == "/data/sweep"


def test_the_examples_are_right(pytestconfig):
    jobs = pytestconfig.rootpath / "scripts" / "jobs"
    assert load_tune_job(jobs / "tune.yaml").network == "resnet18"
    assert len(load_sweep_job(jobs / "sweep.yaml").runs) == 16
    assert is_sweep(jobs / "sweep.yaml") and not is_sweep(jobs / "tune.yaml")


def test_a_clusters_environment_is_what_the_package_requires_as_it_was_tested(pytestconfig):
    root = pytestconfig.rootpath
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg")
    lines = setup["options"]["install_requires"].split("\n")
    of_ray = [line for line in requires("ray") if re.search("extra == .(tune|rllib)", line)]
    wanted = {name(line) for line in [*lines, *of_ray] if line.strip() and "#" not in line}
    pins = (root / "constraints.txt").read_text().split()
    expected = {pin for pin in pins if "==" in pin and name(pin) in wanted - {"ray"}}
    given = yaml.safe_load((root / "scripts" / "jobs" / "runtime_env.yaml").read_text())
    assert set(given["pip"]) == expected and len(expected) == len(wanted) - 1


def name(requirement):
    """Of a requirement's distribution, normalised."""
    return re.match(r"[\w.-]+", requirement.strip())[0].lower().replace("_", "-")
