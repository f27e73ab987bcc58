"""Demand laws are sampled like all others: what memory and tiles hold must be what is requested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq.check import schedulesample
from axe_eq.check.lawcheck import MEANINGS, check_law
from axe_eq.pack import installed
from axe_eq.program.terms import (
    VALUE,
    Args,
    Cell,
    Cons,
    Int,
    Op,
    Sig,
    Spec,
    Value,
    sel,
    type_of,
    types_of,
)
from axe_eq.program.types import value_type
from axe_eq.rule.law import Law, law
from axe_eq.rule.term import INT, STR, Sort, Symbol, Term, primitive
from axe_eq.schedule import terms as s
from axe_eq.schedule.terms import Box, Boxes, LayoutText

Sides = tuple[Any, ...]
DEMAND = {
    f"{p.name}/{name}": law
    for p in installed().values()
    for name, law in p.laws.items()
    if law.demand
}


@pytest.mark.parametrize("key", sorted(DEMAND))
def test_every_demand_law_is_compared_on_samples(key: str, full: bool) -> None:
    wanted = 500 if full else 4
    checked = check_law(key, DEMAND[key], wanted)
    assert not checked.findings, "\n".join(map(str, checked.findings))
    assert checked.usable == wanted


# -- wrong ones ------------------------------------------------------------------------------------


@primitive((STR, STR), (STR,))
def turned(types: str, box: str) -> str | None:
    """The same box for every operand, entries in the wrong order."""
    given = [value_type(t) for t in types.split(";")[:-1]]
    words = box.split()[::-1]
    fits = words != words[::-1] and all(t.rank == len(words) for t in given)
    return "".join(f"{' '.join(words)};" for _ in given) if fits else None


@primitive((STR,), (STR,))
def upper_half(type: str) -> str | None:
    """A root box that leaves out the first index of the first dim."""
    rank = value_type(type).rank
    return " ".join(["p+1", *["*"] * (rank - 1)]) if rank else None


@primitive((STR,), (STR,))
def shifted(layout: str) -> str:
    return f"{layout} + 1@lane"


@primitive((STR,), (STR,))
def backwards(type: str) -> str:
    """A layout that has the same elements in other places."""
    size = value_type(type).size
    return f"S[({size}):(-1@m)] + {size - 1}@m"


@primitive((STR,), (STR,))
def row_major(type: str) -> str:
    return f"S[({value_type(type).size}):(1@m)]"


def _law(fn: Callable[..., Sides]) -> Law:
    return law(source="test", demand=True)(fn)


@_law
def compute_turned(sig: Sig, cell: Cell, a: Args, b: Box) -> Sides:
    """tile(Op(s, f, a), b) = Cell(s, f, b, tiles(a, b turned))."""
    bs = turned(types_of(a), b)
    return s.tile(Op(sig, cell, a), b), s.Cell(sig, cell, b, s.tiles(a, bs))


@_law
def select_in_the_same_box(spec: Spec, a: Value, b: Box) -> Sides:
    """tile(Sel(f, a), b) = Gather(f, b, tile(a, b))."""
    gathered = s.Gather(spec, b, s.TCons(s.tile(a, b), s.TNil()))
    return s.tile(sel(spec, a), b), gathered


@_law
def half_a_kernel(t: Value, L: LayoutText) -> Sides:
    """place(t, L) = Kernel(tile(t, b), L)   for a box that does not cover t."""
    return s.place(t, L), s.Kernel(s.tile(t, upper_half(type_of(t))), L)


@_law
def kernel_elsewhere(t: Value, L: LayoutText) -> Sides:
    """place(t, L) = place(t, L + 1@lane)."""
    return s.place(t, L), s.place(t, shifted(L))


@_law
def load_in_another_layout(t: Value, b: Box) -> Sides:
    """tile(t, b) = Load(place(t, L), T, row-major, b)   for L backwards."""
    type = type_of(t)
    return s.tile(t, b), s.Load(s.place(t, backwards(type)), type, row_major(type), b)


@_law
def any_selector_is_a_view(spec: Spec, a: Value, L: LayoutText) -> Sides:
    """place(f(a), L) = place(a, L)   for every selector f."""
    return s.place(sel(spec, a), L), s.place(a, L)


@_law
def same_box_for_all(a: Value, rest: Args, bs: Boxes) -> Sides:
    """tiles(a : rest, bs) = tile(a, all bs) : tiles(rest, bs)."""
    return s.tiles(Cons(a, rest), bs), s.TCons(s.tile(a, bs), s.tiles(rest, bs))


WRONG = [
    compute_turned, select_in_the_same_box, half_a_kernel, kernel_elsewhere,
    load_in_another_layout, any_selector_is_a_view, same_box_for_all,
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: w.name)
def test_a_wrong_demand_law_is_caught_by_name(wrong: Law) -> None:
    found = "\n".join(map(str, check_law(f"mine/{wrong.name}", wrong, 60, 40_000).findings))
    assert f"law 'mine/{wrong.name}': " in found
    assert "fire" not in found
    words = ("differ", "not defined at the same places", "cannot be evaluated (ScheduleError")
    assert any(word in found for word in words)


# -- reshapes in one placed class ------------------------------------------------------------------


def reshaped(x: Any, a: Any, b: Any) -> Any:
    y = xp.exp(x)
    z = xp.reshape(y, (4, 6))
    return y @ a, z @ b, xp.sum(y, axis=1), xp.sum(z, axis=1)


@pytest.mark.parametrize("numerics", ["exact", "real"])
def test_tiles_of_a_value_and_of_its_reshape_are_two(
    numerics: str, rng: np.random.Generator
) -> None:
    """Both are one placed class in one layout: a load that did not say its type joined them."""
    specs = ("6x4:f64", "4x5:f64", "6x5:f64")
    exe = axe.compile(reshaped, *specs, target="cpu", numerics=numerics)
    arrays = [rng.standard_normal(t.shape) for t in exe.schedule.call.types]
    for found, meant in zip(exe(*arrays), exe.meaning(*arrays), strict=True):
        np.testing.assert_allclose(found, meant, rtol=1e-12)


# -- somebody else's symbols -----------------------------------------------------------------------

SPOT = Sort("Spot")
spot = Symbol("spot", (VALUE, INT), SPOT, demand=True)
here = Symbol("here", (VALUE, INT), SPOT)


@_law
def here_is_the_spot(t: Value, n: Int) -> Sides:
    """spot(t, n) = here(t, n)."""
    return spot(t, n), here(t, n)


@_law
def spot_is_next_door(t: Value, n: Int) -> Sides:
    """spot(t, n) = here(t, n + 1)."""
    return spot(t, n), here(t, n + 1)


@pytest.fixture
def _meant(monkeypatch: pytest.MonkeyPatch) -> None:
    def element(term: Term, inputs: Any) -> Any:
        return MEANINGS[VALUE](term.args[0], inputs).take(term.args[1], mode="wrap")

    def number(draw: Any, at: str, given: Any) -> tuple[int]:
        return (draw.integer(f"{at}.n", 0, value_type(type_of(given[0])).size - 1),)

    monkeypatch.setitem(MEANINGS, SPOT, element)
    monkeypatch.setitem(schedulesample.ARGUMENTS, spot, number)


@pytest.mark.usefixtures("_meant")
def test_a_sort_of_a_pack_is_tested_once_it_has_a_meaning() -> None:
    checked = check_law("mine/here_is_the_spot", here_is_the_spot, 20)
    assert (checked.findings, checked.usable) == ((), 20)
    assert "differ" in str(check_law("mine/spot_is_next_door", spot_is_next_door, 20).findings)


def test_a_law_about_a_sort_without_a_meaning_is_reported() -> None:
    (found,) = check_law("mine/here_is_the_spot", here_is_the_spot, 20).findings
    assert "of sort Spot, which has no entry in lawcheck.MEANINGS" in str(found)
