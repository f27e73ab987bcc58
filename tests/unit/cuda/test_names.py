"""Names that users give never meet those of the text: keywords, functions, values of plans."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq.errors import EmitError
from axe_eq.kernel.dispatch import Names
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.layout import Layout
from axe_eq_backends.cuda.emit import emit, identifier
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules import tiles
from axe_eq_backends.cuda.schedules.gemm import FORMS
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.tensor_map import TensorMap
from axe_eq_backends.cuda.wgmma import accumulator

SQUARE = axe.Spec((64, 64), "f16")


def named(fn: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """The function with arguments of these names."""
    made: dict[str, Any] = {"fn": fn}
    given = ", ".join(names)
    exec(f"def named({given}): return fn({given})", made)
    return made["named"]  # type: ignore[no-any-return]


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "values of plans": (lambda a, b: a + b, ("g1", "i2")),
    "keywords": (lambda a, b: a + b, ("delete", "true")),
    "what kernels begin with": (lambda a, b: a + b, ("threadIdx", "smem_bytes")),
    "functions": (lambda a, b: xp.exp(a) + b, ("cell_0", "get_f16")),
    "functions of C": (lambda a, b: xp.astype(a, "f32") @ xp.astype(b, "f32"), ("fmaf", "i")),
    "tensor maps": (lambda a, b, c: a @ b + c, ("a", "b", "map_a")),
    "rings": (lambda a, b, c: a @ b + c, ("full", "b", "b_ring")),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_may_use_any_names(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    from axe_eq_backends.cuda.compile import compile_texts

    fn, names = PROGRAMS[name]
    exe = axe.compile(named(fn, *names), *[SQUARE] * len(names), target="h200")
    compile_texts([(text, 90, kernel) for kernel, text in exe.source.items()])


@pytest.mark.parametrize("name", ["new", "hold", "ld_global_v4", "wgmma_n8_f16", "INFINITY_F32"])
def test_what_the_text_uses_is_no_name_of_a_tensor(name: str) -> None:
    assert identifier(name) == f"{name}_"


def test_values_of_plans_pass_over_the_kernels_names() -> None:
    names = Names({"g1", "at3"})
    assert [names.fresh(stem).name for stem in ("g", "at", "g")] == ["g2", "at4", "g5"]


def test_a_let_is_not_hidden_by_a_value_of_a_plan() -> None:
    k = ThreadBuilder("k", 4)
    x, y = k.tensor("x", "f32", (8, 128)), k.tensor("y", "f32", (8, 128), output=True)
    t = k.reg("t", "f32", (128,), Layout([(128, 1, "tx")]))
    with k.range(8, name="row") as row:
        g1 = k.let("g1", row * 3 % 8)
        k.copy(t.all, x[g1])
        k.copy(y[g1], t.all)
    text = emit(plan(k.finish(), h200)).text
    assert len(re.findall(r"\bg1 = ", text)) == 1


def test_a_value_named_by_a_keyword_is_refused() -> None:
    k = ThreadBuilder("k", 4)
    x = k.tensor("x", "f32", (8,), output=True)
    with k.range(8, name="new"):
        t = k.reg("t", "f32", (1,), Layout([(1, 1, "reg")], [(128, 1, "tx")]))
        k.fill(t.all, 0.0)
        k.copy(x[0:1], t.all)
    with pytest.raises(EmitError, match="variable 'new': is no name of CUDA C"):
        emit(plan(k.finish(), h200))


def test_maps_of_different_tensors_have_different_names() -> None:
    k = ThreadBuilder("k", 4)
    a, numbered = k.tensor("a", "f16", (64, 64)), k.tensor("a_1", "f16", (64, 64))
    planned = Planned(k.finish(), h200)
    maps = [
        TensorMap(t, (64, 64), (1, 64), (64, n), 128) for t, n in ((a, 8), (a, 16), (numbered, 8))
    ]
    assert len({planned.name_of(m) for m in maps}) == len(planned.resources) == 3


def test_a_descriptor_is_not_named_as_a_buffer() -> None:
    k = ThreadBuilder("k", 4)
    layout = tiles.operand(1, 64, 64, 2, FORMS["K 128B"])
    a, b = (k.smem("a", "f16", (1, 64, 64), layout) for _ in range(2))
    acc = k.reg("acc", "f32", (64, 64), accumulator(64, 64))
    k.gemm_async(acc.all, a[0], b[0], accumulate=0)
    k.wait_group("wgmma", 0)
    text = emit(plan(k.finish(), h200)).text
    declared = re.findall(r"const unsigned(?: long long)? (\w+) =", text)
    assert len(declared) == len(set(declared))
