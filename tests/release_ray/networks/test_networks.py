"""Networks from every source, and what is said about those that cannot be used."""

import logging
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from release_ray import networks
from release_ray.core.errors import InputError
from release_ray.networks import models, onnx_file
from release_ray.networks.base import Network, dtype_of


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, image: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.conv(image) * scale, image + 1


def save_pt2(path, batch=1, **options) -> str:
    example = (torch.zeros(batch, 3, 8, 8), torch.zeros(1))
    torch.export.save(torch.export.export(Scaled().eval(), example, **options), path)
    return str(path)


def save_onnx(path, *, batch=1, operator="Relu", domain="", external=False) -> str:
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "weight"], ["hidden"]),
            helper.make_node(operator, ["hidden"], ["result"], domain=domain),
        ],
        "graph",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, [batch, 4, 6, 6])],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    opsets = [helper.make_opsetid("", 17)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(
        model, str(path), save_as_external_data=external, location="weights.bin", size_threshold=0
    )
    return str(path)


def assert_consistent(network: Network) -> None:
    inputs = network.example_inputs(0)
    assert [x.shape for x in inputs] == [spec.shape for spec in network.inputs]
    assert [x.dtype.name for x in inputs] == [spec.dtype for spec in network.inputs]
    assert len(network.module["main"].params) == len(inputs)
    outputs = network.reference(inputs)
    assert outputs and all(np.isfinite(output).all() for output in outputs)
    for again, once in zip(network.reference(inputs), outputs, strict=True):
        np.testing.assert_array_equal(again, once)


def refusal(source: str) -> str:
    with pytest.raises(InputError) as error:
        networks.load(source, seed=0)
    assert "\n" not in str(error.value)
    assert source in str(error.value)
    return str(error.value)


def test_tiny_is_determined_by_its_seed():
    first, again, other = (networks.load("tiny", seed=seed) for seed in (1, 1, 2))
    assert_consistent(first)
    assert first.name == "tiny"
    assert first.inputs[0].shape == (1, 3, 32, 32)
    inputs = first.example_inputs(5)
    np.testing.assert_array_equal(first.reference(inputs)[0], again.reference(inputs)[0])
    assert not np.allclose(first.reference(inputs)[0], other.reference(inputs)[0])
    assert first.fingerprint == other.fingerprint  # another seed may go on in a work dir


def test_drawing_weights_leaves_torch_s_random_state_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    networks.load("tiny", seed=0)
    assert torch.rand(1) == expected


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("alexnet", 61_100_840), ("vgg16", 138_357_544), ("resnet18", 11_689_512)],
)
def test_architectures_have_their_published_size(name, parameters):
    with torch.device("meta"):
        model = getattr(models, name)()
        assert sum(p.numel() for p in model.parameters()) == parameters
        assert model.eval()(torch.zeros(1, 3, 224, 224)).shape == (1, 1000)


def test_exported_program(tmp_path):
    source = save_pt2(tmp_path / "scaled.pt2")
    network = networks.load(source, seed=0)
    assert_consistent(network)
    assert network.name == "scaled"
    assert [spec.name for spec in network.inputs] == ["image", "scale"]
    image, scale = network.example_inputs(0)
    _, second = network.reference([image, scale])
    np.testing.assert_allclose(second, image + 1, rtol=1e-6)
    assert network.fingerprint == networks.load(source, seed=9).fingerprint
    assert network.fingerprint != networks.load(save_pt2(tmp_path / "b.pt2"), seed=0).fingerprint


@pytest.mark.parametrize("external", [False, True])
def test_onnx(tmp_path, external):
    network = networks.load(save_onnx(tmp_path / "net.onnx", external=external), seed=0)
    assert_consistent(network)
    assert network.name == "net"
    assert network.inputs[0].name == "image"
    assert (network.reference(network.example_inputs(0))[0] >= 0).all()


def test_external_weights_count_for_the_fingerprint(tmp_path):
    source = save_onnx(tmp_path / "net.onnx", external=True)
    before = networks.load(source, seed=0).fingerprint
    weights = tmp_path / "weights.bin"
    weights.write_bytes(bytes(len(weights.read_bytes())))
    assert networks.load(source, seed=0).fingerprint != before


def test_dynamic_shapes_are_refused_by_the_input_s_name(tmp_path):
    message = refusal(save_onnx(tmp_path / "net.onnx", batch="N"))
    assert "'image'" in message and "dynamic" in message and "N" in message
    batch = torch.export.Dim("batch")
    shapes = {"image": {0: batch}, "scale": None}
    message = refusal(save_pt2(tmp_path / "net.pt2", batch=2, dynamic_shapes=shapes))
    assert "'image'" in message and "dynamic" in message


def test_unsupported_operators_are_named(tmp_path):
    assert "NoSuchOp" in refusal(
        save_onnx(tmp_path / "net.onnx", operator="NoSuchOp", domain="some.where")
    )

    class Unsupported(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Unsupported(), (torch.zeros(3),)), path)
    assert "bessel_j0" in refusal(str(path))


@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
def test_files_that_hold_no_network(tmp_path, suffix):
    path = tmp_path / f"net.{suffix}"
    assert "no such file" in refusal(str(path))
    path.write_bytes(b"")
    assert "empty" in refusal(str(path))
    path.write_bytes(b"this is not a network at all")
    refusal(str(path))
    directory = tmp_path / f"dir.{suffix}"
    directory.mkdir()
    assert "directory" in refusal(str(directory))


def test_an_archive_that_is_cut_off_or_holds_something_else(tmp_path):
    path = tmp_path / "net.pt2"
    save_pt2(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    said = []
    listener = logging.Handler()
    listener.emit = said.append
    logging.getLogger("torch.export").addHandler(listener)
    try:
        assert "export it again" in refusal(str(path))
        torch.save({"weight": torch.zeros(1)}, path)
        assert "holds something else" in refusal(str(path))
    finally:
        logging.getLogger("torch.export").removeHandler(listener)
    assert said == []  # torch would log its traceback


def test_a_converter_that_fails_prints_nothing(tmp_path, capsys, monkeypatch):
    """TVM's prints the operator's inputs before it raises."""

    def convert(*_, **__):
        print("Error converting operator Relu, with inputs: [...]")
        raise ValueError("no Relu of this kind")

    monkeypatch.setattr(onnx_file.onnx_frontend, "from_onnx", convert)
    assert "no Relu of this kind" in refusal(save_onnx(tmp_path / "net.onnx"))
    assert capsys.readouterr().out == ""


def test_unknown_names_are_answered_with_the_known_and_the_nearest():
    message = refusal("resnet81")
    assert "did you mean resnet18?" in message
    assert all(name in message for name in networks.BUILT_IN_NAMES)
    assert "did you mean" not in refusal("model.h5")


def exported(tmp_path, module: nn.Module, *example) -> str:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(module.eval(), example), path)
    return str(path)


class Linear(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 4, bias=False, dtype=dtype)


class GivesItsWeight(Linear):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.inner(x), self.inner.weight


class TakesMore(Linear):
    def forward(self, x: torch.Tensor, times: object) -> torch.Tensor:
        return self.inner(x) if times is None else self.inner(x) * times


class GivesNone(Linear):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return self.inner(x), None


class OfOneType(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_a_weight_may_be_an_output(tmp_path):
    assert_consistent(
        networks.load(exported(tmp_path, GivesItsWeight(), torch.zeros(2, 8)), seed=0)
    )


def test_inputs_and_outputs_may_be_bfloat16(tmp_path):
    half = torch.bfloat16
    source = exported(tmp_path, OfOneType(half), torch.zeros(2, 8, dtype=half))
    network = networks.load(source, seed=0)
    (image,) = network.example_inputs(0)
    assert image.dtype == dtype_of("bfloat16")
    assert len(np.unique(image.astype(np.float32))) > 8
    (output,) = network.reference([image])
    weight = torch.export.load(source).state_dict["inner.weight"].detach().float().numpy()
    np.testing.assert_allclose(
        output.astype(np.float32), image.astype(np.float32) @ weight.T, rtol=0.02, atol=0.02
    )


@pytest.mark.parametrize("constant", [3, None])
def test_an_argument_that_is_no_tensor_is_named(tmp_path, constant):
    source = exported(tmp_path, TakesMore(), torch.zeros(2, 8), constant)
    assert "input 'times' is no tensor" in refusal(source)


def test_what_its_own_framework_cannot_evaluate_is_bad_input(tmp_path):
    network = networks.load(exported(tmp_path, GivesNone(), torch.zeros(2, 8)), seed=0)
    with pytest.raises(InputError, match="cannot be evaluated"):
        network.reference(network.example_inputs(0))


def test_onnx_operators_that_the_evaluator_has_in_newer_versions_only(tmp_path):
    values = {"scale": np.float32(0.1), "zero": np.uint8(128)}
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
        [onnx.numpy_helper.from_array(np.array(value), name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    network = networks.load(str(tmp_path / "net.onnx"), seed=0)
    (x,) = network.example_inputs(0)
    (y,) = network.reference([x])
    np.testing.assert_allclose(y, np.round(x / np.float32(0.1)) * 0.1, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "shape", "said"), [("STRING", [2], "holds text"), ("FLOAT", [0, 4], "is empty")]
)
def test_inputs_that_hold_no_numbers(tmp_path, kind, shape, said):
    types = getattr(TensorProto, kind)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", types, shape)],
        [helper.make_tensor_value_info("y", types, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    message = refusal(str(tmp_path / "net.onnx"))
    assert "input 'x'" in message and said in message


def test_a_network_that_is_no_text():
    with pytest.raises(InputError, match="3 is no text"):
        networks.load(3, seed=0)


@pytest.mark.parametrize("source", ["tiny", "net.pt2", "net.onnx"])
def test_loading_and_evaluating_warn_of_nothing(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    save_pt2("net.pt2")
    save_onnx("net.onnx")
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        network = networks.load(source, seed=0)
        network.reference(network.example_inputs(0))
    assert [str(warning.message) for warning in raised] == []
