"""Arguments of a wrong kind: every public call about layouts answers with one clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import AxeError

anything: Any = axe  # the calls are wrong on purpose
LINE: Any = axe.Layout([(8, 1)])
UNKNOWN: Any = axe.any_layout("A", 8)

CALLS: dict[str, Callable[[], Any]] = {
    "iters": lambda: anything.Layout(8),
    "iters as text": lambda: anything.Layout("S[8:1]"),
    "extent as array": lambda: axe.Layout([(np.array([2, 3]), 1)]),
    "offset": lambda: anything.Layout([(8, 1)], offset=[3]),
    "box": lambda: anything.Layout([(8, 1)], box=7),
    "swizzle": lambda: anything.Layout([(8, 1)], swizzle=3),
    "index": lambda: LINE("3"),
    "index of floats": lambda: LINE((1.0, 2), shape=(2, 4)),
    "index of texts": lambda: LINE(("a", 0), shape=(2, 4)),
    "shape of an index": lambda: LINE((1, 2), shape=8),
    "shape": lambda: LINE.group(8),
    "shape as array of one": lambda: LINE.group(np.int64(8)),
    "shape as text": lambda: LINE.group("2,4"),
    "shape of nothing": lambda: LINE.group(None),
    "region": lambda: LINE.slice((8,), 4),
    "region of floats": lambda: LINE.slice((8,), ((0.0, 4),)),
    "permutation": lambda: LINE.permute((2, 4), 1),
    "permutation of texts": lambda: LINE.permute((2, 4), "10"),
    "axes": lambda: LINE.inverse(3),
    "axis": lambda: LINE.span(["m"]),
    "axis twice": lambda: LINE.inverse(("m", "m")),
    "shape of a tile": lambda: axe.tile(LINE, None, LINE, (8,)),  # type: ignore[call-overload]
    "tile of a number": lambda: anything.tile(3, (8,), LINE, (8,)),
    "composition": lambda: anything.compose(LINE, 3),
    "shapes": lambda: anything.common_refinement(8),
    "shapes of numbers": lambda: anything.common_refinement([8, 8]),
    "shapes of texts": lambda: anything.common_refinement([(2, 4), "8"]),
    "complement": lambda: anything.complement(LINE, "8"),
    "written layout": lambda: anything.write("axe", 3),
    "read number": lambda: anything.read("axe", 3),
    "shape of a text": lambda: anything.read("axe", "S[8:1]", shape=8),
    "shape of an expression": lambda: UNKNOWN.group(8),
    "region of an expression": lambda: UNKNOWN.slice((8,), ((0, 4, 8),)),
    "axes of an expression": lambda: UNKNOWN.inverse(3),
    "size of an unknown": lambda: anything.any_layout("A", 2.5),
    "iter of a symbolic layout": lambda: anything.symbolic_layout([(2,)]),
    "iters of a symbolic layout": lambda: anything.symbolic_layout(4),
    "expression": lambda: anything.read_expression(3),
    "drawn": lambda: anything.draw(3),
    "assumption": lambda: axe.equivalent("S[8:1]", "S[8:1]", assume="n"),
    "assumption of nothing": lambda: anything.equivalent("S[8:1]", "S[8:1]", assume=3),
    "assumed pair": lambda: axe.equivalent("S[8:1]", "S[8:1]", assume=[(3, 4)]),
    "assumptions": lambda: axe.equivalent("S[8:1]", "S[8:1]", assume=[3]),
}


def test_a_shape_of_thousands_of_dims_is_not_repeated() -> None:
    many = (2,) * 10_000
    with pytest.raises(AxeError) as refused:
        LINE.group(many)
    assert len(str(refused.value)) < 1200
    with pytest.raises(AxeError) as refused_name:
        axe.equivalent(f"{'t' * 5000}(A[8],(8))", "A[8]")
    assert len(str(refused_name.value)) < 1200


LONG = 10**5000  # Python does not write it


@pytest.mark.parametrize(
    "call",
    [
        lambda: axe.Layout([(LONG, 1)]),
        lambda: axe.Layout([(1, -LONG)]),
        lambda: axe.Layout([(LONG,)]),
        lambda: axe.Layout([((LONG,), 1)]),
        lambda: axe.Layout([(4, 1, LONG)]),
        lambda: axe.Layout([(2**62, 1)] * 1000),
        lambda: axe.Layout([(2**2000, 2**4000)]),
        lambda: axe.Layout([], [(2, LONG)]),
        lambda: axe.Layout(offset={"m": LONG}),
        lambda: anything.Layout(offset={LONG: 1}),
        lambda: axe.Layout([(4, 1)], swizzle=[axe.Swizzle("m", 1, 0, -LONG)]),
        lambda: axe.Layout([(4, 1)], swizzle=[axe.Swizzle("m", -LONG, 0, 1)]),
        lambda: axe.Layout([(4, 1)], box=[LONG]),
        lambda: axe.Layout([(4, 1)], box=[2], padded=[2**4000] * 5),
        lambda: axe.Layout([(4, 1)], box=[2], padded=[4], inner=[((4,), (4,), (LONG,))]),
        lambda: axe.Layout([(4, 1)], box=[2], padded=[4], inner=[((4,), (2**4000,) * 5)]),
        lambda: LINE(LONG),
        lambda: LINE((0, -LONG), shape=(2, 4)),
        lambda: LINE.group((LONG, 2)),
        lambda: LINE.group((2**4000,) * 5),
        lambda: LINE.slice((8,), ((0, LONG),)),
        lambda: LINE.permute((2, 4), (LONG, 0)),
        lambda: LINE.inverse((LONG,)),
        lambda: axe.tile(LINE, (LONG,), LINE, (8,)),
        lambda: axe.common_refinement([(LONG,), (3,)]),
        lambda: axe.Mesh({"x": LONG}),
        lambda: axe.read("cute", "8:1", shape=(LONG,)),
    ],
)
def test_a_number_that_python_does_not_write_is_one_clear_error(call: Callable[[], object]) -> None:
    with pytest.raises(AxeError) as refused:
        call()
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 8000


def test_every_bad_argument_is_one_clear_error(golden: Callable[..., None]) -> None:
    lines = []
    for name, call in CALLS.items():
        with pytest.raises(AxeError) as caught:
            call()
        assert "\n" not in str(caught.value)
        lines.append(f"{name}\n  {type(caught.value).__name__} {caught.value}")
    golden("\n".join(lines))


def test_one_axis_or_one_assumption_needs_no_list() -> None:
    lanes = axe.Layout.parse("S[(4,2):(1@lane,4@lane)]")
    assert lanes.inverse("lane") == lanes.inverse(["lane"])
    assert axe.equivalent("S[(n/8,8):(8,1)]", "S[(n):(1)]", assume="n % 8 == 0")


def test_integers_of_numpy_are_integers() -> None:
    two, four = np.int64(2), np.int32(4)
    assert LINE.group((two, four)).blocks == (((2, 4, "m"),), ((4, 1, "m"),))
    assert LINE.permute((two, four), (np.int64(1), np.int8(0))) == LINE.permute((2, 4), (1, 0))
    assert LINE.slice((four * 2,), ((two, four),)) == LINE.slice((8,), ((2, 4),))
    assert LINE((np.int64(1), four - 1), shape=(2, 4)) == LINE(7)
    assert LINE.group(np.array([2, 4])) == LINE.group((2, 4))
