"""release_ray: reinforcement-learning auto-tuning of deep-learning operators, over a Ray cluster.

`tune` is the whole job: a network in, a compiled, verified, faster network out. It is imported on
first use, so that the packages below (`release_ray.core`, say) load without a compiler.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from release_ray.session import TuneResult, tune

# Ray reads this as it is imported. Else a search thread that outlives an interrupted run would
# start another cluster, at its first call after the run's own has ended.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")

__version__ = "0.1.0"
__all__ = ["TuneResult", "__version__", "tune"]


def __getattr__(name: str) -> object:
    if name in ("tune", "TuneResult"):
        from release_ray import session

        return getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
