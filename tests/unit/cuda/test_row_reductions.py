"""Reductions of rows of any length and element type: what is chosen is built, and is right."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.program.array.nn import apply_block
from axe_eq.program.ops import MONOIDS, Monoid
from axe_eq.program.types import DTYPES
from tests.unit.cuda.test_registers import check_registers
from tests.unit.cuda.whole import interpreted

xp = axe.array
ROWS = (1, 16, 1001)
COLUMNS = (257, 1000, 4099, 12289, 20011, 32000, 50257, 65537, 131072)


def less_maximum(x: Any) -> Any:
    return x - xp.max(x, axis=-1, keepdims=True)


def layernorm(x: Any) -> Any:
    variance = xp.var(x, axis=-1, keepdims=True)
    return (x - xp.mean(x, axis=-1, keepdims=True)) / xp.sqrt(variance + 1e-5)


PLAIN: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: xp.sum(x, axis=-1),
    "max": lambda x: xp.max(x, axis=-1),
    "argmax": lambda x: xp.argmax(x, axis=-1),
    "any": lambda x: xp.any(x > 0, axis=-1),
    "count": lambda x: xp.count_nonzero(x, axis=-1),
}
FLOATS: dict[str, Callable[[Any], Any]] = {
    "var": lambda x: xp.var(x, axis=-1),
    "logsumexp": lambda x: xp.log(xp.sum(xp.exp(less_maximum(x)), axis=-1)),
    "softmax": lambda x: nn.softmax(x, axis=-1),
    "rmsnorm": nn.rmsnorm,
    "layernorm": layernorm,
}
EVERY = PLAIN | FLOATS
GRID = [
    (name, dtype, (rows, columns))
    for programs, dtypes in (
        (PLAIN, ("bool", "i32", "i64")),
        (EVERY, ("f8e4m3", "f16", "bf16", "f32", "f64")),
    )
    for name in programs
    for dtype in dtypes
    for columns in COLUMNS
    for rows in ROWS
    if dtype != "bool" or name not in ("argmax", "any")
]
# Rows that are nearly too long for registers, and lengths of which no vector is a part.
SAMPLE = [
    ("logsumexp", "bf16", (1001, 50257)),
    ("rmsnorm", "bf16", (1001, 65537)),
    ("layernorm", "f32", (16, 32000)),
    ("argmax", "f32", (1001, 20011)),
    ("softmax", "bf16", (1001, 12289)),
    ("count", "bool", (1, 65537)),
]


def compiled(name: str, dtype: str, shape: tuple[int, int]) -> Any:
    return axe.compile(EVERY[name], axe.Spec(shape, dtype), target="h200")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "dtype", "shape"), SAMPLE, ids=str)
def test_long_rows_are_reduced_without_spills(
    name: str, dtype: str, shape: tuple[int, int]
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    check_registers(compiled(name, dtype, shape))


@pytest.mark.parametrize("name", EVERY)
def test_rows_of_any_length_have_kernels(name: str, full: bool) -> None:
    if not full:
        pytest.skip("runs under --full")
    for case in GRID:
        if case[0] == name:
            assert compiled(*case).source, case


LOGICAL: dict[str, Callable[[Any, Any], Any]] = {
    "any": lambda x, axis: xp.any(x, axis=axis),
    "all": lambda x, axis: xp.all(x, axis=axis),
    "any of some": lambda x, axis: xp.any(x != 1, axis=axis),
    "all of some": lambda x, axis: xp.all(x != 1, axis=axis),
    "any of no numbers": lambda x, axis: xp.any(xp.isnan(x), axis=axis),
    "count": lambda x, axis: xp.count_nonzero(x, axis=axis),
    "sum": lambda x, axis: xp.sum(x != 1, axis=axis),
    "max": lambda x, axis: xp.max(x != 1, axis=axis),
    "min": lambda x, axis: xp.min(x != 1, axis=axis),
    "argmax": lambda x, axis: xp.argmax(x != 1, axis=axis),
    "rows": lambda x, axis: xp.all(x, axis=axis, keepdims=True) != (x == 1),
}
LOGICAL_SAMPLE = [
    ("any of some", "f32", 1),
    ("all of some", "f32", 0),
    ("max", "f16", 1),
    ("any", "bool", 1),
]


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bool"])
@pytest.mark.parametrize("name", LOGICAL)
def test_truth_values_are_reduced_as_numpy_does(
    name: str, dtype: str, axis: int | None, full: bool
) -> None:
    if not full and (name, dtype, axis) not in LOGICAL_SAMPLE:
        pytest.skip("runs under --full")
    if dtype == "bool" and name == "any of no numbers":
        pytest.skip("truth values are all numbers")
    x = np.random.default_rng(3).integers(0, 3, (37, 33)).astype(DTYPES[dtype].numpy)
    x[4], x[:, 7], x[5], x[:, 8] = 0, 0, 1, 1

    exe = axe.compile(lambda x: LOGICAL[name](x, axis), axe.Spec(x.shape, dtype), target="h200")
    assert exe.source
    (found,) = interpreted(exe.schedule.graph, [x, *exe.program.constants.values()])
    assert np.array_equal(found, exe.meaning(x))


def test_a_monoid_without_a_text_is_refused_in_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was compiled, explained and priced, and refused when its text was asked for."""

    def lift(values: Any, axes: tuple[int, ...]) -> Any:
        return (np.logaddexp.reduce(values[0], axis=axes, keepdims=True),)

    lse = Monoid(
        "lse", lift, lambda a, b: (np.logaddexp(a[0], b[0]),), lambda s: s[0], -np.inf,
        result="float",
    )  # fmt: skip
    monkeypatch.setitem(MONOIDS._by_name, "lse", lse)
    with pytest.raises(axe.SearchError, match="reduces by lse, and kernels on lanes by"):
        axe.compile(lambda x: apply_block("a b -> a; lse b", "id", x), "64x100:f32", target="h200")


@pytest.mark.parametrize(("value", "dtype"), [(-1e9, "f16"), (500.0, "f8e4m3"), (1e300, "f32")])
def test_a_constant_past_its_type_warns_of_nothing_inside(value: float, dtype: str) -> None:
    """What a constant means is said at the user's line, never by a cast of the compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        exe = axe.compile(
            lambda x, m: xp.sum(xp.where(m, x, value), axis=1),
            axe.Spec((4, 33), dtype), axe.Spec((4, 33), "bool"), target="h200",
        )  # fmt: skip
        assert exe.source
