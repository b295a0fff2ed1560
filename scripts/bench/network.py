"""A tuned network against onnxruntime, torch.compile and stock MetaSchedule, on the same core.

Tunes the network first, or takes a work dir that is tuned already. Then a process, pinned to the
device's core, runs all in turns; and another one, for memory lies differently in each.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from release_ray.result import Result
from release_ray.workdir import WorkDir

HERE = Path(__file__).parent
RELEASE_RAY = [sys.executable, "-m", "release_ray"]
PROCESSES = 3
TURNS = 40
"""In each process. A turn is short, so that all engines have the host in the same moods."""
TURN_S = 0.05


def main() -> None:
    """Prints progress to stderr and one JSON line to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", nargs="?", default="resnet18", help="a built-in network")
    parser.add_argument("--work-dir", type=Path, help="tuned before; else it is tuned now")
    parser.add_argument("--trials-per-task", type=int, default=64)
    parser.add_argument("--time-budget", help="of the tuning, instead of trials: 90s, 10m")
    parser.add_argument("--metaschedule-trials", type=int, help="let the peer tune it too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("."), help="where NETWORK.csv goes")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        measure(arguments.measure, arguments.network, arguments.seed)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    network, seed = arguments.network, arguments.seed
    with tempfile.TemporaryDirectory() as scratch:
        work_dir = arguments.work_dir or Path(scratch, "work")
        if arguments.work_dir is None:
            command = [*RELEASE_RAY, "tune", network, "--work-dir", str(work_dir)]
            command += ["--seed", str(seed)]
            if arguments.time_budget:
                command += ["--time-budget", arguments.time_budget]
            else:
                command += ["--trials-per-task", str(arguments.trials_per_task)]
            subprocess.run(command, check=True, stdout=sys.stderr)
        tuning_s = {"ours": Result.read(WorkDir(work_dir).result).wall_s}
        Path(scratch, "ours.so").write_bytes(WorkDir(work_dir).model.read_bytes())
        if arguments.metaschedule_trials:
            command = [sys.executable, str(HERE / "metaschedule_network.py"), network]
            command += ["--trials", str(arguments.metaschedule_trials), "--seed", str(seed)]
            begun = time.time()
            subprocess.run(
                [*command, "--out", str(Path(scratch, "metaschedule.so"))],
                check=True,
                stdout=sys.stderr,
            )
            tuning_s["metaschedule"] = time.time() - begun
        export_onnx(network, seed, Path(scratch, "network.onnx"))
        rows = [
            row for _ in range(PROCESSES) for row in in_pinned_process(Path(scratch), network, seed)
        ]
    path = arguments.out / f"{network}.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("engine", "ms", "tuning_s")])
        csv.writer(file).writerows([(engine, ms, tuning_s.get(engine, 0.0)) for engine, ms in rows])
    print(json.dumps(summary(path)))


def export_onnx(network: str, seed: int, path: Path) -> None:
    """Writes a built-in network with the same weights as ONNX."""
    import torch

    from release_ray.networks.builtin import torch_module

    module, example = torch_module(network, seed)
    torch.onnx.export(module, (example,), str(path), dynamo=False)


def in_pinned_process(directory: Path, network: str, seed: int) -> list[tuple[str, float]]:
    """(engine, ms) of each turn, from a process whose threads are set up for one core."""
    environment = dict(os.environ, TVM_NUM_THREADS="1", TVM_BIND_THREADS="0", OMP_NUM_THREADS="1")
    command = [sys.executable, __file__, network, "--measure", str(directory), "--seed", str(seed)]
    finished = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    return [tuple(row) for row in json.loads(finished.stdout.splitlines()[-1])]


def measure(directory: Path, network: str, seed: int) -> None:
    """Runs the engines in turns on one core; prints (engine, ms) of each."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    engines = make_engines(directory, network, seed)
    for run in engines.values():
        run()
    rows = []
    for _ in range(TURNS):
        for engine, run in engines.items():
            runs, begun = 0, time.perf_counter()
            while time.perf_counter() - begun < TURN_S:
                run()
                runs += 1
            rows.append((engine, (time.perf_counter() - begun) / runs * 1e3))
    print(json.dumps(rows))


def make_engines(directory: Path, network: str, seed: int) -> dict[str, Callable[[], Any]]:
    """What runs the network once: the libraries of a directory, onnxruntime and torch.compile."""
    import onnxruntime
    import torch
    import tvm
    from tvm import relax

    from release_ray.networks.builtin import torch_module

    torch.set_num_threads(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(directory / "network.onnx"), options, providers=["CPUExecutionProvider"]
    )
    (first,) = session.get_inputs()
    image = np.random.default_rng(0).standard_normal(first.shape).astype(np.float32)
    module, _ = torch_module(network, seed)
    compiled = torch.compile(module.eval())

    def run_torch() -> Any:
        with torch.inference_mode():
            return compiled(torch.from_numpy(image))

    tensor = tvm.runtime.tensor(image)
    engines: dict[str, Callable[[], Any]] = {}
    for library in sorted(directory.glob("*.so"), reverse=True):
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
        engines[library.stem] = partial(machine["main"], tensor)
    engines["onnxruntime"] = partial(session.run, None, {first.name: image})
    engines["torch.compile"] = run_torch
    return engines


def summary(path: Path) -> dict:
    """The benchmark's figures from its CSV: medians over the turns."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    latency = {
        engine: median(float(row["ms"]) for row in rows if row["engine"] == engine)
        for engine in dict.fromkeys(row["engine"] for row in rows)
    }
    return {
        "latency_ms": latency,
        "ratio_to_onnxruntime": latency["ours"] / latency["onnxruntime"],
        "tuning_s": {row["engine"]: float(row["tuning_s"]) for row in rows if row["tuning_s"]},
    }


if __name__ == "__main__":
    main()
