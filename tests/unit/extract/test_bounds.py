"""Bounds of the search in deep graphs that all fuse: the schedule is right, and the cut is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.debug import debug
from axe_eq.extract.price import cone
from axe_eq.extract.search import search

CUT = "cut short, so that others may be cheaper"


def sums(x: Any) -> Any:
    """A scan by doubling (Hillis and Steele, 1986): every step may fuse with all others."""
    extent, step = x.shape[-1], 1
    while step < extent:
        x = x + axe.array.pad(x, ((0, 0), (step, 0)))[:, :extent]
        step *= 2
    return x


def compiled() -> Any:
    with debug(cache=0):
        return axe.compile(sums, axe.Spec((4, 16), "f32"), target="cpu")


def check(exe: Any) -> None:
    x = np.arange(64, dtype=np.float32).reshape(4, 16) % 7
    np.testing.assert_array_equal(np.asarray(exe(x)), np.cumsum(x, axis=-1))


def test_a_descent_that_ends_early_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compiled()
    assert CUT not in str(whole.explain())
    monkeypatch.setattr(search, "WORK", 0)
    monkeypatch.setattr(search, "WORK_PER_VALUE", 0)
    cut = compiled()
    assert CUT in str(cut.explain())
    assert cut.cost["time_s"] > whole.cost["time_s"]
    check(cut)


def test_fewer_cones_are_kept_of_deep_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    best = cone._best

    def noted(cones: Sequence[cone.Cone], keep: int) -> list[cone.Cone]:
        seen.append(keep)
        return best(cones, keep)

    monkeypatch.setattr(cone, "_best", noted)
    monkeypatch.setattr(cone, "NARROWED", ((100, 4), (10_000, 2)))
    check(compiled())
    assert sorted(set(seen), reverse=True) == [cone.MAX_CONES, 4, 2]
    assert seen == sorted(seen, reverse=True)


def test_a_descent_that_is_cut_starts_from_the_program_s_own_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "WORK", 600)
    monkeypatch.setattr(search, "WORK_PER_VALUE", 0)
    with debug(cache=0):
        cut = axe.compile(sums, axe.Spec((4, 16), "f32"), target="cpu")
        monkeypatch.setattr(search.Search, "_start_plain", lambda *_: None)
        lost = axe.compile(sums, axe.Spec((4, 16), "f32"), target="cpu")
    for exe in (cut, lost):
        assert CUT in str(exe.explain())
    assert cut.cost["time_s"] < lost.cost["time_s"] * 0.75
