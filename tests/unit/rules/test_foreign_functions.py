"""What a pack's functions raise or return by mistake is an error that names the pack's own line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.array import flip
from axe_eq.deadline import DeadlinePassed
from axe_eq.errors import PackError
from axe_eq.pack import Pack
from axe_eq.program.ops import CELLS, Cell
from axe_eq.program.terms import Spec, Value, sel
from axe_eq.rule.term import STR, Primitive, primitive


def raising(spec: str) -> str:
    return str(1 // 0)


def fraction(spec: str) -> Any:
    return 1.5


def pair(spec: str) -> Any:
    return "flip 0", "flip 0"


def pack_with(fn: Callable[[str], Any]) -> Pack:
    """A pack of one law that asks a primitive about every selector."""
    pack, asked = Pack("mine", exact=True), primitive((STR,), (STR,))(fn)

    def renamed(s: Spec, t: Value) -> Any:
        """sel(s, t) = sel(asked(s), t)."""
        return sel(s, t), sel(asked(s), t)

    pack.law(source="tests")(renamed)
    return pack


@pytest.mark.parametrize(
    ("fn", "wrong"),
    [
        (raising, r"its function fails on 'flip \(0,\)' \(ZeroDivisionError: integer div"),
        (fraction, r"its function returns 1.5 for 'flip \(0,\)'; expected String; None where"),
        (pair, r"its function returns \('flip 0', 'flip 0'\) for 'flip \(0,\)'; expected String;"),
    ],
)
def test_a_primitive_that_fails_in_a_proof_is_named_with_its_line(
    fn: Callable[[str], Any], wrong: str
) -> None:
    with pytest.raises(PackError, match=wrong) as caught:
        axe.equivalent(lambda x: flip(flip(x)), lambda x: x, "4:f32", packs=[pack_with(fn)])
    assert caught.value.thing == f"primitive {fn.__name__!r} of {__name__}"
    assert __file__ in caught.value.at


def test_a_deadline_passes_through_a_primitive() -> None:
    def late(spec: str) -> str:
        raise DeadlinePassed

    with pytest.raises(DeadlinePassed):
        Primitive(late, (STR,), (STR,)).rows(("x",))


def test_an_enclosure_that_fails_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def bounds(x: Any) -> Any:
        raise ZeroDivisionError("0 / 0")

    monkeypatch.setattr(CELLS, "_by_name", dict(CELLS._by_name))
    CELLS.add(Cell("halved", 1, lambda x: np.asarray(x) / 2, enclose=bounds))
    with pytest.raises(PackError, match=r"cell 'halved': its enclosure fails \(ZeroDiv") as e:
        axe.equivalent(lambda x: axe.array.block("a -> a", "halved", x), lambda x: x / 2, "4:f32")
    assert __file__ in e.value.at
