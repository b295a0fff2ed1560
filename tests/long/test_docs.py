"""What the documentation shows is what happens."""

import re

import pytest
from program import Program

pytestmark = pytest.mark.long


def python_in(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page, told", [("metaschedule.md", "32 records")])
def test_python_in_the_docs_runs_and_leaves_nothing_behind(page, told, tmp_path, pytestconfig):
    (program,) = python_in(pytestconfig.rootpath / "docs" / page)
    running = Program(program, cwd=tmp_path, python=("-c",))
    assert running.ends() == 0, running.err
    assert told in running.out
    assert running.leaves_nothing() == []
