"""Tasks of a network: names, weights, operations, identities."""

import json

import pytest
import tvm
from tvm import relax, tirx

from release_ray import networks, targets, tasks
from release_ray.networks.pipeline import prepare_graph


@pytest.fixture(scope="module")
def target():
    return targets.resolve("native", 1)


@pytest.fixture(scope="module")
def extracted(target):
    return tasks.extract(prepare_graph(networks.load("tiny", seed=0).module, target), target)


def test_names_are_readable_unique_and_in_the_network_s_order(extracted):
    assert [task.name for task in extracted] == [
        "transpose",
        "conv2d_add_relu",
        "conv2d_add_relu_2",
        "conv2d_add_relu_3",
        "max_pool2d",
        "transpose_reshape",
        "matmul_add",
    ]


def test_another_seed_gives_the_same_tasks(extracted, target):
    others = tasks.extract(prepare_graph(networks.load("tiny", seed=9).module, target), target)
    assert [t.workload for t in others] == [t.workload for t in extracted]


def test_operations_are_counted(extracted):
    by_name = {task.name: task for task in extracted}
    macs = 32 * 32 * 16 * 3 * 9
    assert by_name["conv2d_add_relu"].flops == pytest.approx(2 * macs, rel=0.05)
    assert by_name["transpose"].flops == 0
    assert all(task.weight == 1 for task in extracted)


def test_bytes_are_those_of_inputs_and_outputs(extracted):
    by_name = {task.name: task for task in extracted}
    image, weights, bias, out = 3 * 32 * 32, 16 * 3 * 9, 16, 16 * 32 * 32
    assert by_name["conv2d_add_relu"].bytes == 4 * (image + weights + bias + out)
    assert by_name["transpose"].bytes == 4 * 2 * image


def test_a_workload_is_the_task_as_plain_data(extracted, target):
    task = extracted[1]
    workload = task.workload
    module = tvm.ir.load_json(workload.module_json)
    assert [variable.name_hint for variable in module.get_global_vars()] == ["main"]
    assert isinstance(module["main"], tirx.PrimFunc)
    assert tasks.workload_key(module) == workload.key
    assert json.loads(workload.target_json)["num-cores"] == 1
    assert (workload.name, workload.flops) == (task.name, task.flops)
    assert len({t.workload.key for t in extracted}) == len(extracted)


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("fused_conv2d1_add1_relu11", "conv2d_add_relu"),
        ("max_pool2d1", "max_pool2d"),
        ("fused_conv2d_transpose3_add", "conv2d_transpose_add"),
        ("reshape", "reshape"),
    ],
)
def test_short_names(long, short):
    assert tasks._short(long) == short


def test_an_operator_that_runs_twice_is_one_task(target):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            once = builder.emit(relax.op.nn.softmax(x))
            result = builder.emit_output(relax.op.nn.softmax(once))
        builder.emit_func_output(result)
    module = prepare_graph(builder.get(), target)
    (task,) = tasks.extract(module, target)
    assert (task.name, task.weight) == ("softmax", 2)
