"""Which register tiles live at once: what every path through a body reads later."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from axe_eq.kernel.cells import IDENTITY
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.live import live, words
from axe_eq.layout import Layout

PAIRS = Layout([(2, 1, "reg"), (32, 1, "lane")])
NAMES = st.sampled_from("abc")
# A map of two tiles or of halves of them, with its result and operand, or a statement with a body.
STATEMENTS = st.recursive(
    st.tuples(st.sampled_from(["map", "half"]), NAMES, NAMES),
    lambda inner: st.tuples(st.sampled_from(["for", "if"]), st.lists(inner, max_size=4)),
    max_leaves=10,
)


def written(body: list[Any]) -> ir.Kernel:
    k = ThreadBuilder("k", 1)
    tiles = {n: k.reg(n, "f32", (64,), PAIRS) for n in "abc"}

    def write(part: list[Any]) -> None:
        for kind, *rest in part:
            if kind == "for":
                with k.range(3):
                    write(rest[0])
            elif kind == "if":
                with k.when(1):
                    write(rest[0])
            else:
                out, operand = (tiles[n][0:32] if kind == "half" else tiles[n].all for n in rest)
                k.map(IDENTITY, out, operand)

    write(body)
    return k.finish()


Follow = dict[ir.Statement, set[ir.Statement]]


def follow(body: ir.Body, after: set[ir.Statement], found: Follow) -> set[ir.Statement]:
    """What runs first of a body and what comes after it; notes what may run after each map."""
    for s in reversed(body):
        if isinstance(s, ir.Map):
            found[s] = set(after)
            after = {s}
            continue
        (inside,) = ir.children(s)
        again = follow(inside, set(), {}) if isinstance(s, ir.For) else set()
        after = after | follow(inside, after | again, found)
    return after


def later(first: set[ir.Statement], tile: ir.Buffer, found: Follow) -> bool:
    """Whether some way on from here reads a tile before it is written as a whole."""
    seen: set[ir.Statement] = set()
    todo = set(first)
    while todo:
        s = todo.pop()
        seen.add(s)
        assert isinstance(s, ir.Map)
        if s.ins[0].buffer is tile:
            return True
        if s.out.buffer is not tile or s.out.size < 64:
            todo |= found[s] - seen
    return False


@given(st.lists(STATEMENTS, max_size=4))
def test_what_lives_is_what_some_path_reads_later(body: list[Any]) -> None:
    kernel, ways = written(body), Follow()
    first = follow(kernel.body, set(), ways)
    found: dict[ir.Primitive, frozenset[ir.Buffer]] = {}
    before = live(kernel.body, frozenset(), lambda s, tiles: found.update({s: tiles}))
    tiles = kernel.buffers
    for s, tiles_after in found.items():
        held = {b for b in tiles if later(ways[s], b, ways)}
        assert tiles_after == held | {s.views()[0].buffer}
    assert set(found) == set(ways)
    assert before == {b for b in tiles if later(first, b, ways)}


def test_sums_keep_what_they_add_to() -> None:
    k = ThreadBuilder("k", 4)
    acc = k.reg("acc", "f32", (64,), "S[(2,32):(1@reg,1@lane)]")
    product = ir.Gemm(
        acc.all, k.smem("a", "f16", (64, 8)).all, k.smem("b", "f16", (64, 8)).all, 1, True
    )
    assert live([product], frozenset(), lambda s, tiles: None) == {acc}
    product.accumulate = 0
    assert live([product], frozenset(), lambda s, tiles: None) == frozenset()


def test_narrow_elements_share_registers() -> None:
    k = ThreadBuilder("k", 1)
    sizes = {"f8e4m3": 1, "f16": 1, "f32": 2, "f64": 4}
    for dtype, size in sizes.items():
        assert words({k.reg("r", dtype, (64,), PAIRS)}) == size
    assert words(set(k.kernel.buffers)) == sum(sizes.values())
