"""Digits that are always read together as one dim: operators on views are operators on cores.

Shards of a value are digits of its indices, so what all ranks compute together has dims such as
(rank, row of its part) that everything reads as one number. A block operator on views is one on
their cores, over digits; those that all its operands read as one number become one dim, and so the
core of what ranks compute is the operator on the whole value. Selectors and scans have the digits
of dims that they read as they are in front of the others.

Operators here are pinned: their signatures say every extent that no operand's dim is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import repeat
from math import gcd, prod

from axe_eq.errors import ProgramError
from axe_eq.program.ops import (
    MONOIDS,
    Pull,
    cell,
    folding,
    join_text,
    keeps_equal,
    scan,
    selector,
    split_text,
)
from axe_eq.program.signature import LETTERS, Affine, Signature, make, signature
from axe_eq.program.terms import VALUE, In, Op, Scan, Sel, args, op, operands, sel, type_of
from axe_eq.program.types import DTYPES, value_type
from axe_eq.rule.term import Term, postorder
from axe_eq_rules import through
from axe_eq_rules.blocks import height, together
from axe_eq_rules.digit_reads import Read, Reads, fits, fuse, overlapping
from axe_eq_rules.digits import (
    Apart,
    Dims,
    View,
    coalesced,
    common,
    cut_at,
    in_front,
    named,
    refined,
    reshaped,
    runs,
    shape,
    whole,
    written,
)
from axe_eq_rules.joins import is_join, join_axis, named_dims, part_of_join
from axe_eq_rules.lookup_forms import gathered, lookup_of_parts, uncast
from axe_eq_rules.movement import Unread, movement
from axe_eq_rules.parts_forms import (
    counted,
    reduced_behind,
    scan_and_totals,
    scan_of_parts,
    scan_of_windows,
)
from axe_eq_rules.sum_forms import sum_of_parts


def form(term: Term, sums: bool) -> Term:
    """The value as a view of its core.

    Args:
        term: any value.
        sums: whether sums of sums become one sum, which rounds otherwise.
    """
    return written(view(term, sums))


def view(term: Term, sums: bool) -> View:
    """See `form`."""
    for sub in postorder(term):
        if sub.sort == VALUE:
            found = _view(sub, sums)
    return found


@lru_cache(maxsize=1 << 14)
def _view(term: Term, sums: bool) -> View:
    if term.symbol is In:
        return whole(term)
    given = [_view(x, sums) for x in operands(term)]
    try:
        if term.symbol is Op:
            added = sum_of_parts(
                term, lambda x: view(x, sums), lambda m, x: _merges(m, x, sums), _inside
            )
            return added or _rewritten(_operator(term, given, sums), sums)
        if term.symbol is Sel:
            return _selector(term, given, sums)
        return scanned(term, given)
    except (Apart, ProgramError):
        pass
    return whole(_opaque(term, given))


def _rewritten(of: View, sums: bool) -> View:
    """A view of a scan of all, or of a read of a whole table, where the core is these in parts."""
    asked = of.core, lambda x: form(x, sums), lambda monoid, x: _merges(monoid, x, sums)
    core = scan_and_totals(*asked) or reduced_behind(*asked)
    core = core or scan_of_windows(of.core, asked[-1])
    if core is None and (sums or _whole_ring(of.core)):
        core = lookup_of_parts(of.core)
    if core is None or type_of.of(core) != type_of.of(of.core):
        return of
    return view(written(replace(of, core=core)), sums)


def _opaque(term: Term, given: Sequence[View]) -> Term:
    """The same operator on its operands, written out."""
    return Term(term.symbol, (*term.args[:-1], args(*map(written, given))))


# -- selectors and scans ---------------------------------------------------------------------------


def _selector(term: Term, given: Sequence[View], sums: bool) -> View:
    declared, params = selector(term.args[0])
    if declared.inverse is not None and len(given) == 1:
        # What keeps the row-major order of all elements: the dims of the value are others.
        return reshaped(given[0], shape(term))
    types = [value_type(type_of(x)) for x in operands(term)]
    if declared.placed is None or declared.pull is None or not given:
        return whole(_opaque(term, given))
    pulls = declared.pull(params, types)
    if declared.look is not None:
        if (known := counted(term)) is not None:
            return view(known, sums)
        (look,) = declared.look(params, types)
        by = given[look.by]
        if (found := uncast(by.core)) is not None:
            by = view(written(replace(by, core=found)), sums)
        return gathered(term, given[look.operand], by, look.dim, pulls[look.by])
    try:
        return _moved_as_one(_opaque(term, given), sums)
    except Unread:
        pass
    axis = join_axis(term.args[0])
    of = None if axis is None else together(given, axis)
    if of is not None and _is_below(of.core, max(height(x.core) for x in given), sums):
        return view(written(of), sums)
    # A dim that a parameter names is read otherwise, whatever it is of these operands.
    told = named_dims(term.args[0], len(shape(term)))
    touched = [d for d, n in enumerate(shape(term)) if d in told or not all(
        d < of.rank and row[d] == Pull(d) and of.shape[d] == n
        for row, of in zip(pulls, types, strict=True))]  # fmt: skip
    rank = types[0].rank
    if len(shape(term)) != rank:
        return whole(_opaque(term, given))

    def made(places: Mapping[int, int], new: int) -> str:
        assert declared.placed is not None
        if not touched:  # a value as it is, by an axis that it names
            raise Apart
        return join_text(declared.name, *declared.placed(params, places, new))

    moved = _apart(term, given, touched, made)
    part = part_of_join(moved.core)
    return moved if part is None else view(written(replace(moved, core=part)), sums)


def _is_below(core: Term, most: int, sums: bool) -> bool:
    """Whether what is beside each other in a core's operands is lower: so joining them ends.

    Rows beside each other whose parts are not one value are not columns beside each other instead.
    """
    given = [] if core.symbol is In else operands(core)
    joins = [x for x in given if is_join(x)]
    if any(height(view(p, sums).core) >= most for x in joins for p in operands(x)):
        return False
    return not is_join(core) or not any(is_join(view(x, sums).core) for x in joins)


def _moved_as_one(term: Term, sums: bool) -> View:
    """A value that is moved as the view that a movement is; raises Unread."""
    found = movement(term)
    top = op(found.sig, "id", found.core)
    inside = _inside(found.core) or scan_of_parts(
        found.core, lambda x: form(x, sums), lambda monoid, x: _continues(monoid, x, sums)
    )
    below = whole(found.core) if inside is None else view(inside, sums)
    return _operator(top, [below], sums=False)


def _inside(part: Term) -> Term | None:
    """A part of an operator's value as the operator on parts of its operands."""
    if part.symbol is not Sel or len(operands(part)) != 1:
        return None
    (of,) = operands(part)
    given = [] if of.symbol is In else operands(of)
    if of.symbol is Scan:
        name, params = split_text(part.args[0])
        if name != "slice" or params[0][scan(of.args[0])[1]] is not None:
            return None
        return Scan(of.args[0], args(*(sel(part.args[0], x) for x in given)))
    if of.symbol is not Op:
        return None
    types = [value_type(type_of(x)) for x in given]
    found = through.pushed(part.args[0], of.args[0], of.args[1], types)
    if found is None:
        return None
    parts = [x if not k else sel(k, x) for k, x in zip(found[1], given, strict=True)]
    return op(found[0].text, of.args[1], *parts)


def scanned(term: Term, given: Sequence[View]) -> View:
    """A scan: beside its axis dims are digits."""
    monoid, axis = scan(term.args[0])
    return _apart(term, given, [axis], lambda places, _: f"{monoid.name} {places[axis]}")


def _apart(
    term: Term,
    given: Sequence[View],
    touched: Sequence[int],
    text: Callable[[Mapping[int, int], int], str],
) -> View:
    """An operator that reads most dims as they are: these are digits in front of the others.

    Args:
        term: on operands that all have the value's dims.
        given: its operands.
        touched: dims that it does not read as they are.
        text: (old dim -> new dim, new rank) -> the operator's.
    """
    rank = len(shape(term))
    passing = [d for d in range(rank) if d not in touched]
    same = {d: d for d in passing}
    digits, sizes, ends = common(term, passing, [(of, same) for of in given])
    fine = [named(of, digits, ends, len(sizes)) for of in given]
    fronts = runs([of.inner for of in fine], set(sizes))
    parts = [in_front(of, fronts, touched, digits) for of in fine]
    places = {d: len(fronts) + n for n, d in enumerate(touched)}
    new = text(places, len(fronts) + len(touched))
    core = Term(term.symbol, (new, args(*map(written, parts))))
    inner: list[tuple[int, ...]] = list(fronts)
    outer: list[tuple[int, ...]] = [()] * rank
    for d in passing:
        outer[d] = tuple(digits[d])
    for d in touched:
        number = len(sizes)
        own = (number,) if shape(term)[d] > 1 else ()
        sizes |= dict.fromkeys(own, shape(term)[d])
        inner.append(own)
        outer[d] = own
    return View(core, tuple(inner), tuple(outer), sizes)


# -- block operators -------------------------------------------------------------------------------


def _operator(term: Term, given: Sequence[View], sums: bool) -> View:
    sig, name = signature(term.args[0]), term.args[1]
    extents = sig.extents([shape(x) for x in operands(term)])
    digits, made = _over_digits(sig, extents, given)
    outer = tuple(tuple(d for d in digits[n] if made.extents[d] > 1) for n in range(sig.n_out))
    sizes = {d: made.extents[d] for dim in outer for d in dim}
    name = _inlined(made, sig.monoid, name, sums)
    _merged_parts(made, sig.monoid, name, sums)
    monoid, name = _drop_units(made, sig.monoid, name)
    computes = name != "id" or bool(made.reduced) or len(made.cores) > 1
    _trimmed(made, computes)
    members = fuse(made)
    if computes:
        out, every = made.out, made.extents
        if len(windows := overlapping(made)) < len(out):
            of = _made(made, monoid, name, {d: [d] for d in windows}, (), {})
            reads: list[Read] = [(windows[d], 0) for (d,) in of.inner]
            made, monoid, name = Reads([of.core], [reads], out, [], every), "", "id"
    return _made(made, monoid, name, members, outer, sizes)


def _over_digits(
    sig: Signature, extents: Sequence[int], given: Sequence[View]
) -> tuple[dict[int, list[int]], Reads]:
    """The operator with every index dim as digits, those that its operands' dims are made of."""
    ends: dict[int, set[int]] = {d: {1, n} for d, n in enumerate(extents)}
    for of, operand in zip(given, sig.operands, strict=True):
        for p, dim in zip(operand, of.outer, strict=True):
            if p.plain is not None:
                ends[p.plain] |= {of.size(dim[n:]) for n in range(len(dim))}
    digits, sizes = cut_at(ends)
    reads = [
        _as_read(of, operand, digits, sizes, ends)
        for of, operand in zip(given, sig.operands, strict=True)
    ]
    out = [x for d in range(sig.n_out) for x in digits[d]]
    reduced = [x for d in sig.reduced for x in digits[d]]
    return digits, Reads([of.core for of in given], reads, out, reduced, sizes)


def _as_read(
    of: View,
    operand: Sequence[Affine],
    digits: Mapping[int, Sequence[int]],
    sizes: Mapping[int, int],
    ends: Mapping[int, set[int]],
) -> list[Read]:
    """How an operator over digits reads a view's core."""
    images: dict[int, Read] = {}
    for p, number in zip(operand, range(len(of.outer)), strict=True):
        dim = of.outer[number]
        if p.plain is not None and dim:
            of, fine = refined(of, list(dim), sorted(ends[p.plain]))
            if len(fine) != len(digits[p.plain]):
                raise Apart
            images |= {d: ({x: 1}, 0) for d, x in zip(fine, digits[p.plain], strict=True)}
        elif dim:
            if len(coalesced(of).outer[number]) > 1:
                raise Apart
            coefficients: dict[int, int] = {}
            for d, c in p.terms:
                for n, x in enumerate(digits[d]):
                    step = c * prod(sizes[y] for y in digits[d][n + 1 :])
                    coefficients[x] = coefficients.get(x, 0) + step
            if len(dim) > 1:
                raise Apart
            images[dim[0]] = coefficients, p.offset
    reads = []
    for inner in of.inner:
        total: dict[int, int] = {}
        offset = 0
        for n, d in enumerate(inner):
            step = of.size(inner[n + 1 :])
            coefficients, at = images[d]
            offset += step * at
            for x, c in coefficients.items():
                total[x] = total.get(x, 0) + step * c
        reads.append(({x: c for x, c in total.items() if c}, offset))
    return reads


def _inlined(made: Reads, monoid: str, name: str, sums: bool) -> str:
    """Operands that are views become what they are of; so do those that this reduces further.

    Returns:
        The cell: that of a reduction of a reduction is the inner one's.
    """
    for position in range(len(made.cores) - 1, -1, -1):
        core = made.cores[position]
        if core.symbol is not Op:
            continue
        inner, of = signature(core.args[0]), core.args[1]
        if inner.n_reduced:
            same = name == "id" and len(made.cores) == 1 and monoid == inner.monoid
            joins = same and _merges(monoid, core, sums)
        else:
            joins = of == "id"
        if joins and _joined(made, position, core, inner):
            name = of if inner.n_reduced else name
    return name


def _merged_parts(made: Reads, monoid: str, name: str, sums: bool) -> None:
    """A structured reduction of what stands for parts becomes that of all.

    So the index of the largest of maxima, each beside its index in a part, is that of all.
    """
    stands = _stands(monoid, name)
    if not stands or not (MONOIDS[monoid].exact or sums):
        return
    at = stands.index("")
    core = made.cores[at]
    if core.symbol is not Op or core.args[1] != name or signature(core.args[0]).monoid != monoid:
        return
    inner = signature(core.args[0])
    extents = dict(enumerate(inner.extents([shape(x) for x in operands(core)])))
    for n, part in enumerate(stands):
        if n == at:
            continue
        read = sorted({d for p in inner.operands[n] for d, _ in p.terms})
        dims = [d for d in read if d < inner.n_out]
        fixed = {d: extents[d] for d in read}
        own = make([inner.operands[n]], dims, part, [d for d in read if d >= inner.n_out], fixed)
        alone = op(own.text, "id", operands(core)[n])
        wanted = _over_all(made, alone, [made.reads[at][d] for d in dims])
        mine = _over_all(made, made.cores[n], made.reads[n])
        if form(wanted, sums) is not form(mine, sums):
            return
    apart = replace(made, cores=[core], reads=[made.reads[at]])  # of the same digits
    if _joined(apart, 0, core, inner):
        made.cores, made.reads = apart.cores, apart.reads


def _stands(monoid: str, name: str) -> tuple[str, ...]:
    """`Monoid.stands` where the cell of a reduction hands on what it is given, else none."""
    return MONOIDS[monoid].stands if monoid and cell(name)[0].identity else ()


def _over_all(made: Reads, core: Term, reads: Sequence[Read]) -> Term:
    """A core as it is read over all digits of an operator."""
    every = [*made.out, *made.reduced]
    place = {d: n for n, d in enumerate(every)}
    if len(every) > len(LETTERS):
        raise Apart
    dims = [Affine.of({place[d]: c for d, c in own.items()}, at) for own, at in reads]
    fixed = {place[d]: made.extents[d] for d in every}
    return op(make([dims], range(len(every)), fixed=fixed).text, "id", core)


def _joined(made: Reads, position: int, core: Term, inner: Signature) -> bool:
    """Put an operand's own operands in its place; whether signatures can say how they are read."""
    given = operands(core)
    extents = inner.extents([shape(x) for x in given])
    images = dict(enumerate(made.reads[position]))
    own = {}
    for number, d in enumerate(inner.reduced, max(made.extents, default=0) + 1):
        images[d] = {number: 1}, 0
        own[number] = extents[d]
    known = {**made.extents, **own}
    reads = []
    for x, operand in zip(given, inner.operands, strict=True):
        reads.append([_substituted(p, images) for p in operand])
        if not all(fits(r, n, known) for r, n in zip(reads[-1], shape(x), strict=True)):
            return False
    made.cores[position : position + 1] = given
    made.reads[position : position + 1] = reads
    made.extents |= own
    made.reduced += own
    return True


def _substituted(p: Affine, images: Mapping[int, Read]) -> Read:
    total, offset = dict[int, int](), p.offset
    for d, c in p.terms:
        coefficients, at = images[d]
        offset += c * at
        for digit, step in coefficients.items():
            total[digit] = total.get(digit, 0) + c * step
    return {k: c for k, c in total.items() if c}, offset


def _merges(monoid: str, core: Term, sums: bool) -> bool:
    """Whether reductions of such reductions are one."""
    return _is_plain(monoid) and _continues(monoid, core, sums)


def _continues(monoid: str, core: Term, sums: bool) -> bool:
    """Whether a scan behind what stands for parts is the scan of all."""
    declared = MONOIDS[monoid]
    exact = declared.exact or sums or _whole_ring(core)
    return exact and (_is_plain(monoid) or bool(declared.stands))


def _whole_ring(core: Term) -> bool:
    """Whether sums and products are exact: of integers."""
    return DTYPES[value_type(type_of(core)).dtype].kind == "i"


def _drop_units(made: Reads, monoid: str, name: str) -> tuple[str, str]:
    """Digits of extent 1 are none, nor are those over which an operand is merged with itself.

    Returns:
        The reduction, "" where none is left, and the cell.
    """
    units = {d for d, n in made.extents.items() if n == 1}
    if monoid and _idempotent(monoid):
        met = {d for operand in made.reads for coefficients, _ in operand for d in coefficients}
        units |= set(made.reduced) - met
    reduced = [d for d in made.reduced if d not in units]
    if monoid and not reduced and not _is_plain(monoid):
        if not (stands := _stands(monoid, name)):
            raise Apart
        at = stands.index("")  # of one element it is that value of it
        made.cores, made.reads, name = [made.cores[at]], [made.reads[at]], "id"
    made.reduced = reduced
    made.out = [d for d in made.out if d not in units]
    for n, operand in enumerate(made.reads):
        made.reads[n] = [
            ({d: c for d, c in coefficients.items() if d not in units}, offset)
            for coefficients, offset in operand
        ]
    return (monoid if reduced else ""), name


def _trimmed(made: Reads, computes: bool) -> None:
    """Operands less what is before, between and behind all that is read of them.

    Args:
        made: the operator.
        computes: whether it is more than a view.

    Raises:
        Apart: signatures cannot say how one is read.
    """
    for n, core in enumerate(made.cores):
        if _trim(made, n, core, True) or _trim(made, n, core, False):
            core = made.cores[n]
        if computes and is_join(core) and _read_again(made, n, core):
            continue
        if not all(map(fits, made.reads[n], shape(core), repeat(made.extents))):
            raise Apart


def _read_again(made: Reads, n: int, core: Term) -> bool:
    """Values beside each other as what is read of them is, were it moved; whether it is read so."""
    used = sorted({d for own, _ in made.reads[n] for d in own})
    places = {d: at for at, d in enumerate(used)}
    dims = [Affine.of({places[d]: c for d, c in own.items()}, at) for own, at in made.reads[n]]
    if all(p.plain is not None for p in dims) or len(used) > len(LETTERS):
        return False
    fixed = {at: made.extents[d] for d, at in places.items()}
    try:
        found = movement(op(make([dims], range(len(used)), fixed=fixed).text, "id", core))
    except Unread:
        return False
    part, (operand,) = view(found.core, sums=False), signature(found.sig).operands
    reads = [({used[d]: c for d, c in p.terms}, p.offset) for p in operand]
    if written(part) is not part.core:
        return False
    made.cores[n], made.reads[n] = part.core, reads
    return all(map(fits, reads, shape(part.core), repeat(made.extents)))


def _trim(made: Reads, n: int, core: Term, steps: bool) -> bool:
    """Take a part for an operand, in steps of its own or not; whether that is a value as it is."""
    parts: list[tuple[int, int, int] | None] = []
    moved: list[Read] = []
    for (own, offset), extent in zip(made.reads[n], shape(core), strict=True):
        step = gcd(*own.values()) if steps and own else 1
        ends = [c * (made.extents[d] - 1) for d, c in own.items()]
        low, high = (offset + sum(e for e in ends if e * sign > 0) for sign in (-1, 1))
        inside = own and (low > 0 or high < extent - 1 or step > 1)
        parts.append((low, step, (high - low) // step + 1) if inside else None)
        moved.append(
            ({d: c // step for d, c in own.items()}, (offset - low) // step)
            if inside else (own, offset)
        )  # fmt: skip
    if parts == [None] * len(parts):
        return False
    whole_part = sel(join_text("slice", tuple(parts)), core)
    if steps and (whole_part := _inside(whole_part) or core) is core:
        return False
    part = view(whole_part, sums=False)
    extents = zip(moved, shape(part.core), strict=False)
    if written(part) is part.core and all(fits(r, e, made.extents) for r, e in extents):
        made.cores[n], made.reads[n] = part.core, moved
        return True
    return False


def _is_plain(monoid: str) -> bool:
    """Whether a reduction of one value is that value, and one of reductions one of all."""
    return folding(monoid) == monoid


def _idempotent(monoid: str) -> bool:
    """Whether a value merged with itself is the value: what is exact, and lies between both."""
    return keeps_equal(monoid) and _is_plain(monoid)


def _made(
    made: Reads,
    monoid: str,
    name: str,
    members: Mapping[int, Sequence[int]],
    outer: Dims,
    sizes: Mapping[int, int],
) -> View:
    """The view of the operator on cores, its dims in the order in which operands meet them."""
    met = dict.fromkeys(
        d for operand in made.reads for coefficients, _ in operand for d in coefficients
    )
    dims = [d for d in met if d in made.out]
    places = {d: n for n, d in enumerate((*dims, *made.reduced))}
    if len(places) > len(LETTERS):
        raise Apart
    reads = [
        [Affine.of({places[d]: c for d, c in coefficients.items()}, offset)
         for coefficients, offset in operand]
        for operand in made.reads
    ]  # fmt: skip
    fixed = {n: made.extents[d] for d, n in places.items()}
    sig = make(reads, range(len(dims)), monoid, range(len(dims), len(places)), fixed)
    of = shape(made.cores[0])
    alone = name == "id" and not made.reduced and len(made.cores) == 1
    if alone and all(
        n == 1 or p.plain is not None for p, n in zip(sig.operands[0], of, strict=True)
    ):
        # It reads a core as it is, dim by dim: it is that core.
        places_of = zip(sig.operands[0], of, strict=True)
        inner = [() if n == 1 else tuple(members[dims[p.plain or 0]]) for p, n in places_of]
        return View(made.cores[0], tuple(inner), outer, sizes)
    core = op(sig.text, name, *made.cores)
    return View(core, tuple(tuple(members[d]) for d in dims), outer, sizes)
