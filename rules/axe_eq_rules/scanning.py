"""Scans and what reads them: turned, cut beside their axis, or read at its end alone."""

from __future__ import annotations

from collections.abc import Callable

from axe_eq.program import sigalg
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import MONOIDS, Pull, join_text, scan, selector
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.program.terms import In
from axe_eq.program.types import DTYPES, ValueType, value_type
from axe_eq.rule.term import STR, Ground, primitive

_EXTENTS = (1, 2, 3, 5)


@primitive((STR, STR), (STR,))
def turned_scan(sig: str, text: str) -> str | None:
    """The scan after a transposition of its operand."""
    order = sigalg.transposition(signature(sig))
    monoid, axis = scan(text)
    if order is None or axis >= len(order):
        return None
    return join_text(monoid.name, order.index(axis))


@primitive((STR, STR, STR), (STR,))
def scan_of_part(spec: str, text: str, x: str) -> str | None:
    """The scan of what a selector takes of an operand, where it takes its axis whole."""
    declared, params = selector(spec)
    (monoid, axis), type_ = scan(text), value_type(x)
    fills = declared.fill is not None and declared.fill(params) is not None
    if declared.arity != 1 or declared.pull is None or fills or axis >= type_.rank:
        return None
    (pulls,) = declared.pull(params, [type_])
    whole = declared.shape(params, [type_]).shape
    own = pulls[axis]
    if None in pulls or own is None or own != Pull(own.axis):
        return None
    others = {p.axis for d, p in enumerate(pulls) if p is not None and d != axis}
    if own.axis in others or whole[own.axis] != type_.shape[axis]:
        return None
    return join_text(monoid.name, own.axis)


def _last(sig: str, text: str, x: str) -> tuple[str, str] | None:
    """(monoid, signature of the reduction) of what reads a scan at the end of its axis alone."""
    s, (monoid, axis), type_ = signature(sig), scan(text), value_type(x)
    if s.n_reduced or len(s.operands) != 1 or len(s.operands[0]) != type_.rank:
        return None
    if monoid.n_values > 1 or not monoid.commutative or axis >= type_.rank:
        return None
    if s.operands[0][axis] != Affine((), type_.shape[axis] - 1):
        return None
    reads = [plain(s.n_out) if d == axis else p for d, p in enumerate(s.operands[0])]
    made = make([reads], range(s.n_out), monoid.name, [s.n_out], dict(s.fixed))
    return (monoid.name, made.text) if sigalg.is_rigid(made) else None


def _last_part(spec: str, text: str, x: str) -> tuple[str, str, str] | None:
    """(monoid, signature, view) of the reduction that a selector of the last elements alone is."""
    declared, params = selector(spec)
    (monoid, axis), type_ = scan(text), value_type(x)
    if declared.arity != 1 or declared.pull is None or axis >= type_.rank or monoid.n_values > 1:
        return None
    (pulls,) = declared.pull(params, [type_])
    wanted = (*type_.shape[:axis], 1, *type_.shape[axis + 1 :])
    own = pulls[axis]
    if declared.shape(params, [type_]).shape != wanted or None in pulls or own is None:
        return None
    if any(p != Pull(d) for d, p in enumerate(pulls) if d != axis) or own.axis != axis:
        return None
    if own.offset != type_.shape[axis] - 1 or not monoid.commutative:
        return None
    kept = [d for d in range(type_.rank) if d != axis]
    dims = [plain(len(kept)) if d == axis else plain(kept.index(d)) for d in range(type_.rank)]
    total = make([dims], range(len(kept)), monoid.name, [len(kept)])
    view = make([map(plain, kept)], range(type_.rank), fixed={axis: 1})
    return monoid.name, total.text, view.text


@primitive((STR, STR, STR), (STR, STR))
def exact_last_of_scan(spec: str, text: str, x: str) -> tuple[str, str] | None:
    """The reduction whose values a selector takes of a scan, where merging is exact; its view."""
    found = _last_part(spec, text, x)
    return found[1:] if found and _is_exact(found[0], x) else None


@primitive((STR, STR, STR), (STR, STR))
def last_of_scan(spec: str, text: str, x: str) -> tuple[str, str] | None:
    """The same where merging rounds."""
    found = _last_part(spec, text, x)
    return found[1:] if found and not _is_exact(found[0], x) else None


def _is_exact(monoid: str, x: str) -> bool:
    return MONOIDS[monoid].exact or DTYPES[value_type(x).dtype].kind != "f"


@primitive((STR, STR, STR), (STR,))
def exact_end_of_scan(sig: str, text: str, x: str) -> str | None:
    """The reduction that a scan ends with, where merging is exact."""
    found = _last(sig, text, x)
    return found[1] if found and _is_exact(found[0], x) else None


@primitive((STR, STR, STR), (STR,))
def end_of_scan(sig: str, text: str, x: str) -> str | None:
    """The reduction that a scan ends with, where merging rounds."""
    found = _last(sig, text, x)
    return found[1] if found and not _is_exact(found[0], x) else None


def _drawn(draw: Draw, exact: bool) -> tuple[ValueType, str, int]:
    """A value, a monoid that scans it and an axis."""
    names = [m for m in MONOIDS if MONOIDS[m].n_values == 1 and MONOIDS[m].commutative]
    logical = [m for m in names if MONOIDS[m].result == "logical"]
    numeric = [m for m in names if m not in logical]
    dtype = draw.pick("dtype", ("f64", "i64", "f16", "i32", "bool") if exact else ("f64",))
    if dtype[0] == "f":
        numeric = [m for m in numeric if MONOIDS[m].exact == exact]
    monoid = draw.pick("monoid", logical if dtype == "bool" else numeric)
    shape = tuple(draw.pick(f"e{d}", _EXTENTS) for d in range(draw.integer("rank", 1, 3)))
    return ValueType(dtype, shape), monoid, draw.integer("axis", 0, len(shape) - 1)


def sample_ends(*, exact: bool) -> Callable[[Draw], tuple[Ground, ...]]:
    """A sampler of what reads a scan at the end of its axis: signature, scan and operand."""

    def sample(draw: Draw) -> tuple[Ground, ...]:
        type_, monoid, axis = _drawn(draw, exact)
        kept = [d for d in range(type_.rank) if d != axis]
        end = Affine((), type_.shape[axis] - 1)
        reads = [end if d == axis else plain(kept.index(d)) for d in range(type_.rank)]
        x = In("x0", str(type_))
        return make([reads], range(len(kept))).text, join_text(monoid, axis), x

    return sample


def sample_last(*, exact: bool) -> Callable[[Draw], tuple[Ground, ...]]:
    """A sampler of slices that take the end of a scan's axis: slice, scan and operand."""

    def sample(draw: Draw) -> tuple[Ground, ...]:
        type_, monoid, axis = _drawn(draw, exact)
        end = (type_.shape[axis] - 1, 1, 1)
        ranges = tuple(end if d == axis else None for d in range(type_.rank))
        return join_text("slice", ranges), join_text(monoid, axis), In("x0", str(type_))

    return sample
