"""CUDA devices: one GPU each. Ray gives an actor its GPU, and with it the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from release_ray.core.errors import InputError
from release_ray.measure.devices.compiled import ChildWorker, CompiledKind
from release_ray.measure.hosts import Gpu, Host
from release_ray.measure.jobs import DeviceSpec


class CudaWorker(ChildWorker):
    """Times kernels on the one GPU that this actor's environment shows. CUDA runs in the child."""

    device = "cuda"


class CudaKind(CompiledKind):
    """`cuda`: every GPU of the cluster, which must be of one model; or `cuda:MODEL`.

    MODEL is any part of the name that the driver gives them, in any case: `cuda:h200`.
    """

    name: ClassVar[str] = "cuda"
    worker_class: ClassVar[type[ChildWorker]] = CudaWorker
    builds: ClassVar[bool] = False

    def expand(self, options: str, hosts: Sequence[Host]) -> list[DeviceSpec]:
        there = [(host, gpu) for host in hosts for gpu in host.gpus]
        if not there:
            raise InputError(
                "devices: no GPU here; name a cluster that has some with --address, or use"
                " --devices cpu"
            )
        wanted = options.strip().casefold()
        chosen = [(host, gpu) for host, gpu in there if wanted == gpu.model.casefold()]
        # An L4 can be told from an L40 by its whole name.
        chosen = chosen or [(host, gpu) for host, gpu in there if wanted in gpu.model.casefold()]
        if not chosen:
            raise InputError(f"devices: no GPU is a {options}; there are {_counted(there)}")
        if len({gpu.model for _, gpu in chosen}) > 1:
            raise InputError(
                f"devices: GPUs of several models do not mix: {_counted(chosen)}; choose one with"
                " --devices cuda:MODEL"
            )
        return [
            DeviceSpec(
                f"cuda:{i}",
                self.name,
                gpus=1,
                node=host.node,
                model=gpu.model,
                target=gpu.target,
            )
            for i, (host, gpu) in enumerate(chosen)
        ]

    def grows(self, spec: DeviceSpec, options: str) -> str:
        return f"{self.name}:{spec.model}"


def _counted(found: Sequence[tuple[Host, Gpu]]) -> str:
    models = Counter(gpu.model for _, gpu in found)
    return ", ".join(f"{count} x {model}" for model, count in sorted(models.items()))
