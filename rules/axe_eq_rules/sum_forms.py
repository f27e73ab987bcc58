"""Sums of reductions over parts of a dim: the reduction over all of it.

Devices that have parts of what is reduced make their own part of the value and add what others
made: ``sum(x[:n]) + sum(x[n:])`` is sum(x), in whatever order parts are added. Where every device
adds them in another order, the sum is one beside each other of what devices have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from axe_eq.program.ops import MONOIDS, join_text
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.program.terms import Op, Sel, op, operands, sel
from axe_eq.rule.term import Term
from axe_eq_rules.blocks import alike, beside, part_of
from axe_eq_rules.digits import View, shape
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
    summands = _summands(term)
    if not 1 < len(summands) <= MOST_PARTS:
        return None
    same = alike([form(x) for x in summands])
    if same is None:
        return None
    of, cores = same
    if any(c.symbol is not Op for c in cores):
        return None
    monoids = {signature(c.args[0]).monoid for c in cores}
    monoid = monoids.pop()
    if monoids or not monoid or MONOIDS[monoid].merges != term.args[1]:
        return None
    if not all(merges(monoid, c) for c in cores):
        return None
    core = _one(cores) or _apart(term.args[1], cores, form, inside)
    return None if core is None else View(core, of.inner, of.outer, of.extents)


def _summands(term: Term) -> list[Term]:
    """What is added up to a value: itself, where it is no sum."""
    if term.symbol is not Op or len(operands(term)) != 2:
        return [term]
    rank, sig = len(shape(term)), signature(term.args[0])
    same = tuple(map(plain, range(rank)))
    if sig.n_reduced or any(operand != same for operand in sig.operands):
        return [term]
    found = []
    for x in operands(term):
        inner = _summands(x) if x.symbol is Op and x.args[1] == term.args[1] else [x]
        found += inner
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
    found = next(filter(None, map(_ends, cores)), None)
    if found is None:
        return None
    dim, lengths = found
    begin, parts = 0, []
    for n in lengths:
        row: list[Term] = []
        for c in cores:
            cut = tuple((begin, 1, n) if d == dim else None for d in range(len(shape(c))))
            part = sel(join_text("slice", cut), c)
            row.append(inside(part) or part)
        total = row[0]
        text = _elementwise(len(shape(total)))
        for x in row[1:]:
            total = op(text, cell, total, x)
        made = form(total)
        if made.core.symbol is not Op or made.core.args[1] == cell:
            return None
        parts.append(total)
        begin += n
    whole = sel(join_text("concat", dim), *parts)
    made = form(whole)
    ends = made.core.symbol is Op and made.core.args[1] != cell
    return whole if ends else None


def _elementwise(rank: int) -> str:
    dims: list[Affine] = list(map(plain, range(rank)))
    return make([dims, dims], range(rank)).text


def _ends(core: Term) -> tuple[int, list[int]] | None:
    """A dim along which a reduction reads others in each part, and lengths of these.

    They are values beside each other, or one value at another place for every index.
    """
    sig = signature(core.args[0])
    for operand, x in zip(sig.operands, operands(core), strict=True):
        axis = join_axis(x.args[0]) if x.symbol is Sel else None
        d = None if axis is None else operand[axis].plain
        if d is not None and d < sig.n_out and len(operands(x)) > 1:
            return d, [shape(part)[axis] for part in operands(x)]
        for d in {d for p in operand if p.plain is None for d, _ in p.terms if d < sig.n_out}:
            if 1 < shape(core)[d] <= MOST_PARTS:
                return d, [1] * shape(core)[d]
    return None
