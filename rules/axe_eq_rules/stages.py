"""Long reductions in two stages: which dims, or which parts of a dim, are reduced first.

A reduction to few values leaves most of a machine idle: its parts do not. There are a few ways to
take one apart, by how many pieces of work there are then; which is best, if any, is for a cost
model to say. Reductions of fewer than `LEAST` elements, and those that are more than `FEW` pieces
as they are, have none: that bounds the search. But for rows that do not begin aligned: of those
that are added up a few neighbours are left, whose columns together are rows that do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import gcd, log, prod

from axe_eq.program import sigalg
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import MONOIDS, folding, join_text
from axe_eq.program.signature import Signature, make, plain, signature
from axe_eq.program.terms import In
from axe_eq.program.types import DTYPES, ValueType, value_type
from axe_eq.rule.term import STR, Ground, primitive
from axe_eq_rules.constants import constant_text

LEAST, FEW, SHORT = 1 << 17, 1 << 9, 1 << 9
PIECES = (1 << 10,)
# Kept elements that lie next to each other are pieces of so many bytes: what memories give.
STRIP_BYTES = 64
NARROW = ("f16", "bf16")
# Whole vectors of any element type: parts that begin aligned are read fast.
ALIGNED = 16
# Rows of so many elements, or of a multiple, begin aligned for vectors of narrow types.
VECTOR = 8


@dataclass(frozen=True)
class _Way:
    """A reduction in two: the first `whole` reduced dims are left, and `parts` of the next.

    Of the last one `beside` neighbours are left too: with them what is kept is one aligned run.
    """

    whole: int
    parts: int = 1
    beside: int = 1


@dataclass(frozen=True)
class _Long:
    """A plain reduction of one operand: its signature, the operand's dims and their extents."""

    sig: Signature
    dims: tuple[int, ...]
    type: ValueType

    @property
    def reduced(self) -> list[int]:
        """The operand's reduced axes, slowest first."""
        return [axis for axis, d in enumerate(self.dims) if d >= self.sig.n_out]

    def pieces(self) -> int:
        """Pieces of work that there are without stages: values, or strips of neighbours."""
        kept = prod(e for a, e in enumerate(self.type.shape) if a not in self.reduced)
        last = len(self.dims) - 1
        if last in self.reduced:
            return kept
        size, extent = DTYPES[self.type.dtype].itemsize, self.type.shape[-1]
        return kept // extent * -(-extent * size // STRIP_BYTES)

    def ways(self) -> list[_Way]:
        """The ways to take it apart, each once."""
        shape, pieces = self.type.shape, self.pieces()
        if prod(shape) < LEAST:
            return []
        most = prod(shape) // (SHORT * pieces)
        tried = (self._way(min(n // pieces, most)) for n in PIECES) if pieces <= FEW else ()
        ways = list(dict.fromkeys(w for w in tried if w is not None))
        return [*ways, *filter(None, map(self._beside, ways or [_Way(0)]))]

    def _beside(self, way: _Way) -> _Way | None:
        """A way that leaves neighbours too, where rows of what is kept do not begin aligned."""
        axis, shape = self.reduced[-1], self.type.shape
        n = VECTOR // gcd(prod(shape[axis + 1 :]), VECTOR)
        apart = way.parts > 1 and self.reduced[way.whole] != axis
        if n == 1 or axis == len(shape) - 1 or apart or shape[axis] % (way.parts * n):
            return None
        return replace(way, beside=n) if shape[axis] > way.parts * n else None

    def _way(self, parts: int) -> _Way | None:
        """A way to have about so many parts."""
        done = 1
        for n, axis in enumerate(self.reduced):
            extent, left = self.type.shape[axis], parts / done
            if left < 2 or (n == len(self.reduced) - 1 and extent < 2 * left):
                return _Way(n) if done > 1 else None
            if extent <= left * 1.5:
                done *= extent
                continue
            return _Way(n, _divisor(extent, left) or (1 if done > 1 else int(left)))
        return None

    def stages(self, way: _Way) -> tuple[str, str]:
        """(outer, inner): what is left lies in the order of the operand."""
        s, new = self.sig, self.sig.n_dims
        left, inside = self.reduced[: way.whole], self.reduced[way.whole :]
        operand, out = list(self.dims), [d for a, d in enumerate(self.dims) if a not in inside]
        gone = [self.dims[a] for a in inside]
        kept = [self.dims[a] for a in left]
        if way.beside > 1:  # the slow part of the last one is left where it is in parts
            axis, of_parts = inside[-1], way.parts > 1
            operand[axis + 1 : axis + 1] = [new, new + 1] if of_parts else [new]
            gone = [new] if of_parts else gone
            kept += [self.dims[axis], new + 1] if of_parts else [new]
            out = [d for d in operand if d not in gone]
        elif way.parts > 1:  # the split dim is left, its fast part reduced
            operand.insert(inside[0] + 1, new)
            out = [d for d in operand if d not in gone[1:] and d != new]
            kept, gone = [*kept, gone[0]], [new, *gone[1:]]
        inner = make([map(plain, operand)], out, s.monoid, gone)
        outer = make([map(plain, out)], range(s.n_out), folding(s.monoid), kept)
        return outer.text, inner.text

    def casts(self) -> tuple[str, str, str]:
        """The cell to a type for partial values, the map of the values, the cell back.

        Partial values may not be kept in a narrow type: it would round them.
        """
        m, own = sigalg.elementwise(self.sig.n_out, 1).text, self.type.dtype
        if own not in NARROW or MONOIDS[self.sig.monoid].exact:
            return "id", m, "id"
        return join_text("cast", DTYPES[own].accumulate), m, join_text("cast", own)


def _divisor(extent: int, near: float) -> int | None:
    """The divisor nearest to a number, of those at most twice or half as large."""
    ways = [
        (bool(extent // n % ALIGNED), abs(log(n / near)), n)
        for n in range(max(2, -(-int(near) // 2)), int(2 * near) + 1)
        if extent % n == 0
    ]
    return min(ways)[2] if ways else None


def _long(sig: str, x: str) -> _Long | None:
    """A plain reduction of one operand, all of whose dims it reads once."""
    s = signature(sig)
    if not s.n_reduced or not folding(s.monoid) or len(s.operands) != 1:
        return None
    dims = tuple(-1 if p.plain is None else p.plain for p in s.operands[0])
    return _Long(s, dims, value_type(x)) if sorted(dims) == [*range(s.n_dims)] else None


def _ways(sig: str, x: str) -> Iterator[tuple[_Long, _Way, bool]]:
    """Every way to take a reduction apart, and whether its parts are whole."""
    found = _long(sig, x)
    for way in found.ways() if found is not None else ():
        extent = found.type.shape[found.reduced[way.whole]] if found else 1
        assert found is not None
        yield found, way, extent % way.parts == 0


@primitive((STR, STR), (STR, STR, STR, STR, STR), many=True)
def stages(sig: str, x: str) -> list[tuple[str, ...]]:
    """(outer, inner, casts) of a long reduction over several dims: fast ones are reduced first."""
    whole = ((f, w) for f, w, _ in _ways(sig, x) if w.parts == w.beside == 1)
    return [(*f.stages(way), *f.casts()) for f, way in whole]


@primitive((STR, STR), (STR, STR, STR, STR, STR, STR), many=True)
def parts(sig: str, x: str) -> list[tuple[str, ...]]:
    """(outer, inner, split, casts) of a long reduction: parts of a dim come first.

    They are contiguous, or take turns.
    """
    ways = [(f, w) for f, w, even in _ways(sig, x) if w.parts * w.beside > 1 and even]
    return [(*f.stages(w), _split(f, w), *f.casts()) for f, w in ways]


@primitive((STR, STR), (STR,) * 10, many=True)
def uneven_parts(sig: str, x: str) -> list[tuple[str, ...]]:
    """(outer, inner, split, head, tail, concat, casts): as `parts`, with less than a row left."""
    found = []
    for f, way, even in _ways(sig, x):
        if even or way.parts == 1 or way.beside > 1:
            continue
        axis = f.reduced[way.whole]
        extent, rank = f.type.shape[axis], f.type.rank
        length = extent // way.parts
        length -= length % ALIGNED if length > way.parts * ALIGNED else 0
        head = way.parts * length
        pieces = (
            join_text("slice", tuple((b, 1, n) if d == axis else None for d in range(rank)))
            for b, n in ((0, head), (head, extent - head))
        )
        same = sigalg.elementwise(rank, 1).text
        found.append(
            (*f.stages(way), _split(f, way), *pieces, join_text("concat", axis), same, *f.casts())
        )
    return found


@primitive((STR, STR, STR, STR), (STR,) * 8, many=True)
def squares(sig: str, product: str, difference: str, x: str) -> list[tuple[str, ...]]:
    """(inner, outer, read, product, r, of parts, their product, scaled), see the laws."""
    return [_squares(f, w, difference) for f, w, _ in _ways(sig, x)
            if w.parts == w.beside == 1 and _centred(f, product, difference)]  # fmt: skip


@primitive((STR, STR, STR, STR), (STR,) * 9, many=True)
def squares_in_parts(sig: str, product: str, difference: str, x: str) -> list[tuple[str, ...]]:
    """The split, and what `squares` says, where parts of a dim come first."""
    return [(_split(f, w), *_squares(f, w, difference)) for f, w, even in _ways(sig, x)
            if w.parts > 1 == w.beside and even and _centred(f, product, difference)]  # fmt: skip


def _centred(f: _Long, product: str, difference: str) -> bool:
    """Whether a sum is of squares of x less values that lack what is reduced."""
    rank, apart = f.type.rank, signature(difference)
    same = sigalg.elementwise(rank, 2)
    plainly = apart.operands[0] == same.operands[0] and signature(product) == same
    lacks = all(p.plain is not None or not p.terms for p in apart.operands[1])
    lacks = lacks and not {p.plain for p in apart.operands[1]} & set(f.reduced)
    return f.sig.monoid == "+" and f.type.dtype not in NARROW and plainly and lacks


def _squares(f: _Long, way: _Way, difference: str) -> tuple[str, ...]:
    """What `squares` says of one way."""
    outer, inner = f.stages(way)
    axis = f.reduced[way.whole] if way.parts > 1 else f.type.rank
    dims = signature(inner).operands[0]
    n_out = signature(inner).n_out
    left = [d for d, p in enumerate(dims) if p.plain is not None and p.plain < n_out]
    mean = [
        p if p.plain is None else plain(left.index(p.plain + (p.plain > axis)))
        for p in signature(difference).operands[1]
    ]
    here = range(len(left))
    made = (
        make([map(plain, range(len(dims))), map(plain, left)], range(len(dims))),
        sigalg.elementwise(len(dims), 2), make([map(plain, here), mean], here),
        sigalg.elementwise(len(left), 2), make([map(plain, here), []], here),
    )  # fmt: skip
    read, product, of_parts, their, scaled = (m.text for m in made)
    whole = prod(f.type.shape[a] for a in f.reduced[: way.whole]) * way.parts
    kept = prod(e for a, e in enumerate(f.type.shape) if a not in f.reduced)
    count = constant_text(prod(f.type.shape) // (kept * whole), f.type.dtype)
    return inner, outer, read, product, count, of_parts, their, scaled


def square_sample(draw: Draw) -> tuple[Ground, ...]:
    """A sampler of a long sum of squares: its signature, those of squares and of differences."""
    shape = draw.pick("shape", ((256, 256, 2), (2, 256, 256), (1 << 16, 2)))
    dims = range(len(shape))
    kept = min(dims, key=lambda d: shape[d])
    sig = make([map(plain, dims)], [kept], "+", [d for d in dims if d != kept])
    apart = make([map(plain, dims), [plain(kept)]], dims)
    x, m = In("x0", str(ValueType("f64", shape))), In("x1", str(ValueType("f64", (2,))))
    return sig.text, sigalg.elementwise(len(shape), 2).text, apart.text, x, m


def _split(f: _Long, way: _Way) -> str:
    axis = f.reduced[-1] if way.beside > 1 else f.reduced[way.whole]
    extent = f.type.shape[axis]
    if way.beside > 1:
        run = (extent // way.parts // way.beside, way.beside) if way.parts > 1 else (way.beside,)
        return join_text("split", axis, (-1, *run))
    return join_text("split", axis, (-1, extent // way.parts))


def long_sample(*, single: bool, even: bool = True) -> Callable[[Draw], tuple[Ground, ...]]:
    """A sampler of a long reduction: its signature and an operand.

    With `single` one dim is reduced, else two or three; without `even` a dim of no divisors.
    """

    def sample(draw: Draw) -> tuple[Ground, ...]:
        extents = [draw.pick("long", (1 << 16, 3 << 15) if even else (65551, 70009))]
        if not single:
            extents = [256, 16, 16] if draw.chance("three", 0.5) else [256, 256]
        dims = [*range(1, 1 + len(extents))]
        shape, order = [2, *extents], [0, *dims]
        if draw.chance("last", 0.5):  # the kept dim may be the fast one
            shape, order = [*extents, 2], [*dims, 0]
        sig = make([map(plain, order)], [0], draw.pick("monoid", ("+", "max", "*")), dims)
        dtype = draw.pick("dtype", ("f64", "i64", *NARROW))
        return sig.text, In("x0", str(ValueType(dtype, tuple(shape))))

    return sample
