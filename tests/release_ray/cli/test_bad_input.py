"""Whatever is wrong with the input: exit status 2 and one line that names it; nothing starts."""

import json
import os
import socket
import subprocess
import sys

import pytest

from release_ray import cli
from release_ray.workdir import Identity, WorkDir


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch, tmp_path):
    """Bad input is found before Ray is started; relative paths lie in an empty folder."""
    import ray

    def started(*_, **__):
        raise AssertionError("Ray was started")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", started)
    monkeypatch.chdir(tmp_path)


def complaint(capfd, *arguments):
    """The one line that a command says about its input."""
    assert cli.run([str(a) for a in arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    (line,) = err.splitlines()
    assert line.startswith("release-ray: ")
    return line


def one_operator(path, operator, shape):
    """An ONNX network of one operator that exists, or not."""
    from onnx import TensorProto, helper, save

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "net", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        # the network
        (["tune"], "Missing argument 'network'"),
        (["tune", "resnet81"], "did you mean resnet18?"),
        (["tune", "nothing-like-it"], "alexnet"),
        (["tune", ""], "the argument after tune is empty"),
        (["tune", "missing.onnx"], "missing.onnx"),
        (["tune", "missing.pt2"], "missing.pt2"),
        (["tune", "empty.onnx"], "empty"),
        (["tune", "folder.onnx"], "directory"),
        (["tune", "notes.txt"], "notes.txt"),
        # what to do with it
        (["tune", "tiny", "--trials", "-3"], "budget.trials"),
        (["tune", "tiny", "--trials", "0"], "budget.trials"),
        (["tune", "tiny", "--trials", "many"], "--trials"),
        (["tune", "tiny", "--trials-per-task", "-1"], "budget.trials_per_task"),
        (["tune", "tiny", "--time-budget", "soon"], "90s"),
        (["tune", "tiny", "--time-budget", "-5s"], "budget.time_budget"),
        (["tune", "tiny", "--time-budget", "0"], "budget.time_budget"),
        (["tune", "tiny", "--builders", "0"], "builders"),
        (["tune", "tiny", "--builders", "100000000000"], "builders"),
        (["tune", "tiny", "--seed", "-1"], "seed"),
        (["tune", "tiny", "--policy", "pop"], "did you mean 'ppo'?"),
        (["tune", "tiny", "--policy", "pop", "--print-config"], "did you mean 'ppo'?"),
        (["tune", "tiny", "--policy", "no_such_module:Policy"], "no_such_module"),
        (["tune", "tiny", "--policy", "json:loads"], "no class derived"),
        (["tune", "tiny", "--sampler", "greedi"], "did you mean 'greedy'?"),
        (["tune", "tiny", "--sampler", "json:JSONDecoder"], "no class derived"),
        # where
        (["tasks", "tiny", "--target", "llvm -mcpu=znver33"], "did you mean znver3?"),
        (["tasks", "tiny", "--target", "{broken"], "JSON"),
        (["tasks", "tiny", "--target", ""], "after --target is empty"),
        (["tune", "tiny", "--devices", "gpus"], "gpus"),
        (["tune", "tiny", "--devices", "cpu:many"], "cpu:many"),
        (["tune", "tiny", "--devices", "cpu:99x99"], "cpu:99x99"),
        (["tune", "tiny", "--devices", "sim:0"], "sim:0"),
        (["tune", "tiny", "--devices", "sim:99999999999"], "sim:99999999999 are more than 10000"),
        (["tune", "tiny", "--devices", "sim:1?speed=3"], "speed"),
        (["tune", "tiny", "--devices", "sim:1?run_s=-1"], "run_s=-1 is not from 0 to 3600"),
        (["tune", "tiny", "--devices", "sim:1?run_s=nan"], "run_s=nan"),
        (["tune", "tiny", "--devices", "sim:1?noise=1e400"], "noise=1e400"),
        (["tune", "tiny", "--devices", "sim:1?crash=2"], "crash=2"),
        (["tune", "tiny", "--devices", "sim:1?gflops=0"], "gflops=0"),
        (["tune", "tiny", "--devices", "rpc://localhost:999999/k"], "ports end at 65535"),
        (["tune", "tiny", "--devices", "rpc://localhost:1/k"], "no RPC tracker answers"),
        (["tune", "tiny", "--work-dir", "notes.txt"], "notes.txt is not a folder"),
        (["tune", "tiny", "--work-dir", ""], "the argument after --work-dir is empty"),
        (["tune", "tiny", "--work-dir="], "the argument --work-dir is empty"),
        (["tune", "tiny", "--work-dir", "notes.txt/below"], "notes.txt"),
        (["tune", "tiny", "--storage", "nowhere://bucket"], "nowhere"),
        # sweeps
        (["sweep"], "Missing argument 'file'"),
        (["sweep", "missing.yaml"], "missing.yaml"),
        (["sweep", "folder.onnx"], "directory"),
        (["sweep", "sweep.yaml", "--work-dir", "notes.txt"], "notes.txt"),
        (["sweep", "sweep.yaml", "--storage", "nowhere://bucket"], "nowhere"),
        (["sweep", "typo.yaml"], "did you mean num_samples?"),
        # settings
        (["tune", "tiny", "--config", "missing.yaml"], "missing.yaml"),
        (["tune", "tiny", "--config", "broken.yaml"], "broken.yaml, line 3"),
        (["tune", "tiny", "--config", "unknown.yaml"], "did you mean agent.lr?"),
        (["tune", "tiny", "--config", "wrong.yaml"], "agent.lr"),
        (["tune", "tiny", "--config", "list.yaml"], "name: value"),
        (["tune", "tiny", "--config", "folder.onnx"], "folder.onnx"),
        (["tune", "tiny", "--config", "binary.yaml"], "binary.yaml"),
        # usage
        (["tune", "tiny", "--no-such-option"], "--no-such-option"),
        (["tune", "tiny", "resnet18"], "resnet18"),
        (["tuen", "tiny"], "tuen"),
        (["records", "show"], "--work-dir"),
        (["records", "show", "--work-dir", "nowhere"], "nowhere"),
        (["records", "export", "--work-dir", "nowhere"], "nowhere"),
        (["records", "import", "nowhere", "--work-dir", "nowhere"], "nowhere"),
        (["records", "prune", "--work-dir", "nowhere"], "--failures"),
        (["records", "prune", "--work-dir", "nowhere", "--failures"], "nowhere"),
        (["records", "prune", "--work-dir", "nowhere", "--keep-best", "0"], "keep-best"),
        # the other commands
        (["tasks", "resnet81"], "did you mean resnet18?"),
        (["tasks", "tiny", "--target", "llvn"], "did you mean llvm?"),
        (["tasks", "tiny", "--tasks", "conv3d*"], "conv3d*"),
        (["devices", "--devices", "gpus"], "gpus"),
        (["compile", "tiny"], "--work-dir"),
        (["compile", "tiny", "--work-dir", "nowhere"], "nowhere"),
        (["compile", "missing.onnx", "--work-dir", "nowhere"], "missing.onnx"),
        (["bench", "tiny", "--work-dir", "nowhere"], "nowhere"),
        (["bench", "tiny", "--work-dir", "nowhere", "--target", "llvn"], "did you mean llvm?"),
        (["report"], "--work-dir"),
        (["report", "--work-dir", "nowhere"], "nowhere is no work dir"),
        (["report", "--work-dir", "nowhere", "-o", "folder.onnx"], "folder.onnx is no file"),
        (["report", "--work-dir", "nowhere", "-o", "notes.txt/page.html"], "not a folder"),
        (["doctor", "--target", ""], "after --target is empty"),
        (["tune", "tiny", "--print-config", "--config", "knot.yaml"], "it refers to itself"),
        (["compile", "tiny", "--work-dir", "null"], "workdir.json is damaged"),
        # networks that cannot be tuned
        (["tasks", "dynamic.onnx"], "dynamic"),
        (["tasks", "unknown.onnx"], "Nonesuch"),
    ],
)
def test_one_line_that_names_it(capfd, tmp_path, arguments, named):
    (tmp_path / "notes.txt").write_text("text\n")
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "broken.yaml").write_text("agent:\n  lr: [1,\n")
    (tmp_path / "unknown.yaml").write_text("agent: {lrr: 0.1}\n")
    (tmp_path / "wrong.yaml").write_text("agent: {lr: fast}\n")
    (tmp_path / "list.yaml").write_text("- ppo\n")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "sweep.yaml").write_text("networks: [tiny]\n")
    one_operator(tmp_path / "dynamic.onnx", "Relu", ["batch", 8])
    one_operator(tmp_path / "unknown.onnx", "Nonesuch", [1, 8])
    (tmp_path / "knot.yaml").write_text("agent: &x {lr: *x}\n")
    (tmp_path / "null").mkdir()
    nobody = {"network": "tiny", "fingerprint": "f", "target": None}
    (tmp_path / "null" / "workdir.json").write_text(json.dumps(nobody))
    (tmp_path / "typo.yaml").write_text("networks: [tiny]\nnum_sample: 3\n")
    assert named in complaint(capfd, *arguments)


@pytest.mark.parametrize("name", ["damaged.onnx", "damaged.pt2"])
def test_a_damaged_network(capfd, tmp_path, name):
    (tmp_path / name).write_bytes(b"no network at all" * 100)
    assert name in complaint(capfd, "tasks", name)


def test_a_work_dir_in_use(capfd, tmp_path):
    with WorkDir.locked(tmp_path / "w", Identity("tiny", "f" * 40, "{}")):
        line = complaint(capfd, "tune", "tiny", "--work-dir", tmp_path / "w", "--devices", "sim:1")
    assert "in use by the run with pid" in line


@pytest.mark.parametrize("command", ["compile", "bench"])
def test_a_work_dir_of_another_network(capfd, tmp_path, command):
    with WorkDir.locked(tmp_path / "w", Identity("resnet18", "f" * 40, "{}")) as workdir:
        workdir.records.touch()
    line = complaint(capfd, command, "tiny", "--work-dir", tmp_path / "w")
    assert "belongs to the network 'resnet18', not 'tiny'" in line


@pytest.mark.parametrize(
    "arguments", [("tune", "tiny", "-q", "--devices", "sim:1"), ("devices", "--devices", "sim:1")]
)
def test_a_cluster_that_does_not_answer(capfd, arguments):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        assert address in complaint(capfd, *arguments, "--address", address)


def test_something_else_than_a_cluster_at_the_address(capfd):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        line = complaint(capfd, "devices", "--devices", "sim:1", "--address", address)
        assert f"no Ray cluster answers at {address}" in line


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--target", "llvn"], "did you mean llvm?"),
        (["--tasks", "conv3d*"], "no task matches conv3d*; the tasks are transpose,"),
        (["--work-dir", "other"], "belongs to the network 'resnet18', not 'tiny'"),
        (["--work-dir", "headless"], "workdir.json"),
        (["--work-dir", "damaged"], "damaged/workdir.json is damaged"),
    ],
)
def test_what_is_found_while_ray_starts(ray_local, monkeypatch, capfd, tmp_path, arguments, named):
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    with WorkDir.locked(tmp_path / "other", Identity("resnet18", "f" * 40, "{}")):
        pass
    (tmp_path / "headless").mkdir()
    (tmp_path / "headless" / "records.db").touch()
    with WorkDir.locked(tmp_path / "damaged", Identity("tiny", "f" * 40, "{}")) as workdir:
        workdir.records.write_text("no database")
        (workdir.path / "workdir.json").write_text("{torn")
    line = complaint(capfd, "tune", "tiny", "-q", "--devices", "sim:1", *arguments)
    assert named in line
    assert not (tmp_path / "tuning" / "tiny" / "workdir.json").exists()


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_full_disk_behind_standard_output(buffered):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "release_ray", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": buffered},
        )
    assert ended.returncode == 2
    assert ended.stderr == "release-ray: standard output: No space left on device\n"
