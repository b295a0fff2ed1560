"""What is tuned for: `native`, `cuda` or any TVM target as text becomes a TVM target."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

import tvm
from tvm.target import Target, codegen

from release_ray import tvm_setup
from release_ray.core.errors import InputError

EXAMPLES: Final = """native, cuda, or '{"kind": "llvm", "mcpu": "skylake-avx512"}'"""

CUDA_DEFAULTS: Final = {
    "kind": "cuda",
    # A wheel of TVM without CUDA would say sm_50, which CUDA 13 no longer compiles for.
    "arch": "sm_75",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "registers_per_block": 65536,
    "thread_warp_size": 32,
}
"""A GPU when there is none here to ask: MetaSchedule's checks need these bounds."""


def resolve(text: str, cores: int, gpu: Mapping[str, Any] | None = None) -> Target:
    """The target that a text names.

    Args:
        text: `native` (this host's processor), `cuda` (the GPU that `gpu` describes, or one with
            the bounds that every GPU of today keeps), a tag, a JSON object, or TVM's older
            `llvm -mcpu=skylake`.
        cores: cores that a kernel runs on: `num-cores` of a CPU target that does not say it.
        gpu: what the device to be tuned for says of itself: `arch` and its bounds.

    Raises:
        InputError: the text is no target of this TVM, or its processor is none that LLVM knows.
    """
    text = text.strip()
    if text == "native":
        return _target(text, _native(cores))
    if text == "cuda":
        return _target(text, {**CUDA_DEFAULTS, **(gpu or {})})
    config = _json(text) if text.startswith("{") else _words(text)
    target = _target(text, config)
    if target.kind.name != "llvm":
        return target
    _check_processor(text, target)
    return target if "num-cores" in target.attrs else with_cores(target, cores)


def with_cores(target: Target, cores: int) -> Target:
    """The same CPU target for kernels on so many cores."""
    return Target({**json.loads(target_json(target)), "num-cores": cores})


def target_json(target: Target) -> str:
    """The canonical JSON of a target: equal texts are equal targets; `Target(text)` reads it."""
    return json.dumps(_plain(json.loads(str(target))), sort_keys=True, separators=(",", ":"))


def is_cpu(target: Target) -> bool:
    """Whether kernels run on processor cores."""
    return int(target.get_target_device_type()) == tvm.cpu().dlpack_device_type()


def back_end(target: Target) -> str:
    """What `tvm_setup.prepare` must register before a design space for this target is made."""
    if target.kind.name != "llvm":
        return str(target.kind.name)
    triple = str(target.attrs.get("mtriple", ""))
    if triple.startswith(("aarch64", "arm")):
        return "arm_cpu"
    if triple.startswith("riscv"):
        return "riscv_cpu"
    return "x86" if triple.startswith(("x86_64", "i686")) else tvm_setup.host_back_end()


def _native(cores: int) -> dict[str, Any]:
    # Vectors are as wide as the schedule says: LLVM's preference for 256 bits on Intel's AVX-512
    # processors changes nothing here (same instructions with and without it), so none is given.
    return {"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu(), "num-cores": cores}


def _json(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError as error:
        raise InputError(f"target {text!r} is not valid JSON ({error}); try {EXAMPLES}") from None


def _words(text: str) -> dict[str, Any]:
    """`kind -key=value -key value ...`, or one word: a kind or a tag."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"target {text!r}: {error}; try {EXAMPLES}") from None
    if not words:
        raise InputError(f"target is empty; try {EXAMPLES}")
    name = words[0]
    if "/" in name:
        config: dict[str, Any] = {"tag": name}
        kind = str(_target(text, config).kind.name)
    else:
        config = {"kind": name}
        kind = _known_kind(text, name)
    types = {str(key): str(value) for key, value in _option_types(kind).items()}
    rest = iter(words[1:])
    for word in rest:
        key, has_value, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or key not in types:
            near = difflib.get_close_matches(key, types, n=1)
            hint = f", did you mean -{near[0]}?" if near else ""
            raise InputError(f"target {text!r}: {kind} has no option {word!r}{hint}")
        if not has_value:
            value = "1" if types[key] == "bool" else next(rest, "")
        config[key] = _value(text, key, value, types[key])
    return config


def _option_types(kind: str) -> dict[Any, Any]:
    return dict(tvm.target.TargetKind.options_from_name(kind))


def _known_kind(text: str, kind: str) -> str:
    known = sorted(str(name) for name in Target.list_kinds())
    if kind not in known:
        near = difflib.get_close_matches(kind, [*known, "native"], n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(f"target {text!r} is no kind that TVM knows; {hint}try {EXAMPLES}")
    return kind


def _value(text: str, key: str, value: str, kind: str) -> Any:
    if kind == "Array<str>":
        return [part for part in value.split(",") if part]
    if kind == "int":
        try:
            return int(value)
        except ValueError:
            raise InputError(f"target {text!r}: -{key} wants a number, not {value!r}") from None
    if kind == "bool":
        return value.lower() in ("1", "true")
    return value


def _target(text: str, config: dict[str, Any]) -> Target:
    try:
        return Target(config)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1].split(". Target creation")[0]
        raise InputError(f"target {text!r}: {reason}; try {EXAMPLES}") from None


def _check_processor(text: str, target: Target) -> None:
    """LLVM falls back to a generic processor where it does not know one: slow code, no error."""
    cpu = str(target.attrs.get("mcpu", ""))
    triple = str(target.attrs.get("mtriple", "")) or codegen.llvm_get_system_triple()
    if cpu and not codegen.llvm_is_valid_cpu(cpu, triple):
        # Asked of the target itself, TVM would print a complaint of its own about the processor.
        plain = Target({"kind": "llvm", "mtriple": triple})
        known = [str(name) for name in codegen.llvm_get_cpu_archlist(plain)]
        near = difflib.get_close_matches(cpu, known, n=1)
        hint = f", did you mean {near[0]}?" if near else ""
        raise InputError(f"target {text!r}: LLVM knows no processor {cpu!r} for {triple}{hint}")


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    """Without what TVM derives from the rest."""
    return {
        key: _plain(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if not key.startswith("feature.") and (key, value) != ("tag", "")
    }
