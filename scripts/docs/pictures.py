"""Makes the documentation's pictures, of a real run: the terminal and the page.

python scripts/docs/pictures.py resnet18 --time-budget 5m --work-dir tuning/resnet18
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console

import release_ray
from release_ray.cli.view import View
from release_ray.events import Event
from release_ray.report import write_report

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
WIDTH, PAGE = 104, (1280, 900)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("--time-budget", default="5m")
    parser.add_argument("--work-dir", type=Path, required=True)
    arguments = parser.parse_args()
    picture = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with View(Console(file=io.StringIO(), force_terminal=True, width=WIDTH)) as view:
        tables = []

        def listen(event: Event) -> None:
            view(event)
            tables.append(view.table())

        result = release_ray.tune(
            arguments.network,
            time_budget=arguments.time_budget,
            work_dir=arguments.work_dir,
            listener=listen,
        )
    picture.print(tables[2 * len(tables) // 3])
    title = f"release-ray tune {arguments.network}"
    (FIGURES / "terminal.svg").write_text(picture.export_svg(title=title))
    photograph(write_report([arguments.work_dir]), FIGURES / "report.png")
    print(result.default_latency_ms, "->", result.tuned_latency_ms)


def photograph(page: Path, picture: Path) -> None:
    """The page from top to bottom, as a PNG."""
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        width, height = PAGE
        opened = chromium.new_page(viewport={"width": width, "height": height})
        opened.goto(page.resolve().as_uri())
        opened.wait_for_selector("#devices .main-svg")
        opened.wait_for_timeout(1000)
        opened.screenshot(path=str(picture), full_page=True)
        chromium.close()


if __name__ == "__main__":
    main()
