"""The graph passes: batch norms vanish, layouts change, results stay."""

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.ir import Call, Op

from release_ray import benchmark, networks, targets, verify
from release_ray.compile import compile_network, export
from release_ray.networks.constants import ELEMENT_WISE, FoldWithNumpy
from release_ray.networks.pipeline import prepare_graph


@pytest.fixture(scope="module")
def tiny():
    return networks.load("tiny", seed=0)


def operators(module: tvm.ir.IRModule) -> list[str]:
    found: list[str] = []

    def visit(expr: object) -> None:
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            found.append(str(expr.op.name))

    relax.analysis.post_order_visit(module["main"], visit)
    return found


def test_only_fused_operators_remain(tiny):
    module = prepare_graph(tiny.module, targets.resolve("native", 1))
    names = sorted(variable.name_hint for variable in module.get_global_vars())
    assert sum("conv2d" in name for name in names) == 3
    assert all("relu" in name for name in names if "conv2d" in name)
    assert not any("norm" in name or "sqrt" in name for name in names)
    assert set(operators(module)) == {"relax.call_tir"}


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_results_stay(tiny, tmp_path, layout):
    target = targets.resolve("native", 1)
    path = tmp_path / "model.so"
    export(compile_network(prepare_graph(tiny.module, target, layout), target), path)
    inputs = tiny.example_inputs(0)
    timing = benchmark.measure_network(str(path), inputs, turns=1, min_turn_ms=0)
    assert verify.max_rel_error(timing.outputs, tiny.reference(inputs)) < 1e-5


class Patches(nn.Module):
    """What a vision transformer begins with: attention, with or without a convolution before."""

    def __init__(self, convolution: bool) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 4, stride=4) if convolution else nn.AvgPool2d(4)
        width = 16 if convolution else 3
        self.layer = nn.TransformerEncoderLayer(width, 1, 8, batch_first=True)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.layer(self.embed(image).flatten(2).transpose(1, 2))


@pytest.mark.parametrize("convolution", [False, True])
def test_attention_stays_as_it_is(tmp_path, convolution):
    """TVM's conversion of layouts fails on its operators."""
    torch.manual_seed(0)
    program = torch.export.export(Patches(convolution).eval(), (torch.zeros(1, 3, 8, 8),))
    torch.export.save(program, tmp_path / "net.pt2")
    network = networks.load(str(tmp_path / "net.pt2"), seed=0)
    target = targets.resolve("native", 1)
    export(compile_network(prepare_graph(network.module, target), target), tmp_path / "net.so")
    inputs = network.example_inputs(0)
    outputs = benchmark.measure_network(str(tmp_path / "net.so"), inputs, min_turn_ms=1).outputs
    assert verify.max_rel_error(outputs, network.reference(inputs)) < 1e-4


def test_a_gpu_keeps_the_channels_first(tiny):
    module = prepare_graph(tiny.module, targets.resolve("cuda", 1))
    assert not any("transpose" in variable.name_hint for variable in module.get_global_vars())


def test_tvm_s_own_pass_finds_nothing_left_to_fold(tiny):
    folded_batch_norms = relax.transform.FoldBatchnormToConv2D()(tiny.module)
    assert "relax.sqrt" in operators(folded_batch_norms)
    module = relax.transform.FoldConstant()(FoldWithNumpy()(folded_batch_norms))
    left = set(operators(module))
    assert not left & {"relax.sqrt", "relax.divide", "relax.subtract", "relax.permute_dims"}


def test_folding_computes_what_tvm_computes():
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.5, 2.0, (2, 3)).astype("float32") for _ in range(2))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 2, 1), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = relax.op.multiply(relax.const(a), relax.const(b))
            value = builder.emit(relax.op.add(value, relax.const(np.float32(1.5))))
            value = builder.emit(relax.op.divide(relax.op.sqrt(value), relax.const(b)))
            value = builder.emit(relax.op.rsqrt(relax.op.subtract(value, relax.const(a * -9))))
            value = builder.emit(relax.op.expand_dims(relax.op.permute_dims(value), -1))
            result = builder.emit_output(relax.op.add(x, relax.op.reshape(value, (3, 2, 1))))
        builder.emit_func_output(result)
    folded = relax.transform.FoldConstant()(FoldWithNumpy()(builder.get()))
    assert operators(folded) == ["relax.add"]
    constant = folded["main"].body.blocks[0].bindings[-1].value.args[1]
    expected = (1 / np.sqrt(np.sqrt(a * b + 1.5) / b + a * 9)).T[..., None]
    np.testing.assert_allclose(constant.value.numpy(), expected, rtol=1e-6)


def test_every_folded_operator_exists():
    assert all(Op.get(name) is not None for name in ELEMENT_WISE)
