"""Stock MetaSchedule on one operator: the peer of the benchmarks. Run as a script, prints JSON.

As shipped, each of its builder processes imports every back end's tensor intrinsics (15 to 25 s) in
every batch, and then often hits its own 30 s time-out. So it is given the light import as the
initializer of its builders. All else is its default: evolutionary search, XGBoost, 64 candidates
a batch, one builder process a core.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from pathlib import Path

from release_ray import tvm_setup

tvm_setup.prepare(["llvm"])

import tvm  # noqa: E402
from tvm.s_tir import meta_schedule as ms  # noqa: E402


def light_import() -> None:
    """Runs in each builder process before its first candidate."""
    tvm_setup.prepare(["llvm"])


def main() -> None:
    """Tunes the operator of a JSON file {module, target}; prints {start_s, tuning_s, latencies}."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operator", type=Path)
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    begun = time.time()
    operator = json.loads(arguments.operator.read_text())
    target = tvm.target.Target(json.loads(operator["target"]))
    context = ms.TuneContext(
        mod=tvm.ir.load_json(operator["module"]),
        target=target,
        space_generator="post-order-apply",
        search_strategy="evolutionary",
        task_name="operator",
        rand_state=arguments.seed or 1,
    )
    with tempfile.TemporaryDirectory() as directory:
        started = time.time()
        database = ms.tune_tasks(
            tasks=[context],
            task_weights=[1.0],
            work_dir=directory,
            max_trials_global=arguments.trials,
            builder=ms.builder.LocalBuilder(initializer=light_import),
        )
        ended = time.time()
        seconds = [
            float(sum(float(s) for s in record.run_secs) / len(record.run_secs))
            for record in database.get_all_tuning_records()
        ]
    print(
        json.dumps(
            {
                "start_s": started - begun,
                "tuning_s": ended - started,
                "latencies_s": [s for s in seconds if s < 1e9],
            }
        )
    )


if __name__ == "__main__":
    main()
