"""Work dirs as a run leaves them, without the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from made_records import a_record

from release_ray.core.round_map import RoundMap
from release_ray.core.statuses import Status
from release_ray.events import RoundPlanned
from release_ray.records import Records
from release_ray.result import LatencyMs, Result, TaskResult
from release_ray.rounds import Rounds
from release_ray.workdir import Identity, WorkDir

TASKS = ("conv2d", "dense <b>")
PER_TASK = 30


def work_dir(path: Path, *, tuned_ms: float = 5.0, message: str = "killed by SIGSEGV") -> Path:
    """One with two tasks of 30 trials each and one crash, and two rounds of the first task.

    A knob decides the latency: the third value, of the four that a candidate has.
    """
    with (
        WorkDir.locked(path, Identity("net", "f" * 40, "{}")) as workdir,
        Records.open(workdir.records) as records,
    ):
        run_id = records.begin_run("tune", "{}")
        first = a_record(run_id, task=TASKS[0], build_s=0.2)
        for task in TASKS:
            for number in range(PER_TASK):
                decisions = json.dumps([[2, number % 3 + 1], number % 5, 2 ** (number % 7), 1])
                latency_s = 1e-3 * (1 + number % 7)
                records.append(replace(first, task=task, decisions=decisions, latency_s=latency_s))
        crash = replace(first, status=Status.CRASH, latency_s=None, message=message)
        records.append(crash, active_s=60.0)
        records.update_run(run_id, 60.0, "done")
        rounds = Rounds(workdir.logs)
        for number in range(2):
            drawn = RoundMap(((0.0, 1.0, 0.5, 0), (1.0, 0.0, 0.25, 1)), ((0.0, 1.0),))
            rounds(RoundPlanned(TASKS[0], number, 8, 1, 2, 0.5, {"loss": 0.1}, drawn))
        rounds(RoundPlanned(TASKS[1], 0, 16, 0, 0, 0.1, {}))
        _result(tuned_ms).write(workdir.result)
    return path


def _result(tuned_ms: float) -> Result:
    def task(name: str, weight: int) -> TaskResult:
        return TaskResult(
            name=name,
            weight=weight,
            flops=1e9,
            trials=PER_TASK,
            best_latency_s=1e-3,
            best_gflops=1000.0,
            status="done",
            curve=((1, 10.0, 7e-3), (4, 20.0, 1e-3)),
        )

    return Result(
        network="net",
        target=json.dumps({"kind": "llvm", "mcpu": "znver4", "num-cores": 1}),
        seed=0,
        status="done",
        trials=61,
        failures={Status.CRASH: 1},
        wall_s=60.0,
        start_s=10.0,
        device_idle_share=0.04,
        latency_ms=LatencyMs(default=100.0, tuned=tuned_ms),
        max_rel_error=1e-6,
        tasks=(task(TASKS[0], 1), task(TASKS[1], 3)),
        versions={"python": "3.11"},
    )
