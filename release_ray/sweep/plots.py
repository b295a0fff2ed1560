"""A sweep in pictures: speed-up by setting, parallel coordinates, curves by run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from release_ray.sweep.spec import Axis, SweepSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from release_ray.sweep.results import Row

_DPI = 120


def draw(folder: Path, spec: SweepSpec, rows: Sequence[Row]) -> None:
    """Writes the pictures as PNG files; `rows` are the runs, those without a report are left out.

    `speedup.png` has a panel a setting that varies, `parallel.png` a line a run through all of
    them, `curves.png` each run's speed-up against its trials.
    """
    reported = [row for row in rows if row.speedup is not None]
    if not reported:
        return
    from matplotlib.figure import Figure

    folder.mkdir(exist_ok=True)
    axes = [axis for axis in spec.axes if any(axis.name in row.run.values for row in reported)]

    def save(name: str, figure: Figure) -> None:
        figure.savefig(folder / f"{name}.png", dpi=_DPI, bbox_inches="tight")

    curves = Figure(figsize=(8, 5))
    _curves(curves.subplots(), reported)
    save("curves", curves)
    if not axes:
        return
    speedup = Figure(figsize=(4 * len(axes), 4))
    panels = speedup.subplots(1, len(axes), sharey=True, squeeze=False)[0]
    for panel, axis in zip(panels, axes, strict=True):
        _by_setting(panel, axis, reported)
    panels[0].set_ylabel("speed-up")
    panels[0].legend()
    save("speedup", speedup)
    parallel = Figure(figsize=(2.5 * (len(axes) + 1) + 2, 5))
    _parallel(parallel, axes, reported)
    save("parallel", parallel)


def _curves(panel: Axes, rows: Sequence[Row]) -> None:
    for row in rows:
        reports = row.entry.reports
        panel.plot(
            [0, *(report.trials for report in reports)],
            [1.0, *(report.speedup for report in reports)],
            marker="x" if row.entry.status == "stopped" else "o",
            markevery=[-1],
            label=row.run.name,
        )
    panel.set(xlabel="trials", ylabel="speed-up", title="speed-up by run (x: stopped early)")
    panel.legend(fontsize="x-small", ncols=max(1, len(rows) // 16), loc="upper left")


def _by_setting(panel: Axes, axis: Axis, rows: Sequence[Row]) -> None:
    """Runs as dots, networks as colours."""
    places = _Places(axis, rows)
    for network in dict.fromkeys(row.run.network for row in rows):
        mine = [row for row in rows if row.run.network == network]
        at = [places.of(row.run.values) for row in mine]
        panel.scatter(at, [row.speedup or 0.0 for row in mine], label=Path(network).stem, alpha=0.8)
    panel.set_xlabel(axis.name)
    places.label(panel)


def _parallel(figure: Any, axes: Sequence[Axis], rows: Sequence[Row]) -> None:
    """A vertical axis for each setting, each from 0 to 1, and the speed-up as the last one."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    panel = figure.subplots()
    places = [_Places(axis, rows) for axis in axes]
    speedups = np.array([row.speedup for row in rows], float)
    scale = Normalize(float(speedups.min()), float(speedups.max()))
    colours = colormaps["viridis"]
    for row, speedup in zip(rows, speedups, strict=True):
        heights = [place.height(place.of(row.run.values)) for place in places]
        panel.plot([*heights, scale(speedup)], color=colours(scale(speedup)), alpha=0.8)
    for x, place in enumerate(places):
        panel.axvline(x, color="0.8", zorder=0)
        for value, text in place.ticks():
            panel.annotate(text, (x, place.height(value)), fontsize="x-small", ha="right")
    panel.set_xticks(range(len(axes) + 1), [*(axis.name for axis in axes), "speed-up"], rotation=20)
    panel.set_yticks([])
    figure.colorbar(ScalarMappable(scale, colours), ax=panel, label="speed-up")


class _Places:
    """Where the values of an axis are: numbers as they are or by their logarithm, others in turn.

    What is drawn from a few is in turn, too, even if these are numbers.
    """

    def __init__(self, axis: Axis, rows: Sequence[Row]) -> None:
        self._name = axis.name
        self._logarithmic = axis.kind == "loguniform"
        self._texts = [str(value) for value in axis.values] if axis.kind in _IN_TURN else None
        found = [self.of(row.run.values) for row in rows]
        self._low, self._high = min(found), max(found)
        if self._texts is not None:
            self._low, self._high = 0.0, float(len(self._texts) - 1)

    def of(self, values: Mapping[str, Any]) -> float:
        value = values[self._name]
        return float(value if self._texts is None else self._texts.index(str(value)))

    def height(self, place: float) -> float:
        """From 0 at the least to 1 at the greatest."""
        low, high = self._low, self._high
        if self._logarithmic:
            low, high, place = np.log(low), np.log(high), np.log(place)
        return 0.5 if high == low else (place - low) / (high - low)

    def ticks(self) -> list[tuple[float, str]]:
        if self._texts is not None:
            return [(float(place), text) for place, text in enumerate(self._texts)]
        return [(place, f"{place:.3g}") for place in dict.fromkeys((self._low, self._high))]

    def label(self, panel: Axes) -> None:
        if self._texts is not None:
            panel.set_xticks(range(len(self._texts)), self._texts)
        elif self._logarithmic:
            panel.set_xscale("log")
            # Within less than a decade there is no power of ten to be written below it.
            panel.set_xticks([place for place, _ in self.ticks()], [t for _, t in self.ticks()])
            panel.minorticks_off()


_IN_TURN = ("grid", "choice")
