import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from release_ray.core.errors import InputError
from release_ray.core.statuses import Status
from release_ray.result import LatencyMs, Result, TaskResult

TASK = TaskResult(
    name="conv2d",
    weight=2,
    flops=2e8,
    trials=3,
    best_latency_s=1e-3,
    best_gflops=200.0,
    status="done",
    curve=((1, 2.5, 2e-3), (3, 4.0, 1e-3)),
)
RESULT = Result(
    network="resnet18",
    target="llvm",
    seed=0,
    status="done",
    trials=3,
    failures={Status.CRASH: 1},
    latency_ms=LatencyMs(default=9.0, tuned=3.0),
    tasks=(TASK,),
)


def test_the_fields_are_the_interface() -> None:
    shown = json.loads(RESULT.to_json_line())
    assert list(shown) == [
        "network",
        "target",
        "seed",
        "status",
        "trials",
        "failures",
        "wall_s",
        "start_s",
        "device_idle_share",
        "devices_lost",
        "cpu_s",
        "latency_ms",
        "max_rel_error",
        "tasks",
        "versions",
    ]
    assert list(shown["cpu_s"]) == ["search", "build", "run", "other"]
    assert shown["latency_ms"] == {"default": 9.0, "tuned": 3.0}
    assert shown["failures"] == {"crash": 1}
    assert list(shown["tasks"][0]) == [
        "name",
        "weight",
        "flops",
        "trials",
        "best_latency_s",
        "best_gflops",
        "status",
        "curve",
    ]
    assert shown["tasks"][0]["curve"] == [[1, 2.5, 0.002], [3, 4.0, 0.001]]


def test_what_is_unknown_is_null() -> None:
    shown = json.loads(Result(network="n", target="t", seed=0, status="running").to_json_line())
    assert shown["latency_ms"] == {"default": None, "tuned": None}
    assert shown["max_rel_error"] is None


def test_one_line() -> None:
    assert "\n" not in RESULT.to_json_line()


def test_written_and_read_again(tmp_path: Path) -> None:
    RESULT.write(tmp_path / "result.json")
    assert Result.read(tmp_path / "result.json") == RESULT


@pytest.mark.parametrize("content", ["", "{", "[]", '{"network": 1}'])
def test_a_damaged_file_is_told(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match="tune first"):
        Result.read(tmp_path / "result.json")
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(InputError, match="cannot be read"):
        Result.read(tmp_path / "result.json")


def test_a_failure_is_never_a_number() -> None:
    for latency in (0.0, float("nan"), float("inf")):
        with pytest.raises(ValidationError):
            LatencyMs(default=latency)
