"""Jobs as operators submit them, on clusters that `ray start` has started."""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml
from cluster import environment, of_cluster, started
from program import records, trials

pytestmark = pytest.mark.long

BIN = Path(sys.executable).parent
ROOMS = ("release_ray", "envs", "policies", "samplers", "scripts")


@pytest.fixture(scope="module")
def cluster():
    """A cluster on which everything is installed."""
    with started(BIN) as running:
        yield running


@pytest.fixture(scope="module")
def bare_cluster(tmp_path_factory, pytestconfig):
    """A cluster that has nothing but Ray, and PyPI's unrelated `envs`."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    install = [folder / "venv" / "bin" / "pip", "install", "--quiet", "-c", "constraints.txt"]
    subprocess.run([*install, "ray[default]", "envs"], cwd=pytestconfig.rootpath, check=True)
    with started(folder / "venv" / "bin") as running:
        yield running


@pytest.fixture
def checkout(tmp_path, pytestconfig):
    """What a user would submit from: the packages and the scripts, and a file for the job."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for room in ROOMS:
        shutil.copytree(
            pytestconfig.rootpath / room,
            folder / room,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    return folder


def described(checkout, **content):
    (checkout / "job.yaml").write_text(yaml.safe_dump(content))


def run(*command, cwd, timeout=420):
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return done.returncode, done.stdout + done.stderr


def ray_submit(address, script, cwd):
    """Ray's own command, as the documentation gives it."""
    return run(
        *(BIN / "ray", "job", "submit", "--address", address, "--working-dir", "."),
        *("--runtime-env", "scripts/jobs/runtime_env.yaml", "--"),
        *("python", f"scripts/jobs/{script}.py", "--config", "job.yaml"),
        cwd=cwd,
    )


def submit(address, cwd, *options):
    """Ours, with its preflight."""
    script = ("scripts/jobs/submit.py", "--address", address, "--config", "job.yaml")
    return run(sys.executable, *script, *options, cwd=cwd)


def test_a_tuning_job_on_a_cluster_that_has_everything(cluster, checkout, tmp_path):
    address = cluster.jobs
    kept = tmp_path / "kept"
    described(checkout, network="tiny", storage=str(kept), budget={"trials": 12}, policy="random")
    status, log = ray_submit(address, "tune", checkout)
    assert status == 0, log
    # Progress, line by line, and the result.
    assert "trials in all (" in log and "latency " in log and "succeeded" in log
    result = json.loads((kept / "result.json").read_text())
    assert (result["status"], result["trials"]) == ("done", 12)
    assert result["max_rel_error"] <= 1e-4 and (kept / "model.so").exists()
    assert len(trials(kept)) == 12


def test_a_job_on_a_cluster_that_has_only_ray(bare_cluster, checkout, tmp_path):
    address = bare_cluster.jobs
    kept = tmp_path / "kept"
    described(checkout, network="tiny", storage=str(kept), budget={"trials": 8}, policy="random")
    status, log = submit(address, checkout)
    assert status == 0, log
    assert "upload " in log and "largest" in log and "SUCCEEDED" in log
    result = json.loads((kept / "result.json").read_text())
    assert (result["status"], result["trials"]) == ("done", 8)
    assert result["max_rel_error"] <= 1e-4


def test_a_sweep_that_is_stopped_in_the_middle_goes_on_as_another_job(cluster, checkout, tmp_path):
    address, folder = cluster.jobs, cluster.folder
    kept = tmp_path / "kept"
    described(
        checkout,
        networks=["tiny"],
        storage=str(kept),
        devices="sim:2?run_s=0.3",
        policy="random",
        budget={"trials_per_task": 24},
        space={"sampler.threshold": {"uniform": [1.5, 4.0]}},
        num_samples=3,
    )
    status, told = submit(address, checkout, "--no-wait")
    assert status == 0, told
    job = next(line.split()[1] for line in told.splitlines() if line.startswith("submitted"))
    first, second = (kept / "runs" / f"tiny-{number:02}" for number in range(2))
    until(lambda: len(trials(first)) > 10 and len(trials(second)) > 10, 240)
    before = busy(folder)
    assert before
    status, told = run(BIN / "ray", "job", "stop", "--address", address, job, cwd=checkout)
    assert status == 0, told
    until(lambda: not busy(folder), 15)
    measured = {run_dir: records(run_dir, "created_at, decisions") for run_dir in (first, second)}
    assert all(measured.values())
    assert json.loads((first / "result.json").read_text())["status"] == "interrupted"

    status, log = ray_submit(address, "sweep", checkout)
    assert status == 0, log
    assert "3/3" in log and "best " in log
    with (kept / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["done"] * 3
    for run_dir, earlier in measured.items():
        assert records(run_dir, "created_at, decisions")[: len(earlier)] == earlier
        assert len(trials(run_dir)) == len(set(trials(run_dir)))
    assert {path.name for path in kept.iterdir()} >= {"best.yaml", "plots", "tune"}


def test_the_packages_on_a_worker_are_those_of_the_working_directory(bare_cluster, checkout):
    address = bare_cluster.jobs
    (checkout / "where.py").write_text(
        "import ray\n"
        "ray.init()\n"
        "@ray.remote\n"
        "def homes():\n"
        "    import envs, os, policies, release_ray, samplers\n"
        "    from release_ray.doctor import _rooms\n"
        "    modules = envs, policies, release_ray, samplers\n"
        "    here = {os.path.dirname(os.path.dirname(module.__file__)) for module in modules}\n"
        "    return here == {os.getcwd()}, [finding.level for finding in _rooms()]\n"
        "print('homes', ray.get(homes.remote()))\n"
    )
    status, log = run(
        *(BIN / "ray", "job", "submit", "--address", address, "--working-dir", "."),
        *("--runtime-env", "scripts/jobs/runtime_env.yaml", "--", "python", "where.py"),
        cwd=checkout,
    )
    assert status == 0, log
    assert "homes (True, ['ok'])" in log


def test_nodes_without_the_packages_are_one_line(bare_cluster, checkout):
    command = ("-m", "release_ray", "tune", "tiny", "--address", bare_cluster.address)
    status, told = run(sys.executable, *command, cwd=checkout)
    assert status == 2
    (complaint,) = (line for line in told.splitlines() if line.startswith("release-ray:"))
    assert "has no apache-tvm and no apache-tvm-ffi, and here is apache-tvm 0.27" in complaint
    assert "Traceback" not in told


def test_what_would_go_wrong_is_told_before_anything_is_uploaded(cluster, checkout, tmp_path):
    address = cluster.jobs
    described(checkout, network="tiny", storage=str(tmp_path / "kept"))
    status, told = submit("http://127.0.0.1:9", checkout, "--check")
    assert status == 2 and "no Ray job server answers at http://127.0.0.1:9" in told
    assert submit(address, checkout, "--check")[0] == 0
    described(checkout, network="tiny")
    status, told = submit(address, checkout)
    assert status == 2 and "the results would be deleted with the job" in told
    described(checkout, network="model.onnx", storage=str(tmp_path / "kept"))
    status, told = submit(address, checkout)
    assert status == 2 and "model.onnx" in told
    (checkout / "model.onnx").write_bytes(os.urandom(600 * 2**20))
    status, told = submit(address, checkout, "--check")
    assert status == 2 and "name what is not needed in .rayignore" in told
    assert "Traceback" not in told


def busy(folder):
    """Processes of jobs on the cluster: drivers, actors, compilers. Idle workers are not."""
    found = []
    for process in of_cluster(folder):
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            ours = ("scripts/jobs", "measure.child", "PoolActor", "DeviceActor", "SamplerActor")
            if any(part in line for part in (*ours, "BuilderActor", "ImplicitFunc")):
                found.append(line)
    return found


def until(condition, timeout_s):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.2)
