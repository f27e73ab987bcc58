"""Sums of products in parts: what few tiles of a result would compute is shared by many (split-K).

A product of 64 x 524288 by 524288 x 64 has one tile of results, and a machine more than a hundred
units. Of parts of the reduced dim every unit has its own: values of parts first, which are not
rounded, then their sum. How many parts are best depends on the machine, so a few numbers are
offered and a cost model takes one, or none. Reductions that are short, and products of many tiles,
have no parts: that bounds the search. Offered are those whose parts of all tiles are about as many
as there are units, one after the other by what they would copy: of 129 x 6528 by 6528 x 2496, 3
parts of 39 tiles of 192 x 64 are 117 pieces, all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod

from axe_eq.program import sigalg
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import join_text
from axe_eq.program.signature import Signature, make, plain, signature
from axe_eq.program.terms import In
from axe_eq.program.types import DTYPES, ValueType, promote, value_type
from axe_eq.rule.term import STR, Ground, primitive

# Rows and columns of a large tile of results, and pieces of work that parts of such make at most.
TILE, MOST = (128, 256), 150
# Tiles whose sums fit the registers of a unit, and pieces that a machine works on at once: an H100,
# and one of half the size. More take longer to search.
TILES = ((64, 64), (64, 128), (64, 192), (64, 256), (128, 64), (128, 128), (128, 192), (128, 256),
         (192, 64), (192, 128), (256, 64), (256, 128))  # fmt: skip
UNITS = (132, 66)
# Those that fit a result, on either side: offered beside what round ones say.
FITTING = tuple((m, n) for m in range(64, 257, 64) for n in range(64, 257, 16) if m * n < 1 << 16)
# Elements that memory moves while a unit copies one, while it multiplies one pair, and while the
# cache that all units share moves one; elements moved for a partial sum, which is written and read
# in four bytes; and the power of what hides each other in part: ratios of an H200's figures.
OF_COPY, OF_PRODUCT, OF_CACHE, OF_SUM, POWER = 28, 0.7, 0.5, 4, 5
# Elements of a part: what a kernel of its own for their sum takes is not won back by shorter ones.
LEAST = 512
# Bytes of a step: parts are of whole ones, or bulk copies read lines of memory twice.
STEP_BYTES = 128
# Equal parts are taken where their number is so near to what is wanted: an eighth of it.
NEAR = 8


@dataclass(frozen=True)
class _Long:
    """A sum of products of two operands, both of which reach the dim that is split."""

    sig: Signature
    types: tuple[ValueType, ValueType]

    @property
    def axes(self) -> tuple[int, int] | None:
        """The axis of each operand that is the longest dim both are reduced along."""
        ways = [
            [n for n, p in enumerate(o) if p.plain is not None and p.plain in self.sig.reduced]
            for o in self.sig.operands
        ]
        plains = [{o[n].plain: n for n in way}
                  for o, way in zip(self.sig.operands, ways, strict=True)]  # fmt: skip
        both = plains[0].keys() & plains[1].keys()
        if not both:
            return None
        longest = max(both, key=lambda d: (self.types[0].shape[plains[0][d]], -(d or 0)))
        return plains[0][longest], plains[1][longest]

    @cached_property
    def sides(self) -> tuple[int, int, int]:
        """Rows, columns, and results of these apart from each other."""
        extents = self.sig.extents([t.shape for t in self.types])
        reach = [{d for p in o for d, _ in p.terms} for o in self.sig.operands]
        rows, cols = (prod(extents[d] for d in range(self.sig.n_out) if d in of and d not in other)
                      for of, other in (reach, reach[::-1]))  # fmt: skip
        return rows, cols, prod(extents[d] for d in range(self.sig.n_out)) // (rows * cols)

    def tiles(self, m: int, n: int) -> int:
        """How many tiles of m rows and n columns the result has."""
        rows, cols, apart = self.sides
        return apart * -(-rows // m) * -(-cols // n)

    def ways(self) -> list[int]:
        """Numbers of parts, the best one of each machine by what it moves."""
        if (found := self.axes) is None:
            return []
        length = self.types[0].shape[found[0]]
        large = min(self.tiles(*TILE), self.tiles(*TILE[::-1]))
        if min(length // LEAST, MOST // large) < 2:
            return []
        fitting = FITTING + tuple(tile[::-1] for tile in FITTING)
        ways = *((units, TILES) for units in UNITS), (UNITS[0], fitting)
        best = (self._best(units, length, tiles) for units, tiles in ways)
        return list(dict.fromkeys(parts for parts in best if parts > 1))

    def _best(self, units: int, length: int, of: Sequence[tuple[int, int]]) -> int:
        """The number of parts by which so many units are done first; 0 where there is none."""
        rows, cols, apart = self.sides
        offered: dict[int, float] = {}
        for m, n in of:
            tiles = self.tiles(m, n)
            if parts := min(units // tiles, length // LEAST):
                of_unit = max((m + n) * OF_COPY, m * n * OF_PRODUCT) / parts
                of_all = (m + n) * tiles * OF_CACHE, (rows + cols) * apart
                step = sum(t**POWER for t in (of_unit, *of_all)) ** (1 / POWER)
                moved = length * step + parts * rows * cols * apart * OF_SUM
                offered[parts] = min(moved, offered.get(parts, inf))
        return min(offered, key=lambda parts: offered[parts], default=0)

    def stages(self) -> tuple[str, str]:
        """(outer, inner) signatures: parts are the slowest dim of what is between them."""
        assert self.axes is not None
        s, new = self.sig, self.sig.n_dims
        operands = [[plain(d) if (d := p.plain) is not None else p for p in o] for o in s.operands]
        for o, axis in zip(operands, self.axes, strict=True):
            o.insert(axis, plain(new))
        inner = make(operands, [new, *range(s.n_out)], "+", s.reduced, dict(s.fixed))
        between = [plain(d) for d in (new, *range(s.n_out))]
        return make([between], range(s.n_out), "+", [new]).text, inner.text


def _long(sig: str, x: str, y: str) -> _Long | None:
    """A long sum of products of floats."""
    s, types = signature(sig), (value_type(x), value_type(y))
    if s.monoid != "+" or len(s.operands) != 2:
        return None
    return _Long(s, types) if all(DTYPES[t.dtype].kind == "f" for t in types) else None


def _selectors(f: _Long) -> Iterator[tuple[str, str]]:
    """The selectors of each way: equal parts near what is wanted, else those of whole steps."""
    assert f.axes is not None
    extent = f.types[0].shape[f.axes[0]]
    step = STEP_BYTES // max(DTYPES[t.dtype].itemsize for t in f.types)
    lengths = dict.fromkeys(_length(extent, n, step) for n in f.ways())
    for length in lengths:
        name, how = ("parts", length) if extent % length else ("split", (-1, length))
        yield join_text(name, f.axes[0], how), join_text(name, f.axes[1], how)


def _length(extent: int, wanted: int, step: int) -> int:
    """Elements of a part, for about so many of them."""
    slack = wanted // NEAR
    near = sorted(range(max(2, wanted - slack), wanted + slack + 1), key=lambda n: abs(n - wanted))
    even = (extent // n for n in near if extent % (n * step) == 0)
    return next(even, -(-extent // (wanted * step)) * step)


@primitive((STR, STR, STR), (STR, STR, STR, STR, STR, STR), many=True)
def product_parts(sig: str, x: str, y: str) -> list[tuple[str, ...]]:
    """(outer, inner, split of x, split of y, map of the value, cell back), see the law."""
    f = _long(sig, x, y)
    if f is None or not f.ways():
        return []
    outer, inner = f.stages()
    own = promote(*(t.dtype for t in f.types))
    back = "id" if DTYPES[own].accumulate == own else join_text("cast", own)
    same = sigalg.elementwise(f.sig.n_out, 1).text
    return [(outer, inner, *selectors, same, back) for selectors in _selectors(f)]


def product_sample(draw: Draw) -> tuple[Ground, ...]:
    """A sampler of a long product: its signature and its operands, the reduced dim anywhere."""
    sizes, shapes, texts = {"k": draw.pick("long", (1 << 12, 4099)), "m": 2, "n": 3}, [], []
    for letter in "mn":
        dims = [letter, "k"] if draw.chance(f"{letter} first", 0.5) else ["k", letter]
        shapes.append(tuple(sizes[d] for d in dims))
        texts.append(" ".join(dims))
    dtype = draw.pick("dtype", ("f64", "f32", "f16", "bf16"))
    x, y = (In(f"x{n}", str(ValueType(dtype, s))) for n, s in enumerate(shapes))
    return signature(f"{texts[0]}, {texts[1]} -> m n; + k").text, x, y
