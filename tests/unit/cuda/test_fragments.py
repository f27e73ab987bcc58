"""Fragments of warp products: what a row states, against CuTe's layouts and wrong ones."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import AxeError
from axe_eq.kernel.placement import number
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.interp import interpret
from axe_eq.layout import Layout
from axe_eq.program.types import DTYPES
from axe_eq.target import Instr
from axe_eq_backends.cuda import instrs
from axe_eq_backends.cuda.instrs import MMA
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.mma import atom, fragment, row_of
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200

# (extent, stride) of thread digits and of value digits, the fastest first, into the column-major
# (rows, k) of an operand and (m, n) of the accumulator: CUTLASS, cute/atom/mma_traits_sm80.hpp
# (16x8x16 of 16-bit types) and mma_traits_sm90.hpp (16x8x8 of f64).
_CuTe = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
_OF_16_BITS: dict[str, _CuTe] = {
    "a": (((4, 32), (8, 1)), ((2, 16), (2, 8), (2, 128))),
    "b": (((4, 16), (8, 1)), ((2, 8), (2, 64))),
    "c": (((4, 32), (8, 1)), ((2, 16), (2, 8))),
}
CUTE: dict[str, dict[str, _CuTe]] = {
    "f16": _OF_16_BITS,
    "bf16": _OF_16_BITS,
    "f64": {
        "a": (((4, 16), (8, 1)), ((2, 8), (2, 64))),
        "b": (((4, 8), (8, 1)), ((2, 32),)),
        "c": (((4, 32), (8, 1)), ((2, 16), (2, 8))),
    },
}


def _offset(digits: tuple[tuple[int, int], ...], index: int) -> int:
    total = 0
    for extent, stride in digits:
        total, index = total + index % extent * stride, index // extent
    return total


@pytest.mark.parametrize("row", MMA, ids=lambda r: r.name)
def test_fragments_are_those_of_cute(row: Instr) -> None:
    for name, (threads, values) in CUTE[row.dtypes[0][0]].items():
        place = atom(row, name)
        rows, cols = (number(e) for e in place.shape)
        lanes, regs = (
            np.broadcast_to(place.coordinate(axis), (rows, cols)).ravel().tolist()
            for axis in ("lane", "reg")
        )
        index = product(range(rows), range(cols))
        found = {(lane, reg): ij for ij, lane, reg in zip(index, lanes, regs, strict=True)}
        count = np.prod([extent for extent, _ in values])
        assert len(found) == 32 * count
        for lane, reg in found:
            at = _offset(threads, lane) + _offset(values, reg)
            assert found[lane, reg] == (at % rows, at // rows)


def kernel(dtype: str) -> ir.Kernel:
    """One tile of (32, 16) by four warps, two steps of what an instruction sums."""
    m, n, k, warps = 32, 16, 2 * row_of(dtype).shape[2], (2, 2)
    b = ThreadBuilder("k", 4)
    acc = DTYPES[dtype].accumulate
    views = []
    for name, shape in (("a", (m, k)), ("b", (n, k))):
        x = b.tensor(name, dtype, shape)
        held = b.reg(f"{name}_held", dtype, shape, fragment(name, *shape, warps, dtype))
        b.copy(held.all, x.all)
        views.append(held.all)
    out = b.tensor("c", acc, (m, n), output=True)
    sums = b.reg("sums", acc, (m, n), fragment("c", m, n, warps, dtype))
    b.fill(sums.all, 0.0)
    b.gemm(sums.all, views[0], views[1], accumulate=1)
    b.copy(out.all, sums.all)
    return b.finish()


def error(dtype: str) -> float:
    """Of the result of that kernel's instruction calls, over the largest value."""
    made = kernel(dtype)
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        t.name: rng.standard_normal([number(e) for e in t.shape]).astype(DTYPES[t.dtype].numpy)
        for t in made.tensors
    }
    run = interpret(made, arrays, planned=plan(made, h200), meanings=MEANINGS)
    wide = np.float64 if dtype == "f64" else np.float32
    expected = arrays["a"].astype(wide) @ arrays["b"].astype(wide).T
    return float(np.abs(run.outputs["c"] - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("row", MMA, ids=lambda r: r.name)
def test_calls_mean_the_product(row: Instr) -> None:
    assert error(row.dtypes[0][0]) < (1e-15 if row.name == "mma.f64" else 1e-6)


def _swapped(layout: Layout) -> list[Layout]:
    """The layout with the strides of two iters of one extent exchanged."""
    found = []
    for i, j in combinations(range(len(layout.shard)), 2):
        shard = list(layout.shard)
        (first, *x), (second, *y) = shard[i], shard[j]
        if first == second:
            shard[i], shard[j] = (first, *y), (second, *x)  # type: ignore[assignment]
            found.append(Layout(shard))
    return found


WRONG = [
    (row.dtypes[0][0], name, layout)
    for row in MMA
    if row.name != "mma.bf16"
    for name in "abc"
    for layout in _swapped(row.operands[name])
]


@pytest.mark.parametrize(("dtype", "name", "layout"), WRONG)
def test_a_wrong_fragment_is_refused_or_gives_wrong_values(
    dtype: str, name: str, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tuple(
        replace(r, operands={**r.operands, name: layout}) if r.dtypes[0][0] == dtype else r
        for r in MMA
    )
    others = tuple(r for r in instrs.HOPPER if r not in MMA)
    monkeypatch.setattr("axe_eq_backends.cuda.mma.MMA", rows)
    monkeypatch.setattr(f"{__name__}.h200", h200.replace(instrs=rows + others))
    with suppress(AxeError):
        assert error(dtype) > 0.1
