"""The page: what work dirs hold, as one HTML file that needs nothing else.

`facts` reads a work dir, `page` puts facts into the template, and `page.js` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from release_ray.report.facts import facts_of
from release_ray.report.page import page
from release_ray.workdir import WorkDir, require_file, require_folder, write_atomic

__all__ = ["write_report"]


def write_report(work_dirs: Sequence[Path], output: Path | None = None) -> Path:
    """Writes the page of one work dir, or the comparison of several, and returns where.

    Default: `report.html` in the first one. Needs no TVM and no Ray, and a run may be going on.

    Raises:
        InputError: a folder is no work dir, has no result yet, or the page cannot be written.
    """
    path = output or WorkDir(work_dirs[0]).report
    require_file(path)
    require_folder(path.parent, "name another file with -o")
    facts = [facts_of(WorkDir.existing(folder)) for folder in dict.fromkeys(work_dirs)]
    if output is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page(facts))
    return path
