"""What follows a run: compile, bench, records; networks from files; other searches."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from program import records, result, run, trials

pytestmark = pytest.mark.long

PREDICT = """
import sys
import numpy as np, tvm
from tvm import relax

machine = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
output = machine["main"](tvm.runtime.tensor(np.load(sys.argv[2])))
if not isinstance(output, tvm.runtime.Tensor):  # torch.export gives a tuple, ONNX one tensor
    (output,) = output
np.save(sys.argv[3], output.numpy())
"""


def predict(library, image, folder):
    """What stock TVM computes with a library."""
    np.save(folder / "input.npy", image)
    arguments = [library, folder / "input.npy", folder / "output.npy"]
    subprocess.run([sys.executable, "-c", PREDICT, *map(str, arguments)], check=True)
    return np.load(folder / "output.npy")


@pytest.fixture(scope="module")
def small_network():
    """A net of two convolutions in torch."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 7 * 7, 10),
    ).eval()


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).random((1, 3, 16, 16), np.float32)


def of_trials(work, column):
    """What the column holds in rows of trials."""
    rows = records(work, f"{column}, purpose")
    return {value for value, purpose in rows if purpose == "trial"}


def close(output, network, image):
    import torch

    with torch.no_grad():
        expected = network(torch.from_numpy(image)).numpy()
    assert np.abs(output - expected).max() <= 1e-4 * np.abs(expected).max()


def test_an_onnx_file_from_end_to_end(small_network, image, tmp_path):
    import torch

    torch.onnx.export(
        small_network, (torch.from_numpy(image),), str(tmp_path / "small.onnx"), dynamo=False
    )
    program = run(
        *("tune", "small.onnx", "--trials", 16, "--policy", "random", "--sampler", "greedy"),
        # Another target than the commands below would take by themselves.
        *("--devices", "cpu:1x2"),
        cwd=tmp_path,
    )
    assert program.ends() == 0, program.err
    work = tmp_path / "tuning" / "small"
    assert of_trials(work, "sampler") == {"greedy"}
    assert result(work)["network"] == "small"
    close(predict(work / "model.so", image, tmp_path), small_network, image)
    assert "model" in program.out and program.leaves_nothing() == []

    compiled = run(
        *("compile", "small.onnx", "--work-dir", work, "-o", "lib/again.so"), cwd=tmp_path
    )
    assert (compiled.ends(), compiled.out, compiled.err) == (0, "lib/again.so\n", "")
    assert os.listdir(tmp_path / "lib") == ["again.so"]
    close(predict(tmp_path / "lib" / "again.so", image, tmp_path), small_network, image)

    before = trials(work)
    compared = run("bench", "small.onnx", "--work-dir", work, "--json", cwd=tmp_path)
    assert (compared.ends(), compared.err) == (0, "")
    figures = json.loads(compared.out)
    assert figures["default_ms"] >= figures["tuned_ms"] > 0
    assert figures["max_rel_error"] <= 1e-4
    assert trials(work) == before

    exported = run("records", "export", "--work-dir", work, "-o", "out", cwd=tmp_path)
    assert exported.ends() == 0, exported.err
    lines = (tmp_path / "out" / "database_tuning_record.json").read_text().splitlines()
    assert exported.out.startswith(f"{len(lines)} records in out")
    imported = run("records", "import", "out", "--work-dir", work, cwd=tmp_path)
    assert imported.ends() == 0
    assert imported.out == f"0 records imported, {len(lines)} skipped\n"
    assert len(imported.err.splitlines()) == len(lines)


def test_an_exported_program_from_end_to_end(small_network, image, tmp_path):
    import torch

    torch.export.save(
        torch.export.export(small_network, (torch.from_numpy(image),)), tmp_path / "small.pt2"
    )
    program = run(
        *("tune", "small.pt2", "--trials", 16, "--work-dir", "work", "--json", "--quiet"),
        cwd=tmp_path,
    )
    assert program.ends() == 0, program.err
    assert program.err == ""
    told = json.loads(program.out)
    assert told == result(tmp_path / "work")
    assert (told["status"], told["trials"]) == ("done", 16)
    close(predict(tmp_path / "work" / "model.so", image, tmp_path), small_network, image)


def test_a_run_without_any_learning(tmp_path):
    program = run(
        *("tune", "tiny", "--policy", "random", "--sampler", "greedy", "--trials-per-task", 6),
        *("--work-dir", "work", "--time-budget", "10m"),
        cwd=tmp_path,
    )
    assert program.ends() == 0, program.err
    ended = result(tmp_path / "work")
    # Reshapes and the like have fewer than six configurations.
    assert all(1 <= task["trials"] <= 6 for task in ended["tasks"])
    assert sum(task["trials"] for task in ended["tasks"]) == ended["trials"]
    assert of_trials(tmp_path / "work", "policy") == {"random"}
    told = run("records", "show", "--work-dir", "work", cwd=tmp_path)
    assert told.ends() == 0 and told.err == ""
    assert all(task["name"][:20] in told.out for task in ended["tasks"])


def test_devices(tmp_path):
    program = run("devices", "--json", cwd=tmp_path)
    assert (program.ends(), program.err) == (0, "")
    (device,) = json.loads(program.out)
    assert device["device"] == "cpu:0" and device["unfit"] is None
    assert device["gflops"] > 0.5
