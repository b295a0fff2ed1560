"""The job that tunes one network, as `ray job submit` runs it on the cluster's head node.

    ray job submit --address http://HEAD:8265 --runtime-env scripts/jobs/runtime_env.yaml \
        --working-dir . -- python scripts/jobs/tune.py --config scripts/jobs/tune.yaml

The file holds the network, the settings of `release-ray tune --print-config`, and where the results
are kept. A job that was stopped goes on when it is submitted again.
"""

import argparse
from pathlib import Path

from release_ray.cli import explained, options, serve
from release_ray.cli.tune import tune_network
from release_ray.job import load_tune_job


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True, help="the job's YAML file")
    job = load_tune_job(parser.parse_args().config)
    return tune_network(
        job.network,
        job.settings,
        work_dir=job.work_dir,
        storage=job.storage,
        level=options.level(verbose=0, quiet=False),
    )


if __name__ == "__main__":
    serve(lambda: explained(main))
