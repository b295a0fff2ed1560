"""Sweeps: networks x settings as runs of Ray Tune, all of them measuring in one pool.

`spec` reads the file, `driver` runs it, `trial` is what Tune calls for each run, `halving` is ASHA
within each network, `ledger` remembers what is done, `results` and `plots` say what came out.
"""

from release_ray.sweep.spec import SweepSpec, load_sweep

__all__ = ["SweepSpec", "load_sweep"]
