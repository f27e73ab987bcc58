"""Scans in numpy: every prefix of a reduction along one axis, for any declared monoid.

A state is lifted from every element by itself and states are merged in order, earlier ones first,
so a scan asks of its monoid that it is associative and nothing more. Blocks are scanned side by
side and what stands before each is merged into it: work that is linear in the extent, in vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from axe_eq.program.ops import MONOIDS, State
from axe_eq.program.types import Array

# Steps that are taken one after the other; longer extents are scanned in blocks.
FEW_STEPS = 16
BLOCKS, FIRST, LAST = "blocks", "first", "last"
Merge = Callable[[State, State], State]


def prefixes(monoid: str, values: Sequence[Array], axis: int, order: str = BLOCKS) -> Array:
    """Reductions of the elements up to each, along an axis.

    Args:
        monoid: its name.
        values: as many arrays of one shape as it takes, in the dtypes they are computed in.
        axis: the axis.
        order: `BLOCKS`, or what is merged first for every prefix: its `FIRST` elements, one after
            the other, or its `LAST` ones, in work that is quadratic in the extent. Over the reals
            all are equal.

    Returns:
        An array of that shape, not rounded to the dtype of a value.
    """
    declared = MONOIDS[monoid]
    rank = values[0].ndim
    state = declared.lift(tuple(v[..., None] for v in values), (rank,))
    shape = (*values[0].shape, 1)
    full = tuple(np.moveaxis(np.broadcast_to(part, shape), axis, 0) for part in state)
    found = tuple(np.moveaxis(part, 0, axis) for part in _ORDERS[order](full, declared.merge))
    return np.asarray(declared.finish(found))[..., 0]


def n_merges(extent: int) -> int:
    """Merges, one after the other, of a scan over so many elements."""
    if extent <= FEW_STEPS:
        return extent - 1
    length = math.isqrt(extent)
    blocks, rest = divmod(extent, length)
    return n_merges(length) + n_merges(blocks) + 1 + (n_merges(rest) + 1 if rest else 0)


def _scanned(state: State, merge: Merge) -> State:
    """All prefixes of a state along its first axis."""
    extent = state[0].shape[0]
    if extent <= FEW_STEPS:
        return _first_first(state, merge)
    length = math.isqrt(extent)
    whole = extent // length * length
    blocks = tuple(
        part[:whole].reshape(-1, length, *part.shape[1:]).swapaxes(0, 1) for part in state
    )
    inside = _scanned(blocks, merge)
    before = _scanned(tuple(part[-1] for part in inside), merge)
    first, rest = (tuple(part[:, at] for part in inside) for at in (slice(1), slice(1, None)))
    above = tuple(np.broadcast_to(b[None, :-1], r.shape) for b, r in zip(before, rest, strict=True))
    later = merge(above, rest)
    found = tuple(
        np.concatenate([a, b], 1).swapaxes(0, 1).reshape(whole, *a.shape[2:])
        for a, b in zip(first, later, strict=True)
    )
    if whole == extent:
        return found
    tail = _scanned(tuple(part[whole:] for part in state), merge)
    ends = tuple(np.broadcast_to(b[-1:], t.shape) for b, t in zip(before, tail, strict=True))
    return tuple(np.concatenate(both) for both in zip(found, merge(ends, tail), strict=True))


def _first_first(state: State, merge: Merge) -> State:
    """All prefixes, what comes after merged into each."""
    steps = [tuple(part[0] for part in state)]
    for n in range(1, state[0].shape[0]):
        steps.append(merge(steps[-1], tuple(part[n] for part in state)))
    return tuple(np.stack(parts) for parts in zip(*steps, strict=True))


def _last_first(state: State, merge: Merge) -> State:
    """All prefixes, what comes before merged into each."""
    found = tuple(np.array(part) for part in state)
    for n in range(state[0].shape[0] - 2, -1, -1):
        later = tuple(part[n + 1 :] for part in found)
        earlier = tuple(
            np.broadcast_to(part[n], of.shape) for part, of in zip(state, later, strict=True)
        )
        for part, merged in zip(found, merge(earlier, later), strict=True):
            part[n + 1 :] = merged
    return found


_ORDERS = {BLOCKS: _scanned, FIRST: _first_first, LAST: _last_first}
