"""What a value that is only moved reads: elements of one other value, and a constant beside them.

Slices, concatenations, flips, pads, reshapes and copies of one value move its elements. A movement
is read group by group of dims (`axe_eq.mesh.pieces`), then written in one way: elements that are
read in steps (`4a+b+3`) as a view of the part they are in, padded where it ends before; others as a
concatenation of slices. So movements of one value that move alike are one term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from math import prod

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import AxeError
from axe_eq.mesh.pieces import FILL, Group, Piece, identity, is_read, joined, steps, through
from axe_eq.program.ops import join_text, selector
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.program.terms import Op, Sel, op, operands, sel, type_of
from axe_eq.program.types import value_type
from axe_eq.rule.term import Term
from axe_eq_rules import digits

Ints = NDArray[np.int64]
MOST_ENTRIES, MOST_RUNS, MOST_PIECES = 1 << 14, 64, 256


class Unread(Exception):
    """A movement that is not written so."""


@dataclass(frozen=True)
class Movement:
    """Where a value's elements come from.

    Attributes:
        leaf: the value that is moved.
        sig: how its `core` is read: the signature of a view.
        core: the leaf, or parts of it beside each other or padded.
    """

    leaf: Term
    sig: str
    core: Term


def movement(term: Term) -> Movement:
    """A value whose operator only moves, as a view of parts of the one value that it moves.

    Raises:
        Unread: it is of several values, or moves too much otherwise.
    """
    leaves: list[Term] = []
    try:
        pieces = _pieces(term, leaves, {})
    except AxeError:
        raise Unread from None
    return _written(term, pieces, leaves)


# -- reading ---------------------------------------------------------------------------------------


def _pieces(
    term: Term, leaves: list[Term], known: dict[Term, tuple[Piece, ...]]
) -> Sequence[Piece]:
    """The pieces of a value over its leaves, which are listed."""
    if term in known:
        return known[term]
    own = _own(term)
    if own is None:
        if term not in leaves:
            leaves.append(term)
        known[term] = (identity(leaves.index(term), digits.shape(term)),)
        return known[term]
    found: list[Piece] = []
    for piece in own:
        if piece.leaf < 0:
            found.append(piece)
            continue
        below = _pieces(operands(term)[piece.leaf], leaves, known)
        ways = (through(piece, other) for other in below)
        found += [way for way in ways if way is not None]
    if len(found) > MOST_PIECES:
        raise Unread
    known[term] = tuple(found)
    return known[term]


def _own(term: Term) -> Sequence[Piece] | None:
    """The pieces of a value over its operands; None where its operator does more than move."""
    given = operands(term) if term.symbol in (Op, Sel) else []
    types = tuple(value_type(type_of(x)) for x in given)
    if term.symbol is Sel:
        declared, params = selector(term.args[0])
        if not given:
            known = declared.fill is not None and declared.fill(params) is not None
            return steps(term.args[0], types) if known else None
        return steps(term.args[0], types) if is_read(term.args[0], types) else None
    if term.symbol is not Op or term.args[1] != "id" or signature(term.args[0]).n_reduced:
        return None
    sig = signature(term.args[0])
    return (_view_piece(sig.operands[0], sig.extents([types[0].shape]), types[0].shape),)


def _view_piece(
    operand: Sequence[Affine], extents: tuple[int, ...], shape: tuple[int, ...]
) -> Piece:
    """The piece of a view: dims of the operand that share dims of the value are one group."""
    sets: list[tuple[set[int], list[int]]] = []
    for d, p in enumerate(operand):
        dims, mine = {t for t, _ in p.terms}, [d]
        for other in [s for s in sets if s[0] & dims]:
            sets.remove(other)
            dims, mine = dims | other[0], [*other[1], *mine]
        sets.append((dims, mine))
    groups = []
    for dims, mine in sets:
        order = tuple(sorted(dims))
        if prod(extents[d] for d in order) > MOST_ENTRIES:
            raise Unread
        leaf = np.zeros([extents[d] for d in order], np.int64)
        for d in sorted(mine):
            p, at = operand[d], np.full(leaf.shape, operand[d].offset, np.int64)
            for t, c in p.terms:
                axis = order.index(t)
                steps_ = c * np.arange(extents[t])
                at += steps_.reshape([-1 if n == axis else 1 for n in range(len(order))])
            leaf = leaf * shape[d] + at
        index = np.arange(leaf.size, dtype=np.int64)
        groups.append(Group(order, tuple(sorted(mine)), index, leaf.reshape(-1)))
    read = {t for p in operand for t, _ in p.terms}
    for d, n in enumerate(extents):
        if d not in read:
            every = np.arange(n, dtype=np.int64)
            groups.append(Group((d,), (), every, np.zeros_like(every)))
    return Piece(0, tuple(groups), extents, shape)


# -- blocks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Block:
    """Some dims of the value, and what they read of some dims of the leaf.

    Attributes:
        dims, leaf_dims: ascending.
        table: over the dims; the row-major index over the leaf's dims, -1 where the constant is.
    """

    dims: tuple[int, ...]
    leaf_dims: tuple[int, ...]
    table: Ints


def _written(term: Term, pieces: Sequence[Piece], leaves: Sequence[Term]) -> Movement:
    shape = digits.shape(term)
    read = [p for p in pieces if p.leaf >= 0]
    fills = {p.fill for p in pieces if p.leaf == FILL}
    if len({p.leaf for p in read}) != 1 or len(fills) > 1 or len(read) + len(fills) < 1:
        raise Unread
    if any(p.leaf < FILL for p in pieces):
        raise Unread  # what a selector makes
    leaf = leaves[read[0].leaf]
    blocks = _blocks(pieces, shape, digits.shape(leaf))
    if not fills and any((b.table < 0).any() for b in blocks):
        raise Unread
    return _as_view(term, leaf, blocks, next(iter(fills), 0.0))


def _blocks(pieces: Sequence[Piece], shape: tuple[int, ...], leaf: tuple[int, ...]) -> list[_Block]:
    """The value as a product of blocks; where pieces differ is one of them."""
    read = [p for p in pieces if p.leaf >= 0]
    over = list(pieces[pieces.index(read[0]) :])  # with constants that lie over what is read
    sets: list[tuple[set[int], set[int]]] = []
    for piece in over:
        for g in piece.groups:
            dims, leaf_dims = set(g.dims), set(g.leaf_dims)
            for other in [s for s in sets if s[0] & dims or s[1] & leaf_dims]:
                sets.remove(other)
                dims, leaf_dims = dims | other[0], leaf_dims | other[1]
            sets.append((dims, leaf_dims))
    blocks: list[_Block] = []
    apart: tuple[set[int], set[int]] = (set(), set())
    for dims, leaf_dims in sets:
        tables = [_table(p, dims, leaf_dims, shape, leaf) for p in over]
        own = [t for p, t in zip(over, tables, strict=True) if p.leaf >= 0]
        there = own[0] >= 0
        covers = all((t[there] >= 0).all() for t in tables)
        if all(np.array_equal(t, own[0]) for t in own[1:]) and covers:
            blocks.append(_Block(tuple(sorted(dims)), tuple(sorted(leaf_dims)), own[0]))
        else:
            apart = apart[0] | dims, apart[1] | leaf_dims
    if any(p.leaf < 0 for p in over) and not apart[0]:
        raise Unread
    if apart[0]:
        total = np.full(prod(shape[d] for d in apart[0]), -1, np.int64)
        for piece in over:
            own_table = _table(piece, *apart, shape, leaf)
            total = np.where(own_table >= 0, own_table if piece.leaf >= 0 else -1, total)
        one = _Block(tuple(sorted(apart[0])), tuple(sorted(apart[1])), total)
        fine = [one] if not one.leaf_dims or (total < 0).any() else _factors(one, shape, leaf)
        runs = [block for block in fine if _affine(block, shape, leaf) is None]
        blocks += fine if len(runs) < 2 else [one]
    return blocks


def _factors(block: _Block, shape: tuple[int, ...], leaf: tuple[int, ...]) -> list[_Block]:
    """The block as a product: dims of the leaf that vary along the same dims are together."""
    extents = [shape[d] for d in block.dims]
    at = np.unravel_index(block.table, [leaf[d] for d in block.leaf_dims])
    own = [np.asarray(x).reshape(extents) for x in at]
    sets: list[tuple[set[int], list[int]]] = []
    for n, x in enumerate(own):
        dims = {a for a in range(x.ndim) if (x != np.take(x, [0], a)).any()}
        mine = [n]
        for other in [s for s in sets if s[0] & dims]:
            sets.remove(other)
            dims, mine = dims | other[0], [*other[1], *mine]
        sets.append((dims, sorted(mine)))
    found = []
    for dims, mine in sets:
        part = tuple(slice(None) if a in dims else 0 for a in range(len(extents)))
        coordinates = [own[n][part].reshape(-1) for n in mine]
        table = np.ravel_multi_index(coordinates, [leaf[block.leaf_dims[n]] for n in mine])
        leaf_dims = tuple(block.leaf_dims[n] for n in mine)
        found.append(_Block(tuple(block.dims[a] for a in sorted(dims)), leaf_dims, table))
    free = set(range(len(extents))).difference(*(dims for dims, _ in sets))
    return [
        *found,
        *(_Block((block.dims[a],), (), np.zeros(extents[a], np.int64)) for a in sorted(free)),
    ]


def _table(
    piece: Piece, dims: set[int], leaf_dims: set[int], shape: tuple[int, ...], leaf: tuple[int, ...]
) -> Ints:
    """What a piece reads, over all indices of some dims; -1 where it does not."""
    size = prod(shape[d] for d in dims)
    if size > MOST_ENTRIES:
        raise Unread
    groups = [g for g in piece.groups if set(g.dims) & dims or set(g.leaf_dims) & leaf_dims]
    one = joined(groups, shape, leaf)
    table = np.full(size, -1, np.int64)
    table[one.index if one.dims else np.zeros(1, np.int64)] = one.leaf
    return table


# -- writing ---------------------------------------------------------------------------------------


def _as_view(term: Term, leaf: Term, blocks: Sequence[_Block], fill: float) -> Movement:
    """The view of a core that has these blocks."""
    shape, rank = digits.shape(term), len(digits.shape(leaf))
    reads: list[Affine] = [Affine(())] * rank
    low, high = [0] * rank, [n - 1 for n in digits.shape(leaf)]
    rest: list[_Block] = []
    for block in blocks:
        found = _affine(block, shape, digits.shape(leaf))
        if found is None:
            rest.append(block)
            continue
        for d, p in zip(block.leaf_dims, found, strict=True):
            ends = [c * (shape[t] - 1) for t, c in p.terms]
            low[d] = p.offset + sum(e for e in ends if e < 0)
            high[d] = p.offset + sum(e for e in ends if e > 0)
            reads[d] = Affine(p.terms, p.offset - low[d])
    if len(rest) > 1:
        raise Unread
    core = _between(leaf, low, high, [d for b in rest for d in b.leaf_dims], fill)
    if rest:
        core, first = _in_runs(core, rest[0], shape, fill)
        gone = set(rest[0].leaf_dims)
        reads = [first, *(p for d, p in enumerate(reads) if d not in gone)]
    fixed = dict(enumerate(shape))
    sig = make([reads], range(len(shape)), fixed=fixed)
    return Movement(leaf, sig.text, core)


def _affine(block: _Block, shape: tuple[int, ...], leaf: tuple[int, ...]) -> list[Affine] | None:
    """How each dim of the leaf is read, if in steps, and outside of it where the constant is."""
    table = block.table.reshape([shape[d] for d in block.dims])
    there = table >= 0
    if not there.any():
        return None
    extents = [leaf[d] for d in block.leaf_dims]
    at = np.unravel_index(np.where(there, table, 0).reshape(-1), extents) if extents else ()
    first = np.unravel_index(int(np.flatnonzero(there.reshape(-1))[0]), table.shape)
    found, inside = [], np.ones(table.shape, bool)
    for coordinates, extent in zip(at, extents, strict=True):
        own = np.asarray(coordinates, np.int64).reshape(table.shape)
        guess, offset = np.zeros(table.shape, np.int64), int(own[first])
        terms = {}
        for axis, d in enumerate(block.dims):
            both = np.take(there, range(1, shape[d]), axis) & np.take(
                there, range(shape[d] - 1), axis
            )
            step = np.unique(np.diff(own, axis=axis)[both])
            if len(step) > 1:
                return None
            c = int(step[0]) if len(step) else int(shape[d] > 1)  # one index, the rest outside
            terms[d] = c
            offset -= c * int(first[axis])
            guess += (c * np.arange(shape[d])).reshape(
                [-1 if n == axis else 1 for n in range(table.ndim)]
            )
        guess += offset
        if (guess != own)[there].any():
            return None
        inside &= (guess >= 0) & (guess < extent)
        found.append(Affine.of(terms, offset))
    return found if np.array_equal(inside, there) else None


def _between(
    leaf: Term, low: Sequence[int], high: Sequence[int], whole: Sequence[int], fill: float
) -> Term:
    """The leaf from the lowest index that is read to the highest, with the constant outside."""
    of = value_type(type_of(leaf))
    widths = tuple(
        (0, 0) if d in whole else (max(0, -a), max(0, b - n + 1))
        for d, (a, b, n) in enumerate(zip(low, high, of.shape, strict=True))
    )
    parts = tuple(
        None
        if d in whole or (a <= 0 and b >= n - 1)
        else (max(a, 0), 1, min(b, n - 1) - max(a, 0) + 1)
        for d, (a, b, n) in enumerate(zip(low, high, of.shape, strict=True))
    )
    core = leaf if parts == (None,) * of.rank else sel(join_text("slice", parts), leaf)
    if any(w != (0, 0) for w in widths):
        core = sel(join_text("pad", widths, fill), core)
    return core


def _in_runs(core: Term, block: _Block, shape: tuple[int, ...], fill: float) -> tuple[Term, Affine]:
    """A core whose first dim is slices of these dims of another, beside each other."""
    of = value_type(type_of(core))
    order = [*block.leaf_dims, *(d for d in range(of.rank) if d not in block.leaf_dims)]
    if order != sorted(order):
        view = make([[plain(order.index(d)) for d in range(of.rank)]], range(of.rank))
        core = op(view.text, "id", core)
    if not block.leaf_dims:
        raise Unread
    if len(block.leaf_dims) > 1:
        core = sel(join_text("merge", 0, len(block.leaf_dims)), core)
    extents = [shape[d] for d in block.dims]
    table = block.table.reshape(extents)
    ways = permutations(range(len(extents))) if len(extents) <= 4 else [tuple(range(len(extents)))]
    runs, best = min(((_runs(table.transpose(way)), way) for way in ways), key=lambda r: len(r[0]))
    # Parts of several dims beside each other stay parts: merged to one dim nobody would know them.
    if len(runs) > MOST_RUNS or (len(runs) > 1 and len(block.leaf_dims) > 1):
        raise Unread
    rest = digits.shape(core)[1:]
    parts = []
    for start, step, length in runs:
        if start < 0:
            parts.append(sel(join_text("full", (length, *rest), fill, of.dtype)))
        else:
            own = join_text("slice", ((start, step, length), *[None] * len(rest)))
            every = (start, step, length) == (0, 1, digits.shape(core)[0])
            parts.append(core if every else sel(own, core))
    terms = {
        block.dims[axis]: prod(extents[other] for other in best[n + 1 :])
        for n, axis in enumerate(best)
    }
    beside = sel(join_text("concat", 0), *parts) if len(parts) > 1 else parts[0]
    return beside, Affine.of(terms)


def _step(values: Sequence[int]) -> int:
    """The step of a run that begins so; a run of two is one only if it is of neighbours."""
    steps_ = [b - a for a, b in pairwise(values) if min(a, b) >= 0]
    return steps_[0] if len(steps_) == 2 and steps_[0] == steps_[1] != 0 else 1


def _runs(table: Ints) -> list[tuple[int, int, int]]:
    """Entries as (start, step, length), the longest first runs; start -1 is the constant."""
    values = table.reshape(-1).tolist()
    found = []
    at = 0
    while at < len(values):
        end = at + 1
        if values[at] < 0:
            while end < len(values) and values[end] < 0:
                end += 1
            found.append((-1, 0, end - at))
        else:
            step = _step(values[at : at + 3])
            while end < len(values) and values[end] >= 0 and values[end] - values[end - 1] == step:
                end += 1
            found.append((values[at], step, end - at))
        at = end
    return found
