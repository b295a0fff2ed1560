"""The light import registers what the real package would, and no more than is asked for."""

import ast
import importlib.util
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from release_ray import tvm_setup
from release_ray.core.errors import InputError

PACKAGE_DIR = Path(next(iter(importlib.util.find_spec("tvm").submodule_search_locations))).joinpath(
    "s_tir", "tensor_intrin"
)

NAMES_OF = """
import sys, importlib
from tvm.s_tir import TensorIntrin
names = []
register = TensorIntrin.register
def record(name, *args, **options):
    names.append(name)
    return register(name, *args, **options)
TensorIntrin.register = staticmethod(record)
{body}
print("\\n".join(sorted(set(names))))
"""


def registered_by(body: str) -> set[str]:
    """Names of the intrinsics that a fresh process registers while it runs `body`."""
    done = subprocess.run(
        [sys.executable, "-c", NAMES_OF.format(body=body)],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_every_sub_module_of_the_real_package_is_listed():
    imported = {
        alias.name
        for node in ast.walk(ast.parse((PACKAGE_DIR / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and node.module is None
        for alias in node.names
    }
    assert imported
    assert imported <= set(tvm_setup.BACK_ENDS)
    for sub_modules in tvm_setup.BACK_ENDS.values():
        assert all((PACKAGE_DIR / f"{name}.py").is_file() for name in sub_modules)


def test_registers_what_the_sub_module_holds():
    source = (PACKAGE_DIR / "x86.py").read_text()
    expected = set(re.findall(r'^\w+_INTRIN = "(\w+)"', source, re.M))
    names = registered_by(
        "from release_ray import tvm_setup; tvm_setup.prepare(['x86']); tvm_setup.prepare(['x86'])"
    )
    assert names == expected
    assert len(expected) == source.count("TensorIntrin.register(")


def test_tune_context_does_not_import_the_real_package():
    body = """
from release_ray import tvm_setup
tvm_setup.prepare()
from tvm.s_tir import meta_schedule
meta_schedule.TuneContext()
assert "tvm.s_tir.tensor_intrin.cuda" not in sys.modules
import tvm.s_tir.tensor_intrin as package
assert package.dot_product_common.DP4A_S8S8S32_INTRIN == "dp4a_s8s8s32"
assert not hasattr(package, "no_such_back_end")
"""
    registered_by(body)


@pytest.mark.long
def test_all_back_ends_together_are_the_real_package():
    real = registered_by("import tvm.s_tir.tensor_intrin")
    kinds = [kind for kind in tvm_setup.BACK_ENDS if kind != "metal"]  # which TVM leaves out
    light = registered_by(f"from release_ray import tvm_setup; tvm_setup.prepare({kinds!r})")
    assert real and light == real


def test_the_installed_pair_passes():
    tvm_setup.check_pins()


@pytest.mark.parametrize("installed", ["0.1.15", None])
def test_another_pair_is_refused_with_the_command_that_mends_it(monkeypatch, installed):
    def version(name: str) -> str:
        if name == "apache-tvm-ffi":
            if installed is None:
                raise metadata.PackageNotFoundError(name)
            return installed
        return tvm_setup.PINS[name]

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(InputError) as error:
        tvm_setup.check_pins()
    message = str(error.value)
    assert "\n" not in message
    assert "pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1" in message
