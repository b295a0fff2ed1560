"""The page in a real browser: Chromium without a window."""

import shutil

import pytest
from work_dirs import TASKS, work_dir

from release_ray.report import write_report

pytestmark = pytest.mark.long

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DESK, PHONE = (1280, 900), (390, 844)
QUIET = ("--no-sandbox", "--disable-background-networking", "--disable-component-update")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert path, f"none of {', '.join(BROWSERS)} is installed: `make browser` does"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser):
    """Opens a page file, and afterwards asserts that neither script nor network complained."""
    complaints, requests = [], []
    contexts = []

    def open_page(path, size=DESK):
        context = browser.new_context(viewport={"width": size[0], "height": size[1]})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("#curves .main-svg")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report([work_dir(tmp_path_factory.mktemp("one"))])


def rows(page):
    return page.locator("#list tbody tr td:first-child").all_inner_texts()


def names(page, plot):
    """The names of a plot's traces, as Plotly has them."""
    return page.evaluate("id => document.getElementById(id).data.map(trace => trace.name)", plot)


def test_every_plot_is_drawn(opened, report):
    page = opened(report)
    for plot in ("latency", "time", "curves", "importance", "clusters", "failures", "devices"):
        drawn = page.locator(f"#{plot} .main-svg").count()
        said = page.locator(f"#{plot}").inner_text()
        assert drawn or said, plot
    # No CPU-seconds were noted, and a plot without any says why.
    assert page.locator("#time").inner_text() == "Nothing is known yet."
    assert rows(page) == [TASKS[1], TASKS[0]]
    assert page.locator("#messages").inner_text().split("\t") == [
        "1 ×",
        "crash",
        "killed by SIGSEGV",
    ]


def test_a_filter_narrows_the_tasks_and_the_curves(opened, report):
    page = opened(report)
    assert len(names(page, "curves")) == 2
    page.fill("#filter", "CONV")
    assert rows(page) == [TASKS[0]]
    assert names(page, "curves") == [TASKS[0]]
    page.fill("#filter", "nothing like it")
    assert rows(page) == []
    assert "Nothing was measured" in page.locator("#curves").inner_text()
    page.fill("#filter", "")
    assert len(names(page, "curves")) == 2


def test_a_task_is_chosen_by_its_row_and_by_name(opened, report):
    page = opened(report)
    page.select_option("#task", TASKS[0])
    axis = "() => document.getElementById('curves').layout.yaxis.title.text"
    assert page.evaluate(axis) == "GFLOPS"
    assert page.evaluate("() => document.getElementById('curves').data[0].y") == [
        pytest.approx(1000 / 7),
        1000,
        1000,
    ]
    page.check("input[value=seconds]")
    assert page.evaluate("() => document.getElementById('curves').data[0].x") == [10, 20, 60]
    page.locator("#list tbody tr").nth(0).click()
    assert page.input_value("#task") == TASKS[1]
    page.locator("#list tbody tr").nth(0).click()
    assert page.input_value("#task") == ""


def test_the_rounds_of_a_task_can_be_leafed_through(opened, report):
    page = opened(report)
    page.select_option("#task", TASKS[0])
    assert "round 1, 2 clusters, 8 sent" in page.locator("#round-name").inner_text()
    page.locator("#round").fill("0")
    assert "round 0" in page.locator("#round-name").inner_text()
    page.select_option("#task", TASKS[1])
    assert "left to chance" in page.locator("#clusters").inner_text()


def test_several_work_dirs_side_by_side(opened, tmp_path):
    folders = [work_dir(tmp_path / "before"), work_dir(tmp_path / "after", tuned_ms=4.0)]
    page = opened(write_report(folders))
    assert page.locator("#compared tbody tr").count() == 2
    page.select_option("#task", TASKS[0])
    assert names(page, "curves") == ["before", "after"]
    page.select_option("#run", "1")
    assert page.input_value("#run") == "1"
    assert names(page, "failures") == ["before", "after"]


def test_it_fits_a_phone(opened, report):
    page = opened(report, PHONE)
    width = "() => document.documentElement.scrollWidth"
    assert page.evaluate(width) == PHONE[0]
    texts = page.locator("p, td, label")
    sizes = "all => all.map(one => parseFloat(getComputedStyle(one).fontSize))"
    assert min(texts.evaluate_all(sizes)) >= 13
    for plot in ("latency", "curves", "clusters", "devices"):
        box = page.locator(f"#{plot}").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE[0]
