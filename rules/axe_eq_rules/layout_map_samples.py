"""Samples for the laws of operations on layouts: layouts, shapes, regions and permutations."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from axe_eq.errors import LayoutError
from axe_eq.layout import Layout, Swizzle, recover
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import check
from axe_eq.layout.symbolic.instances import layout_of
from axe_eq.layout.symbolic.meaning import Meaning
from axe_eq.layout.symbolic.polynomial import poly
from axe_eq.layout.symbolic.shapes import shape_text
from axe_eq.program.decisions import Draw
from axe_eq.rule.term import Symbol, Term
from axe_eq_rules.layout_samples import Roles, Values, axis, layout, split_size

# -- layouts written out ---------------------------------------------------------------------------


def _written(draw: Draw, at: str, size: int) -> Term:
    """A layout written out, of so many elements; some have boxes."""
    rng = random.Random(draw.integer(f"{at}.seed", 0, 2**32))
    if not draw.chance(f"{at}.boxed", 0.15):
        return t.encode(layout_of(rng, size))
    more = draw.integer(f"{at}.more", 0, 3)
    boxes: tuple[Any, ...] = ((size,), (size + more,))
    padded = size + more
    if draw.chance(f"{at}.nested", 0.3):  # rows of the box in longer ones
        turn = slice(None, None, draw.pick(f"{at}.turn", (1, -1)))
        rows = draw.pick(f"{at}.rows", [d for d in range(1, padded + 1) if padded % d == 0])
        box, wide = (rows, padded // rows), (rows, padded // rows + 1)
        boxes = (*boxes, [(box[turn], wide[turn], (0, 1)[turn])])
        padded = wide[0] * wide[1]
    found = layout_of(rng, padded)
    return t.encode(Layout(found.shard, found.replica, found.offset, found.swizzle, *boxes))


def written(draw: Draw) -> Values:
    """A layout written out."""
    return (_written(draw, "x", draw.pick("size", (1, 2, 3, 4, 6, 8, 12))),)


def written_out(symbol: Symbol, *roles: str) -> Callable[[Draw], Values]:
    """A sampler of an operation on layouts written out; what its texts are is said in order."""

    def sample(draw: Draw) -> Values:
        drawn, said = Roles(draw, False, True, (1, 2, 3), _written), iter(roles)
        sorts = [(sort, "" if sort == t.LAYOUT else next(said)) for sort in symbol.args]
        return (symbol(*(drawn.value(f"x{n}", *wanted) for n, wanted in enumerate(sorts))),)

    return sample


def written_factor(make: Symbol, ask: Symbol) -> Callable[[Draw], Values]:
    """A sampler of a question for a factor of what another operation makes."""

    def sample(draw: Draw) -> Values:
        (product,) = written_out(make, "shape", "shape")(draw) or ()
        a, s, b, u = product.args  # type: ignore[union-attr]
        left = ask is not t.RightAddend
        sides = (a, s, b, u) if left else (b, u, a, s)
        images = Meaning().of(make(*sides))
        whole = _recovered(images)
        if whole is None:
            return None
        extents = zip(s.split(","), u.split(","), strict=True)
        return (ask(whole, shape_text(int(x) * int(y) for x, y in extents), b, u),)

    return sample


def _recovered(images: Any) -> Term | None:
    axes = sorted({axis for image in images for point in image for axis, _ in point}) or ["m"]
    table = [[[dict(p).get(axis, 0) for axis in axes] for p in sorted(image)] for image in images]
    try:
        return t.encode(recover(table, axes))
    except (LayoutError, ValueError):
        return None


def written_composition(draw: Draw) -> Values:
    """A composition of layouts written out."""
    size = draw.pick("size", (2, 4, 6, 8))
    rng = random.Random(draw.integer("seed", 0, 2**32))
    x = t.encode(layout_of(rng, size))
    return (t.Compose(x, t.encode(layout_of(rng, draw.pick("n", (1, 2, 4, 6)), size))),)


def composed_with_indices(draw: Draw) -> Values:
    """A layout composed with the indices of its elements."""
    size = draw.pick("size", (1, 2, 4, 6))
    return (t.Compose(layout(draw, "x", size), t.encode(Layout([(size, 1, axis(draw, "a"))]))),)


def symbolic_inverse(draw: Draw) -> Values:
    """The inverse of a list with names that is one to one, or nearly."""
    extents = draw.shuffled("order", ["n", "2", "k", "3"][: draw.integer("count", 1, 4)])
    stride, items = {"m": poly(1), "n": poly(1)}, []
    for place, extent in enumerate(extents):
        on = draw.pick(f"a{place}", ("m", "m", "n"))
        items.append((extent, str(stride[on]), on))
        stride[on] *= poly(extent) + (1 if draw.integer(f"gap{place}", 0, 9) == 0 else 0)
    items = draw.shuffled("places", items)
    layout = t.Map(t.chain(t.SymIter, t.NoIter(), items), t.Here())
    return (t.Inverse(layout, draw.pick("axes", ("m,n", "n,m"))),)


def only_zero(draw: Draw) -> Values:
    """An unknown layout whose coordinates are below a small number."""
    elements = draw.pick("n", ("1", "4", "6", "n", "2*n"))
    return (t.AnyLayout("A", elements, draw.pick("bound", ("1", "1", "1", "2"))),)


def composed_into_indices(draw: Draw) -> Values:
    """Indices in order composed with a layout that has such."""
    size = draw.pick("size", (1, 2, 4, 6))
    rng = random.Random(draw.integer("seed", 0, 2**32))
    inner = t.encode(layout_of(rng, draw.pick("n", (1, 2, 4, 6)), size))
    return (t.Compose(t.encode(Layout([(size, 1, axis(draw, "a"))])), inner),)


def written_inverse(draw: Draw) -> Values:
    """The inverse of a one-to-one layout written out."""
    extents = draw.shuffled("order", [2, 3, 4][: draw.integer("n", 1, 3)])
    stride, found = {"m": 1, "n": 1}, []
    for n, e in enumerate(extents):
        name = draw.pick(f"a{n}", "mmn")
        found.append((e, stride[name], name))
        stride[name] *= e
    shard = draw.shuffled("D", found)
    return (t.Inverse(t.encode(Layout(shard)), "m,n" if draw.chance("mn", 0.5) else "n,m"),)


def inverted(draw: Draw) -> Values:
    """A layout and the axes on which it has an inverse."""
    values = written_inverse(draw)
    return None if values is None or not isinstance(values[0], Term) else values[0].args


def two_shapes(draw: Draw) -> Values:
    """Two shapes of one size."""
    size = draw.pick("size", (1, 4, 6, 8, 12, 16, 24))
    return (t.CommonRefinement(*(shape_text(split_size(draw, at, poly(size))) for at in "ST")),)


_ALIKE: tuple[tuple[list[tuple[int, int]], list[tuple[int, int]]], ...] = (
    ([(3, 2), (5, 3)], [(2, 3), (2, 5), (5, 2)]),
    ([(7, 2), (3, 3)], [(4, 2), (5, 3)]),
    ([(4, 1)], [(2, 1), (2, 2)]),
    ([(4, 1)], [(3, 1), (2, 1)]),
    ([(2, 5), (3, 1)], [(3, 1), (2, 5)]),
)


def one_image(draw: Draw) -> Values:
    """Two lists of copies with one image."""
    both = draw.pick("pair", _ALIKE)
    name, offset = axis(draw, "a"), draw.integer("o", -2, 2)
    found = [
        t.copies(tuple((e, s, name) for e, s in one), [("m", offset)] if offset else [])
        for one in draw.shuffled("order", list(both))
    ]
    return found[0], found[1]


def one_map(draw: Draw) -> Values:
    """Two layouts with swizzles that are one map."""
    rng = random.Random(draw.integer("seed", 0, 2**32))
    plain = layout_of(rng, draw.pick("size", (2, 4, 6, 8)))
    bits = draw.integer("bits", 1, 2)
    sw = Swizzle("m", bits, draw.integer("base", 0, 1), bits + draw.integer("more", 0, 1))
    few, many = draw.pick("times", ((0, 2), (1, 3), (2, 4)))
    return tuple(
        t.encode(Layout(plain.shard, plain.replica, plain.offset, [sw] * n)) for n in (few, many)
    )


# -- pairs of expressions --------------------------------------------------------------------------


def same_sums(draw: Draw) -> Values:
    """Two expressions that take the same elements of unknown layouts at every index."""
    n, k, j = (draw.pick(f"extent{i}", (1, 2, 3)) for i in range(3))
    x, y = (t.AnyLayout(name, str(size), "") for name, size in (("A", n * k), ("B", j)))
    begin = draw.integer("begin", 0, k - 1)
    end = draw.integer("end", begin + 1, k)
    row = draw.integer("row", 0, n - 1)
    part = t.Slice(x, f"{n},{k}", f"{row}:{row + 1},{begin}:{end}")
    window = t.encode(Layout([(end - begin, 1)], offset={"m": row * k + begin}))
    columns = t.encode(Layout([(k, 1), (n, k)]))
    pairs = [
        (t.Permute(x, f"{n},1,{k}", "0,2,1"), x),
        (t.DirectSum(x, str(n * k), y, str(j)),
         t.Permute(t.DirectSum(y, str(j), x, str(n * k)), f"{j},{n * k}", "1,0")),
        (part, t.Slice(x, str(n * k), f"{row * k + begin}:{row * k + end}")),
        (part, t.Compose(x, window)),
        (t.Compose(x, columns), t.Permute(x, f"{n},{k}", "1,0")),
        (t.Tile(x, f"{n * k},1", y, f"1,{j}"), t.Tile(x, str(n * k), y, str(j))),
        (t.Tile(x, f"{n},{k}", y, f"{j},1"),
         t.Permute(t.Tile(x, str(n * k), y, str(j)), f"{n},{k},{j}", "0,2,1")),
    ]  # fmt: skip
    a, b = draw.pick("pair", pairs)
    if draw.chance("outside", 0.3):
        return t.Tile(y, str(j), a, _size(a)), t.Tile(y, str(j), b, _size(b))
    return a, b


def _size(term: Term) -> str:
    return str(check(term).elements)
