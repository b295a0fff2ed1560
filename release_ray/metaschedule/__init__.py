"""Parts of release_ray for MetaSchedule, and MetaSchedule's search for release_ray.

`RayBuilder`, `RayRunner` and `ReleaseSearch` take the places of `builder`, `runner` and `strategy`
in `ms.tune_tir`, `ms.tune_tasks` and `ms.relax_integration.tune_relax`, together or one at a time::

    from release_ray.metaschedule import RayBuilder, RayRunner, ReleaseSearch

    database = ms.tune_tir(
        mod, target, work_dir, max_trials_global=128,
        builder=RayBuilder(), runner=RayRunner(), strategy=ReleaseSearch(),
    )

Each starts Ray where none is running, or joins that of `RAY_ADDRESS`, and leaves nothing behind
when the program ends; `close` does so before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from release_ray.metaschedule.builder import RayBuilder
    from release_ray.metaschedule.database import ReleaseDatabase
    from release_ray.metaschedule.runner import RayRunner
    from release_ray.metaschedule.search import ReleaseSearch

__all__ = ["RayBuilder", "RayRunner", "ReleaseDatabase", "ReleaseSearch"]

_MODULES = {
    "RayBuilder": "builder",
    "RayRunner": "runner",
    "ReleaseDatabase": "database",
    "ReleaseSearch": "search",
}


def __getattr__(name: str) -> Any:
    """The parts by name; TVM, which they are derived from, is imported when one is asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
