"""Long reductions in two stages: which dims, or which parts of a dim, are reduced first.

A reduction to few values leaves most of a machine idle: its parts do not. Only reductions of at
least `LONG` elements to at most `FEW` values are taken apart, into about `PARTS` of at least
`SHORT` elements; what is cheaper is for a cost model to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, prod

from axe_eq.program import sigalg
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import MONOIDS, join_text
from axe_eq.program.signature import Signature, make, plain, signature
from axe_eq.program.terms import In
from axe_eq.program.types import DTYPES, ValueType, value_type
from axe_eq.rule.term import STR, Ground, primitive

LONG, FEW, PARTS, SHORT = 1 << 14, 256, 1 << 10, 1 << 8
NARROW = ("f16", "bf16")
# Whole vectors of any element type: parts that begin aligned are read fast.
ALIGNED = 16


def _long(sig: str, shape: Sequence[int]) -> tuple[Signature, int, int] | None:
    """A plain reduction of one operand that is worth stages, its outputs and reduced elements."""
    s = signature(sig)
    if not s.n_reduced or MONOIDS[s.monoid].n_values > 1 or len(s.operands) != 1:
        return None
    dims = [p.plain for p in s.operands[0]]
    if None in dims or sorted(d for d in dims if d is not None) != list(range(s.n_dims)):
        return None
    extents = s.extents([tuple(shape)])
    n_out, n_reduced = prod(extents[: s.n_out]), prod(extents[s.n_out :])
    return (s, n_out, n_reduced) if n_reduced >= LONG and n_out <= FEW else None


def _distance(parts: int, n_out: int) -> float:
    return abs(log(parts * n_out / PARTS))


@primitive((STR, STR), (STR, STR))
def stages(sig: str, x: str) -> tuple[str, str] | None:
    """(outer, inner) of a long reduction over several dims: the fast ones are reduced first."""
    return None if _is_narrow(sig, x) else _stages(sig, x)


@primitive((STR, STR), (STR, STR, STR, STR, STR))
def wide_stages(sig: str, x: str) -> tuple[str, str, str, str, str] | None:
    """`stages` of narrow floats, the cast to a wide type, the map of the values, the cast back."""
    found = _stages(sig, x) if _is_narrow(sig, x) else None
    return None if found is None else (*found, *_casts(sig, x))


def _stages(sig: str, x: str) -> tuple[str, str] | None:
    type_ = value_type(x)
    found = _long(sig, type_.shape)
    if found is None:
        return None
    s, n_out, n_reduced = found
    order = [p.plain for p in s.operands[0] if p.plain is not None and p.plain >= s.n_out]
    extents = s.extents([type_.shape])
    ways = []
    for n in range(1, len(order)):
        parts = prod(extents[d] for d in order[:n])
        if parts > 1 and n_reduced // parts >= SHORT:
            ways.append((_distance(parts, n_out), n))
    if not ways:
        return None
    pair = sigalg.split_reduction(s, order[min(ways)[1] :])
    return None if pair is None else (pair[0].text, pair[1].text)


@primitive((STR, STR), (STR, STR, STR))
def parts(sig: str, x: str) -> tuple[str, str, str] | None:
    """(outer, inner, split) of a long reduction over one dim: contiguous parts come first."""
    return None if _is_narrow(sig, x) else _parts(sig, x)


@primitive((STR, STR), (STR, STR, STR, STR, STR, STR))
def wide_parts(sig: str, x: str) -> tuple[str, str, str, str, str, str] | None:
    """`parts` of narrow floats, the cast to a wide type, the map of the values, the cast back."""
    found = _parts(sig, x) if _is_narrow(sig, x) else None
    return None if found is None else (*found, *_casts(sig, x))


def _parts(sig: str, x: str) -> tuple[str, str, str] | None:
    type_ = value_type(x)
    found = _long(sig, type_.shape)
    if found is None or found[0].n_reduced != 1:
        return None
    s, n_out, extent = found
    axis = next(a for a, p in enumerate(s.operands[0]) if p.plain == s.n_out)
    ways = [
        (bool(extent // n % ALIGNED), _distance(n, n_out), n)
        for n in range(2, extent // SHORT + 1)
        if extent % n == 0
    ]
    if not ways:
        return None
    n = min(ways)[2]
    operand = [plain(p.plain) for p in s.operands[0] if p.plain is not None]
    operand[axis : axis + 1] = [plain(s.n_out), plain(s.n_out + 1)]
    whole = make([operand], range(s.n_out), s.monoid, [s.n_out, s.n_out + 1])
    fast = whole.operands[0][axis + 1].plain
    assert fast is not None
    pair = sigalg.split_reduction(whole, [fast])
    split = join_text("split", axis, (-1, extent // n))
    return None if pair is None else (pair[0].text, pair[1].text, split)


def _is_narrow(sig: str, x: str) -> bool:
    """Whether partial values may not be kept in the element type: it would round them."""
    return value_type(x).dtype in NARROW and not _is_exact(signature(sig))


def _is_exact(s: Signature) -> bool:
    return bool(s.monoid) and MONOIDS[s.monoid].exact


def _casts(sig: str, x: str) -> tuple[str, str, str]:
    """The cast to a wide type, the map of a reduction's values, the cast back."""
    dtype = value_type(x).dtype
    there, back = join_text("cast", DTYPES[dtype].accumulate), join_text("cast", dtype)
    return there, sigalg.elementwise(signature(sig).n_out, 1).text, back


def long_sample(dtypes: Sequence[str], *, single: bool) -> Callable[[Draw], tuple[Ground, ...]]:
    """A sampler of a long reduction: its signature and an operand of one of these types.

    With `single` one dim is reduced, else two or three.
    """

    def sample(draw: Draw) -> tuple[Ground, ...]:
        extents = [draw.pick("long", (1 << 15, 3 << 14))] if single else [64, 32, 16]
        extents = extents if single or draw.chance("three", 0.5) else [96, 256]
        dims = [*range(1, 1 + len(extents))]
        shape, order = [2, *extents], [0, *dims]
        if draw.chance("last", 0.5):  # the kept dim may be the fast one
            shape, order = [*extents, 2], [*dims, 0]
        sig = make([map(plain, order)], [0], draw.pick("monoid", ("+", "max", "*")), dims)
        type_ = ValueType(draw.pick("dtype", dtypes), tuple(shape))
        return sig.text, In("x0", str(type_))

    return sample
