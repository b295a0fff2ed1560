"""What is found to be wrong with a set-up."""

import errno
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from release_ray import doctor, tvm_setup
from release_ray.core.errors import InputError


def by_subject(findings):
    return {finding.subject: finding for finding in findings}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_a_kernel_for_this_host_is_built_and_run():
    found = by_subject(doctor.examine())["target"]
    assert found.level == "ok"
    assert "GFLOPS" in found.message


@pytest.mark.parametrize(
    ("target", "level", "says"),
    [
        ("llvm -mcpu=znver99", "error", "znver"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "error", "does not run on this host"),
    ],
)
def test_a_target_that_this_host_is_not(target, level, says):
    found = by_subject(doctor.examine(target=target))["target"]
    assert (found.level, says in found.message) == (level, True), found


@pytest.mark.parametrize(
    ("libraries", "programs", "level"),
    [
        (("libcuda.so.1", "libcudart.so.13"), ("nvcc",), "ok"),
        (("libcuda.so.1", "libcudart.so.12"), ("nvcc",), "warning"),
        (("libcuda.so.1", "libcudart.so.13"), (), "warning"),
    ],
)
def test_what_a_gpu_needs(monkeypatch, libraries, programs, level):
    monkeypatch.setattr(doctor, "_loads", lambda library: library in libraries)
    there = {name: f"/usr/bin/{name}" for name in ("g++", "ld", *programs)}
    monkeypatch.setattr(doctor.shutil, "which", there.get)
    found = by_subject(doctor.examine(target="cuda"))["target"]
    assert found.level == level
    assert ("release-ray devices --target cuda" in found.message) == (level == "warning")


@pytest.mark.parametrize(
    ("governors", "level"),
    [([], "ok"), (["performance", "performance"], "ok"), (["performance", "schedutil"], "warning")],
)
def test_cores_that_change_their_clock(tmp_path, governors, level):
    for number, governor in enumerate(governors):
        folder = tmp_path / f"cpu{number}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
    found = doctor._frequency(tmp_path)
    assert found.level == level
    assert ("schedutil" in found.message) == (level == "warning")


def test_a_core_that_is_offline_says_nothing_of_its_clock(tmp_path, monkeypatch):
    for core in (0, 1):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text("performance\n")
    read = Path.read_text

    def busy(path):
        if "cpu1" in path.parts:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return read(path)

    monkeypatch.setattr(Path, "read_text", busy)
    assert doctor._frequency(tmp_path) == ("ok", "frequency", "governor performance")


def test_a_loaded_host(monkeypatch):
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (1e3, 0.0, 0.0))
    assert doctor._load().level == "warning"
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert doctor._load().level == "ok"


def test_little_shared_memory(monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage(64 << 20, 0, 64 << 20))
    found = doctor._shared_memory()
    assert (found.level, "64 MiB" in found.message) == ("warning", True)


def test_a_foreign_package_of_the_same_name(monkeypatch, tmp_path):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "envs", raising=False)
    (found,) = doctor._rooms()
    assert (found.level, found.subject) == ("error", "envs")
    assert str(tmp_path) in found.message


def test_foreign_packages_are_named_though_nothing_else_works_with_them(tmp_path):
    for name in ("envs", "policies", "samplers"):
        (tmp_path / name).mkdir()
        if name != "samplers":
            (tmp_path / name / "__init__.py").write_text("raise RuntimeError('of somebody else')")
    program = [sys.executable, "-m", "release_ray", "doctor"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    # Not from the clone, whose own packages come first.
    (tmp_path / "elsewhere").mkdir()
    ended = subprocess.run(
        program, env=environment, cwd=tmp_path / "elsewhere", capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (1, "")
    other = [*program[:-1], "tune", "tiny"]
    refused = subprocess.run(
        other, env=environment, cwd=tmp_path / "elsewhere", capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("release-ray: the package envs that Python finds is another")
    assert len(refused.stderr.splitlines()) == 1
    for name in ("envs", "policies", "samplers"):
        assert f"ERROR    {name}: is another package's ({tmp_path / name}" in ended.stdout


def test_the_wrong_pair_of_packages_is_an_error_and_no_kernel_is_tried(monkeypatch):
    def wrong():
        raise InputError("apache-tvm-ffi 0.1.15 does not work: pip install ...")

    monkeypatch.setattr(tvm_setup, "check_pins", wrong)
    findings = by_subject(doctor.examine())
    assert findings["pins"].level == "error"
    assert "target" not in findings


def test_ray_without_its_dashboard(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    found = doctor._ray()
    assert (found.level, "ray[default]" in found.message) == ("warning", True)
