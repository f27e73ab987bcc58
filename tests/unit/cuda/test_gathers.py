"""Kernels that read where integers say: fused into their users, in place, with the price of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq import nn
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.interp import KernelFault
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.interp import interpret
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200

RNG = np.random.default_rng(0)
INDICES = ("i8", "u8", "i16", "i32", "i64")


def table(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def where(extent: int, *shape: int, dtype: str = "i32") -> Any:
    kind = {"u8": "uint8"}.get(dtype, f"int{dtype[1:]}")
    return RNG.integers(0, min(extent, 128), shape).astype(kind)


ROWS: Any = lambda x, i: xp.take(x, i, axis=0)  # noqa: E731
CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "one row": (ROWS, [table(1, 1), where(1, 1)]),
    "odd rows": (ROWS, [table(13, 37), where(13, 5)]),
    "columns": (lambda x, i: xp.take(x, i, axis=1), [table(9, 50), where(50, 33)]),
    "elements": (lambda x, i: xp.take(x, i), [table(700), where(700, 3, 45)]),
    "one column": (lambda x, i: xp.take(x, i, axis=1), [table(40, 48), where(48)]),
    "along rows": (lambda x, i: xp.take_along_axis(x, i, axis=0), [table(9, 40), where(9, 4, 40)]),
    "along columns": (lambda x, i: xp.take_along_axis(x, i), [table(6, 70), where(70, 6, 9)]),
    "part": (lambda x, i: xp.dynamic_slice(x, (i, 4), (9, 20)), [table(50, 48), where(42)]),
    "twice": (lambda x, i, j: ROWS(ROWS(x, i), j), [table(20, 24), where(20, 9), where(9, 31)]),
    "both dims": (
        lambda x, i, j: xp.take(ROWS(x, i), j, axis=1), [table(20, 24), where(20, 9), where(24, 5)],
    ),
    "of cells": (lambda x, i: ROWS(nn.relu(x) * 2, i) + 1, [table(30, 33), where(30, 8)]),
    "of parts": (
        lambda x, y, i: ROWS(xp.concat([x, y], axis=0), i),
        [table(5, 9), table(7, 9), where(12, 40)],
    ),
    "of padded": (lambda x, i: ROWS(xp.pad(x, ((2, 3), (0, 0))), i), [table(5, 9), where(10, 40)]),
    "of counted": (lambda x, i: ROWS(x, (3 * i + 1) % 30), [table(30, 17), where(30, 8)]),
    "normed": (lambda x, i: nn.rmsnorm(ROWS(x, i)), [table(50, 300), where(50, 7)]),
    "long rows": (lambda x, i: nn.softmax(ROWS(x, i)), [table(3, 40_000), where(3, 1)]),
    "summed": (lambda x, i: xp.sum(ROWS(x, i), axis=0), [table(50, 65), where(50, 70)]),
    "largest of rows": (lambda x, i: xp.max(ROWS(x, i), axis=1), [table(13, 37), where(13, 5)]),
    "least of columns": (
        lambda x, i: xp.min(xp.take(x, i, axis=1), axis=0), [table(37, 13), where(13, 1)],
    ),
    "largest": (
        lambda x, i: xp.max(xp.take_along_axis(x, i), axis=1), [table(5, 90), where(90, 5, 33)],
    ),
}  # fmt: skip


@pytest.mark.sampled(11)
@pytest.mark.parametrize("name", CASES)
def test_one_kernel_reads_where_integers_say(name: str) -> None:
    fn, arrays = CASES[name]
    exe = axe.compile(fn, *arrays, target="h200")
    assert [k.schedule for k in exe.kernels] == ["lanes"]
    np.testing.assert_allclose(exe.interpret(*arrays), axe.run(fn, *arrays), rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", INDICES)
@pytest.mark.parametrize("numerics", ["real", "exact"])
def test_indices_of_every_dtype_are_read(dtype: str, numerics: str) -> None:
    x, at = table(100, 8), where(100, 37, dtype=dtype)
    exe = axe.compile(ROWS, x, at, target="h200", numerics=numerics)
    np.testing.assert_array_equal(exe.interpret(x, at, orders=2), x[at])


def test_rows_are_read_in_vectors_and_priced_by_their_number() -> None:
    exe = axe.compile(
        lambda x, i: nn.rmsnorm(ROWS(x, i)), "32000x1024:f16", "256:i32", target="h200"
    )
    (text,) = exe.source.values()
    assert "x + g1 + (long long)place[0] * 1024);" in text
    assert exe.cost["gmem_bytes"] == 2 * 256 * 1024 * 2 + 256 * 4


def test_rows_past_whose_end_no_integer_holds_the_fill_are_built() -> None:
    # Read with -inf in place of what lies past a row, the rows' numbers could not be written, nor
    # could any rival of the kernel.
    def program(x: Any, i: Any) -> Any:
        return xp.argmax(nn.softmax(xp.take(x, i % 17, axis=1), axis=0), axis=1)

    arrays = [table(3, 17), where(17, 3, dtype="u8")]
    exe = axe.compile(program, *arrays, target="h200")
    np.testing.assert_array_equal(exe.interpret(*arrays), axe.run(program, *arrays))


def test_products_of_tiles_take_what_another_kernel_has_gathered() -> None:
    specs = "4096x512:f16", "256:i32", "512x512:f16"
    exe = axe.compile(lambda x, i, w: ROWS(x, i) @ w, *specs, target="h200")
    assert [k.schedule for k in exe.kernels] == ["lanes", "tensor_cores"]
    assert "where it is read: no schedule covers such a kernel" in exe.explain()


def test_a_cache_is_read_at_its_slots() -> None:
    def read(q: Any, k: Any, v: Any, slots: Any) -> Any:
        return nn.softmax(q @ ROWS(k, slots).T * 0.125) @ ROWS(v, slots)

    q, k, v = (RNG.standard_normal((n, 64)).astype(np.float16) for n in (1, 96, 96))
    slots = RNG.permutation(96)[:32].astype(np.int32)
    exe = axe.compile(read, q, k, v, slots, target="h200")
    found, want = exe.interpret(q, k, v, slots), axe.run(read, q, k, v, slots)
    np.testing.assert_allclose(found.astype(float), want.astype(float), atol=2e-3)


def gathering(extent: int) -> ThreadBuilder:
    k = ThreadBuilder("gathering", warps=1)
    x = k.tensor("X", "f32", (32, extent))
    i, y = k.tensor("I", "i32", (32,)), k.tensor("Y", "f32", (32,), output=True)
    at, held = (k.reg(n, d, (32,), "S[32:1@lane]") for n, d in (("at", "i32"), ("held", "f32")))
    k.copy(at.all, i.all)
    k.map(apply("add", arg(0), 1), at.all, at.all)
    k.gather(held.all, x[0:32, 0], [(1, at.all)])
    k.copy(y.all, held.all)
    return k


def test_the_interpreter_sees_an_index_that_is_none() -> None:
    kernel = gathering(8).finish()
    planned = plan(kernel, h200)
    x, i = table(32, 8), np.arange(32, dtype=np.int32) % 7
    for plans in (None, planned):
        arrays = {"X": x, "I": i, "Y": np.zeros(32, np.float32)}
        found = interpret(kernel, arrays, planned=plans, meanings=MEANINGS).outputs["Y"]
        np.testing.assert_array_equal(found, x[np.arange(32), i + 1])
        with pytest.raises(KernelFault, match="expected 0 to 7"):
            interpret(kernel, arrays | {"I": i + 4}, planned=plans, meanings=MEANINGS)
