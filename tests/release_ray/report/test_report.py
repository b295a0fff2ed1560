"""What the page is made of."""

import json
import re

import pytest
from work_dirs import TASKS, work_dir

from release_ray.core.errors import InputError
from release_ray.report import write_report
from release_ray.report.facts import facts_of
from release_ray.workdir import WorkDir


def facts_in(page):
    """The facts as the page's script reads them."""
    (text,) = re.findall(r'<script id="facts" type="application/json">(.*?)</script>', page)
    return json.loads(text)


def test_facts_of_a_work_dir(tmp_path):
    facts = facts_of(WorkDir.existing(work_dir(tmp_path / "one")))
    assert (facts["name"], facts["target"]) == ("one", "llvm, znver4, 1 core")
    assert facts["messages"] == [{"count": 1, "status": "crash", "message": "killed by SIGSEGV"}]
    second, first = facts["tasks"]
    assert (second["name"], first["name"]) == (TASKS[1], TASKS[0])
    assert (second["share"], first["share"]) == (0.75, 0.25)
    assert first["curve"] == [[1, 10.0, 7.0], [4, 20.0, 1.0]]
    assert first["importance"][0][0] == "2: choice"


def test_rounds_that_were_left_to_chance_have_no_picture(tmp_path):
    rounds = facts_of(WorkDir.existing(work_dir(tmp_path)))["rounds"]
    assert {task: [entry["round"] for entry in rounds[task]] for task in rounds} == {
        TASKS[0]: [0, 1]
    }
    assert rounds[TASKS[0]][0]["map"]["chosen"] == [[0.0, 1.0]]


def test_devices_are_as_busy_as_their_measurements_took(tmp_path):
    devices = facts_of(WorkDir.existing(work_dir(tmp_path)))["devices"]
    width_s = devices["edges_s"][1] - devices["edges_s"][0]
    # What was recorded in one moment, 61 times a tenth of a second, is drawn once at most.
    assert list(devices["busy"]) == ["cpu:0 on here"]
    assert 0 < sum(devices["busy"]["cpu:0 on here"]) * width_s <= 6.1
    assert max(devices["busy"]["cpu:0 on here"]) <= 1.0


def test_the_page_holds_the_facts_and_plotly_and_asks_the_network_for_nothing(tmp_path):
    path = write_report([work_dir(tmp_path / "one")])
    assert path == tmp_path / "one" / "report.html"
    page = path.read_text()
    (facts,) = facts_in(page)
    assert facts["latency_ms"] == {"default": 100.0, "tuned": 5.0}
    assert "Plotly" in page
    assert "100 ms → 5 ms" in page
    assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?!data:)', page) == []


@pytest.mark.parametrize(
    "message", ["</script><script>alert(1)</script>", "<!--<script>", "\u2028"]
)
def test_a_message_is_text_whatever_it_says(tmp_path, message):
    page = write_report([work_dir(tmp_path / "one", message=message)]).read_text()
    (facts,) = facts_in(page)
    assert facts["messages"][0]["message"] == message.strip()
    assert "alert(1)</script>" not in page


def test_several_are_told_apart_and_compared(tmp_path):
    folders = [work_dir(tmp_path / "a" / "w"), work_dir(tmp_path / "b" / "w", tuned_ms=4.0)]
    out = tmp_path / "new" / "page.html"
    assert write_report([*folders, folders[0]], out) == out
    page = out.read_text()
    assert [facts["name"] for facts in facts_in(page)] == [str(folder) for folder in folders]
    assert '<table id="compared">' in page


def test_what_has_no_result_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="no work dir"):
        write_report([tmp_path])
    folder = work_dir(tmp_path / "one")
    (folder / "result.json").unlink()
    with pytest.raises(InputError, match=r"result\.json does not exist"):
        write_report([folder])
    with pytest.raises(InputError, match="is no file"):
        write_report([work_dir(tmp_path / "two")], tmp_path)
