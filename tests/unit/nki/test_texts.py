"""Golden texts of kernels of every schedule, dialects, and what cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import EmitError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import Apply, Cell, apply, arg
from axe_eq.kernel.expr import var
from axe_eq.lower.formulas import Looked
from axe_eq_backends.nki.access import linear
from axe_eq_backends.nki.planning import plan
from axe_eq_backends.nki.schedules.contraction import contraction
from axe_eq_backends.nki.schedules.stream import Mixture, mixture
from axe_eq_backends.nki.space import Count, Scan, Space, Sum, Tensor
from axe_eq_backends.nki.target import trn1, trn2
from tests.unit.nki.levels import gemm, numpy_of, stream, walk, written

Kernel = tuple[ir.Kernel, Mapping[str, str], Mapping[str, tuple[int, ...]]]
X, Y, Z = arg(0), arg(1), arg(2)


def product(
    a: Tensor, b: Tensor, shape: tuple[int, int, int], sizes: tuple[int, int, int], cell: Cell
) -> Kernel:
    m, n, k = shape
    total = Sum("+", (2,), Apply("mul", (X, Y)), True, (a.dtype, b.dtype))
    out = Tensor("c", a.dtype, (n, 1, 0))
    space = Space(shape, (a, b, total), ((out, cell),))
    names = dict(zip(("rows", "cols", "deep"), sizes, strict=True))
    shapes = {
        "a": (k, m) if a.strides[0] == 1 else (m, k),
        "b": (k, n) if b.strides[1] == 1 else (n, k),
        "c": (m, n),
    }
    return *gemm(contraction(space), "gemm", trn2, names), shapes


def tiles(space: Space, tile: int, shapes: dict[str, tuple[int, ...]]) -> Kernel:
    return *walk(space, "rows", trn2, {"tile": tile, "across": 0}), shapes


def attention(rows: int, length: int, depth: int, dtype: str = "bf16") -> Mixture:
    """Softmax(q k) v, q and v with `depth` contiguous, k with the streamed dim."""
    shape = rows, length, depth, depth
    q, k = Tensor("q", dtype, (depth, 0, 1, 0)), Tensor("k", dtype, (0, 1, length, 0))
    v, out = Tensor("v", dtype, (0, depth, 0, 1)), Tensor("y", dtype, (depth, 0, 0, 1))
    scores = Sum("+", (2,), Apply("mul", (X, Y)), True, (dtype, dtype))
    pair = Apply("pair", (apply("mul", arg(3), 0.125), Z))
    mixed = Sum("softmax", (1,), pair, False, (dtype, dtype))
    return mixture(Space(shape, (q, k, v, scores, mixed), ((out, arg(4)),)))


MASKED = Apply("where", (apply("ge", Y, Z), X, apply("mul", X, 0.5)))
WEIGHT = apply("exp", apply("sub", X, Y))
SOFTMAX = (Sum("max", (1,), X), Sum("+", (1,), WEIGHT))
KERNELS: dict[str, Callable[[], Kernel]] = {
    "gemm": lambda: product(Tensor("a", "bf16", (1, 0, 512)), Tensor("b", "bf16", (0, 1, 1024)),
                            (512, 1024, 1024), (512, 1024, 0), Z),
    "turned": lambda: product(Tensor("a", "bf16", (256, 0, 1)), Tensor("b", "bf16", (0, 256, 1)),
                              (256, 512, 256), (256, 512, 0), apply("mul", Z, apply("sigmoid", Z))),
    "blocked": lambda: product(Tensor("a", "f32", (1, 0, 256)), Tensor("b", "f32", (0, 1, 512)),
                               (256, 512, 1024), (256, 512, 512), Z),
    "softmax": lambda: tiles(
        Space((256, 700), (Tensor("x", "bf16", (700, 1)), *SOFTMAX),
              ((Tensor("y", "bf16", (700, 1)), apply("div", WEIGHT, Z)),)), 8192,
        {"x": (256, 700), "y": (256, 700)}),
    "swept": lambda: tiles(
        Space((128, 4000), (Tensor("x", "f32", (4000, 1)), *SOFTMAX),
              ((Tensor("y", "f32", (4000, 1)), apply("div", WEIGHT, Z)),)), 1024,
        {"x": (128, 4000), "y": (128, 4000)}),
    "transposed": lambda: tiles(
        Space((128, 200), (Tensor("x", "f32", (1, 128)),),
              ((Tensor("y", "f32", (200, 1)), X),)), 512,
        {"x": (200, 128), "y": (128, 200)}),
    "attention": lambda: (*stream(attention(512, 1024, 64), "attention", trn2,
                                  {"chunk": 1024, "kept": 1, "turned": 1}),
                          {"q": (512, 64), "k": (64, 1024), "v": (1024, 64), "y": (512, 64)}),
    "masked": lambda: tiles(
        Space((128, 300), (Tensor("x", "f32", (300, 1)), Count(0), Count(1)),
              ((Tensor("y", "f32", (300, 1)), MASKED),)),
        512, {"x": (128, 300), "y": (128, 300)}),
    "scanned": lambda: tiles(
        Space((64, 300), (Tensor("x", "f16", (300, 1)), Scan("+", 1, X)),
              ((Tensor("y", "f16", (300, 1)), Y),)), 512, {"x": (64, 300), "y": (64, 300)}),
    "gathered": lambda: tiles(
        Space((64, 32), (Tensor("i", "i32", (1, 0)),
                         Tensor("x", "f32", (0, 1), looks=(Looked(X, "i32", 32, 1000),))),
              ((Tensor("y", "f32", (32, 1)), Y),)), 512,
        {"i": (64,), "x": (1000, 32), "y": (64, 32)}),
}  # fmt: skip


def text_of(kernel: Kernel, dialect: str = "0.3") -> str:
    lowered, buffers, shapes = kernel
    kinds = {b: lowered.tensor(t).dtype for t, b in buffers.items()}
    arrays: dict[str, Any] = {b: np.zeros(s, numpy_of(kinds[b])) for b, s in shapes.items()}
    return written(plan(lowered, trn2), buffers, arrays, dialect).text


@pytest.mark.parametrize("name", KERNELS)
def test_text(name: str, golden: Callable[..., None]) -> None:
    golden(text_of(KERNELS[name]()))


def test_dialect_0_2_says_nothing_of_accumulation() -> None:
    new, old = (text_of(KERNELS["gemm"](), d) for d in ("0.3", "0.2"))
    assert "accumulate=" in new
    assert "accumulate=" not in old
    assert [line.partition(", accumulate=")[0].rstrip(")") for line in new.splitlines()] == [
        line.rstrip(")") if "nc_matmul" in line else line.partition(", accumulate=")[0].rstrip(")")
        for line in old.splitlines()
    ]


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(
        EmitError, match=r"dialect '0.1' of NKI: is not written; expected 0.2 or 0.3"
    ):
        text_of(KERNELS["gemm"](), "0.1")


def test_texts_are_the_same_every_time() -> None:
    assert text_of(KERNELS["turned"]()) == text_of(KERNELS["turned"]())


def test_texts_use_no_name_that_kernels_may_not() -> None:
    for make in KERNELS.values():
        text = text_of(make())
        assert text.startswith("import nki\nimport nki.isa as nisa\nimport nki.language as nl\n")
        assert "nl.load" not in text
        assert "affine_range" not in text


def test_begins_as_sums_of_loop_variables() -> None:
    i, j = var("i"), var("j")
    assert linear(i * 128 + j + 5) == (5, {i: 128, j: 1})
    assert linear(i % 3) is None
    assert linear(-1) is None


def test_without_scalar_copies_texts_name_other_engines() -> None:
    made = plan(KERNELS["gemm"]()[0], trn1)
    assert not any(c.plan.row.name.startswith("scalar.c") for c in made.planned.choices.values())
