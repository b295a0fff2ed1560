"""The job that runs a sweep, as `ray job submit` runs it on the cluster's head node.

    ray job submit --address http://HEAD:8265 --runtime-env scripts/jobs/runtime_env.yaml \
        --working-dir . -- python scripts/jobs/sweep.py --config scripts/jobs/sweep.yaml

The file is one of `release-ray sweep`, and says where the results are kept. A job that was stopped
goes on when it is submitted again.
"""

import argparse
from pathlib import Path

from release_ray.cli import explained, options, serve
from release_ray.cli.sweep import run
from release_ray.job import load_sweep_job


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True, help="the sweep's YAML file")
    spec = load_sweep_job(parser.parse_args().config)
    return run(spec, level=options.level(verbose=0, quiet=False))


if __name__ == "__main__":
    serve(lambda: explained(main))
