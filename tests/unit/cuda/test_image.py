"""Kernels compiled without a device: images as bytes, the kernel cache, NVRTC's errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import axe_eq as axe
from axe_eq.errors import ArgumentError, AxeError, EmitError
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq_backends.cuda import assemble, compile, image
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.gemm import Matrix, Problem, Tiling, gemm, parameters
from axe_eq_backends.cuda.schedules.map import elementwise
from axe_eq_backends.cuda.schedules.tensors import dense
from axe_eq_backends.cuda.target import h200

pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
SHAPE = (8, 256)


def cells(name: str) -> Planned:
    """A small kernel: one cell."""
    x, y = dense("x", "f16", SHAPE), dense("y", "f16", SHAPE)
    return plan(elementwise(SHAPE, [x], [(y, apply(name, arg(0)))]), h200)


def test_an_image_survives_bytes_and_checks_parameters() -> None:
    m, n, k = parameters()
    column = Matrix("A", major=0), Matrix("B")
    built = image.build(plan(gemm(Problem(m, n, k, (column,)), Tiling(128, 128, 64, 3)), h200))
    assert image.Image.from_bytes(built.to_bytes()) == built
    built.check({"M": 16, "N": 8, "K": 24})
    for params, reason in (
        ({"M": 16, "N": 8}, "no value for K"),
        ({"M": 16, "N": 12, "K": 8}, "parameter N: is 12"),
        ({"M": 12, "N": 8, "K": 8}, "byte stride of A: is 24"),
        ({"M": 1 << 30, "N": 1 << 22, "K": 8}, "has work for 274877906944 CTAs"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            built.check(params)
    for data in (b"", b"\0" * 40, built.to_bytes()[:100]):
        with pytest.raises(ArgumentError, match="damaged"):
            image.Image.from_bytes(data)


def test_an_image_is_machine_code_for_its_architecture() -> None:
    built = image.build(cells("exp"))
    assert built.cubin.startswith(b"\x7fELF")
    assert built.compute_capability == 90
    assert built.toolkit == compile.version()


@pytest.mark.skipif(sys.platform != "linux", reason="LD_DEBUG is glibc's")
def test_compiling_does_not_start_the_cuda_driver() -> None:
    work = (
        "from axe_eq_backends.cuda.compile import compile_text;"
        "compile_text('extern \"C\" __global__ void k() {}', 90)"
    )
    done = subprocess.run(
        [sys.executable, "-c", work], env=os.environ | {"LD_DEBUG": "libs"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    if "find library=" not in done.stderr:
        pytest.skip("this C library does not tell what it loads")
    assert "libnvrtc-builtins" in done.stderr
    assert "libcuda.so" not in done.stderr


def test_options_are_those_that_the_compiler_s_version_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, has_cache in (("12.8", False), ("12.9", True), ("13.0", True), ("13.10", True)):
        monkeypatch.setattr(compile, "version", lambda version=version: version)
        assert ("--no-cache" in compile.options(90)) is has_cache, version


def test_a_kernel_compiles_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = compile.compile_text

    def counting(text: str, capability: int, name: str) -> compile.Binary:
        compiled.append(text)
        return real(text, capability, name)

    monkeypatch.setattr(compile, "compile_text", counting)
    planned = [cells("exp"), cells("tanh"), cells("exp")]
    with axe.debug(cache_dir=tmp_path):
        first = image.build_all(planned)
        n_compiled = len(compiled)
        assert image.build_all(planned) == first
        assert len(compiled) == n_compiled
        (entry, *_) = sorted((tmp_path / "kernels").iterdir())
        entry.write_bytes(entry.read_bytes()[:-1])
        assert image.build_all(planned) == first
        assert len(compiled) > n_compiled
    with axe.debug(cache=0, cache_dir=tmp_path / "none"):
        assert image.build(planned[0]).cubin == first[0].cubin
    assert not (tmp_path / "none").exists()
    assert first[0] == first[2] != first[1]


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("junk", [b"", b"{}", b"null", b"\x02" + bytes(7) + b"{}cubin"])
def test_what_the_cache_has_that_is_no_machine_code_is_made_again(
    junk: bytes, tmp_path: Path
) -> None:
    with axe.debug(cache_dir=tmp_path):
        kernel = cells("tanh")
        made = image.build(kernel)
        (entry,) = (tmp_path / "kernels").iterdir()
        image.KERNELS.store(entry.name, junk)  # with its right digest
        assert image.build(kernel) == made
        graph = axe.compile(lambda x: -x, "64:f32", target="h200").schedule.graph
        code = assemble.assembled(graph, h200)
        (entry,) = (tmp_path / "graphs").iterdir()
        assemble.GRAPHS.store(entry.name, junk)
        assert assemble.assembled(graph, h200) == code


def test_an_image_without_an_entry_is_one_clear_error() -> None:
    data = image.build(cells("tanh"), cached=False).to_bytes()
    said = json.loads(data)
    for name in said:
        text = json.dumps({k: v for k, v in said.items() if k != name}).encode()
        with pytest.raises(ArgumentError, match="kernel image: is damaged or of another version"):
            image.Image.from_bytes(text)


def error_of(work: Callable[[], object]) -> str:
    with pytest.raises(AxeError) as caught:
        work()
    return f"{type(caught.value).__name__}: {caught.value}"


def test_wrong_text_is_an_emit_error() -> None:
    with pytest.raises(EmitError, match="kernel bad: does not compile"):
        compile.compile_text("nonsense;", 90, "bad")


def test_an_empty_log_is_written_to_no_bytes_of_others() -> None:
    given: list[bytes] = []

    class Silent:
        class nvrtcResult:
            NVRTC_SUCCESS = 0

        def nvrtcGetProgramLogSize(self, program: Any) -> Any:
            return 0, 1  # the closing zero

        def nvrtcGetProgramLog(self, program: Any, log: bytes) -> None:
            given.append(log)

    assert compile._log(Silent(), None) == ""
    assert all(given[0] is not bytes([n]) for n in range(256))  # Python's own, shared by all


def test_of_several_kernels_the_first_wrong_one_is_the_error() -> None:
    good = 'extern "C" __global__ void k() {}'
    with pytest.raises(EmitError, match="kernel second: does not compile"):
        compile.compile_texts([(good, 90, "k"), ("no;", 90, "second"), ("no;", 90, "third")])


def test_without_nvrtc_there_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, golden: Callable[..., None]
) -> None:
    from cuda.bindings import nvrtc

    def missing() -> Any:
        raise RuntimeError("Failed to dlopen libnvrtc.so.13. Searched: here, there.")

    monkeypatch.setattr(nvrtc, "nvrtcVersion", missing)
    golden(error_of(compile._nvrtc.__wrapped__), "library")
    import cuda.bindings

    monkeypatch.delattr(cuda.bindings, "nvrtc")
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    golden(error_of(compile._nvrtc.__wrapped__), "bindings")
