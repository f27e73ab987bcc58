"""What operators declare of themselves is tested: wrong declarations are named, right ones pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from axe_eq.check import opcheck
from axe_eq.check.lawcheck import check_pack
from axe_eq.pack import Pack
from axe_eq.program.interval import Interval
from axe_eq.program.ops import (
    CELLS,
    MONOIDS,
    SELECTORS,
    Cell,
    Monoid,
    Pull,
    Selector,
    State,
    Table,
    split_text,
)

BUILT_IN = [f"cell {n}" for n in CELLS] + [f"monoid {n}" for n in MONOIDS]
BUILT_IN += [f"selector {n}" for n in SELECTORS]


def test_what_operators_declare_holds() -> None:
    assert list(opcheck.check_operators(BUILT_IN)) == []


def found(monkeypatch: pytest.MonkeyPatch, declared: Cell | Monoid | Selector) -> str:
    """What the check of an operator says that is declared in no table."""
    kind = type(declared).__name__
    table: Table[Any] = Table(kind.lower())
    table.add(declared)
    monkeypatch.setattr(opcheck, f"{kind.upper()}S", table)
    if isinstance(declared, Selector):
        own = declared

        def lookup(text: str) -> tuple[Selector, tuple[Any, ...]]:
            name, params = split_text(text)
            return (own if name == own.name else SELECTORS[name]), params

        monkeypatch.setattr(opcheck, "selector", lookup)
    title = f"{kind.lower()} {declared.name}"
    return "\n".join(f"{a}: {b}" for a, b in opcheck.check_operators([title]))


CELL_LIES: dict[str, tuple[Cell, str]] = {
    "commutes": (Cell("x", 2, np.subtract, "number", commutative=True), "f(x, y) is not f(y, x)"),
    "associates": (Cell("x", 2, lambda a, b: a + b / 2, associative=True), "is not f(x, f(y, z))"),
    "unit": (Cell("x", 2, np.multiply, "number", unit=0.0), "declares unit=0"),
    "quotient": (Cell("x", 2, np.divide, "float", quotient_of="x"), "declares quotient_of='x'"),
    "rounds nothing": (Cell("x", 2, np.add, "number", rounds=False), "none of its operands'"),
    "strict": (Cell("x", 2, np.fmax, strict=True), "declares strict=True, and has a number"),
    "one point": (Cell("x", 1, lambda a: a - a.mean(), "float"), "is no function of one point"),
    "broadcasts": (Cell("x", 2, lambda a, b: a.copy(), "float"), "operands that broadcast to"),
    "shape": (Cell("x", 1, np.sum, "float"), "gives shape () for operands of shape (48,)"),
    "bool": (Cell("x", 1, np.sign, "bool"), "declares result 'bool' and gives"),
    "enclosure": (
        Cell("x", 1, np.exp, "float", enclose=lambda x: Interval(x.low, x.high)), "misses its value"
    ),
    "enclosure of wide operands": (
        Cell("x", 1, np.exp, "float", enclose=lambda x: Interval(np.exp(x.low), np.exp(x.low))),
        "misses its value, for operands 1e-09 wide",
    ),
    "fails": (Cell("x", 1, lambda a: a.absent, "float"), "cannot be evaluated (AttributeError"),
}  # fmt: skip


@pytest.mark.parametrize("name", CELL_LIES)
def test_a_wrong_declaration_of_a_cell_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declared, words = CELL_LIES[name]
    said = found(monkeypatch, declared)
    assert said.startswith("cell x: ")
    assert words in said


def _sum(values: State, axes: tuple[int, ...]) -> State:
    return (np.sum(values[0], axis=axes, keepdims=True),)


def _mean(values: State, axes: tuple[int, ...]) -> State:
    return np.sum(values[0], axes, keepdims=True), np.full((6, 1), values[0].shape[1])


def _add(a: State, b: State) -> State:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _norm(values: State, axes: tuple[int, ...]) -> State:
    return (np.sum(values[0] ** 2, axis=axes, keepdims=True),)


MONOID_LIES: dict[str, tuple[Monoid, str]] = {
    "merges": (Monoid("x", _sum, lambda a, b: (a[0] - b[0],), lambda s: s[0]), "piece by piece"),
    "exact": (Monoid("x", _sum, _add, lambda s: s[0], exact=True), "piece by piece"),
    "drops an axis": (
        Monoid("x", lambda v, axes: (v[0].sum(axis=axes),), _add, lambda s: s[0]), "not (6, 1)"
    ),
    "unit": (Monoid("x", _sum, _add, lambda s: s[0], unit=1.0), "declares unit=1"),
    "convex": (Monoid("x", _sum, _add, lambda s: s[0], convex=True), "outside its terms"),
    "reduces again": (
        Monoid("x", _sum, _add, lambda s: np.sqrt(np.abs(s[0]))), "reduction of its own values"
    ),
    "what stands for parts": (replace(MONOIDS["argmax"], stands=("min", "")), "do not give the"),
    "a unit beside those of the others": (
        replace(MONOIDS["recurrence"], unit=1.0), "declares unit=1, which changes"
    ),
    "one for each value": (replace(MONOIDS["argmax"], stands=("max", "max")), "one of them ''"),
}  # fmt: skip


@pytest.mark.parametrize("name", MONOID_LIES)
def test_a_wrong_declaration_of_a_monoid_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared, words = MONOID_LIES[name]
    assert words in found(monkeypatch, declared)


@pytest.mark.parametrize(
    "right",
    [
        Monoid("x", _mean, _add, lambda s: s[0] / s[1], convex=True),
        Monoid("x", _norm, _add, lambda s: np.sqrt(s[0])),
    ],
    ids=["mean", "norm"],
)
def test_monoids_with_a_state_of_their_own_pass(
    right: Monoid, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(monkeypatch, right) == ""


FLIP = SELECTORS["flip"]
SELECTOR_LIES: dict[str, tuple[Selector, str]] = {
    "shape": (
        replace(FLIP, shape=lambda p, t: SELECTORS["merge"].shape((0, t[0].rank), t)), "gives shape"
    ),
    "moves": (replace(FLIP, run=lambda p, a: a[0] + 0.25), "no operand's"),
    "pulls": (
        replace(FLIP, pull=lambda p, t: [[Pull(d) for d in range(t[0].rank)]]), "reads other elem"
    ),
    "fill": (
        replace(SELECTORS["pad"], fill=lambda p: 7.0), "elements that are no operand's"
    ),
    "inverse": (
        replace(SELECTORS["merge"], inverse=lambda p, t: "flip (0,)"), "which does not undo it"
    ),
    "order": (replace(FLIP, inverse=lambda p, t: f"flip {p[0]}"), "changes the row-major order"),
}  # fmt: skip


@pytest.mark.parametrize("name", SELECTOR_LIES)
def test_a_wrong_declaration_of_a_selector_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared, words = SELECTOR_LIES[name]
    assert words in found(monkeypatch, declared)


def test_packs_check_names_operators_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = Pack("liar")
    table: Table[Any] = Table("cell")
    monkeypatch.setattr(opcheck, "CELLS", table)
    table.add(CELL_LIES["commutes"][0])
    pack.operators.append("cell x")
    (wrong,) = check_pack(pack)
    assert str(wrong) == "cell x: declares commutative=True, and f(x, y) is not f(y, x)"
