"""Algebra of signatures: what laws do to the signatures of block operators.

Pure functions on `Signature`; those that change one are undefined where the result would not mean
the same. They say nothing about cells: whether a cell may be inlined, reordered or split is the
law's business.

Extents are not part of signatures, so every function also keeps them: an index dim that only a
window determines (``2b+d`` with b open) must be determined by the same window before and after,
whatever the shapes. `is_rigid` says when a signature allows such statements at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from math import factorial, prod
from typing import Any

from axe_eq.program.signature import LETTERS, Affine, Signature, make, plain
from axe_eq.rule.term import Undefined

Operand = tuple[Affine, ...]
TIE_LIMIT = 720  # orders tried among operands of equal keys


# -- facts ----------------------------------------------------------------------------------------


def plain_dims(sig: Signature) -> frozenset[int]:
    """Index dims that some operand dim is, so that its extent is theirs."""
    return frozenset(p.plain for op in sig.operands for p in op if p.plain is not None)


def dims_of(operand: Iterable[Affine]) -> frozenset[int]:
    """Index dims that an operand reads."""
    return frozenset(d for p in operand for d, _ in p.terms)


def windows(sig: Signature) -> dict[int, Affine] | None:
    """The window that determines each dim neither plain nor fixed; None where that is ambiguous.

    Two windows over one open dim, or one over two, make extents depend on the order of operands.
    """
    known = plain_dims(sig) | {d for d, _ in sig.fixed}
    uses = [p for op in sig.operands for p in op if any(d not in known for d, _ in p.terms)]
    count = Counter(d for p in uses for d, _ in p.terms if d not in known)
    found: dict[int, Affine] = {}
    for window in uses:
        (dim, step), *others = [(d, c) for d, c in window.terms if d not in known]
        if others or step < 0 or count[dim] > 1:
            return None
        found[dim] = window
    return found if len(found) + len(known) == sig.n_dims else None


def is_rigid(sig: Signature) -> bool:
    """Whether operands' shapes determine all extents, independently of the order of operands."""
    return windows(sig) is not None


def is_identity(sig: Signature) -> bool:
    """Whether a signature of one operand reads it as it is."""
    return transposition(sig) == tuple(range(sig.n_out))


def transposition(sig: Signature) -> tuple[int, ...] | None:
    """Operand dim of each output dim, if the signature only permutes the dims of one operand."""
    if len(sig.operands) != 1 or sig.n_reduced or sig.fixed:
        return None
    read = [p.plain for p in sig.operands[0]]
    if sorted(-1 if d is None else d for d in read) != list(range(sig.n_out)):
        return None
    return tuple(read.index(d) for d in range(sig.n_out))


# -- construction ---------------------------------------------------------------------------------


def numbering(operands: Iterable[Operand], out: Sequence[int], reduced: Iterable[int]) -> list[int]:
    """The given index dims in the order in which `make` numbers them."""
    wanted = set(reduced)
    met = dict.fromkeys(d for op in operands for p in op for d, _ in p.terms if d in wanted)
    return [*out, *met, *sorted(wanted - set(met))]


def rebuild(
    sig: Signature,
    operands: Iterable[Operand] | None = None,
    out: Sequence[int] | None = None,
    reduced: Iterable[int] | None = None,
    fixed: Mapping[int, int] | None = None,
    monoid: str | None = None,
) -> Signature:
    """A signature over the same index dims with some parts replaced, canonical again."""
    return make(
        sig.operands if operands is None else operands,
        range(sig.n_out) if out is None else out,
        sig.monoid if monoid is None else monoid,
        sig.reduced if reduced is None else reduced,
        dict(sig.fixed) if fixed is None else fixed,
    )


def identity(rank: int) -> Signature:
    """The signature that reads one operand of this rank as it is."""
    return make([map(plain, range(rank))], range(rank))


def elementwise(rank: int, n_operands: int) -> Signature:
    """The signature of a cell on operands of one shape."""
    return make([list(map(plain, range(rank)))] * n_operands, range(rank))


def transpose(perm: Sequence[int]) -> Signature:
    """The signature whose output dim i is operand dim perm[i]."""
    return make([[plain(perm.index(d)) for d in range(len(perm))]], range(len(perm)))


# -- one signature --------------------------------------------------------------------------------


def reorder(sig: Signature, order: Sequence[int]) -> Signature:
    """Operands in another order: operand i is the former operand order[i].

    Raises:
        Undefined: they are not all there, or their order says extents.
    """
    if sorted(order) != list(range(len(sig.operands))) or not is_rigid(sig):
        raise Undefined("reorder")
    return rebuild(sig, [sig.operands[n] for n in order])


def sort_operands(sig: Signature, keys: Sequence[Any]) -> tuple[tuple[int, ...], Signature] | None:
    """Operands in the order of their keys, then of what they read, then of the least text.

    Returns:
        The order (as in `reorder`) and the signature; None where order matters or ties are many.
    """
    if len(keys) != len(sig.operands) or not is_rigid(sig):
        return None
    order = {key: n for n, key in enumerate(sorted(set(keys)))}
    colours = _refined(sig, [order[k] for k in keys])
    groups = [[n for n, c in enumerate(colours) if c == d] for d in sorted(set(colours))]
    names = renamings(sig)
    tries = prod(factorial(len(group)) for group in groups) * max(len(names), 1)
    if tries > TIE_LIMIT:
        return None
    orders = [tuple(n for g in o for n in g) for o in product(*map(permutations, groups))]
    found = ((o, rebuild(s, [s.operands[n] for n in o])) for o in orders for s in names or [sig])
    return min(found, key=lambda pair: (pair[1].text, pair[0]))


def _refined(sig: Signature, colours: list[int]) -> list[int]:
    """Operand colours split by what they read, until no more differ (colour refinement)."""
    fixed = dict(sig.fixed)
    dims: list[Any] = [(d, 0) if d < sig.n_out else (sig.n_out, fixed.get(d, 0)) for d in
                       range(sig.n_dims)]  # fmt: skip
    while True:
        seen: list[list[Any]] = [[] for _ in dims]
        for n, operand in enumerate(sig.operands):
            for axis, p in enumerate(operand):
                for d, c in p.terms:
                    seen[d].append((colours[n], axis, c, p.offset))
        dims = _ranked([(old, sorted(uses)) for old, uses in zip(dims, seen, strict=True)])
        reads = [
            [(p.offset, sorted((dims[d], c) for d, c in p.terms)) for p in operand]
            for operand in sig.operands
        ]
        finer = _ranked(list(zip(colours, reads, strict=True)))
        if len(set(finer)) == len(set(colours)):
            return finer
        colours = finer


def _ranked(values: list[Any]) -> list[int]:
    """Equal values get equal numbers, in the order of the values."""
    kinds: list[Any] = []
    for value in sorted(values):
        if not kinds or kinds[-1] != value:
            kinds.append(value)
    return [kinds.index(value) for value in values]


def renamings(sig: Signature) -> list[Signature]:
    """Copies that exchange the reduced dims of one window; `make` orders all others."""
    free = set(sig.reduced)
    together = sorted(
        {
            d
            for op in sig.operands
            for p in op
            if sum(t in free for t, _ in p.terms) > 1
            for d, _ in p.terms
            if d in free
        }
    )
    if factorial(len(together)) > TIE_LIMIT:
        return []
    copies = []
    for names in permutations(together):
        new = dict(enumerate(range(sig.n_dims))) | dict(zip(together, names, strict=True))
        images = {d: plain(e) for d, e in new.items()}
        operands = [tuple(p.substitute(images) for p in op) for op in sig.operands]
        fixed = tuple(sorted((new[d], e) for d, e in sig.fixed))
        copies.append(replace(sig, operands=tuple(operands), fixed=fixed))
    return copies


def without_operand(sig: Signature, *positions: int) -> Signature:
    """The signature less some operands.

    Raises:
        Undefined: the others do not determine every extent.
    """
    for position in sorted(positions, reverse=True):
        rest = (*sig.operands[:position], *sig.operands[position + 1 :])
        if not rest:
            raise Undefined("no operands")
        dims = numbering(rest, range(sig.n_out), sig.reduced)
        sig = _keeping_windows(sig, rebuild(sig, rest), dims)
    return sig


# -- two signatures -------------------------------------------------------------------------------


def inline(outer: Signature, position: int, inner: Signature) -> Signature:
    """Replace one operand of `outer` by the operands of the operator `inner` that computes it.

    The inner reduction moves outwards, so the reductions must be the same where both reduce.

    Raises:
        Undefined: no signature says what both do.
    """
    read, n_dims = outer.operands[position], outer.n_dims + inner.n_reduced
    clash = outer.n_reduced and inner.n_reduced and outer.monoid != inner.monoid
    fits = inner.n_out == len(read) and not clash and n_dims <= len(LETTERS)
    open_dims = windows(outer)
    if not fits or open_dims is None or not _read_plainly(inner, read):
        raise Undefined("inline")
    # An inner dim may be shorter than what it reads: a window over it ends with it.
    short = [read[k] for k, _ in inner.fixed if k < inner.n_out]
    if any(d in open_dims for p in short for d, _ in p.terms):
        raise Undefined("inline")
    images = dict(enumerate([*read, *map(plain, range(outer.n_dims, n_dims))]))
    moved = [tuple(p.substitute(images) for p in op) for op in inner.operands]
    if _new_plain(inner.operands, moved):
        raise Undefined("inline")
    operands = [*outer.operands[:position], *moved, *outer.operands[position + 1 :]]
    fixed = {d: e for k, e in inner.fixed if (d := images[k].plain) is not None} | dict(outer.fixed)
    reduced = [*outer.reduced, *range(outer.n_dims, n_dims)]
    result = make(operands, range(outer.n_out), outer.monoid or inner.monoid, reduced, fixed)
    if not is_rigid(result):
        raise Undefined("inline")
    return result


def _new_plain(before: Sequence[Operand], after: Sequence[Operand]) -> bool:
    """Whether a window became a plain dim, which would claim the whole extent."""
    return any(
        q.plain is not None and p.plain is None
        for old, new in zip(before, after, strict=True)
        for p, q in zip(old, new, strict=True)
    )


def _read_plainly(inner: Signature, read: Operand) -> bool:
    """Whether windows that determine inner dims stay when `read` reads the inner value.

    Where another term of such a window is read in part, the window would seem wider than it was.
    """
    found = windows(inner)
    if found is None:
        return False
    others = {d for dim, window in found.items() for d, _ in window.terms if d != dim}
    return all(d >= inner.n_out or read[d].plain is not None for d in others)


def outline(sig: Signature, group: Sequence[int], *, reduce: bool) -> tuple[Signature, Signature]:
    """Compute some operands' part first: (outer, inner), the inverse of `inline`.

    Args:
        sig: the whole operator.
        group: positions of the operands that `inner` takes, in their order; the inner value stands
            at the least of them.
        reduce: reduce dims that only the group reads inside (for cells over which the reduction
            distributes); otherwise the inner operator only maps.

    Raises:
        Undefined: the group is none, or the parts do not determine their extents.
    """
    taken = set(group)
    if not taken or len(taken) != len(group) or taken == set(range(len(sig.operands))):
        raise Undefined("outline")
    rest = [op for n, op in enumerate(sig.operands) if n not in taken]
    mine = frozenset().union(*(dims_of(sig.operands[n]) for n in taken))
    theirs = frozenset().union(*map(dims_of, rest))
    inside = [d for d in sig.reduced if reduce and d in mine and d not in theirs]
    kept = sorted(mine - set(inside))
    fixed = {d: e for d, e in sig.fixed if d in mine}
    inner = make([sig.operands[n] for n in group], kept, sig.monoid, inside, fixed)
    place = sum(1 for n in range(min(taken)) if n not in taken)
    operands = [*rest[:place], tuple(map(plain, kept)), *rest[place:]]
    left = [d for d in sig.reduced if d not in inside]
    still = {d: e for d, e in sig.fixed if d not in inside}
    outer = make(operands, range(sig.n_out), sig.monoid, left, still)
    dims = numbering([sig.operands[n] for n in group], kept, inside)
    if not is_rigid(outer):
        raise Undefined("outline")
    return outer, _keeping_windows(sig, inner, dims)


def _keeping_windows(whole: Signature, part: Signature, dims: Sequence[int]) -> Signature:
    """`part`, if dims that only windows determine are such in `whole` (part's i is dims[i])."""
    before, after = windows(whole), windows(part)
    if before is None or after is None or any(dims[d] not in before for d in after):
        raise Undefined("windows")
    return part
