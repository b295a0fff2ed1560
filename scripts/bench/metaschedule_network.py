"""Stock MetaSchedule on a whole built-in network: TVM's `static_shape_tuning` pipeline.

Its builders get the light import, as in `metaschedule_peer.py`; all else is TVM's default.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import cloudpickle
import metaschedule_peer
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from release_ray import networks
from release_ray.targets import resolve


def main() -> None:
    """Writes the tuned network as a library."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", help="a built-in network")
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    module = networks.load(arguments.network, seed=arguments.seed).module
    target = resolve("native", 1)
    # TVM's workers do not find this folder's modules.
    cloudpickle.register_pickle_by_value(metaschedule_peer)
    # The pipeline leaves its builder to be made by name.
    ms.builder.Builder.create = staticmethod(
        lambda kind, max_workers=None: ms.builder.LocalBuilder(
            max_workers=max_workers, initializer=metaschedule_peer.light_import
        )
    )
    with tempfile.TemporaryDirectory() as directory:
        tune = relax.pipeline.static_shape_tuning_pipeline(arguments.trials, target, directory)
        tuned = tune(module)
    with target:
        tvm.compile(tuned, target=target).export_library(str(arguments.out))


if __name__ == "__main__":
    main()
