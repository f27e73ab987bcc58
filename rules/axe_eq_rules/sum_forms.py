"""Sums of reductions over parts of a dim: the reduction over all of it.

Devices that have parts of what is reduced make their own part of the value and add what others
made: ``sum(x[:n]) + sum(x[n:])`` is sum(x), in whatever order parts are added. Where every device
adds them in another order, the sum is one beside each other of what devices have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate, pairwise

from axe_eq.program.ops import MONOIDS, join_text
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.program.terms import Op, Sel, op, operands, sel
from axe_eq.rule.term import Term
from axe_eq_rules.blocks import alike, beside, part_of
from axe_eq_rules.digits import View, shape, written
from axe_eq_rules.joins import join_axis

Form = Callable[[Term], View]
Merges = Callable[[str, Term], bool]
MOST_PARTS = 64


def sum_of_parts(
    term: Term, form: Form, merges: Merges, inside: Callable[[Term], Term | None]
) -> View | None:
    """A sum of reductions as a view of one; None where it is none.

    Args:
        term: an operator.
        form: the view of a core that a value is.
        merges: whether reductions of such reductions are one, by monoid and core.
        inside: a part of an operator's value as the operator on parts of its operands.
    """
    views = _summands(term, form)
    if not 1 < len(views) <= MOST_PARTS:
        return None
    same = alike(views)
    if same is None:  # in each part of a dim they may be
        core = _apart(term.args[1], [written(of) for of in views], form, inside)
        return None if core is None else form(core)
    of, cores = same
    if any(c.symbol is not Op for c in cores):
        return None
    monoids = {signature(c.args[0]).monoid for c in cores}
    monoid = monoids.pop()
    if monoids or not monoid or MONOIDS[monoid].merges != term.args[1]:
        return None
    if not all(merges(monoid, c) for c in cores):
        return None
    if (core := _one(cores)) is not None:
        return View(core, of.inner, of.outer, of.extents)
    core = _apart(term.args[1], cores, form, inside)
    return None if core is None else form(written(View(core, of.inner, of.outer, of.extents)))


def _summands(term: Term, form: Form) -> list[View]:
    """What is added up to a value, in this order; nothing where it is no sum."""
    if term.symbol is not Op or len(operands(term)) != 2:
        return []
    cell, sig = term.args[1], signature(term.args[0])
    same = tuple(map(plain, range(len(shape(term)))))
    if sig.n_reduced or any(operand != same for operand in sig.operands):
        return []
    found = []
    for x in operands(term):
        inner = _summands(x, form) if x.symbol is Op and x.args[1] == cell else []
        found += inner or _added(cell, form(x), form)
    return found


def _added(cell: str, of: View, form: Form) -> list[View]:
    """What a view adds up, where its core is a sum of values that have all its dims; or itself."""
    if of.core.symbol is not Op or of.core.args[1] != cell:
        return [of]
    sig = signature(of.core.args[0])
    if sig.n_reduced or any({p.plain for p in x} != {*range(sig.n_out)} for x in sig.operands):
        return [of]
    found = []
    for read, x in zip(sig.operands, operands(of.core), strict=True):
        core = op(make([read], range(sig.n_out)).text, "id", x)
        found += _added(cell, form(written(replace(of, core=core))), form)
    return found


def _one(cores: Sequence[Term]) -> Term | None:
    """Reductions over parts of one letter as the reduction over all of it."""
    for letter in signature(cores[0].args[0]).reduced:
        for number in range(len(operands(cores[0]))):
            order = _in_order(cores, number, letter)
            if order is not None and (found := beside(order, letter)) is not None:
                return found
    return None


def _in_order(cores: Sequence[Term], number: int, letter: int) -> list[Term] | None:
    """Reductions in the order in which they read parts of one operand; None where it is no one."""
    begins: dict[int, Term] = {}
    wholes = set()
    for core in cores:
        sig, given = signature(core.args[0]), operands(core)
        if letter not in sig.reduced or number >= len(given):
            return None
        of, begin, _ = part_of(given[number])
        wholes.add(of)
        places = (p.offset + at for p, at in zip(sig.operands[number], begin, strict=True)
                  if any(d == letter for d, _ in p.terms))  # fmt: skip
        begins[next(places, 0)] = core
    one = len(wholes) == 1 and len(begins) == len(cores)
    return [begins[at] for at in sorted(begins)] if one else None


def _apart(
    cell: str, cores: Sequence[Term], form: Form, inside: Callable[[Term], Term | None]
) -> Term | None:
    """A sum whose summands are others in each part of a dim, part by part."""
    every = list(map(_ends, cores))
    for dim in dict.fromkeys(d for found in every for d in found):
        ends = sorted({end for found in every for end in found.get(dim, ())})
        whole = _by_parts(cell, cores, dim, ends, form, inside)
        if whole is not None:
            return whole
    return None


def _by_parts(
    cell: str,
    cores: Sequence[Term],
    dim: int,
    ends: Sequence[int],
    form: Form,
    inside: Callable[[Term], Term | None],
) -> Term | None:
    """A sum of what cores are in each part of a dim, these beside each other."""
    rank = len(shape(cores[0]))
    parts = []
    for begin, end in pairwise((0, *ends)):
        cut = tuple((begin, 1, end - begin) if d == dim else None for d in range(rank))
        row = [sel(join_text("slice", cut), c) for c in cores]
        first, *rest = [inside(x) or x for x in row]
        total = reduce(lambda a, b: op(_elementwise(rank), cell, a, b), rest, first)
        made = form(total)
        if made.core.symbol is not Op or made.core.args[1] == cell:
            return None
        parts.append(total)
    whole = sel(join_text("concat", dim), *parts)
    made = form(whole)
    ends_so = made.core.symbol is Op and made.core.args[1] != cell
    return whole if ends_so else None


def _elementwise(rank: int) -> str:
    dims: list[Affine] = list(map(plain, range(rank)))
    return make([dims, dims], range(rank)).text


def _ends(core: Term) -> dict[int, set[int]]:
    """Dims along which a value is another in each part, and where these end.

    It is of values beside each other, or reads one at another place for every index: first those
    that say which part of a dim is reduced.
    """
    found: dict[int, set[int]] = {}
    rank = len(shape(core))
    if core.symbol is not Op:
        core = op(make([map(plain, range(rank))], range(rank)).text, "id", core)
    sig = signature(core.args[0])
    for operand, x in zip(sig.operands, operands(core), strict=True):
        axis = join_axis(x.args[0]) if x.symbol is Sel else None
        if axis is not None and len(operands(x)) > 1:
            d = operand[axis].plain
            if d is not None and d < sig.n_out:
                found[d] = {*accumulate(shape(part)[axis] for part in operands(x))}
    reads = [
        {d for d, _ in p.terms} for operand in sig.operands for p in operand if len(p.terms) > 1
    ]
    for read in sorted(reads, key=lambda of: max(of) < sig.n_out):
        for d in sorted(read):
            if d < sig.n_out and 1 < shape(core)[d] <= MOST_PARTS:
                found.setdefault(d, set(range(1, shape(core)[d] + 1)))
    return found
