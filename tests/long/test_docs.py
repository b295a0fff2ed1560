"""What the documentation shows is what happens: every command and every program in it is run.

Commands run as written, but for options that make them short (`SHORTENED`). Those of `make` and of
jobs are run by other tests, which `ELSEWHERE` and `JOBS` name; a command in none of them fails.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import environment, started
from program import Program

pytestmark = pytest.mark.long

BIN = Path(sys.executable).parent
SIMULATED = "--devices sim:2 --trials 8"
FEW = "--trials 8"

SHORTENED = {
    "release-ray tune tiny": FEW,
    "release-ray tune resnet18 --time-budget 5m": SIMULATED,
    "release-ray tune model.onnx": FEW,
    "release-ray tune model.onnx --trials-per-task 128": SIMULATED,
    "release-ray tune model.onnx --time-budget 2h": SIMULATED,
    "release-ray tune model.onnx --time-budget 8m": FEW,
    "release-ray tune net.pt2": FEW,
    "release-ray tune net.pt2 --trials-per-task 128": SIMULATED,
    "release-ray sweep sweep.yaml": "",
    "PYTHONPATH=. release-ray tune tiny --policy climber:HillClimber"
    " --work-dir tuning/climber": SIMULATED,
    "PYTHONPATH=. release-ray tune tiny --sampler spread:FarthestSampler"
    " --work-dir tuning/spread": SIMULATED,
    "PYTHONPATH=. release-ray tune tiny --devices chosen:ChosenCores?1"
    " --work-dir tuning/chosen": FEW,
    "release-ray tune resnet18 --address HEAD:6379": SIMULATED,
    "release-ray tune resnet18 --address HEAD:6379 --target cuda --work-dir tuning/cuda"
    " --storage /shared/cuda": SIMULATED,
}
ELSEWHERE = {
    "make setup": "how these tests came to run",
    ". .venv/bin/activate": "how these tests came to run",
    "make tune": "test_wheel.py does its job in a clean environment",
    "make test": "the other half of the suite",
    "export RAY_AUTH_MODE=disabled": "test_jobs.py",
    "python -m build --wheel": "test_wheel.py",
    "pip install dist/release_ray-0.1.0-py3-none-any.whl": "test_wheel.py",
    "tensorboard --logdir tuning/sweep/tune": "TensorBoard is no requirement",
}
JOBS = ("ray start", "ray job submit", "python scripts/jobs/submit.py", "cat > try.yaml")
"""Of `test_jobs.py`, which submits the repository's own scripts to clusters of its own."""
BOARDS = ("python -m tvm.exec.", "release-ray tune tiny --devices rpc:")
"""Of `test_boards.py`, which starts a tracker and a board."""


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page):
    """The commands of a page, each once, without comments; a here-document with its command."""
    text = "".join(blocks(page, "sh")).replace("\\\n", " ")
    text = re.sub(r"(<<'END')\n.*?^END$", r"\1", text, flags=re.MULTILINE | re.DOTALL)
    lines = (re.sub(r"(^|\s+)#.*", "", line) for line in text.splitlines())
    return list(dict.fromkeys(" ".join(line.split()) for line in lines if line.strip()))


def is_run_here(command):
    return command not in ELSEWHERE and not command.startswith(JOBS + BOARDS)


def execute(command, folder, head=""):
    """Runs a documented command there, shortened; its standard output."""
    line = f"{command} {SHORTENED.get(command, '')}".replace("HEAD:6379", head)
    line = line.replace("/shared/", f"{folder}/shared/")
    *variables, program = re.split(r"(?<=^PYTHONPATH=\.) ", line)
    extra = dict(variable.split("=") for variable in variables)
    cluster = environment() if head else {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    name, *arguments = shlex.split(program)
    done = subprocess.run(
        [BIN / name, *arguments],
        cwd=folder,
        env={**cluster, **extra},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def pages(pytestconfig):
    root = pytestconfig.rootpath
    return {path.name: path for path in (root / "README.md", *sorted((root / "docs").glob("*.md")))}


def save_onnx(folder):
    """`model.onnx` there."""
    import torch

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
    image = torch.rand(1, 3, 16, 16)
    torch.onnx.export(model, (image,), str(folder / "model.onnx"), dynamo=False)


def save_programs(page, folder):
    """The page's programs that name their file in the first line."""
    for program in blocks(page, "python"):
        named = re.match(r"# (\w+\.py)\n", program)
        if named:
            (folder / named[1]).write_text(program)


def run_program(program, folder):
    running = Program(program, cwd=folder, python=("-c",))
    assert running.ends(400) == 0, running.err
    assert running.leaves_nothing() == []
    return running.out


def test_every_command_is_accounted_for(pages):
    documented = {command for page in pages.values() for command in commands(page)}
    ran = {command for command in documented if is_run_here(command)}
    assert set(SHORTENED) <= ran
    assert set(ELSEWHERE) <= documented
    assert {c for c in ran if c.startswith(("release-ray tune", "release-ray sweep"))} <= set(
        SHORTENED
    )


def test_the_readme(pages, tmp_path):
    save_onnx(tmp_path)
    (sweep,) = blocks(pages["README.md"], "yaml")
    sweep = sweep.replace("[alexnet, resnet18]", "[tiny]").replace(
        "trials_per_task: 32", "trials: 8"
    )
    (tmp_path / "sweep.yaml").write_text(f"devices: sim:2\n{sweep}")
    ran = [c for c in commands(pages["README.md"]) if is_run_here(c) and "HEAD" not in c]
    told = {command: execute(command, tmp_path) for command in ran}
    assert "latency" in told["release-ray tune tiny"]
    assert "tuned" in told["release-ray bench model.onnx --work-dir tuning/model"]
    predict = blocks(pages["README.md"], "python")[0]
    predict = predict.replace("resnet18", "tiny").replace("224, 224", "32, 32")
    assert run_program(predict, tmp_path).strip().isdigit()
    # Records in and out, of the same work dir.
    for command in filter(is_run_here, commands(pages["metaschedule.md"])):
        execute(command, tmp_path)
    assert (tmp_path / "tuning" / "sweep" / "best.yaml").exists()


def test_the_quick_start_and_the_page(pages, tmp_path):
    start, report = (commands(pages[name]) for name in ("index.md", "report.md"))
    # The README's test runs the first one.
    for command in filter(is_run_here, start):
        if command != "release-ray tune tiny":
            execute(command, tmp_path)
    for name in ("a", "b"):
        (tmp_path / "tuning" / name).symlink_to("resnet18")
    for command in filter(is_run_here, report):
        assert execute(command, tmp_path).endswith(".html\n")
    (program,) = blocks(pages["index.md"], "python")
    assert "->" in run_program(program.replace("trials_per_task=16", "trials_per_task=2"), tmp_path)


def test_a_network_of_ones_own(pages, tmp_path):
    export, predict = blocks(pages["networks.md"], "python")
    run_program(export, tmp_path)
    save_onnx(tmp_path)
    for command in filter(is_run_here, commands(pages["networks.md"])):
        execute(command, tmp_path)
    assert run_program(predict, tmp_path) == "(1, 10)\n"


def test_extending(pages, tmp_path):
    save_programs(pages["extending.md"], tmp_path)
    for command in filter(is_run_here, commands(pages["extending.md"])):
        execute(command, tmp_path)
    checks = [str(path) for path in tmp_path.glob("test_*.py")]
    assert len(checks) == 2
    checked = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *checks],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout
    for path in tmp_path.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 40, path


def test_a_cluster(pages, tmp_path):
    with started(BIN) as cluster:
        for page in ("README.md", "cluster.md"):
            for command in commands(pages[page]):
                if is_run_here(command) and "HEAD:6379" in command:
                    execute(command, tmp_path, head=cluster.address)
    assert (tmp_path / "shared" / "cuda" / "records.db").exists()


def test_the_pool_without_the_rest(pages, tmp_path):
    (program,) = blocks(pages["pool.md"], "python")
    told = [line.split() for line in run_program(program, tmp_path).splitlines()]
    assert [line[:2] for line in told] == [["0", "ok"], ["1", "ok"], ["2", "ok"]]


def test_the_other_pages(pages, tmp_path):
    assert "pins" in execute("release-ray doctor", tmp_path)
    seen = {"README.md", "index.md", "report.md", "networks.md", "extending.md", "cluster.md"}
    seen |= {"metaschedule.md"}
    left = {c for name in set(pages) - seen for c in commands(pages[name]) if is_run_here(c)}
    assert left == {"release-ray doctor"}


def test_the_drop_in(pages, tmp_path):
    (program,) = blocks(pages["metaschedule.md"], "python")
    assert "32 records" in run_program(program, tmp_path)


def test_the_site_is_complete(pytestconfig, tmp_path):
    """Links, figures and the docstrings that the API is made of."""
    built = subprocess.run(
        [BIN / "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=pytestconfig.rootpath,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    assert "KnobSpace" in (tmp_path / "site" / "api.html").read_text()
