"""Reads where integers say, by their numpy meaning; and integers of 8 and 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq.errors import ArgumentError, OutOfRange, ProgramError
from axe_eq.program.facts import facts_of_selector
from axe_eq.program.known import DEFINED, FINITE
from axe_eq.program.node import sel_type
from axe_eq.program.types import promote, value_type

INDICES = (np.int8, np.uint8, np.int16, np.int32, np.int64)
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", INDICES)
@pytest.mark.parametrize("shape", [(1,), (7,), (5, 1), (3, 4, 120)])
@pytest.mark.parametrize("of", [(), (1,), (9,), (2, 3)])
def test_take_is_that_of_numpy(dtype: Any, shape: tuple[int, ...], of: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    for axis in range(len(shape)):
        at = RNG.integers(0, shape[axis], of).astype(dtype)
        found = axe.run(lambda x, i, a=axis: xp.take(x, i, axis=a), x, at)
        np.testing.assert_array_equal(found, np.take(x, at, axis=axis))


@pytest.mark.parametrize("dtype", INDICES)
def test_take_along_axis_is_that_of_numpy(dtype: Any) -> None:
    x = RNG.standard_normal((4, 1, 6)).astype(np.float16)
    for axis, shape in (
        (0, (9, 1, 6)),
        (1, (4, 3, 6)),
        (2, (4, 1, 2)),
        (2, (1, 5, 2)),
        (0, (3, 1, 1)),
    ):
        at = RNG.integers(0, x.shape[axis], shape).astype(dtype)
        found = axe.run(lambda x, i, a=axis: xp.take_along_axis(x, i, axis=a), x, at)
        np.testing.assert_array_equal(found, np.take_along_axis(x, at, axis=axis))


@pytest.mark.parametrize("dtype", INDICES)
def test_a_dynamic_slice_begins_where_integers_say(dtype: Any) -> None:
    x = RNG.standard_normal((300, 5)).astype(np.float32)

    def part(x: Any, i: Any, j: Any) -> Any:
        return xp.dynamic_slice(x, (i, j), (200, 2)), xp.dynamic_slice(x, (3, j), (1, 1))

    # 100 + 199 is no int8: the counting must not wrap around.
    many, one = axe.run(part, x, dtype(100), dtype(3))
    np.testing.assert_array_equal(many, x[100:300, 3:5])
    np.testing.assert_array_equal(one, x[3:4, 3:4])


@pytest.mark.parametrize(
    ("fn", "specs", "error"),
    [
        (lambda x, i: xp.take(x, i), ["3x4:f32", "2:i32"], "axis of take: is not given"),
        (lambda x, i: xp.take(x, i, axis=2), ["3x4:f32", "2:i32"], "axis 2: is out of range"),
        (lambda x, i: xp.take(x, i, axis=0), ["3x4:f32", "2:f32"], "indices: are f32[2]"),
        (lambda x, i: xp.take(x, i, axis=0), ["3x4:f32", "2:bool"], "indices: are bool[2]"),
        (lambda x, i: xp.take_along_axis(x, i), ["3x4:f32", "2:i32"], "expected 2 dims"),
        (lambda x, i: xp.take_along_axis(x, i), ["3x4:f32", "2x2:i32"], "along axis 1"),
        (lambda x, i: xp.dynamic_slice(x, (i,), (2,)), ["3x4:f32", ":i32"], "expected 2 each"),
        (lambda x, i: xp.dynamic_slice(x, (i, 0), (4, 4)), ["3x4:f32", ":i32"], "size 4"),
        (lambda x, i: xp.dynamic_slice(x, (i, 2), (2, 4)), ["3x4:f32", ":i32"], "start 2"),
        (lambda x, i: xp.dynamic_slice(x, (i, 0), (2, 4)), ["3x4:f32", "2:i32"], "without dims"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_clear_error(
    fn: Callable[..., Any], specs: list[str], error: str
) -> None:
    with pytest.raises(ProgramError) as caught:
        axe.trace(fn, *(axe.Spec((), "i32") if s == ":i32" else s for s in specs))
    assert error in str(caught.value)


@pytest.mark.parametrize("target", ["cpu", "h200"])
@pytest.mark.parametrize(("index", "said"), [(6, "is 6 at 1"), (-1, "is -1 at 1")])
def test_an_index_out_of_range_is_one_error(target: str, index: int, said: str) -> None:
    x, at = np.ones((6, 5), np.float32), np.array([0, index, 7], np.int32)
    fn = lambda x, i: xp.take(x, i, axis=0)  # noqa: E731
    exe = axe.compile(fn, x, at, target=target)
    calls: list[Any] = [exe.interpret, lambda *a: axe.run(fn, *a)]
    for call in [*calls, exe] if target == "cpu" else calls:
        wanted = f"argument 'i': {said}, no index of a dim of 6; expected 0..5"
        with pytest.raises(OutOfRange, match=wanted):
            call(x, at)
    assert issubclass(OutOfRange, ArgumentError)


def test_a_part_that_leaves_its_array_names_the_argument() -> None:
    x, at = np.ones((6, 5), np.float32), np.int32(4)
    fn = lambda x, i: xp.dynamic_slice(x, (i, 0), (3, 2))  # noqa: E731
    calls: list[Any] = [axe.compile(fn, x, at, target="cpu"), lambda *a: axe.run(fn, *a)]
    for call in calls:
        with pytest.raises(OutOfRange, match=r"index of argument 'i': is 6 at 2, no index"):
            call(x, at)


def test_a_slice_at_traced_bounds_says_what_to_write() -> None:
    with pytest.raises(ProgramError, match=r"dynamic_slice\(x, starts, sizes\)"):
        axe.trace(lambda x, i: x[i : i + 2], "6x5:f32", ":i32")


def test_an_index_that_is_computed_is_checked_too() -> None:
    x = np.ones((6, 5), np.float32)
    fn = lambda x, i: xp.take(x, 2 * i - 1, axis=0)  # noqa: E731
    by_floats = lambda x: xp.take(x, xp.astype(x[:, 0] * 9, "i32"), axis=0)  # noqa: E731
    with pytest.raises(OutOfRange, match="is -1 at 0"):
        axe.compile(fn, x, np.array([0], np.int16), target="cpu")(x, np.array([0], np.int16))
    exe = axe.compile(by_floats, x, target="cpu")
    with axe.debug(check=0):
        np.testing.assert_array_equal(exe(x), x)  # promised; the nearest row is read
    with pytest.raises(OutOfRange, match="is 9 at 0"):
        exe.interpret(x)
    with axe.debug(check=1), pytest.raises(OutOfRange, match="is 9 at 0"):
        exe(x)


def test_nobody_knows_that_a_gather_is_defined() -> None:
    types = value_type("f32[4,2]"), value_type("i32[3]")
    assert str(sel_type("lookup 0 (0,)", types)) == "f32[3,2]"
    found = facts_of_selector("lookup 0 (0,)", types, (FINITE, FINITE))
    assert found == FINITE & ~DEFINED


@pytest.mark.parametrize(
    ("names", "wider"),
    [("i8 u8", "i16"), ("u8 i16", "i16"), ("i8 i64", "i64"), ("bool u8", "u8"), ("u8 f16", "f16"),
     ("i16 i32", "i32"), ("i8 i8", "i8")],
)  # fmt: skip
def test_small_integers_promote_as_the_standard_says(names: str, wider: str) -> None:
    assert promote(*names.split()) == promote(*names.split()[::-1]) == wider


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_small_integers_compute_as_in_numpy(dtype: Any) -> None:
    ends = np.iinfo(dtype)
    x, y = (RNG.integers(ends.min, ends.max, (5, 37), endpoint=True).astype(dtype) for _ in "xy")

    def fn(x: Any, y: Any) -> Any:
        cast = xp.astype(x, "i8"), xp.astype(x, "u8"), xp.astype(y, "f32")
        return (
            x + y, x * y - 3, -x, ~y, x << 1, y >> 1, (x + y) > x, xp.abs(x), *cast,
            xp.sum(x, axis=1), xp.max(y, axis=0), xp.cumulative_sum(x, axis=1),
            xp.argmax(x, axis=1),
        )  # fmt: skip

    with np.errstate(all="ignore"):
        want = (
            x + y, x * y - dtype(3), -x, ~y, x << 1, y >> 1, (x + y) > x, np.abs(x),
            x.astype(np.int8), x.astype(np.uint8), y.astype(np.float32), x.sum(1).astype(np.int64),
            y.max(0), np.cumsum(x, 1).astype(np.int64), x.argmax(1),
        )  # fmt: skip
    results = [axe.run(fn, x, y)]
    results += [axe.compile(fn, x, y, target=name).interpret(x, y) for name in ("cpu", "h200")]
    for found in results:
        for a, b in zip(found, want, strict=True):
            np.testing.assert_array_equal(a, b)
