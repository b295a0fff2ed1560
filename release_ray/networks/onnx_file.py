"""Networks in ONNX files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper, helper, version_converter
from onnx.reference import ReferenceEvaluator
from tvm.relax.frontend import onnx as onnx_frontend

from release_ray.core.errors import InputError
from release_ray.networks.base import InputSpec, Network, NetworkSource
from release_ray.networks.files import digest, existing_file, first_line, without_chatter

_EVALUATED_OPSET = 21


class OnnxSource(NetworkSource):
    """`.onnx` files, with or without external data."""

    def load(self, source: str, *, seed: int) -> Network:
        path = existing_file(source)
        model, external = _read(path, source)
        inputs = _inputs(model, source)
        try:
            with without_chatter():
                module = onnx_frontend.from_onnx(
                    model,
                    shape_dict={spec.name: list(spec.shape) for spec in inputs},
                    dtype_dict={spec.name: spec.dtype for spec in inputs},
                )
        except Exception as error:  # the converter raises all kinds for what it cannot convert
            raise InputError(_unsupported(error, source)) from error
        return Network(path.stem, digest([path, *external]), module, inputs, _evaluator(model))


def _read(path: Path, label: str) -> tuple[onnx.ModelProto, list[Path]]:
    """The checked model with all its weights, and the further files that held some of them."""
    try:
        model = onnx.load(str(path), load_external_data=False)
        locations = {
            external_data_helper.ExternalDataInfo(tensor).location
            for tensor in model.graph.initializer
            if external_data_helper.uses_external_data(tensor)
        }
        external = [path.parent / location for location in sorted(locations)]
        external_data_helper.load_external_data_for_model(model, str(path.parent))
        if not model.graph.node:
            raise InputError(f"network {label!r} is no ONNX model: its graph has no node")
        onnx.checker.check_model(model)
    except InputError:
        raise
    except Exception as error:  # the file is foreign data: protobuf, checker and OS errors alike
        raise InputError(
            f"network {label!r} is no valid ONNX model: {first_line(error)}"
        ) from error
    return model, external


def _inputs(model: onnx.ModelProto, label: str) -> tuple[InputSpec, ...]:
    weights = {tensor.name for tensor in model.graph.initializer}
    specs = []
    for value in model.graph.input:
        if value.name in weights:  # older exporters list the weights as inputs too
            continue
        if not value.type.HasField("tensor_type"):
            raise InputError(f"network {label!r}: input {value.name!r} is no tensor")
        tensor = value.type.tensor_type
        extents = tensor.shape.dim
        if any(extent.HasField("dim_value") and extent.dim_value == 0 for extent in extents):
            raise InputError(
                f"network {label!r}: input {value.name!r} is empty: it has an extent of 0"
            )
        if not tensor.HasField("shape") or any(not extent.dim_value > 0 for extent in extents):
            shape = ", ".join(e.dim_param or str(e.dim_value or "?") for e in extents)
            raise InputError(
                f"network {label!r}: input {value.name!r} has the dynamic shape ({shape}); "
                "export it with fixed shapes, or fix them with onnx.tools.update_model_dims"
            )
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        if dtype == "object":
            raise InputError(f"network {label!r}: input {value.name!r} holds text, not numbers")
        specs.append(InputSpec(value.name, tuple(e.dim_value for e in extents), dtype))
    return tuple(specs)


def _evaluator(model: onnx.ModelProto) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    names = [value.name for value in model.graph.input]
    evaluable = _with_known_operators(model)

    def evaluate(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        evaluator = ReferenceEvaluator(evaluable)
        fed = [name for name in names if name in evaluator.input_names]
        outputs = evaluator.run(None, dict(zip(fed, inputs, strict=True)))
        return [np.asarray(value) for value in outputs]

    return evaluate


def _with_known_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in operators that the reference evaluator has: of some it has only newer ones."""
    try:
        ReferenceEvaluator(model)
    except RuntimeError:
        with suppress(Exception):  # the converter raises all kinds; the evaluation then says why
            return version_converter.convert_version(model, _EVALUATED_OPSET)
    return model


def _unsupported(error: BaseException, label: str) -> str:
    found = re.search(r"operators are not supported for frontend ONNX: (.*)", str(error))
    operators = found.group(1).strip() if found else ""
    if operators:
        return f"network {label!r}: TVM has no conversion for the operator {operators}"
    return f"network {label!r} cannot be converted: {first_line(error)}"
