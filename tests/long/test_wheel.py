"""The package as it would be published: built, checked, installed elsewhere, and used."""

import json
import os
import subprocess
import sys
import zipfile

import pytest

pytestmark = pytest.mark.long

HIDDEN = ("PYTHONPATH", "RAY_ADDRESS")


def call(*command, cwd, timeout=600):
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k not in HIDDEN},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(pytestconfig, tmp_path_factory):
    """A source distribution, and the wheel that is built of it."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--outdir", folder, ".", cwd=pytestconfig.rootpath)
    return sorted(folder.iterdir())


def test_twine_finds_nothing_wrong(distributions, tmp_path):
    wheel, source = distributions
    assert (wheel.suffix, source.name.endswith(".tar.gz")) == (".whl", True)
    told = call(sys.executable, "-m", "twine", "check", "--strict", wheel, source, cwd=tmp_path)
    assert told.count("PASSED") == 2


def test_the_wheel_holds_what_is_read_at_run_time(distributions):
    names = zipfile.ZipFile(distributions[0]).namelist()
    assert {
        "release_ray/py.typed",
        "release_ray/data/prior.json.gz",
        "release_ray/report/page.html",
        "release_ray/report/page.css",
        "release_ray/report/page.js",
    } <= set(names)
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        "release_ray",
        "envs",
        "policies",
        "samplers",
    }


def test_the_main_job_in_a_clean_environment(distributions, pytestconfig, tmp_path):
    call(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    constraints = ("-c", pytestconfig.rootpath / "constraints.txt")
    call(*pip, *constraints, "torch", cwd=tmp_path)
    call(*pip, *constraints, distributions[0], cwd=tmp_path)
    program = python.with_name("release-ray")
    told = json.loads(call(program, "tune", "tiny", "--trials", 16, "--json", cwd=tmp_path))
    assert (told["status"], told["trials"]) == ("done", 16)
    assert told["latency_ms"]["tuned"] < told["latency_ms"]["default"]
    assert told["max_rel_error"] < 1e-4
    page = call(program, "report", "--work-dir", "tuning/tiny", cwd=tmp_path).strip()
    assert (tmp_path / page).stat().st_size > 1e6
