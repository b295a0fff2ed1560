"""What a network is to the tuner, and what a source of networks must do (an extension point)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from release_ray.core.errors import InputError
from release_ray.networks.files import first_line

if TYPE_CHECKING:
    from tvm.ir import IRModule


def dtype_of(name: str) -> np.dtype:
    """numpy's type of a name; of bfloat16 too, which numpy has from elsewhere."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


@dataclass(frozen=True)
class InputSpec:
    """One input of a network: its name, static shape, and numpy's name of its type."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Network:
    """A network as its source gives it, before any pass of the tuner."""

    name: str
    """A built-in's name or the file's stem."""
    fingerprint: str
    """Hex digest that identifies the network; of files it differs where the weights do."""
    module: IRModule = field(repr=False)
    """Relax module; `main` takes the inputs alone, the weights are constants in it."""
    inputs: tuple[InputSpec, ...]
    evaluate: Callable[[Sequence[np.ndarray]], list[np.ndarray]] = field(repr=False)
    """The source's own framework: inputs to outputs, in the order of `main`."""

    def example_inputs(self, seed: int) -> list[np.ndarray]:
        """One random array an input: standard normal, or 0 and 1 where the type is no float."""
        rng = np.random.default_rng(seed)
        return [
            rng.standard_normal(spec.shape).astype(dtype_of(spec.dtype))
            if "float" in spec.dtype
            else rng.integers(0, 2, spec.shape).astype(spec.dtype)
            for spec in self.inputs
        ]

    def reference(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs that the compiled network must give for these inputs.

        Raises `InputError` where the network's own framework cannot evaluate it.
        """
        try:
            return self.evaluate(inputs)
        except Exception as error:  # a framework raises all kinds for what it lacks
            raise InputError(
                f"network {self.name!r} cannot be evaluated by its own framework, so nothing could "
                f"be compared with it: {first_line(error)}"
            ) from error


class NetworkSource(ABC):
    """Where networks come from. Stateless: one instance serves every call."""

    @abstractmethod
    def load(self, source: str, *, seed: int) -> Network:
        """The network; `seed` gives the weights where the source has none of its own.

        Raises:
            InputError: the text names nothing, or something that cannot be compiled: a broken file,
                an input of dynamic shape, an unsupported operator. One line that names it.
        """
