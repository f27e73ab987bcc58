"""Tensor expressions as polynomials over the reals: sums of monomials, each one contraction.

A monomial is ``c * sum_r f1[P1(i, r)] * f2[P2(i, r)] * ...``: a coefficient, factors read through
affine projections of the index space, and the extents of that space. Sums, products, contractions,
transpositions, broadcasts, slices, flips and splits of polynomials are polynomials; every other
operator is an atom. Writing a polynomial out as a term makes equal polynomials equal terms, up to
relabelings `sort_operands` gives up on.

Over the reals every floating dtype is the real line, so casts between them disappear; integers of
one dtype form a ring (two's complement), where the same algebra is exact. Constants are what their
dtype holds, so a coefficient is written in one that holds it.

Atoms may be undefined, and with infinite constants infinite. Facts (`axe_eq.program.facts`) say of
which that cannot be: only such cancel (inf - inf is no 0), and only such are multiplied into sums
that are entered (inf times (2 - 1) is no inf - inf).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import isfinite, prod

from axe_eq.program.facts import facts_of
from axe_eq.program.known import FINITE, FINITE_WHERE_DEFINED, has
from axe_eq.program.ops import join_text, selector, split_text
from axe_eq.program.sigalg import Operand, dims_of, sort_operands
from axe_eq.program.signature import LETTERS, Affine, Signature, make, plain, signature
from axe_eq.program.terms import VALUE, Op, Sel, op, operands, sel, type_of
from axe_eq.program.types import DTYPES, ValueType, held, same_ring, value_type
from axe_eq.rule.term import Term, postorder

MAX_MONOMIALS = 64  # of a product of sums; beyond, the sums are atoms
MAX_SUM = 512
MAX_FACTORS = 12

SUMS = frozenset({"add", "sub", "neg"})


class Unwieldy(Exception):
    """A polynomial that would be too large to write out."""


@dataclass(frozen=True)
class Monomial:
    """One product; index dims 0 .. n_out-1 are those of the value, the others are summed over.

    Attributes:
        coefficient: exact; an integer for integer dtypes.
        factors: (atom, projection) pairs.
        extents: of all index dims.
    """

    coefficient: Fraction
    factors: tuple[tuple[Term, Operand], ...]
    extents: tuple[int, ...]

    def dims(self) -> frozenset[int]:
        """Index dims that some factor reads."""
        return frozenset().union(*(dims_of(p) for _, p in self.factors))

    @property
    def proper(self) -> bool:
        """Whether no factor is ever infinite."""
        return all(_knows(a, FINITE_WHERE_DEFINED) for a, _ in self.factors)


Polynomial = tuple[Monomial, ...]


def shape_of(term: Term) -> ValueType:
    """Type of a well-typed term."""
    return value_type(type_of(term))


# -- algebra ---------------------------------------------------------------------------------------


def tidy(monomial: Monomial, n_out: int) -> Monomial:
    """Read dims of extent 1 at 0; drop summed dims that nobody reads, counting them."""
    extents = monomial.extents
    images = {d: plain(d) if e > 1 else Affine(()) for d, e in enumerate(extents)}
    factors = [(a, tuple(p.substitute(images) for p in of)) for a, of in monomial.factors]
    read = frozenset().union(*(dims_of(of) for _, of in factors))
    kept = [d for d in range(len(extents)) if d < n_out or d in read]
    count = prod(e for d, e in enumerate(extents) if d not in kept)
    new = {d: plain(i) for i, d in enumerate(kept)}
    space = tuple(extents[d] for d in kept)
    moved = [(a, tuple(p.substitute(new) for p in of)) for a, of in factors]
    cut = tuple((_cut(a, of, space), of) for a, of in moved)
    return Monomial(monomial.coefficient * count, cut, space)


def _cut(whole: Term, of: Operand, extents: Sequence[int]) -> Term:
    """The atom less what is not read of it where it is read plainly: that claims the whole dim."""
    shape = shape_of(whole).shape
    read = [e if p.plain is None else extents[p.plain] for p, e in zip(of, shape, strict=True)]
    if tuple(read) == shape:
        return whole
    base = _uncut(whole)
    parts = zip(read, shape_of(base).shape, strict=True)
    return sel(join_text("slice", tuple(None if r == e else (0, 1, r) for r, e in parts)), base)


def _uncut(whole: Term) -> Term:
    """What an atom that was cut is cut from, so that cutting twice is cutting once."""
    if whole.symbol is Sel:
        name, params = split_text(whole.args[0])
        if name == "slice" and all(p is None or p[:2] == (0, 1) for p in params[0]):
            return operands(whole)[0]
    return whole


def read_through(poly: Polynomial, read: Operand, space: Sequence[int]) -> Polynomial:
    """The polynomial read through a projection of an index space, all of its dims outputs."""
    return tuple(_read_through(m, read, tuple(space)) for m in poly)


def _read_through(monomial: Monomial, read: Operand, space: tuple[int, ...]) -> Monomial:
    extra = monomial.extents[len(read) :]
    images = dict(enumerate([*read, *map(plain, range(len(space), len(space) + len(extra)))]))
    factors = tuple((a, tuple(p.substitute(images) for p in of)) for a, of in monomial.factors)
    return tidy(Monomial(monomial.coefficient, factors, space + extra), len(space))


def multiply(polys: Sequence[Polynomial], n_out: int) -> Polynomial:
    """Product of polynomials over one index space.

    Raises:
        Unwieldy: more than `MAX_MONOMIALS` monomials or `MAX_FACTORS` factors, or an infinite
            factor of a sum.
    """
    if prod(map(len, polys)) > MAX_MONOMIALS:
        raise Unwieldy
    _check_infinite(polys, n_out)
    result, *others = _zeros_written(polys, n_out)
    for other in others:
        result = tuple(_times(a, b, n_out) for a in result for b in other)
    return result


def _check_infinite(polys: Sequence[Polynomial], n_out: int) -> None:
    """Refuse to multiply a sum, of monomials or over dims, by what may be infinite."""
    sums = [n for n, p in enumerate(polys) if not _is_single(p, n_out)]
    wild = [n for n, p in enumerate(polys) if not all(m.proper for m in p)]
    if any(n != other for n in sums for other in wild):
        raise Unwieldy


def _is_single(poly: Polynomial, n_out: int) -> bool:
    return len(poly) <= 1 and all(len(m.extents) == n_out for m in poly)


def _zeros_written(polys: Sequence[Polynomial], n_out: int) -> list[Polynomial]:
    """The polynomials, each that is 0 written out: 0 times what is undefined is not 0."""
    extents = next((m.extents[:n_out] for p in polys for m in p), ())
    return [p or (Monomial(Fraction(0), (), extents),) for p in polys] if any(polys) else [()]


def _times(a: Monomial, b: Monomial, n_out: int) -> Monomial:
    extra = b.extents[n_out:]
    start = len(a.extents)
    images = {d: plain(d if d < n_out else start + d - n_out) for d in range(len(b.extents))}
    moved = tuple((f, tuple(p.substitute(images) for p in of)) for f, of in b.factors)
    if len(a.factors) + len(moved) > MAX_FACTORS or start + len(extra) > len(LETTERS) // 2:
        raise Unwieldy
    return Monomial(a.coefficient * b.coefficient, a.factors + moved, a.extents + extra)


def scale(poly: Polynomial, by: Fraction) -> Polynomial:
    """The polynomial times a constant."""
    return tuple(replace(m, coefficient=m.coefficient * by) for m in poly)


# -- terms to polynomials --------------------------------------------------------------------------


class Expander:
    """Reads terms as polynomials.

    Args:
        sums: enter sums and differences; otherwise they are atoms.
        products: enter products, contractions and reductions; otherwise they are atoms, except
            products with constants.
    """

    def __init__(self, *, sums: bool, products: bool) -> None:
        self.sums, self.products = sums, products
        self._memo: dict[Term, Polynomial] = {}

    def polynomial(self, term: Term) -> Polynomial:
        """The polynomial of a well-typed term, over the dims of its value."""
        if len(self._memo) > 50_000:
            self._memo.clear()
        for sub in postorder(term, self._memo):
            if sub.sort == VALUE:
                self._memo[sub] = self._expand(sub)
        return self._memo[term]

    def _expand(self, term: Term) -> Polynomial:
        if term.symbol is Op:
            expand = self._reader(term)
            if expand is not None:
                try:
                    return expand(term)
                except Unwieldy:
                    pass
        if term.symbol is Sel:
            found = _constant(term)
            found = self._moved(term) if found is None else found
            return atom(term) if found is None else found
        return atom(term)

    def _reader(self, term: Term) -> Callable[[Term], Polynomial] | None:
        sig, cell = signature(term.args[0]), term.args[1].partition(" ")[0]
        kind = DTYPES[shape_of(term).dtype].kind
        if kind == "b" or sig.monoid not in ("", "+") or (sig.n_reduced and not self.products):
            return None
        if cell == "id" or (cell == "cast" and kind == "f"):
            return self._product
        if cell == "mul" or (cell == "div" and kind == "f"):
            return self._scaled if not self.products else self._multiplied(cell)
        entered = cell == "neg" or (cell in SUMS and (self.sums or self._is_constant(term)))
        return self._sum if entered else None

    def _is_constant(self, term: Term) -> bool:
        return not any(m.factors for a in operands(term) for m in self._memo[a])

    def _operands(self, term: Term) -> list[Polynomial]:
        """Operands' polynomials over the operator's whole index space."""
        sig, given = signature(term.args[0]), operands(term)
        space = sig.extents([shape_of(a).shape for a in given])
        own = shape_of(term).dtype
        polys = (self._memo[a] if same_ring(shape_of(a).dtype, own) else atom(a) for a in given)
        return [read_through(p, read, space) for p, read in zip(polys, sig.operands, strict=True)]

    def _product(self, term: Term) -> Polynomial:
        polys = self._operands(term)
        n_dims = signature(term.args[0]).n_dims
        try:
            return self._reduced(term, multiply(polys, n_dims))
        except Unwieldy:
            given = map(atom, operands(term))
            sig = signature(term.args[0])
            space = sig.extents([shape_of(a).shape for a in operands(term)])
            whole = [
                p if _is_single(p, n_dims) else read_through(a, read, space)
                for p, a, read in zip(polys, given, sig.operands, strict=True)
            ]
            return self._reduced(term, multiply(whole, n_dims))

    def _quotient(self, term: Term) -> Polynomial:
        top, bottom = self._operands(term)
        sig = signature(term.args[0])
        if len(bottom) != 1 or len(bottom[0].extents) > sig.n_dims or not bottom[0].coefficient:
            divisor = operands(term)[1]
            space = sig.extents([shape_of(a).shape for a in operands(term)])
            bottom = read_through(atom(divisor), sig.operands[1], space)
        below = bottom[0]
        inverse = Monomial(
            1 / below.coefficient,
            tuple((reciprocal(a), of) for a, of in below.factors),
            below.extents,
        )
        return self._reduced(term, multiply([top, (inverse,)], sig.n_dims))

    def _multiplied(self, cell: str) -> Callable[[Term], Polynomial]:
        return self._product if cell == "mul" else self._quotient

    def _scaled(self, term: Term) -> Polynomial:
        """A product or quotient as a multiple of its only operand that is no constant."""
        polys = self._operands(term)
        varying = [n for n, p in enumerate(polys) if any(m.factors for m in p)]
        if term.args[1] == "mul" and len(varying) <= 1:
            return self._product(term)
        if term.args[1] == "div" and 1 not in varying:
            return self._quotient(term)
        return atom(term)

    def _sum(self, term: Term) -> Polynomial:
        polys = self._operands(term)
        cell = term.args[1]
        if cell == "neg" or cell == "sub":
            polys[-1] = scale(polys[-1], Fraction(-1))
        if sum(map(len, polys)) > MAX_SUM:
            raise Unwieldy
        return self._reduced(term, tuple(m for p in polys for m in p))

    def _reduced(self, term: Term, poly: Polynomial) -> Polynomial:
        n_out = signature(term.args[0]).n_out
        return collect((tidy(m, n_out) for m in poly), n_out)

    def _moved(self, term: Term) -> Polynomial | None:
        read = _selector_reads(term)
        if read is None:
            return None
        shape = shape_of(term).shape
        return collect(read_through(self._memo[operands(term)[0]], read, shape), len(shape))


def atom(term: Term) -> Polynomial:
    """The polynomial that is this value itself."""
    shape = shape_of(term).shape
    read = tuple(map(plain, range(len(shape))))
    return (tidy(Monomial(Fraction(1), ((term, read),), shape), len(shape)),)


def reciprocal(term: Term) -> Term:
    """One over an atom; not simplified further, since it is undefined where the atom is 0."""
    rank = len(shape_of(term).shape)
    dims = list(map(plain, range(rank)))
    sig = make([[], dims], range(rank))
    return op(sig.text, "div", constant(Fraction(1), shape_of(term).dtype), term)


def _constant(term: Term) -> Polynomial | None:
    name, params = split_text(term.args[0])
    if name != "full" or not isfinite(params[1]):
        return None
    of = shape_of(term)
    return (Monomial(Fraction(params[1]), (), of.shape),) if of.dtype != "bool" else None


def _selector_reads(term: Term) -> Operand | None:
    """How a selector of one operand reads it, where that is affine and inside."""
    name, params = split_text(term.args[0])
    given = operands(term)
    if len(given) != 1:
        return None
    if name == "split":
        return _split_reads(params[0], params[1], shape_of(given[0]).rank)
    declared, _ = selector(term.args[0])
    if declared.pull is None or declared.fill is not None:
        return None
    (pulls,) = declared.pull(params, [shape_of(given[0])])
    if any(p is None for p in pulls):
        return None
    return tuple(Affine.of({p.axis: p.scale}, p.offset) for p in pulls if p is not None)


def _split_reads(axis: int, factors: Sequence[int], rank: int) -> Operand:
    steps = {axis + n: prod(factors[n + 1 :]) for n in range(len(factors))}
    after = len(factors) - 1
    return tuple(
        Affine.of(steps) if d == axis else plain(d if d < axis else d + after) for d in range(rank)
    )


# -- polynomials to terms --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Written:
    """A monomial without its coefficient, canonical: value dims it reads, signature, atoms."""

    dims: tuple[int, ...]
    sig: Signature
    atoms: tuple[Term, ...]

    def knows(self, facts: int) -> bool:
        """Whether all atoms are known to be so."""
        return all(_knows(a, facts) for a in self.atoms)


def _knows(atom: Term, facts: int) -> bool:
    return has(facts_of.of(atom) or 0, facts)


@lru_cache(maxsize=20_000)
def _write(monomial: Monomial, n_out: int) -> _Written:
    used = monomial.dims()
    dims = tuple(d for d in range(n_out) if d in used)
    reduced = range(n_out, len(monomial.extents))
    fixed = {d: e for d, e in enumerate(monomial.extents) if d in dims or d >= n_out}
    sig = make([of for _, of in monomial.factors], dims, "+", reduced, fixed)
    atoms = [a for a, _ in monomial.factors]
    order = sort_operands(sig, [a.digest for a in atoms])
    if order is None:
        return _Written(dims, sig, tuple(atoms))
    return _Written(dims, order[1], tuple(atoms[n] for n in order[0]))


def collect(monomials: Iterable[Monomial], n_out: int) -> Polynomial:
    """Add up monomials of one product; drop what cancels, where it is defined everywhere.

    Of what may be infinite only those of one sign are added up: inf + inf is inf, inf - inf is not.
    """
    found: dict[tuple[_Written, int], Monomial] = {}
    for m in monomials:
        key = _write(m, n_out)
        sign = (
            0 if key.knows(FINITE_WHERE_DEFINED) else 1 + (m.coefficient > 0) - (m.coefficient < 0)
        )
        old = found.get((key, sign))
        coefficient = m.coefficient + (Fraction(0) if old is None else old.coefficient)
        found[key, sign] = replace(old or m, coefficient=coefficient)
    return tuple(m for (key, _), m in found.items() if m.coefficient or not key.knows(FINITE))


def constant(value: Fraction, dtype: str) -> Term:
    """A scalar constant, exact.

    Raises:
        Unwieldy: neither a float64 nor a quotient of integers one would write.
    """
    if DTYPES[dtype].kind == "i":
        bits = 8 * DTYPES[dtype].itemsize
        least = -(1 << (bits - 1)) if DTYPES[dtype].signed else 0
        wrapped = (int(value) - least) % (1 << bits) + least
        return _full(wrapped, dtype)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > 900:
        raise Unwieldy
    if Fraction(float(value)) == value:
        wide = _full(float(value), dtype if held(float(value), dtype) == float(value) else "f64")
    else:
        wide = op(", ->", "div", _whole(value.numerator), _whole(value.denominator))
    return _as_dtype(wide, dtype)


def _whole(value: int) -> Term:
    """An integer of any size, exact: a sum of numbers that f64 holds."""
    parts: list[Term] = []
    while value or not parts:
        parts.append(_full(float(value), "f64"))
        value -= int(float(value))
    return parts[0] if len(parts) == 1 else op(make([[]] * len(parts), ()).text, "add", *parts)


def _full(value: float, dtype: str) -> Term:
    return sel(join_text("full", (), value, dtype))


def write(poly: Polynomial, of: ValueType) -> Term:
    """The term of a polynomial, of this type; equal polynomials give equal terms.

    Raises:
        Unwieldy: a coefficient that cannot be written, or too many dims.
    """
    n_out = len(of.shape)
    if not poly:
        return _write_alone(Monomial(Fraction(0), (), of.shape), of)
    if len(poly) == 1:
        return _write_alone(poly[0], of)
    parts = sorted((_part(m, of) for m in poly), key=_part_key)
    sig = make([read for _, read in parts], range(n_out), fixed=dict(enumerate(of.shape)))
    return op(sig.text, "add", *(t for t, _ in parts))


def _part(monomial: Monomial, of: ValueType) -> tuple[Term, Operand]:
    """One operand of a sum and how the sum reads it; a bare atom is read where it is."""
    n_out = len(of.shape)
    if len(monomial.factors) == monomial.coefficient == 1 and len(monomial.extents) == n_out:
        whole, read = monomial.factors[0]
        return _as_dtype(whole, of.dtype), read
    return _write_term(monomial, of), tuple(map(plain, _write(monomial, n_out).dims))


def _part_key(part: tuple[Term, Operand]) -> tuple[bytes, str]:
    return part[0].digest, " ".join(p.text(LETTERS) for p in part[1])


def _write_alone(monomial: Monomial, of: ValueType) -> Term:
    if not monomial.factors:
        value = constant(monomial.coefficient, of.dtype)
        sig = make([[]], range(len(of.shape)), fixed=dict(enumerate(of.shape)))
        return op(sig.text, "id", value) if of.shape else value
    if monomial.coefficient == 1 and len(monomial.factors) == 1:
        whole = monomial.factors[0][0]
        if shape_of(whole) == of and (monomial,) == atom(whole):
            return whole
    term = _write_term(monomial, of)
    dims = _write(monomial, len(of.shape)).dims
    if len(dims) == len(of.shape):
        return term
    return _broadcast(term, dims, of.shape)


def _broadcast(term: Term, dims: Sequence[int], shape: Sequence[int]) -> Term:
    """Give a written monomial the value dims it does not read."""
    sig = signature(term.args[0])
    n_out = len(shape)
    new = dict(enumerate(dims)) | {d: d - len(dims) + n_out for d in sig.reduced}
    images = {d: plain(e) for d, e in new.items()}
    reads = [tuple(p.substitute(images) for p in of) for of in sig.operands]
    fixed = {new[d]: e for d, e in sig.fixed} | dict(enumerate(shape))
    reduced = range(n_out, n_out + sig.n_reduced)
    wide = make(reads, range(n_out), sig.monoid, reduced, fixed)
    return Op(wide.text, *term.args[1:])


def _write_term(monomial: Monomial, of: ValueType) -> Term:
    """The operator that computes a monomial over the value dims it reads."""
    written = _write(monomial, len(of.shape))
    atoms = [_as_dtype(a, of.dtype) for a in written.atoms]
    if not atoms:
        return constant(monomial.coefficient, of.dtype)
    sig = written.sig
    if monomial.coefficient != 1:
        atoms.insert(0, constant(monomial.coefficient, of.dtype))
        sig = make([(), *sig.operands], range(sig.n_out), sig.monoid, sig.reduced, dict(sig.fixed))
    return op(sig.text, "id" if len(atoms) == 1 else "mul", *atoms)


def _as_dtype(term: Term, dtype: str) -> Term:
    if shape_of(term).dtype == dtype:
        return term
    rank = shape_of(term).rank
    dims = list(map(plain, range(rank)))
    return op(make([dims], range(rank)).text, join_text("cast", dtype), term)
