"""Terms as rows: laws reach the same from wherever they run, on rows, when built, or on terms."""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path
from typing import Annotated, Any

import pytest

from axe_eq.egraph.layouts import LayoutGraph
from axe_eq.egraph.rows import MemoryFile, is_item, item_rules, line
from axe_eq.layout import Layout, same_map
from axe_eq.layout.symbolic import terms as t
from axe_eq.pack import installed
from axe_eq.prove.layouts.equality import layout_graph
from axe_eq.rule.law import Law, Sides, law
from axe_eq.rule.term import INT, STR

Int = Annotated[Any, INT]
Axis = Annotated[Any, STR]
IterList = Annotated[Any, t.ITERS]
CopySet = Annotated[Any, t.COPIES]


@law(source="a test")
def rename(e: Int, s: Int, r: IterList) -> Sides:
    """(e, s@p) r = (e, s@q) r."""
    return t.Iter(e, s, "p", r), t.Iter(e, s, "q", r)


@law(source="a test")
def drop_pair(e: Int, s: Int, f: Int, u: Int, r: IterList) -> Sides:
    """(e, s@x) (f, u@y) r = r   if e = f."""
    return t.Iter(e, s, "x", t.Iter(f, u, "y", r)), r, e == f


@law(source="a test")
def join_three(a: Axis, b: Axis, c: Axis, s: Int, r: IterList) -> Sides:
    """(2, s@a) (3, s@b) (5, s@c) r = (30, s@a) r."""
    return t.Iter(2, s, a, t.Iter(3, s, b, t.Iter(5, s, c, r))), t.Iter(30, s, a, r)


@law(source="a test")
def far_copy(e: Int, s: Int, a: Axis, p: CopySet) -> Sides:
    """[e, s@a] + p = s@a + e@a + p   if s > 100."""
    return t.Copy(e, s, a, p), t.Shift(s, a, t.Shift(e, a, p)), s > 100


@law(source="a test")
def swap(e: Int, s: Int, f: Int, u: Int, r: IterList) -> Sides:
    """(e, s@x) (f, u@y) r = (f, u@y) (e, s@x) r."""
    left = t.Iter(e, s, "x", t.Iter(f, u, "y", r))
    return left, t.Iter(f, u, "y", t.Iter(e, s, "x", r))


def of(*items: tuple[int, int, str]) -> Layout:
    return Layout(items)


CASES: list[tuple[Law, Layout, Layout, Layout]] = [
    (rename, of((2, 1, "p"), (3, 5, "p")), of((2, 1, "q"), (3, 5, "q")), of((2, 1, "q"))),
    (
        drop_pair,
        of((7, 1, "m"), (2, 1, "x"), (3, 4, "x"), (3, 9, "y"), (2, 8, "y")),
        of((7, 1, "m")),
        of((7, 1, "m"), (2, 1, "x"), (2, 8, "x")),
    ),
    (
        join_three,
        of((7, 9, "m"), (2, 4, "x"), (3, 4, "y"), (5, 4, "z"), (8, 1, "m")),
        of((7, 9, "m"), (30, 4, "x"), (8, 1, "m")),
        of((7, 9, "m"), (30, 4, "y"), (8, 1, "m")),
    ),
    (far_copy, Layout(replica=[(2, 200)]), Layout(offset={"m": 202}), Layout(replica=[(2, 100)])),
    (
        swap,
        of((2, 1, "x"), (3, 5, "x"), (4, 2, "y")),
        of((4, 2, "y"), (2, 1, "x"), (3, 5, "x")),
        of((4, 2, "y"), (3, 5, "x"), (2, 1, "x")),
    ),
]


@pytest.mark.parametrize(("rule", "one", "same", "other"), CASES)
def test_one_law_alone(rule: Law, one: Layout, same: Layout, other: Layout) -> None:
    laws = {f"test/{rule.name}": rule}
    if rule is far_copy:  # shifts of one layout are one per axis
        laws["layout/join_shifts"] = installed()["layout"].laws["join_shifts"]
    graph = LayoutGraph(laws)
    assert graph.equal(one, same)
    assert not graph.equal(one, other)
    assert not LayoutGraph({}).equal(one, same)


def test_where_laws_run() -> None:
    laws = {f"layout/{name}": law for name, law in installed()["layout"].laws.items()}
    integral = {k: v for k, v in laws.items() if not v.normal and not k.endswith("_symbolic")}
    found = "\n".join(item_rules(t.COPIES, (t.Copy, t.Shift), integral))
    for name in ("drop_unit_copy", "drop_still_copy", "absorb_multiple", "join_shifts"):
        assert f'"layout/{name} on rows"' in found
    assert "sort_shifts" not in found
    assert "shift_before_copy" not in found
    (turned,) = (rule for rule in found.splitlines() if "turn_copy when built" in rule)
    (straight,) = (rule for rule in found.splitlines() if "Copy is built" in rule)
    assert "(< v_s 0)" in turned
    assert "(>= _c1 0)" in straight


def test_items() -> None:
    assert all(map(is_item, (t.Iter, t.Copy, t.Shift, t.Swizzled, t.BoxDim)))
    assert not any(map(is_item, (t.NoIter, t.Map, t.Boxed, t.Append, t.Window)))


def test_long_runs_and_units_anywhere(full: bool) -> None:
    graph, rng = layout_graph([installed()["layout"]]), random.Random(2)
    whole = of((2**20, 3, "m"))
    pieces = [(2, 3 << n, "m") for n in reversed(range(20))]
    assert graph.equal(of(*pieces), whole)
    for _ in range(40 if full else 8):
        some = list(pieces)
        for _ in range(rng.randint(1, 12)):
            unit = 1, rng.randint(-4, 4), rng.choice("mn")
            some.insert(rng.randint(0, len(some)), unit)
        assert graph.equal(of(*some), whole)
        place = rng.randrange(len(some))
        some[place] = some[place][0], some[place][1] + 1, some[place][2]
        assert graph.equal(of(*some), whole) == (same_map(of(*some), whole) is None)


def test_layouts_of_every_kind_one_after_another() -> None:
    graph = layout_graph([installed()["layout"]])
    plain, copies = of((2, 2, "m"), (2, 1, "m")), Layout(replica=[(2, -2), (2, -1)])
    boxed = Layout([(2, 4), (4, 1)], box=(2, 3))
    assert graph.equal(plain, of((4, 1, "m")))
    assert graph.equal(copies, Layout(replica=[(4, 1)], offset={"m": -3}))
    assert graph.equal(boxed, Layout([(8, 1)], box=(2, 3), padded=(2, 4)))
    assert len(graph.classes()) == 3


def test_a_file_holds_what_was_written_last(monkeypatch: pytest.MonkeyPatch) -> None:
    assert line((1, -2, "m", 0)) == "1\t-2\tm\t0\t\n"
    for plain in (False, True):
        if plain:
            monkeypatch.delattr(os, "memfd_create", raising=False)
        file = MemoryFile()
        file.write("a long text\n")
        file.write("short\n")
        path = Path(file.path)
        assert path.read_text(encoding="utf-8") == "short\n"
    del file
    gc.collect()
    assert not path.exists()
