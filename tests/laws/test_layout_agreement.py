"""The laws of layouts, alone, give what the direct algorithms give.

Every case is asked twice: of the laws that rewrite, and of all laws. All laws together must reach
every answer, and none where the algorithm refuses. Where rewriting stops short, the test names the
computed law that took over, that is the rewriting law that is missing.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import axe_eq as axe
from axe_eq.errors import LayoutError
from axe_eq.layout import Layout, Swizzle
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import check
from axe_eq.layout.symbolic.instances import layout_of
from axe_eq.layout.symbolic.shapes import perm_text, region_text, shape_text, spans_text
from axe_eq.pack import installed, laws_of
from axe_eq.prove.layouts.equality import rewrite, statement
from axe_eq.prove.layouts.rewrite import Rewriter, Rules
from axe_eq.rule.term import Term, postorder

LAWS = laws_of([installed()["layout"]])
REWRITING = Rules({key: law for key, law in LAWS.items() if not law.normal})
ALL = Rules(LAWS)
CASES = 5000

# Operation -> computed laws that have to take over from rewriting, and where: no more and no fewer.
MISSING = {
    "canonical": {
        "canonical": "swizzles that cancel, boxes that are whole or too wide",
        "same_image": "copies off the gap condition",
    },
    "equal": {
        "same_image": "copies off the gap condition",
        "same_swizzled_map": "swizzles that act alike on these coordinates",
    },
    "group": {},
    "permute": {
        "canonical": "boxes",
        "write_out_permutation": "a shape whose boundaries cut iters",
    },
    "slice": {"canonical": "boxes", "write_out_slice": "windows that wrap, boxes"},
    "tile": {
        "write_out_tile": "swizzles and boxes",
        "write_out_sum": "swizzles",
        "write_out_span": "swizzles and boxes",
    },
    "direct_sum": {"write_out_sum": "swizzles and boxes"},
    "tile_of": {"write_out_tile_of": "factors"},
    "direct_sum_left": {"write_out_left_addend": "factors"},
    "direct_sum_right": {"write_out_right_addend": "factors"},
    "compose": {"write_out_composition": "digits of one layout as digits of another"},
    "inverse": {"write_out_inverse": "strides become levels"},
    "span": {"write_out_span": "swizzles and boxes"},
    "common_refinement": {"write_out_refinement": "shapes are texts"},
    "aliasing": {"write_out_aliasing": "digit differences"},
}


class Case(NamedTuple):
    """An operation on layouts as a term, and what the direct algorithm makes of it."""

    operation: str
    term: Term
    direct: Callable[[], Term]


def asked(case: Case, answer: Term, rules: Rules) -> set[str] | None:
    """The laws that lead from the operation to the answer; None where none do."""
    state = statement(case.term, answer, [])
    steps = rewrite(state, rules)
    return None if steps is None else {firing.law.partition("/")[2] for firing, _ in steps}


def judge(case: Case, seen: Counter[str]) -> None:
    """Compare, and count what took over from rewriting."""
    try:
        answer = case.direct()
    except LayoutError:
        seen[f"{case.operation}: refused"] += 1
        refuses(case)
        return
    try:
        check(case.term)
    except LayoutError:  # composition continues a layout past its size, terms do not
        assert case.operation == "compose"
        seen["compose: no term, indices past the size"] += 1
        return
    if asked(case, answer, REWRITING) is not None:
        seen[f"{case.operation}: rewritten"] += 1
        return
    used = asked(case, answer, ALL)
    assert used is not None, f"no law gives {case}"
    computed = {name for name in used if LAWS[f"layout/{name}"].normal}
    known = MISSING[case.operation]
    for name in computed:
        assert name in known, f"{name} took over in {case}"
        seen[f"{case.operation}: by {name} ({known[name]})"] += 1


def refuses(case: Case) -> None:
    """Where the algorithm says that there is no layout, the laws write none out."""
    found = Rewriter(ALL, t.is_answer).normal(case.term)
    written = {t.Block, t.NoBlock, *t.LITERALS}
    assert not {sub.symbol for sub in postorder(found)} <= written, f"{found} for {case}"


def report(name: str, seen: Counter[str]) -> None:
    print(f"\n{name}: {sum(seen.values())} answers")
    for what, count in sorted(seen.items()):
        print(f"  {count:6} {what}")


# ---- recorded cases ------------------------------------------------------------------------------

ORACLE = json.loads(
    (Path(__file__).parents[1] / "oracle" / "layout_cases.json").read_text(encoding="utf-8")
)["cases"]


def build(parts: dict[str, Any]) -> Layout:
    return Layout(parts["D"], parts["R"], parts["O"])


def recorded() -> Iterator[Case]:
    """What the oracle states about canonical forms and operations, as questions."""
    for case in ORACLE:
        given, out = case["in"], case["out"]
        if case["op"] == "canonicalize":
            yield equal(build(given["lro"]), build(out["lro"]))
        elif case["op"] == "equal" and out["equal"]:
            yield equal(build(given["a_lro"]), build(given["b_lro"]))
        elif case["op"] == "group":
            yield grouped(build(given["lro"]), given["shape"])
        elif case["op"] in ("tile", "direct_sum", "tile_of"):
            yield recorded_pair(case["op"], given)
        elif case["op"] == "slice":
            yield sliced(build(given["lro"]), given["shape"], given["region"])
        elif case["op"] == "cute.composition":
            yield composed(Layout.parse(given["A_axe"]), Layout.parse(given["B_axe"]))
        elif case["op"] == "cute.coalesce":
            yield equal(Layout.parse(given["axe"]), Layout.parse(out["axe"]))


def recorded_pair(name: str, given: dict[str, Any]) -> Case:
    return paired(name, build(given["A_lro"]), given["SA"], build(given["B_lro"]), given["SB"])


def test_recorded_cases() -> None:
    seen: Counter[str] = Counter()
    for case in recorded():
        judge(case, seen)
    report("oracle", seen)
    assert sum(seen.values()) > 120


# ---- cases ---------------------------------------------------------------------------------------

PAIRS: dict[str, tuple[Any, Callable[..., Layout]]] = {
    "tile": (t.Tile, axe.tile),
    "direct_sum": (t.DirectSum, axe.direct_sum),
    "tile_of": (t.TileOf, axe.tile_of),
    "direct_sum_left": (t.LeftAddend, axe.direct_sum_left),
    "direct_sum_right": (t.RightAddend, axe.direct_sum_right),
}


def paired(name: str, a: Layout, s: Any, b: Layout, u: Any) -> Case:
    symbol, direct = PAIRS[name]
    term = symbol(t.encode(a), shape_text(s), t.encode(b), shape_text(u))
    return Case(name, term, lambda: t.encode(direct(a, s, b, u)))


def sliced(layout: Layout, shape: Any, region: Any) -> Case:
    term = t.Slice(t.encode(layout), shape_text(shape), region_text(region))
    return Case("slice", term, lambda: t.encode(layout.slice(shape, region)))


def equal(a: Layout, b: Layout) -> Case:
    return Case("equal", t.encode(a), lambda: t.encode(b))


def grouped(layout: Layout, shape: Any) -> Case:
    """The iters as blocks, one per dim; that grouping leaves the map alone is a law by itself."""

    def direct() -> Term:
        blocks = layout.group(shape).blocks
        return t.chain(t.Block, t.NoBlock(), [(t.iters(block),) for block in blocks])

    return Case("group", t.Cut(t.iters(layout.shard), shape_text(shape)), direct)


def composed(a: Layout, b: Layout) -> Case:
    return Case("compose", t.Compose(t.encode(a), t.encode(b)), lambda: t.encode(axe.compose(a, b)))


def shape_of(rng: random.Random, size: int) -> list[int]:
    shape = []
    while size > 1:
        shape.append(rng.choice([d for d in range(2, size + 1) if size % d == 0]))
        size //= shape[-1]
        if rng.random() < 0.1:
            shape.append(1)
    return shape


def some(rng: random.Random, size: int | None = None, plain: bool = False) -> Layout:
    """A layout of any kind; boxes are as rare as swizzles."""
    count = rng.choice((1, 4, 6, 8, 12, 16, 24, 36)) if size is None else size
    found = layout_of(rng, count)
    if plain:
        return Layout(found.shard, found.replica, found.offset)
    if rng.random() < 0.05:
        replica, _ = rng.choice(OFF_GAP)
        return Layout(found.shard, replica, found.offset, found.swizzle)
    if size is None and rng.random() < 0.08:
        return Layout(found.shard, found.replica, found.offset, (), (rng.randint(1, count),))
    if size is None and count % 2 == 0 and rng.random() < 0.08:
        row = rng.randint(1, count // 2)
        boxes = (rng.randint(1, 2 * row),), (2 * row,), [((2, row), (2, count // 2))]
        return Layout(found.shard, found.replica, found.offset, (), *boxes)
    return found


def respelled(rng: random.Random, layout: Layout) -> Layout:
    """Another spelling of the same map."""
    shard, replica, offset = [], [], layout.offset
    for extent, stride, axis in layout.shard:
        inner = rng.choice([d for d in range(1, extent + 1) if extent % d == 0])
        shard += [(extent // inner, stride * inner, axis), (inner, stride, axis)]
    for extent, stride, axis in layout.replica:
        if rng.random() < 0.5:
            offset[axis] = offset.get(axis, 0) + (extent - 1) * stride
            stride = -stride
        cut = rng.randint(1, extent)
        replica += [(cut, stride, axis), (extent - cut + 1, stride, axis)]
    rng.shuffle(replica)
    swizzle = list(layout.swizzle)
    if layout.box is None and rng.random() < 0.1:
        swizzle += [Swizzle("m", 1, 0, 1)] * 2
    return Layout(shard, replica, offset, swizzle, *layout.boxes)


def case_of(rng: random.Random) -> Case:
    name = rng.choice(list(MISSING))
    if name in PAIRS:
        return random_pair(rng, name)
    return MAKERS[name](rng)


def random_pair(rng: random.Random, name: str) -> Case:
    rank = rng.randint(1, 2)
    s, u = ([rng.choice((1, 2, 2, 3, 4)) for _ in range(rank)] for _ in "su")
    plain = rng.random() < 0.8
    a, b = some(rng, prod(s), plain), some(rng, prod(u), plain)
    if name in ("tile", "direct_sum"):
        return paired(name, a, s, b, u)
    whole = [x * y for x, y in zip(s, u, strict=True)]
    if rng.random() < 0.25:
        return paired(name, some(rng, prod(whole), plain), whole, b, u)
    made = axe.tile if name == "tile_of" else axe.direct_sum
    sides = (b, u, a, s) if name == "direct_sum_right" else (a, s, b, u)
    try:
        return paired(name, made(*sides).canonical(), whole, b, u)
    except LayoutError:  # a swizzle inside would not stay one
        return paired(name, some(rng, prod(whole), True), whole, b, u)


def random_canonical(rng: random.Random) -> Case:
    layout = some(rng)
    return Case("canonical", t.encode(layout), lambda: t.encode(layout.canonical()))


OFF_GAP = [  # pairs of saturated lists with one image
    ([(3, 2), (5, 3)], [(2, 3), (2, 5), (5, 2)]),
    ([(7, 2), (3, 3)], [(4, 2), (5, 3)]),
]


def random_equal(rng: random.Random) -> Case:
    layout = some(rng)
    other = respelled(rng, layout)
    pick = rng.random()
    if pick < 0.1 and layout.box is None:
        one, two = (
            Layout(side.shard, replica, layout.offset, side.swizzle)
            for side, replica in zip((layout, other), rng.choice(OFF_GAP), strict=True)
        )
        return equal(one, two)
    if pick < 0.2 and layout.is_linear():
        return alike(rng)
    return equal(layout, other)


def alike(rng: random.Random) -> Case:
    """Swizzles that differ, but not on these coordinates; one alone has a simpler normal form."""
    shard = [(2, 4 * rng.randint(1, 3), "m"), (2, 1, rng.choice("mn"))]
    swizzles = [Swizzle("m", 1, 0, 1), Swizzle("m", 1, rng.choice((4, 5)), 1)]
    one = Layout(shard, (), {}, swizzles[:1])
    return equal(one, Layout(shard, (), {}, swizzles))


def random_group(rng: random.Random) -> Case:
    layout = some(rng, rng.choice((6, 12, 24)))
    return grouped(layout, shape_of(rng, layout.size))


def random_permute(rng: random.Random) -> Case:
    layout = some(rng)
    shape = shape_of(rng, layout.size)
    perm = rng.sample(range(len(shape)), len(shape))
    term = t.Permute(t.encode(layout), shape_text(shape), perm_text(perm))
    return Case("permute", term, lambda: t.encode(layout.permute(shape, perm)))


def random_slice(rng: random.Random) -> Case:
    layout = some(rng)
    shape = shape_of(rng, layout.size)
    begins = [rng.randrange(n) for n in shape]
    region = [(b, rng.randint(b + 1, n)) for b, n in zip(begins, shape, strict=True)]
    return sliced(layout, shape, region)


def random_compose(rng: random.Random) -> Case:
    outer = some(rng, rng.choice((4, 6, 8, 12, 24)))
    return composed(outer, layout_of(rng, rng.choice((1, 2, 4, 6, 8)), outer.size))


def random_inverse(rng: random.Random) -> Case:
    extents, stride, shard = shape_of(rng, rng.choice((4, 6, 12, 24))), 1, []
    for extent in extents:
        shard.append((extent, stride, "m"))
        stride *= extent
    rng.shuffle(shard)
    layout = Layout(shard) if rng.random() < 0.8 else some(rng, 6, True)
    term = t.Inverse(t.encode(layout), "m")
    return Case("inverse", term, lambda: t.encode(layout.inverse(["m"])))


def random_span(rng: random.Random) -> Case:
    layout = some(rng)
    spans = {axis: layout.span(axis) for axis in layout.axes}
    return Case("span", t.SpanOf(t.encode(layout)), lambda: t.Spans(spans_text(spans)))


def random_refinement(rng: random.Random) -> Case:
    size = rng.choice((6, 12, 24, 36))
    shapes = [shape_of(rng, size), shape_of(rng, size)]
    term = t.CommonRefinement(*map(shape_text, shapes))
    return Case(
        "common_refinement", term, lambda: t.ShapeIs(shape_text(axe.common_refinement(shapes)))
    )


def random_aliasing(rng: random.Random) -> Case:
    layout = some(rng)

    def direct() -> Term:
        clash = layout.aliasing().clash
        return t.Injective() if clash is None else t.Clashing(clash.x, clash.y)

    return Case("aliasing", t.Aliasing(t.encode(layout)), direct)


MAKERS: dict[str, Callable[[random.Random], Case]] = {
    "canonical": random_canonical,
    "equal": random_equal,
    "group": random_group,
    "permute": random_permute,
    "slice": random_slice,
    "compose": random_compose,
    "inverse": random_inverse,
    "span": random_span,
    "common_refinement": random_refinement,
    "aliasing": random_aliasing,
}


@pytest.fixture
def seen() -> Iterator[Counter[str]]:
    found: Counter[str] = Counter()
    yield found
    report("random", found)


def test_random_cases(full: bool, seen: Counter[str]) -> None:
    rng = random.Random(7)
    for _ in range(CASES if full else CASES // 50):
        judge(case_of(rng), seen)
    asked_for = {what.partition(":")[0] for what in seen}
    assert asked_for == set(MISSING)
    if full:  # a sample does not meet all of them
        used = {
            f"{name}: by {law} ({why})" for name in MISSING for law, why in MISSING[name].items()
        }
        assert {what for what in seen if ": by " in what} == used
    rewritten = sum(count for what, count in seen.items() if what.endswith("rewritten"))
    assert rewritten > 0.3 * sum(seen.values())
