import logging
import os
import shutil
import uuid
from pathlib import Path

import fsspec
import pytest
from made_records import a_record

from release_ray.core.errors import InputError
from release_ray.records import Records
from release_ray.storage import Storage, restore
from release_ray.workdir import Identity, WorkDir, write_atomic

IDENTITY = Identity("tiny", "f", "llvm")


@pytest.fixture(params=["file", "memory", "path"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    copy = tmp_path / "copies" / "run 1"
    return {
        "file": f"file://{copy}",
        "memory": f"memory://{uuid.uuid4().hex}/run",
        "path": str(copy),
    }[request.param]


def append(records: Records, run: str, number: int) -> None:
    records.append(a_record(run, task="t", workload="w", target="llvm", decisions=f"[{number}]"))


def names(url: str) -> set[str]:
    fs, root = fsspec.core.url_to_fs(url)
    return {os.path.relpath(name, root) for name in fs.find(root)}


def test_a_copy_made_during_a_run_can_be_resumed(tmp_path: Path, url: str) -> None:
    storage = Storage(url)
    with (
        WorkDir.locked(tmp_path / "here", IDENTITY) as workdir,
        Records.open(workdir.records) as records,
    ):
        run = records.begin_run("tune", "{}")
        (workdir.checkpoints / "ppo").mkdir()
        (workdir.checkpoints / "ppo" / "weights").write_bytes(b"\0\1")
        write_atomic(workdir.result, "{}")
        for number in range(3):
            append(records, run, number)
            assert storage.sync(workdir.path)
    assert names(url) == {"records.db", "workdir.json", "result.json", "checkpoints/ppo/weights"}
    assert restore(url, tmp_path / "there")
    with (
        WorkDir.locked(tmp_path / "there", IDENTITY) as workdir,
        Records.open(workdir.records) as records,
    ):
        found = records.history(simulated=False).all()
        assert [r.decisions for r in found] == ["[0]", "[1]", "[2]"]
        assert (workdir.checkpoints / "ppo" / "weights").read_bytes() == b"\0\1"


def test_only_what_changed_is_copied(tmp_path: Path, url: str) -> None:
    here = tmp_path / "here"
    (here / "logs").mkdir(parents=True)
    (here / "logs" / "a").write_text("one")
    (here / "logs" / "b").write_text("one")
    storage = Storage(url)
    assert storage.sync(here)
    fs, root = fsspec.core.url_to_fs(url)
    fs.pipe_file(f"{root}/logs/a", b"mark")
    (here / "logs" / "b").write_text("three")
    assert storage.sync(here)
    assert fs.cat_file(f"{root}/logs/a") == b"mark"
    assert fs.cat_file(f"{root}/logs/b") == b"three"
    (here / "logs" / "b").unlink()
    assert storage.sync(here)
    assert names(url) == {"logs/a"}


def test_an_unusable_url_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for url in ("nonsense://x/y", f"file://{tmp_path}/file/below"):
        with pytest.raises(InputError, match="--storage " + url.split("/")[0]):
            Storage(url)


def test_a_copy_that_fails_is_told_once_and_made_good_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (here / "result.json").write_text("{}")
    storage = Storage(f"file://{there}")
    shutil.rmtree(there)
    there.touch()
    with caplog.at_level(logging.WARNING):
        assert not storage.sync(here)
        assert not storage.sync(here)
        assert len(caplog.records) == 1
        there.unlink()
        assert storage.sync(here)
        assert "works again" in caplog.records[-1].message
    assert (there / "result.json").read_text() == "{}"


def test_nothing_to_restore(tmp_path: Path, url: str) -> None:
    assert not restore(url, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_records_are_never_overwritten_by_a_copy(tmp_path: Path, url: str) -> None:
    here = tmp_path / "here"
    here.mkdir()
    Records.open(here / "records.db").close()
    assert Storage(url).sync(here)
    with pytest.raises(InputError, match="has records.db already"):
        restore(url, here)


def test_what_is_left_out_stays_as_it_is_there(tmp_path):
    work, copy = tmp_path / "work", tmp_path / "copy"
    (work / "runs").mkdir(parents=True)
    (work / "runs" / "one").write_text("1")
    (work / "table").write_text("1")
    storage = Storage(str(copy))
    assert storage.sync(work)
    (work / "runs" / "one").write_text("two")
    (work / "table").write_text("two")
    assert storage.sync(work, leave_out=("runs",))
    assert (copy / "runs" / "one").read_text() == "1" and (copy / "table").read_text() == "two"


def test_work_dirs_inside_a_folder_are_copied_and_restored_with_it(tmp_path):
    """As a sweep's runs are: each with records of its own, as of one moment."""
    work, inner = tmp_path / "work", tmp_path / "work" / "runs" / "one"
    inner.mkdir(parents=True)
    (work / "sweep.json").write_text("{}")
    with Records.open(inner / "records.db") as records:
        records.begin_run("tune", "{}")
        # It is in the write-ahead log alone.
        assert Storage(str(tmp_path / "copy")).sync(work)
    assert restore(str(tmp_path / "copy"), tmp_path / "back", mark="sweep.json")
    with Records.open(tmp_path / "back" / "runs" / "one" / "records.db") as records:
        assert len(records.everything().runs()) == 1
    with pytest.raises(InputError, match="sweep.json already"):
        restore(str(tmp_path / "copy"), tmp_path / "back", mark="sweep.json")
