"""Operators over digits that only some of a plan's ranks hold: forms found by making and comparing.

A scan along a cut dim is, on every rank, a scan of the totals of the parts before and then of its
own part. Rows that integers without inputs say are a view. What such a value would be made of is
written out, and its digit form compared with that of what there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from axe_eq.program.ops import MONOIDS, Monoid, join_text, scan, split_text
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.program.terms import Op, Scan, Sel, args, op, operands, sel, type_of
from axe_eq.program.types import DTYPES, value_type
from axe_eq.rule.term import Term
from axe_eq_rules.constants import constant_text
from axe_eq_rules.digits import shape
from axe_eq_rules.enumerated import elements, written_out

Form = Callable[[Term], Term]


def counted(term: Term) -> Term | None:
    """A gather by integers that are known and count in steps, as a view of its source.

    None where they do not, or one of them is no index.
    """
    of, by = operands(term)
    _, (axis, dims) = split_text(term.args[0])
    at, n = elements(by), shape(of)[axis]
    if at is None or not at.size or at.min() < 0 or at.max() >= n:
        return None
    at = at.astype(np.int64)
    first = int(at.flat[0])
    steps = [int(at.take(1, d).flat[0]) - first if e > 1 else 0 for d, e in enumerate(at.shape)]
    grid = np.indices(at.shape)
    if (at != first + sum(s * g for s, g in zip(steps, grid, strict=True))).any():
        return None
    low, high = int(at.min()), int(at.max())
    cut = tuple((low, 1, high - low + 1) if d == axis else None for d in range(len(shape(of))))
    source = of if high - low + 1 == n else sel(join_text("slice", cut), of)
    read = Affine.of(dict(zip(dims, steps, strict=True)), first - low)
    reads = [read if d == axis else plain(d) for d in range(len(shape(of)))]
    return op(
        make([reads], range(len(reads)), fixed=dict(enumerate(shape(term)))).text, "id", source
    )


def scan_of_parts(part: Term, form: Form, merges: Callable[[str, Term], bool]) -> Term | None:
    """What is behind the totals in a scan of totals and a part, as a part of one scan.

    Args:
        part: a slice of a scan of two values beside each other.
        form: the digit form of a value.
        merges: whether a scan of scans by a monoid is one scan, of such values.
    """
    if part.symbol is not Sel or split_text(part.args[0])[0] != "slice":
        return None
    (of,), (cut,) = operands(part), split_text(part.args[0])[1]
    if of.symbol is not Scan:
        return None
    (monoid, axis), given = scan(of.args[0]), [_pair(x, scan(of.args[0])[1]) for x in operands(of)]
    pairs = [pair for pair in given if pair is not None]
    if len({shape(before)[axis] for before, _ in pairs}) != 1 or len(pairs) < len(given):
        return None
    if not merges(monoid.name, part):
        return None
    (n, total), own = (shape(x)[axis] for x in (pairs[0][0], of)), [own for _, own in pairs]
    behind = tuple((n, 1, total - n) if d == axis else None for d in range(len(shape(of))))
    whole = tuple(c if c != (0, 1, e) else None for c, e in zip(cut, shape(of), strict=True))
    if whole != behind:
        return None
    for p in (d for d, e in enumerate(shape(own[0])) if d != axis and e == n + 1):
        wanted = _totals_before(own, monoid, p, axis)
        if wanted and all(form(w) is form(b) for w, (b, _) in zip(wanted, pairs, strict=True)):
            return _one_scan(own, monoid.name, p, axis)
    return None


def _pair(term: Term, axis: int) -> list[Term] | None:
    """Two values that are beside each other along a dim."""
    joins = term.symbol is Sel and term.args[0] == join_text("concat", axis)
    return operands(term) if joins and len(operands(term)) == 2 else None


def scan_and_totals(core: Term, form: Form, merges: Callable[[str, Term], bool]) -> Term | None:
    """A scan of each part, merged with the totals of the parts before, as one scan of all.

    Args:
        core: of a view; totals are reduced of what a mask that reads no input chooses.
        form: the digit form of a value.
        merges: whether a scan of scans by a monoid is one scan, of such values.
    """
    if core.symbol is not Op or signature(core.args[0]).n_reduced or len(operands(core)) != 2:
        return None
    sig, given = signature(core.args[0]), operands(core)
    for at in (n for n, x in enumerate(given) if x.symbol is Scan and len(operands(x)) == 1):
        (own,), (monoid, axis) = operands(given[at]), scan(given[at].args[0])
        reads, others = ([p.plain for p in sig.operands[n]] for n in (at, 1 - at))
        if MONOIDS[monoid.name].merges != core.args[1] or not merges(monoid.name, core):
            continue
        beside = set(reads[:axis] + reads[axis + 1 :])
        if {*reads} != {*range(sig.n_out)} or {*others} != beside or len(others) != len(beside):
            continue
        if len(reads) != (rank := sig.n_out):
            continue
        order, seen = [reads.index(d) for d in others], written_out(form(given[1 - at]))
        for p, first in product((d for d in range(rank) if d != axis), (False, True)):
            wanted = _masked_totals(own, monoid.name, p, axis, order, first)
            if wanted is not None and written_out(form(wanted)) is seen:
                to = make([[plain(d) for d in reads if d is not None]], range(rank)).text
                return op(to, "id", _one_scan([own], monoid.name, p, axis))
    return None


def reduced_behind(core: Term, form: Form, merges: Callable[[str, Term], bool]) -> Term | None:
    """Reductions of single elements and the totals of those before them, as a scan of all.

    Args:
        core: of a view; of parts of one element each a scan is such a reduction.
        form: the digit form of a value.
        merges: whether a scan of scans by a monoid is one scan, of such values.
    """
    if core.symbol is not Op or core.args[1] != "id" or len(operands(core)) != 1:
        return None
    sig, given = signature(core.args[0]), operands(core)
    if sig.n_reduced != 1 or given[0].symbol is not Sel:
        return None
    reads, (name, params) = list(sig.operands[0]), split_text(given[0].args[0])
    if name != "concat" or reads[params[0]].plain != sig.n_out or len(operands(given[0])) != 2:
        return None
    (before, own), (axis,) = operands(given[0]), params
    if None in (p.plain for p in reads) or shape(own)[axis] != 1 or not merges(sig.monoid, core):
        return None
    for p in (d for d, e in enumerate(shape(own)) if d != axis and e == shape(before)[axis] + 1):
        wanted = _totals_before([own], MONOIDS[sig.monoid], p, axis)
        if wanted and form(wanted[0]) is form(before):
            reads[axis] = Affine(())
            turned = make([reads], range(sig.n_out), fixed=dict(enumerate(shape(core))))
            return op(turned.text, "id", _one_scan([own], sig.monoid, p, axis))
    return None


def scan_of_windows(core: Term, merges: Callable[[str, Term], bool]) -> Term | None:
    """Reductions of each element of a dim and all before it, units in front, as a scan of the dim.

    Args:
        core: of a view.
        merges: whether a scan of scans by a monoid is one scan, of such values.
    """
    if core.symbol is not Op or core.args[1] != "id" or len(operands(core)) != 1:
        return None
    sig, (padded,) = signature(core.args[0]), operands(core)
    if sig.n_reduced != 1 or padded.symbol is not Sel or not merges(sig.monoid, core):
        return None
    reads, (name, params), unit = list(sig.operands[0]), split_text(padded.args[0]), sig.n_out
    if name != "pad" or params[1] != _unit(core, sig.monoid):
        return None
    (of,), met = operands(padded), [d for d, p in enumerate(reads) if unit in dict(p.terms)]
    if len(met) != 1 or len(reads[met[0]].terms) != 2:
        return None
    (axis,), n = met, shape(of)[met[0]]
    ((at, _),) = (t for t in reads[axis].terms if t[0] != unit)
    wide = tuple((n - 1, 0) if d == axis else (0, 0) for d in range(len(reads)))
    extents = sig.extents([shape(padded)])
    if params[0] != wide or reads[axis] != Affine.of({at: 1, unit: 1}) or at >= sig.n_out:
        return None
    if extents[at] != n or extents[unit] != n:
        return None
    reads[axis] = plain(at)
    turned = make([reads], range(sig.n_out), fixed=dict(enumerate(shape(core))))
    return op(turned.text, "id", Term(Scan, (f"{sig.monoid} {axis}", args(of))))


def _masked_totals(
    own: Term, monoid: str, parts: int, axis: int, order: Sequence[int], first: bool
) -> Term | None:
    """Of every part what the parts before it hold together, dims in this order.

    A mask chooses totals; it is compared by its elements, but its dims stand in an order: the
    part's first, or that of the totals.
    """
    unit, type_ = _unit(own, monoid), value_type(type_of(own))
    if unit is None:
        return None
    n, extent, rank = type_.shape[parts], type_.shape[axis], type_.rank
    place = {d: i for i, d in enumerate(order)}
    last = rank - 1  # the part whose total is taken
    behind = tuple((extent - 1, 1, 1) if d == axis else None for d in range(rank))
    total = sel(join_text("slice", behind), Term(Scan, (f"{monoid} {axis}", args(own))))
    count = sel(join_text("iota", n, "i32"))
    before = op("a, b -> a b", "gt" if first else "lt", count, count)
    mask = [plain(place[parts]), plain(last)] if first else [plain(last), plain(place[parts])]
    reads = [
        Affine(()) if d == axis else plain(last) if d == parts else plain(place[d])
        for d in range(rank)
    ]
    sig = make([mask, reads, []], range(rank)).text
    chosen = op(sig, "where", before, total, sel(constant_text(unit, type_.dtype)))
    found = op(make([map(plain, range(rank))], range(last), monoid, [last]).text, "id", chosen)
    return None if type_of.of(found) is None else found


def _unit(own: Term, monoid: str) -> float | None:
    """What changes nothing, as the value's type writes it."""
    unit = MONOIDS[monoid].unit
    whole = DTYPES[value_type(type_of(own)).dtype].kind != "f"
    return int(unit) if unit is not None and whole and math.isfinite(unit) else unit


def _totals_before(own: Sequence[Term], monoid: Monoid, parts: int, axis: int) -> list[Term] | None:
    """Of every part the totals of as many before it as there are others, the nearest last.

    Args:
        own: what is scanned, per operand.
        monoid: what scans.
        parts: the dim of parts.
        axis: of the scan.
    """
    rank, n = len(shape(own[0])), shape(own[0])[parts]
    kept = [d for d in range(rank) if d != axis]
    place = {d: i for i, d in enumerate([*kept, axis])}
    reads = [plain(place[d]) for d in range(rank)]
    p = kept.index(parts)
    cut = tuple((0, 1, n - 1) if d == p else None for d in range(rank - 1))
    wide = tuple((n - 1, 0) if d == p else (0, 0) for d in range(rank - 1))
    window = [Affine.of({parts: 1, axis: 1}) if d == parts else plain(d) for d in kept]
    fixed, found = {parts: n, axis: n - 1}, []
    for x, name in zip(own, monoid.stands or [monoid.name], strict=True):
        of, unit = name or monoid.name, _unit(x, name or monoid.name)
        if unit is None:
            return None
        if MONOIDS[of].commutative:
            sums = op(make([reads], range(rank - 1), of, [rank - 1]).text, "id", x)
        else:
            ends = tuple((e - 1, 1, 1) if d == axis else None for d, e in enumerate(shape(x)))
            last = sel(join_text("slice", ends), Term(Scan, (f"{of} {axis}", args(*own))))
            first = [Affine(()) if d == axis else plain(place[d]) for d in range(rank)]
            sums = op(make([first], range(rank - 1)).text, "id", last)
        padded = sel(join_text("pad", wide, unit), sel(join_text("slice", cut), sums))
        found.append(op(make([window], range(rank), fixed=fixed).text, "id", padded))
    # The type may lack such a value.
    return None if any(type_of.of(x) is None for x in found) else found


def _one_scan(own: Sequence[Term], monoid: str, parts: int, axis: int) -> Term:
    """A scan over parts and what is in them as one dim, with these dims again."""
    rank, extent = len(shape(own[0])), shape(own[0])[axis]
    order = [*(d for d in range(rank) if d not in (parts, axis)), parts, axis]
    to = make([[plain(order.index(d)) for d in range(rank)]], range(rank)).text
    back = make([[plain(order[d]) for d in range(rank)]], range(rank)).text
    merged = (sel(join_text("merge", rank - 2, 2), op(to, "id", x)) for x in own)
    found = Term(Scan, (f"{monoid} {rank - 2}", args(*merged)))
    return op(back, "id", sel(join_text("split", rank - 2, (-1, extent)), found))
