"""Networks of torch: a `.pt2` archive of `torch.export.save`, or a program in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree
from tvm.relax.frontend import torch as torch_frontend

from release_ray.core.errors import InputError
from release_ray.networks.base import InputSpec, Network, NetworkSource, dtype_of
from release_ray.networks.files import digest, existing_file, first_line, without_chatter


class ExportedProgramSource(NetworkSource):
    """`.pt2` files."""

    def load(self, source: str, *, seed: int) -> Network:
        path = existing_file(source)
        try:
            with without_chatter():
                program = torch.export.load(path)
        except Exception as error:  # the archive is foreign data: zip, JSON and pickle errors alike
            raise InputError(
                f"network {source!r} is no whole archive of torch.export.save ({_cause(error)}): "
                "export it again"
            ) from error
        return from_exported_program(
            program, name=path.stem, label=source, fingerprint=digest([path])
        )


def from_exported_program(
    program: ExportedProgram, *, name: str, label: str, fingerprint: str
) -> Network:
    """The network that an exported program is; `label` is what errors call it.

    Raises:
        InputError: an input is dynamic or no tensor, or an operator has no conversion.
    """
    inputs = _inputs(program, label)
    try:
        with without_chatter():
            module = torch_frontend.from_exported_program(program)
    except Exception as error:  # the converter raises all kinds for what it cannot convert
        raise InputError(_unsupported(error, label)) from error
    return Network(name, fingerprint, module, inputs, _evaluator(program))


def _inputs(program: ExportedProgram, label: str) -> tuple[InputSpec, ...]:
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, ConstantArgument):
            raise InputError(
                f"network {label!r}: input {spec.arg.name!r} is no tensor; export it with tensor "
                "inputs"
            )
    names = set(program.graph_signature.user_inputs)
    specs = []
    for node in program.graph.nodes:
        if node.op != "placeholder" or node.name not in names:
            continue
        value = node.meta.get("val")
        if not all(isinstance(extent, int) for extent in value.shape):
            shape = ", ".join(str(extent) for extent in value.shape)
            raise InputError(
                f"network {label!r}: input {node.name!r} has the dynamic shape ({shape}); "
                "export it without dynamic_shapes"
            )
        dtype = str(value.dtype).removeprefix("torch.")
        specs.append(InputSpec(node.name, tuple(value.shape), dtype))
    return tuple(specs)


def _evaluator(program: ExportedProgram) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    def evaluate(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        tensors = [_tensor(value) for value in inputs]
        args, kwargs = pytree.tree_unflatten(tensors, program.call_spec.in_spec)
        with torch.no_grad():
            outputs = program.module()(*args, **kwargs)
        return [_array(value) for value in pytree.tree_leaves(outputs)]

    return evaluate


# torch and numpy share memory of all types but bfloat16, which goes by its bits.


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype == dtype_of("bfloat16"):
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _array(value: torch.Tensor) -> np.ndarray:
    value = value.detach()
    if value.dtype is torch.bfloat16:
        return value.contiguous().view(torch.uint16).numpy().view(dtype_of("bfloat16"))
    return value.numpy()


def _cause(error: BaseException) -> str:
    """For what is a zip file of another kind, torch refers to its log instead of a cause."""
    line = first_line(error).rstrip(".")
    return "it holds something else" if "warnings above" in line else line


def _unsupported(error: BaseException, label: str) -> str:
    """The converter says `Unsupported function types ['a.default']` where it lacks an operator."""
    found = re.search(r"Unsupported function types? [\[{](.*)[\]}]", str(error))
    if found:
        operators = ", ".join(sorted(re.findall(r"'([^']+)'", found.group(1))))
        return f"network {label!r}: TVM has no conversion for the operator {operators}"
    return f"network {label!r} cannot be converted: {first_line(error)}"
