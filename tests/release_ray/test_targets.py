"""Texts and the targets that they name."""

import json

import pytest
from tvm.target import Target, codegen

from release_ray import targets
from release_ray.core.errors import InputError


def config(text: str, cores: int = 3) -> dict:
    return json.loads(targets.target_json(targets.resolve(text, cores)))


def test_native_is_this_processor():
    native = targets.resolve("native", 2)
    assert native.attrs["mcpu"] == codegen.llvm_get_system_cpu()
    assert native.attrs["num-cores"] == 2
    assert targets.is_cpu(native)
    assert targets.back_end(native) in ("x86", "arm_cpu", "riscv_cpu")


@pytest.mark.parametrize(
    "text",
    [
        "llvm -mcpu=skylake-avx512 -mattr=+fma,-avx512f",
        "llvm -mcpu skylake-avx512 --mattr +fma,-avx512f",
        '{"kind": "llvm", "mcpu": "skylake-avx512", "mattr": ["+fma", "-avx512f"]}',
    ],
)
def test_spellings_of_one_target(text):
    spelt = config(text)
    assert (spelt["mcpu"], spelt["mattr"]) == ("skylake-avx512", ["+fma", "-avx512f"])
    assert spelt["num-cores"] == 3


def test_cores_that_are_said_are_kept():
    assert config("llvm -num-cores=8")["num-cores"] == 8
    assert config("raspberry-pi/4b-aarch64")["num-cores"] == 4


def test_cuda_has_the_bounds_that_the_checks_need():
    cuda = targets.resolve("cuda", 1)
    assert not targets.is_cpu(cuda)
    assert targets.back_end(cuda) == "cuda"
    assert {"max_shared_memory_per_block", "max_threads_per_block", "arch"} <= set(cuda.attrs)
    assert config("nvidia/nvidia-a100")["arch"] == "sm_80"


def test_another_architecture_needs_its_own_intrinsics():
    arm = targets.resolve('{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}', 4)
    assert targets.back_end(arm) == "arm_cpu"


def test_json_is_canonical_and_reads_back():
    first = targets.resolve('{"kind": "llvm", "mcpu": "skylake", "num-cores": 2}', 1)
    second = targets.resolve("llvm -num-cores=2 -mcpu=skylake", 1)
    text = targets.target_json(first)
    assert text == targets.target_json(second) == targets.target_json(Target(text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("lvm", "llvm"),
        ("nonsense", "native"),
        ("llvm -mcpu=skylakes", "skylake"),
        ("llvm -mcpus=skylake", "-mcpu"),
        ("llvm skylake", "skylake"),
        ("llvm -num-cores=many", "many"),
        ("no/tag", "no/tag"),
        ('{"kind": "llvm"', "JSON"),
        ('{"kind": "llvm", "bar": 1}', "bar"),
        ('{"mcpu": "skylake"}', "kind"),
        ('llvm "', "quot"),
    ],
)
def test_what_is_no_target_is_one_clear_line(text, says):
    with pytest.raises(InputError) as error:
        targets.resolve(text, 1)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
