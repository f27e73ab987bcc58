"""Sums of products in parts: what few tiles of a result would compute is shared by many (split-K).

A product of 64 x 524288 by 524288 x 64 has one tile of results, and a machine more than a hundred
units. Of parts of the reduced dim every unit has its own: values of parts first, which are not
rounded, then their sum. How many parts are best depends on the machine, so a few numbers are
offered and a cost model takes one, or none. Reductions that are short, and products of many tiles,
have no parts: that bounds the search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from axe_eq.program import sigalg
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import join_text
from axe_eq.program.signature import Signature, make, plain, signature
from axe_eq.program.terms import In
from axe_eq.program.types import DTYPES, ValueType, promote, value_type
from axe_eq.rule.term import STR, Ground, primitive

# Rows and columns of a large tile of results, and pieces of work that parts of such make at most.
TILE, MOST = (128, 256), 150
# Elements of a part: what a kernel of its own for their sum takes is not won back by shorter ones.
LEAST = 512
# Bytes of a step: parts are of whole ones, or bulk copies read lines of memory twice.
STEP_BYTES = 128
# Equal parts are taken where their number is so near to what is wanted: an eighth of it.
NEAR = 8
# Numbers of parts, and how many of them are offered: finer ones save a twentieth at most, by the
# model, and take longer to search.
LADDER, WAYS = (2, 4, 8, 16, 32, 64, 128), 2


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

    @property
    def tiles(self) -> int:
        """How many large tiles the result has."""
        extents = self.sig.extents([t.shape for t in self.types])
        reach = [{d for p in o for d, _ in p.terms} for o in self.sig.operands]
        sides = [prod(extents[d] for d in range(self.sig.n_out) if d in of and d not in other)
                 for of, other in (reach, reach[::-1])]  # fmt: skip
        rows, cols = sorted(sides)
        apart = prod(extents[d] for d in range(self.sig.n_out)) // (rows * cols)
        return apart * -(-rows // TILE[0]) * -(-cols // TILE[1])

    def ways(self) -> list[int]:
        """Numbers of parts, the largest ones that pay."""
        found = self.axes
        if found is None:
            return []
        most = min(self.types[0].shape[found[0]] // LEAST, MOST // self.tiles)
        return [n for n in LADDER if n <= most][-WAYS:]

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
