"""Generated kernels under AWS's own `nki`, where it is installed: simulated and compiled.

Three levels. Its simulator computes them; plans are what they are compared with. Its front end
(`nki.framework.compiled.compile_kernel_to_nir`, the entry of frameworks) takes them, and finds
results of the shapes that their text says. A call with arrays of numpy compiles them further with
`neuronx-cc`, and leaves `kernel.neff` in NKI_ARTIFACTS_DIR, be there a device to run it or not
(nrtpy, "Test and debug a NKI kernel end-to-end").

None of this has run with AWS's package. The last tests put a stand-in in its place, to see that
each level passes what is right and fails what is not.
"""

from __future__ import annotations

import importlib
import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq_backends.nki.assemble import sources
from axe_eq_backends.nki.emit import Source
from axe_eq_backends.nki.planning import plan
from axe_eq_backends.nki.target import trn2
from tests.unit.nki import test_launches
from tests.unit.nki.levels import numpy_of, run, written
from tests.unit.nki.stand_in import SIMULATED, installed, write
from tests.unit.nki.test_texts import KERNELS

Made = tuple[Source, list[Any], list[Any]]  # a text, what it is called with, what plans compute
CASES = (*KERNELS, *test_launches.PROGRAMS)
CALL = """
import importlib, sys
import ml_dtypes, numpy as np
module, name, *specs = sys.argv[1:]
shapes = [(spec.split(":")[0].split("x"), spec.split(":")[1]) for spec in specs]
given = [np.zeros([int(e) for e in shape], dtype) for shape, dtype in shapes]
getattr(importlib.import_module(module), name)(*given)
"""


@cache
def made(name: str) -> Made:
    """A case."""
    return kernel(name) if name in KERNELS else program(name)


def kernel(name: str) -> Made:
    """A kernel of the golden texts."""
    kernel, buffers, shapes = KERNELS[name]()
    draw = np.random.default_rng(0)
    kinds = {b: kernel.tensor(t).dtype for t, b in buffers.items()}
    arrays = {b: draw.integers(0, 5, s).astype(numpy_of(kinds[b])) for b, s in shapes.items()}
    text = written(plan(kernel, trn2), buffers, arrays)
    levels = run(kernel, buffers, arrays)
    given = [arrays[p.buffer] for p in text.inputs]
    return text, given, [levels[p.buffer][1] for p in text.outputs]


def program(name: str) -> Made:
    """A program whose kernels are stages of one call."""
    fn, specs = test_launches.PROGRAMS[name]
    exe = axe.compile(fn, *specs, target="trn2")
    arrays, graph = test_launches.drawn(specs), exe.schedule.graph
    (text,) = sources(graph, exe.target).values()
    inputs = dict(zip(graph.inputs, arrays, strict=True))
    outputs = dict(zip(graph.outputs, test_launches.flat(exe.interpret(*arrays)), strict=True))
    return text, [inputs[p.buffer] for p in text.inputs], [outputs[p.buffer] for p in text.outputs]


def imported(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Made]:
    """The function of a case's text, imported from a file in FOLDER, and the case."""
    case = made(name)
    (folder / f"of_{name}.py").write_text(case[0].text, encoding="utf-8")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    monkeypatch.syspath_prepend(folder)
    module = importlib.import_module(f"of_{name}")
    del sys.modules[f"of_{name}"]
    return getattr(module, case[0].name), case


def simulates(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nki.simulate` computes what plans compute."""
    function, (_, given, wanted) = imported(name, folder, monkeypatch)
    found = importlib.import_module("nki").simulate(function)(*given)
    for got, want in zip(test_launches.flat(found), wanted, strict=True):
        got, want = (np.asarray(x).astype(np.float64).reshape(-1) for x in (got, want))
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-2 * np.abs(want).max())


def lowers(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nki's front end takes a kernel, and finds results of its shapes."""
    function, (text, given, _) = imported(name, folder, monkeypatch)
    compiled = importlib.import_module("nki.framework.compiled")
    driver = importlib.import_module("nki.compiler.ncc_driver")
    if not hasattr(compiled, "compile_kernel_to_nir"):
        pytest.skip("this nki has another front end: compile_kernel_to_nir is of 0.6")
    (folder / "artifacts").mkdir()
    options = driver.CompileOptions(target="trn2", artifacts_dir=str(folder / "artifacts"))
    result = compiled.compile_kernel_to_nir(
        function,
        inputs=dict(zip(inspect.signature(function).parameters, given, strict=True)),
        compile_opts=options.disable_backend_optimizations(),  # as `nki.jit` has it
        enable_cache=False,
    )
    found = [tuple(s.shape) for s in result.descriptor.output_specs]
    assert found == [p.shape for p in text.outputs]


def builds(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call leaves the program of a NeuronCore, whether or not one runs it."""
    if shutil.which("neuronx-cc") is None:
        pytest.skip("neuronx-cc, with which nki makes programs, is not installed")
    _, (text, given, _) = imported(name, folder, monkeypatch)
    artifacts = folder / "program"
    specs = [f"{'x'.join(map(str, a.shape))}:{a.dtype.name}" for a in given]
    done = subprocess.run(
        [sys.executable, "-c", CALL, f"of_{name}", text.name, *specs], check=False,
        capture_output=True, text=True, env={
            **os.environ, "NKI_ARTIFACTS_DIR": str(artifacts),
            "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        },
    )  # fmt: skip
    assert (artifacts / "kernel.neff").exists(), done.stderr[-2000:]


@pytest.mark.nki
@pytest.mark.parametrize("level", [simulates, lowers, builds])
@pytest.mark.parametrize("name", CASES)
def test_generated_kernels_under_nki(
    name: str, level: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level(name, tmp_path, monkeypatch)


# -- with a stand-in in its place -----------------------------------------------------------------

STAND_IN = {
    "__init__.py": SIMULATED
    + """
class Kernel:
    def __init__(self, func):
        self.func = self.__wrapped__ = func
        self.__name__ = func.__name__

    def __call__(self, *arrays):
        out = Path(os.environ["NKI_ARTIFACTS_DIR"])
        out.mkdir()
        (out / "kernel.neff").write_text(" ".join(f"{a.shape}{a.dtype}" for a in arrays))
        raise RuntimeError("no device")

jit = Kernel

def simulate(kernel):
    return lambda *arrays: simulated(kernel.func, *arrays)
""",
    "compiler/ncc_driver.py": """
from dataclasses import dataclass

@dataclass
class CompileOptions:
    target: str
    artifacts_dir: str
    optimized: bool = True

    def disable_backend_optimizations(self):
        return CompileOptions(self.target, self.artifacts_dir, False)
""",
    "framework/compiled.py": """
import inspect
from types import SimpleNamespace
import nki

def compile_kernel_to_nir(kernel, *, inputs, compile_opts, enable_cache):
    assert list(inspect.signature(kernel.func).parameters) == list(inputs)
    assert (compile_opts.target, compile_opts.optimized, enable_cache) == ("trn2", False, False)
    made = nki.simulate(kernel)(*inputs.values())
    made = made if isinstance(made, tuple) else (made,)
    specs = [SimpleNamespace(shape=list(x.shape)) for x in made]
    return SimpleNamespace(descriptor=SimpleNamespace(output_specs=specs))
""",
}
# What a level has to find: a file, what is there, and what stands there instead.
WRONG = {
    simulates: ("__init__.py", "kernel.func, *arrays", "kernel.func, *(a * 0 for a in arrays)"),
    lowers: ("framework/compiled.py", "list(x.shape)", "[1, *x.shape]"),
    builds: ("__init__.py", "kernel.neff", "kernel.json"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of kernels, with the stand-in as `nki`."""
    (tmp_path / "neuronx-cc").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # of the process that builds too
    with installed(tmp_path, STAND_IN, monkeypatch):
        yield tmp_path


@pytest.mark.parametrize(
    ("level", "name"),
    [(simulates, "turned"), (simulates, "both"), (lowers, "both"), (builds, "turned")],
)
def test_a_level_passes_what_is_right_and_fails_what_is_not(
    level: Any, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level(name, folder, monkeypatch)
    file, right, wrong = WRONG[level]
    broken = STAND_IN[file].replace(right, wrong)
    assert broken != STAND_IN[file]
    write(folder, file, broken)
    for left in "program", "artifacts":
        shutil.rmtree(folder / left, ignore_errors=True)
    with pytest.raises(AssertionError):
        level(name, folder, monkeypatch)


def test_programs_are_not_built_without_a_compiler(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder / "nothing"))
    with pytest.raises(pytest.skip.Exception, match="neuronx-cc"):
        builds("turned", folder, monkeypatch)
