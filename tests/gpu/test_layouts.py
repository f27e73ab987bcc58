"""Arrays of a device in layouts that no strides describe: in and out as their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.program.types import DTYPES
from axe_eq.program.types import dtype as named

pytestmark = pytest.mark.gpu

SHAPE = 20, 37
TILED = axe.read("xla", "f32[20,37]{1,0:T(8,16)}")  # ends inside blocks
PLACES = TILED.table("m")
TORCH = ["f16", "f32", "bf16", "f8e4m3", "i32", "bool"]


def doubled(x: Any) -> Any:
    return axe.array.logical_not(x) if x.dtype == axe.array.bool else x + x


def host(dtype: str) -> Any:
    some = np.random.default_rng(0).integers(-8, 8, SHAPE)
    return (some > 0) if dtype == "bool" else some.astype(DTYPES[dtype].numpy)


def in_torch(array: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The array on the device, and what brings such arrays back."""
    torch = pytest.importorskip("torch")
    words, kind = array.view(f"i{array.itemsize}"), named(array.dtype).scalar.rstrip("_")
    there = torch.from_numpy(words).cuda().view(getattr(torch, kind))
    return there, lambda a: a.view(getattr(torch, words.dtype.name)).cpu().numpy().view(array.dtype)


def in_cupy(array: Any) -> tuple[Any, Callable[[Any], Any]]:
    cupy = pytest.importorskip("cupy")
    return cupy.asarray(array), cupy.asnumpy


CASES = [*((in_torch, d) for d in TORCH), *((in_cupy, d) for d in ("f16", "bool"))]


@pytest.mark.parametrize(("library", "dtype"), CASES)
def test_what_lies_in_blocks_is_memory(library: Callable[[Any], Any], dtype: str) -> None:
    x = host(dtype)
    there, back = library(x)
    exe = axe.compile(
        lambda x: (doubled(x), axe.array.reshape(doubled(x), (37, 20))),
        axe.Spec(SHAPE, dtype, layout=TILED), target="h200", outputs=[TILED, None],
    )  # fmt: skip
    packed = exe.pack("x", there)
    assert type(packed) is type(there)
    assert np.array_equal(back(packed)[PLACES].reshape(SHAPE), x)
    wanted = axe.run(doubled, x)
    bound = exe.bind(packed)
    for number in range(3):  # the second call is quick
        y, dense = bound() if number == 2 else exe(packed)
        assert np.array_equal(back(y)[PLACES].reshape(SHAPE), wanted)
        assert np.array_equal(back(dense), wanted.reshape(37, 20))
    twice, _ = exe(y)  # a result is what an input in its layout is
    assert np.array_equal(back(twice)[PLACES].reshape(SHAPE), axe.run(doubled, wanted))


@pytest.mark.parametrize("library", [in_torch, in_cupy])
def test_what_lies_in_other_strides_is_packed_there(library: Callable[[Any], Any]) -> None:
    x = host("f16")
    there, back = library(x)
    layout = axe.Layout([(20, 1), (37, 24)])
    exe = axe.compile(doubled, axe.Spec(SHAPE, "f16", layout=layout), target="h200")
    packed = exe.pack("x", there)
    assert exe.pack("x", packed) is packed
    assert np.array_equal(back(exe(packed)), x + x)
