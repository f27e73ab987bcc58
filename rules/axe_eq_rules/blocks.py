"""Values beside each other that one operator makes of parts: the operator on the parts together.

What a plan computes in blocks is ``f(x[:n]) ++ f(x[n:])``, and that is f(x): parts are joined below
the operator, and below the one whose values it reads, until they are slices of one value that
follow each other. Operands that the joined dim does not read must be the same for all parts.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from axe_eq.program.ops import CELLS, Pull, join_text, scan, selector, split_text
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.program.terms import VALUE, In, Op, Scan, Sel, args, op, operands, sel, type_of
from axe_eq.program.types import value_type
from axe_eq.rule.term import Term, postorder
from axe_eq_rules.digits import Dims, View, coalesced, shape


def together(given: Sequence[View], axis: int) -> View | None:
    """Views beside each other along a dim, as a view of a core that one operator makes.

    A part of one index has no digit there: it is put where the others have theirs.
    None where cores are not alike, or not beside each other.
    """
    views = [coalesced(of) for of in given]
    most = max(len(of.outer[axis]) for of in views)
    if not most:  # all are of one index
        most, wide = 1, (_wider(of, axis, 0) for of in views)
        views = [of for of in wide if of is not None]
    if len(views) < len(given):
        return None
    long = next(of for of in views if len(of.outer[axis]) == most)
    digit = long.outer[axis][0]
    at = next((m for m, dim in enumerate(long.inner) if digit in dim), None)
    if at is not None and long.inner[at][0] != digit:
        return None
    if at is not None and long.inner[at] == (digit,):
        wide = (_as_wide(of, long, axis, at) for of in views)
        views = [of for of in wide if of is not None]
    if len(views) < len(given):
        return None
    views = [_oriented(of, long, axis) for of in views]
    forms = [_numbered(_without(of, axis) if len(of.outer[axis]) == most else of) for of in views]
    if any((f.inner, f.outer, f.extents) != (forms[0].inner, forms[0].outer, forms[0].extents)
           for f in forms):  # fmt: skip
        return None
    cores = [of.core for of in views]
    core = _joined(cores, at) if at is not None else cores[0] if len(set(cores)) == 1 else None
    if core is None:
        return None
    n = sum(of.extents[of.outer[axis][0]] if len(of.outer[axis]) == most else 1 for of in views)
    return View(core, long.inner, long.outer, {**long.extents, digit: n})


def alike(given: Sequence[View]) -> tuple[View, list[Term]] | None:
    """One view that all are, each of a core of its own; None where they are views of more kinds."""
    views = [coalesced(of) for of in given]
    forms = [_numbered(_oriented(of, views[0])) for of in views]
    first = forms[0]
    if any((f.inner, f.outer, f.extents) != (first.inner, first.outer, first.extents)
           for f in forms):  # fmt: skip
        return None
    return first, [f.core for f in forms]


def height(term: Term) -> int:
    """How many operators are over each other in a value."""
    found: dict[Term, int] = {}
    for sub in postorder(term):
        below = [found[a] for a in sub.args if isinstance(a, Term)]
        found[sub] = (sub.sort == VALUE) + max(below, default=0)
    return found[term]


def _as_wide(of: View, long: View, axis: int, at: int) -> View | None:
    """A part with a dim at this place of its core, where it has one index and no such dim."""
    narrow = len(of.outer[axis]) < len(long.outer[axis]) and len(of.inner) < len(long.inner)
    return _wider(of, axis, at, long.core) if narrow else of


def _wider(of: View, axis: int, at: int, like: Term | None = None) -> View | None:
    """The view with one digit of extent 1 more: the slowest of a dim, a dim of the core alone.

    None where the core is no operator, which has no operands to go on with.
    """
    core = _with_dim(of.core, at, like)
    if core is None:
        return None
    new = max(of.extents, default=0) + 1
    outer = (*of.outer[:axis], (new, *of.outer[axis]), *of.outer[axis + 1 :])
    inner = (*of.inner[:at], (new,), *of.inner[at:])
    return View(core, inner, outer, {**of.extents, new: 1})


def _without(of: View, axis: int) -> View:
    """Dims and digits of a view without the slowest digit of a dim."""
    digit = of.outer[axis][0]

    def dims(old: Dims) -> Dims:
        return tuple(tuple(d for d in dim if d != digit) for dim in old)

    rest = {d: n for d, n in of.extents.items() if d != digit}
    return View(of.core, dims(of.inner), dims(of.outer), rest)


def _oriented(of: View, like: View, axis: int = -1) -> View:
    """The view with the dims of its core in the order of another one's, where these are its own.

    Args:
        of: whose core may be any operator: the order of its dims is that of its operands'.
        like: the other one.
        axis: a dim whose slowest digit may be another.
    """
    both = [_numbered(_without(v, axis) if axis >= 0 and v.outer[axis] else v) for v in (of, like)]
    own, wanted = (list(v.inner) for v in both)
    if own == wanted or sorted(own) != sorted(wanted) or of.core.symbol is not Op:
        return of
    order = list[int]()
    for dim in wanted:
        order.append(next(n for n, d in enumerate(own) if d == dim and n not in order))
    sig = signature(of.core.args[0])
    new = make(sig.operands, order, sig.monoid, sig.reduced, dict(sig.fixed))
    core = Term(Op, (new.text, *of.core.args[1:]))
    return View(core, tuple(of.inner[n] for n in order), of.outer, of.extents)


def _numbered(of: View) -> View:
    """The view with digits numbered in the order in which the value has them."""
    order = dict.fromkeys(d for dims in (of.outer, of.inner) for dim in dims for d in dim)
    number = {d: n for n, d in enumerate(order)}

    def dims(old: Dims) -> Dims:
        return tuple(tuple(number[d] for d in dim) for dim in old)

    return View(of.core, dims(of.inner), dims(of.outer), {number[d]: of.extents[d] for d in order})


def _with_dim(term: Term, at: int, like: Term | None) -> Term | None:
    """The value of an operator with one dim more, of extent 1.

    Args:
        term: the value.
        at: the new dim.
        like: a value of the operator that has the dim, if any.
    """
    rank = len(shape(term))
    if at > rank:  # it lacks more dims than this one
        return None
    if like is not None and like.symbol is Sel and term.symbol is Sel:
        return _selected_so(term, at, like)
    places = {d: d + (d >= at) for d in range(rank)}
    if term.symbol is Op:
        sig = signature(term.args[0])
        images = {d: plain(d + (d >= at)) for d in range(sig.n_dims)}
        reads = [[p.substitute(images) for p in operand] for operand in sig.operands]
        fixed = {d + (d >= at): n for d, n in sig.fixed} | {at: 1}
        reduced = range(sig.n_out + 1, sig.n_dims + 1)
        new = make(reads, range(sig.n_out + 1), sig.monoid, reduced, fixed)
        return Term(Op, (new.text, *term.args[1:]))
    given = operands(term) if term.symbol is not In else []
    if not given or any(len(shape(x)) != rank for x in given):
        return None
    wide = [_with_unit(x, at) for x in given]
    if term.symbol is Sel:
        declared, params = selector(term.args[0])
        if declared.placed is not None:
            text = join_text(declared.name, *declared.placed(params, places, rank + 1))
            return sel(text, *wide)
        return None
    monoid, axis = scan(term.args[0])
    return Term(Scan, (f"{monoid.name} {places[axis]}", args(*wide)))


def _selected_so(term: Term, at: int, like: Term) -> Term | None:
    """A selector's value with one dim more, as one that has the dim; None where they differ."""
    dims, given = _selected(like, at), operands(term)
    if dims is None or len(dims) != len(given):
        return None
    wide = [x if d is None else _with_unit(x, d) for x, d in zip(given, dims, strict=True)]
    found = sel(like.args[0], *wide)
    type_ = type_of.of(found)
    goal = (*shape(term)[:at], 1, *shape(term)[at:])
    if type_ is None or value_type(type_).shape != goal:
        return None
    own = _how(term, len(shape(term)), [None] * len(given))
    return found if own is not None and own == _how(found, at, dims) else None


def _with_unit(term: Term, at: int) -> Term:
    """A copy of the value with one dim more, of extent 1."""
    rank = len(shape(term))
    reads = [plain(d + (d >= at)) for d in range(rank)]
    return op(make([reads], range(rank + 1), fixed={at: 1}).text, "id", term)


def _joined(cores: Sequence[Term], dim: int) -> Term | None:
    """Values beside each other along a dim, by the operator that makes each of them."""
    shapes = [shape(c) for c in cores]
    same = tuple(map(plain, range(len(shapes[0]))))
    found = _of_one([same] * len(cores), cores, dim, shapes)
    if found is not None and found[1] == same:
        return found[0]
    symbols, texts = {c.symbol for c in cores}, {c.args[:-1] for c in cores}
    if symbols == {Op}:
        return beside(cores, dim)
    if symbols == {In} or len(symbols) > 1 or len(texts) > 1:
        return None
    rows = [operands(c) for c in cores]
    if len({len(row) for row in rows}) > 1:
        return None
    dims = _selected(cores[0], dim) if symbols == {Sel} else _scanned(cores[0], dim)
    if dims is None:
        return None
    made = [_beside(column, d) for column, d in zip(zip(*rows, strict=True), dims, strict=True)]
    return None if None in made else _checked(cores, dim, made)


def _checked(cores: Sequence[Term], dim: int, made: Sequence[Any]) -> Term | None:
    """The parts' selector or scan on these operands, where its value is as long as all parts."""
    found = Term(cores[0].symbol, (*cores[0].args[:-1], args(*made)))
    parts, whole = [shape(c) for c in cores], type_of.of(found)
    goal = (*parts[0][:dim], sum(p[dim] for p in parts), *parts[0][dim + 1 :])
    return found if whole is not None and value_type(whole).shape == goal else None


def _beside(parts: Sequence[Term], dim: int | None) -> Term | None:
    """Parts of an operand beside each other; where it has none, it is the same for all."""
    if dim is None:
        return parts[0] if len(set(parts)) == 1 else None
    shapes = [shape(p) for p in parts]
    rest = {(*s[:dim], *s[dim + 1 :]) for s in shapes}
    return sel(join_text("concat", dim), *parts) if len(rest) == 1 else None


# -- parts of one value ----------------------------------------------------------------------------

_Reads = tuple[Affine, ...]


def part_of(term: Term) -> tuple[Term, tuple[int, ...], str]:
    """A value that this is a part of, where the part begins in it, and what is around it, if any.

    A value with something around it is padded; parts are slices without steps.
    """
    begins, fill, padded = (0,) * len(shape(term)), "", ((0, 0),) * len(shape(term))
    name, params = split_text(term.args[0]) if term.symbol is Sel else ("", ())
    if name == "pad":
        padded, fill = params[0], repr(params[1])
        begins, (term,) = tuple(-low for low, _ in padded), operands(term)
        name, params = split_text(term.args[0]) if term.symbol is Sel else ("", ())
    if name != "slice":
        return term, begins, fill
    (of,), cut = operands(term), params[0]
    ends = [(0, 1, n) if c is None else c for c, n in zip(cut, shape(of), strict=True)]
    inside = all(
        step == 1 and (not low or b == 0) and (not high or b + length == n)
        for (b, step, length), n, (low, high) in zip(ends, shape(of), padded, strict=True)
    )
    if not inside:
        return term, begins, fill
    return of, tuple(b + at[0] for b, at in zip(begins, ends, strict=True)), fill


def _of_one(
    reads: Sequence[_Reads], parts: Sequence[Term], dim: int, extents: Sequence[Sequence[int]]
) -> tuple[Term, _Reads] | None:
    """An operand of all parts that is of one value, read further on in each of them.

    Args:
        reads: how each part reads its operand.
        parts: of one value, if at all.
        dim: along which values are beside each other.
        extents: of the dims of each part.
    """
    wholes = [part_of(p) for p in parts]
    of, fills = wholes[0][0], {fill for _, _, fill in wholes} - {""}
    if any(x is not of for x, _, _ in wholes) or len(fills) > 1:
        return None
    lengths = [e[dim] for e in extents]
    found, cut, pad = [], [], []
    for d, n in enumerate(shape(of)):
        each = [Affine(r[d].terms, r[d].offset + at[d])
                for r, (_, at, _) in zip(reads, wholes, strict=True)]  # fmt: skip
        first = _along(each, dim, lengths)
        if first is None:
            return None
        whole = [*extents[0][:dim], sum(lengths), *extents[0][dim + 1 :]]
        steps = [c * (whole[t] - 1) for t, c in first.terms]
        low = first.offset + sum(s for s in steps if s < 0)
        end = first.offset + sum(s for s in steps if s > 0) + 1
        found.append(Affine(first.terms, first.offset - low))
        begin = min(max(low, 0), n - 1)
        cut.append((begin, 1, max(min(end, n), begin + 1) - begin))
        pad.append((begin - low, end - begin - cut[-1][2]))
    if any(min(ends) < 0 or (max(ends) and not fills) for ends in pad):
        return None
    if [length for _, _, length in cut] != list(shape(of)):
        of = sel(join_text("slice", tuple(cut)), of)
    if any(map(max, pad)):
        of = sel(join_text("pad", tuple(pad), ast.literal_eval(fills.pop())), of)
    return of, tuple(found)


def _along(reads: Sequence[Affine], dim: int, lengths: Sequence[int]) -> Affine | None:
    """One read for parts beside each other: each begins where the one before it ends.

    A part of one index does not say how far the dim steps; where no part does, two of them do.
    """
    long = (dict(p.terms).get(dim, 0) for p, n in zip(reads, lengths, strict=True) if n > 1)
    step = next(long, (reads[-1].offset - reads[0].offset) // max(sum(lengths[:-1]), 1))
    first = Affine.of({**dict(reads[0].terms), dim: step}, reads[0].offset)
    at = 0
    for p, n in zip(reads, lengths, strict=True):
        own = Affine.of({**dict(p.terms), dim: step}, p.offset - step * at)
        if own != first or (dict(p.terms).get(dim, step) != step and n > 1):
            return None
        at += n
    return first


# -- operators -------------------------------------------------------------------------------------


def beside(cores: Sequence[Term], dim: int) -> Term | None:
    """Block operators of parts, as one of the parts together along a letter of the index space."""
    sigs = [signature(c.args[0]) for c in cores]
    first, name = sigs[0], cores[0].args[1]
    rows = [operands(c) for c in cores]
    if len(rows[0]) == 2 and CELLS[split_text(name)[0]].commutative:
        for n, row in enumerate(rows):
            if len(row) == 2 and _is_swapped(row, rows[0]):
                s, rows[n] = sigs[n], row[::-1]
                sigs[n] = make(s.operands[::-1], range(s.n_out), s.monoid, s.reduced, dict(s.fixed))
    extents = [s.extents([shape(x) for x in row]) for s, row in zip(sigs, rows, strict=True)]
    lengths = [e[dim] for e in extents]
    own = {(c.args[1], s.n_out, s.monoid, s.n_reduced, len(s.operands), e[:dim], e[dim + 1 :])
           for c, s, e in zip(cores, sigs, extents, strict=True)}  # fmt: skip
    if len(own) > 1:
        return None
    fixed = {d: sum(lengths) if d == dim else e for d, e in enumerate(extents[0])}
    made, reads = [], []
    for n, column in enumerate(zip(*rows, strict=True)):
        each = [s.operands[n] for s in sigs]
        found = _of_one(each, column, dim, extents) or _of_parts(each, column, dim, lengths)
        if found is None:
            return None
        made.append(found[0])
        reads.append(found[1])
    sig = make(reads, range(first.n_out), first.monoid, first.reduced, fixed)
    return op(sig.text, name, *made)


def _is_swapped(row: Sequence[Term], like: Sequence[Term]) -> bool:
    """Whether operands are of the same values as others' in the other order, as far as they are."""
    (a, b), (c, d) = ([part_of(x)[0] for x in r] for r in (row, like))
    return (a is d or b is c) and not (a is c or b is d)


def _of_parts(
    reads: Sequence[_Reads], parts: Sequence[Term], dim: int, lengths: Sequence[int]
) -> tuple[Term, _Reads] | None:
    """An operand of all parts that is another value in each: these beside each other."""
    long = next((r for r, n in zip(reads, lengths, strict=True) if n > 1), None)
    if long is None:  # each is of one index: along a dim of their own
        if len(set(reads)) > 1:
            return None
        joined = _beside([_with_unit(p, 0) for p in parts], 0)
        return None if joined is None else (joined, (plain(dim), *reads[0]))
    along = [d for d, p in enumerate(long) if any(t == dim for t, _ in p.terms)]
    if len(along) != 1 or long[along[0]].plain != dim:
        return None
    (at,) = along
    wide = []
    for read, part, n in zip(reads, parts, lengths, strict=True):
        if n == 1 and len(read) == len(long) - 1:
            read, part = (*read[:at], plain(dim), *read[at:]), _with_unit(part, at)
        if n == 1 and len(read) == len(long) and shape(part)[at] == 1:
            read = (*read[:at], plain(dim), *read[at + 1 :])
        if read != long:
            if sorted(read, key=repr) != sorted(long, key=repr) or len(set(long)) < len(long):
                return None
            order = [plain(long.index(p)) for p in read]
            part = op(make([order], range(len(order))).text, "id", part)
        wide.append(part)
    joined = _beside(wide, at)
    return None if joined is None else (joined, long)


# -- selectors and scans ---------------------------------------------------------------------------


def _scanned(core: Term, dim: int) -> list[int | None] | None:
    """Per operand of a scan its dim that is a dim of the value; None where that is scanned."""
    return None if scan(core.args[0])[1] == dim else [dim] * len(operands(core))


def _selected(core: Term, dim: int) -> list[int | None] | None:
    """Per operand the dim that is one of the value's, None for none; None where some read it else.

    Where it is known of all other dims where they are read, or that this is alike at every index
    of the dim, longer operands give a longer value and nothing else.
    """
    declared, params = selector(core.args[0])
    given = operands(core)
    types = [value_type(type_of(x)) for x in given]
    if declared.pull is None or not given:
        return None
    pulls = declared.pull(params, types)
    looks = {(k.operand, k.dim) for k in declared.look(params, types)} if declared.look else set()
    known = all(
        p is not None or (n, d) in looks for n, row in enumerate(pulls) for d, p in enumerate(row)
    )
    found: list[int | None] = []
    for row, of in zip(pulls, types, strict=True):
        mine = [d for d, p in enumerate(row) if p is not None and p.axis == dim]
        plain = len(mine) == 1 and row[mine[0]] == Pull(dim)
        if mine and not (plain and of.shape[mine[0]] == shape(core)[dim]):
            return None
        found.append(mine[0] if mine else None)
    return found if known or declared.uniform else None


_How = tuple[str, str, list[list[Pull | None]], dict[tuple[int, int], int]]


def _how(term: Term, at: int, dims: Sequence[int | None]) -> _How | None:
    """What a selector does: its name, what is around, where it reads, and what integers say where.

    None where that is not all.

    Args:
        term: the selector's value.
        at: a dim of it that is left out.
        dims: per operand the dim that is this one.
    """
    declared, params = selector(term.args[0])
    types = [value_type(type_of(x)) for x in operands(term)]
    if declared.pull is None:
        return None
    gone = [of.rank if d is None else d for d, of in zip(dims, types, strict=True)]
    looks = declared.look(params, types) if declared.look else ()
    said = {(k.operand, k.dim - (k.dim > gone[k.operand])): k.by for k in looks}
    pulls = [
        [p and replace(p, axis=p.axis - (p.axis > at)) for d, p in enumerate(row) if d != out]
        for row, out in zip(declared.pull(params, types), gone, strict=True)
    ]
    if any(not p and (n, d) not in said for n, row in enumerate(pulls) for d, p in enumerate(row)):
        return None
    return declared.name, repr(declared.fill(params)) if declared.fill else "", pulls, said
