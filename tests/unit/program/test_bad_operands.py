"""Functions of the array namespace on what they cannot take: one clear error each, never another.

The named calls are read by people (a golden text); the drawn ones put every kind of value in every
place of every public function.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import axe_eq.array as xp
from axe_eq import nn
from axe_eq.errors import AxeError, ProgramError, said
from axe_eq.program.node import input_node
from axe_eq.program.traced import Traced
from axe_eq.program.tracing import TRACING, Tracing
from axe_eq.program.types import ValueType

anything: Any = xp  # the calls are wrong on purpose
layers: Any = nn


@pytest.fixture(autouse=True)
def tracing() -> Iterator[None]:
    token = TRACING.set(Tracing())
    yield
    TRACING.reset(token)


def array(*shape: int, dtype: str = "f32") -> Traced:
    return Traced(input_node(f"x{dtype}{len(shape)}", ValueType(dtype, shape)))


class Elsewhere:
    """An array on a device: numpy cannot read it."""

    def __array__(self, *_: object, **__: object) -> Any:
        raise RuntimeError("it is on another device")


M, V, IMAGE = (2, 3), (4,), (1, 2, 4, 4)
HUGE = 10**5000  # Python refuses to write it

CALLS: dict[str, Callable[[], Any]] = {
    "stack of a matrix and a vector": lambda: xp.stack([array(*M), array(*V)], axis=2),
    "stack of a matrix and a number": lambda: xp.stack([array(*M), 3.0], axis=-1),
    "stack of other extents": lambda: xp.stack([array(2, 3), array(3, 2)]),
    "stack of nothing": lambda: xp.stack([]),
    "stack of a number": lambda: anything.stack(3),
    "concat of ranks": lambda: xp.concat([array(*M), array(*V)]),
    "float axis": lambda: anything.sum(array(*M), axis=1.0),
    "true axis": lambda: xp.sum(array(*M), axis=True),
    "axis out of range": lambda: xp.flip(array(*M), axis=-3),
    "huge axis": lambda: xp.flip(array(*M), axis=HUGE),
    "axis twice": lambda: xp.squeeze(array(1, 1), axis=(0, -2)),
    "no axis to expand": lambda: anything.expand_dims(array(*M), axis=None),
    "keepdims": lambda: anything.max(array(*M), keepdims="yes"),
    "shape": lambda: anything.ones("ij"),
    "float shape": lambda: anything.broadcast_to(array(), (2.0,)),
    "shape without elements": lambda: xp.zeros((0, 3)),
    "shapes": lambda: anything.broadcast_shapes(None, (2,)),
    "huge shape": lambda: xp.ones((1 << 62, 2)),
    "captured without elements": lambda: array(*M) + np.zeros((0, 3)),
    "captured elsewhere": lambda: array(*M) + Elsewhere(),
    "huge constant": lambda: array(*M) + HUGE,
    "huge integer constant": lambda: array(*M, dtype="i64") + 10**400,
    "integers to a negative power": lambda: array(*V, dtype="i32") ** -1,
    "dtype": lambda: anything.astype(array(*M), array(*V)),
    "tile": lambda: anything.tile(array(*M), "ab"),
    "roll": lambda: anything.roll(array(*M), 1.5),
    "pad width": lambda: anything.pad(array(*M), "ab"),
    "pad constant": lambda: anything.pad(array(*M), 1, constant_values="0"),
    "tensordot axes": lambda: anything.tensordot(array(*M), array(*M), axes=[(0,)]),
    "diff": lambda: anything.diff(array(*V), n=-1),
    "correction": lambda: anything.var(array(*V), correction=[1]),
    "arange without end": lambda: xp.arange(float("inf")),
    "arange of texts": lambda: anything.arange("5"),
    "linspace": lambda: anything.linspace(0, 1, 2.5),
    "eye of no columns": lambda: xp.eye(3, 0),
    "diagonal": lambda: anything.tril(array(*M), k=None),
    "indexing": lambda: anything.meshgrid(array(*V), indexing=["xy"]),
    "operator": lambda: anything.select(3, array(*M)),
    "indices of floats": lambda: xp.block("a, a ->; argmin a", "pair", array(*V), array(*V)),
    "signature": lambda: anything.block(array(*M), "id"),
    "part of a slice": lambda: xp.select("slice (5,None)", array(*M)),
    "bound of a slice": lambda: array(*M)["a":2],
    "einsum of a number": lambda: nn.einsum("i->", 3),
    "convolution of a number": lambda: nn.conv2d(3, array(*IMAGE)),
    "stride": lambda: layers.max_pool2d(array(*IMAGE), 2, stride="2"),
    "window of three": lambda: layers.avg_pool2d(array(*IMAGE), (1, 2, 3)),
    "layer of a list": lambda: nn.gelu([1.0, 2.0]),
    "norm of a number": lambda: nn.rmsnorm(3.0),
}


def test_every_bad_operand_is_one_clear_error(golden: Callable[..., None]) -> None:
    lines = []
    for name, call in CALLS.items():
        with pytest.raises(AxeError) as caught:
            call()
        assert len(str(caught.value)) < 300
        lines.append(f"{name}\n    {caught.typename}: {caught.value}")
    golden("\n".join(lines))


def test_a_torch_like_array_on_a_device_names_the_cause() -> None:
    with pytest.raises(ProgramError, match="RuntimeError: it is on another device"):
        xp.abs(Elsewhere())


# -- drawn ----------------------------------------------------------------------------------------

ARRAYS = [
    array(*M), array(*V), array(), array(3, 4), array(*M, dtype="i32"), array(*M, dtype="bool"),
    array(*M, dtype="f16"), array(*V, dtype="f8e4m3"), array(*IMAGE), array(2, 2, 3, 3),
    array(*(1,) * 26),
]  # fmt: skip
AXES: list[Any] = [
    None, 0, 1, -1, -2, 2, -7, (0,), (0, 1), (0, 0), (0, -2), [], "a", 1.0, True, np.int64(1),
    (None,), np.array([0]), 10**30,
]  # fmt: skip
VALUES: list[Any] = [
    None, "a", "", b"x", object(), object, {}, {"a": 1}, [], (), [[]], 1j, lambda x: x, ...,
    slice(None), np.array([1, 2, 3]), np.zeros((0, 3)), np.array(["a"]), np.array([1j]),
    np.array([None]), np.array(2), np.array([[1, 1], [0, 0]]), np.float32(1.5), np.int64(2),
    np.uint8(3), np.True_, 0, 1, -1, 2, 5, 1.5, True, 10**30, 10**400, HUGE, float("nan"),
    float("inf"), [1, 2], (0, 1), (0, 0), (-1, -2), (1.5, 2), ("a", "b"), (None, None), [1, "a"],
    [[1, 2], [3]], [array(*M), array(*M)], [array(*M), array(*V)], [array(*M), None],
    ((1, 1), (0, 1)), ((0, 1), (1, 0)), ((5,), (0,)), (1 << 62, 1 << 62), range(2),
    frozenset([1]), memoryview(b"abc"), "f32", "f99", int, complex, np.float64, np.dtype("f4"),
    "ij", "ij,jk->ik", "a b -> b a", "mul", "cast", "concat 0", "pad ((1.5),(0,2)) 0.0",
    "slice (1,None)", "real floating", ("bool", 3),
]  # fmt: skip


def public() -> dict[str, Any]:
    spaces = {"array": xp, "nn": nn}
    return {
        f"{space}.{name}": getattr(module, name)
        for space, module in spaces.items()
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
    }


def drawn(rng: random.Random, function: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for a function: some fit, most do not."""

    def value(name: str) -> Any:
        if "ax" in name and rng.random() < 0.7:
            return rng.choice(AXES)
        return rng.choice(ARRAYS if rng.random() < 0.5 else VALUES)

    places: list[Any] = []
    named: dict[str, Any] = {}
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            places += [value(p.name) for _ in range(rng.randrange(4))]
        elif p.kind is p.KEYWORD_ONLY or p.default is not p.empty:
            named |= {p.name: value(p.name)} if rng.random() < 0.5 else {}
        else:
            places.append(value(p.name))
    given = inspect.signature(function).parameters
    last = [n for n in named if given[n].kind is given[n].POSITIONAL_ONLY]
    return places + [named.pop(n) for n in last], named


def of_numpy(arguments: list[Any]) -> bool:
    return any(isinstance(a, np.ndarray | np.generic) for a in arguments)


@pytest.mark.parametrize("name", public())
def test_whatever_a_function_gets_it_fails_with_an_error_of_ours(name: str) -> None:
    function, rng = public()[name], random.Random(name)
    for _ in range(150):
        places, named = drawn(rng, function)
        # Layers run on numpy's arrays by numpy's functions, whose errors are numpy's.
        if name.startswith("nn.") and of_numpy(places):
            continue
        try:
            function(*places, **named)
        except AxeError:
            continue
        except Exception as error:
            pytest.fail(f"{name} of {[*map(said, places)]} {said(named)}: {error!r:.200}")
