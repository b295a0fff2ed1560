import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from release_ray.core.errors import InputError
from release_ray.workdir import SCRATCH, Identity, WorkDir, require_file, write_atomic

RESNET = Identity("resnet18", "f" * 40, '{"kind":"llvm","num-cores":1}')


def test_layout(tmp_path: Path) -> None:
    with WorkDir.locked(tmp_path / "a" / "b", RESNET) as workdir:
        names = {
            workdir.records: "records.db",
            workdir.result: "result.json",
            workdir.database_workload: "database_workload.json",
            workdir.database_tuning_record: "database_tuning_record.json",
            workdir.model: "model.so",
            workdir.report: "report.html",
        }
        assert all(path == workdir.path / name for path, name in names.items())
        assert workdir.checkpoints.is_dir()
        assert workdir.logs.is_dir()
    assert WorkDir.existing(workdir.path).identity == RESNET


def test_a_second_run_is_told_the_pid_of_the_first(tmp_path: Path) -> None:
    with (
        WorkDir.locked(tmp_path, RESNET),
        pytest.raises(InputError, match=rf"pid {os.getpid()}\b"),
        WorkDir.locked(tmp_path, RESNET),
    ):
        pass
    with WorkDir.locked(tmp_path, RESNET):
        pass


HOLD = """
import sys, time
from pathlib import Path
from release_ray.workdir import Identity, WorkDir
with WorkDir.locked(Path(sys.argv[1]), Identity(*sys.argv[2:])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_lock_of_a_killed_run_is_free(tmp_path: Path) -> None:
    identity = [RESNET.network, RESNET.fingerprint, RESNET.target]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), *identity], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with (
        pytest.raises(InputError, match=rf"pid {holder.pid}\b"),
        WorkDir.locked(tmp_path, RESNET),
    ):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    with WorkDir.locked(tmp_path, RESNET):
        pass


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (Identity("vgg16", "e" * 40, RESNET.target), "'resnet18', not 'vgg16'"),
        (Identity("resnet18", "e" * 40, RESNET.target), "ffffffffffff, not eeeeeeeeeeee"),
        (Identity("resnet18", "f" * 40, '{"kind":"cuda"}'), "llvm.*not.*cuda"),
    ],
)
def test_it_belongs_to_one_network_and_one_target(
    tmp_path: Path, other: Identity, says: str
) -> None:
    with WorkDir.locked(tmp_path, RESNET):
        pass
    with pytest.raises(InputError, match=says), WorkDir.locked(tmp_path, other):
        pass
    with WorkDir.locked(tmp_path, RESNET):
        pass


def test_the_same_network_under_another_name_may_go_on(tmp_path: Path) -> None:
    with WorkDir.locked(tmp_path, RESNET):
        pass
    renamed = Identity("net.onnx", RESNET.fingerprint, RESNET.target)
    with WorkDir.locked(tmp_path, renamed) as workdir:
        assert workdir.identity == RESNET


@pytest.mark.parametrize("content", ["", "{", "[]", '{"network": "x"}'])
def test_a_damaged_identity_is_told(tmp_path: Path, content: str) -> None:
    with WorkDir.locked(tmp_path, RESNET):
        pass
    (tmp_path / "workdir.json").write_text(content)
    damaged = pytest.raises(InputError, match="workdir.json is damaged")
    with damaged, WorkDir.locked(tmp_path, RESNET):
        pass


def test_records_without_an_owner_are_not_adopted(tmp_path: Path) -> None:
    (tmp_path / "records.db").touch()
    with pytest.raises(InputError, match="is gone"), WorkDir.locked(tmp_path, RESNET):
        pass


def test_no_work_dir(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no work dir"):
        WorkDir.existing(tmp_path)


def test_emptied_records_are_not_taken_for_new_ones(tmp_path: Path) -> None:
    with WorkDir.locked(tmp_path, RESNET) as workdir:
        workdir.records.touch()
    # As a run leaves it that was killed before it had measured anything.
    with WorkDir.locked(tmp_path, RESNET):
        workdir.result.write_text("{}")
    with pytest.raises(InputError, match="records.db is empty"), WorkDir.locked(tmp_path, RESNET):
        pass


def test_simulated_runs_learn_apart(tmp_path: Path) -> None:
    with WorkDir.locked(tmp_path, RESNET) as workdir, workdir.new_checkpoints() as folder:
        (folder / "real").touch()
    with WorkDir.locked(tmp_path, RESNET, simulated=True) as workdir:
        with workdir.new_checkpoints() as folder:
            (folder / "made up").touch()
        assert [path.name for path in workdir.checkpoints.iterdir()] == ["made up"]
        workdir.forget_learning()
        assert not list(workdir.checkpoints.iterdir())
    assert (tmp_path / "checkpoints" / "real").exists()


def test_new_checkpoints_take_the_place_of_the_old_ones(tmp_path: Path) -> None:
    with WorkDir.locked(tmp_path, RESNET) as workdir:
        (workdir.checkpoints / "kept").write_text("1")
        with workdir.new_checkpoints() as folder:
            (folder / "more").write_text("2")
            assert not (workdir.checkpoints / "more").exists()
        assert sorted(path.name for path in workdir.checkpoints.iterdir()) == ["kept", "more"]
        with pytest.raises(RuntimeError), workdir.new_checkpoints() as folder:
            (folder / "kept").write_text("half")
            raise RuntimeError("killed")
        assert (workdir.checkpoints / "kept").read_text() == "1"
        assert not list(tmp_path.glob(f"{SCRATCH}*"))


def test_only_a_file_is_replaced_by_a_file(tmp_path: Path) -> None:
    require_file(tmp_path / "new")
    (tmp_path / "old").touch()
    require_file(tmp_path / "old")
    for other in (tmp_path, Path("/dev/null")):
        with pytest.raises(InputError, match="is no file"):
            require_file(other)


@pytest.mark.parametrize("below", [".", "x"])
def test_a_file_is_in_the_way(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    refused = pytest.raises(InputError, match="choose another --work-dir")
    with refused, WorkDir.locked(tmp_path / "file" / below, RESNET):
        pass


def test_learning_is_forgotten_and_records_are_not(tmp_path: Path) -> None:
    with WorkDir.locked(tmp_path, RESNET) as workdir:
        (workdir.checkpoints / "agent").mkdir()
        (workdir.checkpoints / "agent" / "weights").touch()
        workdir.records.touch()
        workdir.forget_learning()
        assert list(workdir.checkpoints.iterdir()) == []
        assert workdir.records.exists()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_atomic(path, "old")
    write_atomic(path, json.dumps({"π": 1}))
    assert json.loads(path.read_bytes()) == {"π": 1}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(InputError, match="result.json cannot be written"):
            write_atomic(path, b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert json.loads(path.read_bytes()) == {"π": 1}
    assert os.listdir(tmp_path) == ["result.json"]


def test_what_a_killed_run_was_writing_is_cleared_away(tmp_path: Path) -> None:
    with WorkDir.locked(tmp_path, RESNET) as workdir:
        leftover = workdir.checkpoints / ".writing-abc"
        leftover.touch()
    with WorkDir.locked(tmp_path, RESNET):
        assert not leftover.exists()


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_atomic(tmp_path / "atomic", b"")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_work_dir_inside_another_is_let_alone(tmp_path):
    inner = tmp_path / "outer" / "inner"
    with WorkDir.locked(inner, RESNET):
        being_written = inner / ".writing-result"
        being_written.touch()
        with WorkDir.locked(tmp_path / "outer"):
            pass
        assert being_written.exists()
