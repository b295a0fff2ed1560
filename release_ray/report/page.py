"""The page as HTML: the template, the style, Plotly and the facts in one file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup


def page(runs: Sequence[dict[str, Any]]) -> str:
    """The page of one run, or of several side by side; `runs` as `facts.facts_of` gives them."""
    from plotly.offline import get_plotlyjs

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters.update(ms=_milliseconds, clock=_clock, percent=_percent)
    template = environment.from_string(_asset("page.html"))
    runs = _told_apart(runs)
    return template.render(
        runs=runs,
        title=" against ".join(dict.fromkeys(run["network"] for run in runs)),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=Markup(_asset("page.css")),
        script=Markup(_asset("page.js")),
        plotly=Markup(get_plotlyjs()),
        facts=_as_script(runs),
    )


def _told_apart(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With names that are all different: the folder's, or where that is not enough its path."""
    names = [run["name"] for run in runs]
    return [
        {**run, "name": run["name"] if names.count(run["name"]) == 1 else run["path"]}
        for run in runs
    ]


def _as_script(value: Any) -> Markup:
    """JSON that cannot end the element it stands in, whatever a failure's message says."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4g} ms" if value < 1000 else f"{value:.0f} ms"


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
