"""The swizzles of a map whose copies are no sums of progressions: what makes them such, by search.

What a layout computes beside its copies may be anything, boxes in boxes are. So swizzles will do
if without them the copies of every element are the same ones, and a list has them. Only the
different sets of copies matter, not which elements have them, and stacks that leave the same sets
are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout.normal.tables import steps_of
from axe_eq.layout.value.swizzle import Swizzle

MAX_STACKS = 2**14  # of one length
MAX_VALUES = 2**23  # coordinates that they undo
MAX_PROBED = 256  # coordinates that are looked at
MAX_COPIES = 2**19  # copies of which it is asked whether a list has them
SMALL = 4  # stacks that reach so many bits do at most 20160 things, of any length

Points = NDArray[np.int64]
Stack = tuple[Swizzle, ...]


def unswizzled(column: Points, axis: str, reach: int) -> Iterator[Stack]:
    """Stacks of swizzles without which a list has the copies on an axis, short ones first.

    The more swizzles, the fewer bits they may reach, down to four; where those are enough, every
    stack is tried. It is seen of some elements only.

    Args:
        column: ``[size, copies]``, ascending.
        axis: the axis.
        reach: the most bits that are worth while.
    """
    sets = np.unique(column, axis=0)
    whole = int(np.bitwise_or.reduce(sets, axis=None))
    low = (whole & -whole).bit_length() - 1  # bits below are 0 everywhere
    probed = sets[:: -(-sets.size // MAX_PROBED)]
    known = {probed.tobytes()}
    left_to_ask = MAX_COPIES // probed.shape[1]
    if _alike(probed[None])[0] and _are_copies(probed):
        yield ()
    layer: list[tuple[Stack, Points]] = [((), probed)]
    while layer:
        reach = _reach([stack for stack, _ in layer], probed.size, low, reach)
        layer = [pair for pair in layer if _reached(pair[0]) <= reach]
        tables = np.array([left for _, left in layer])
        found: list[tuple[Stack, Points]] = []
        for sw in _singles(axis, low, reach) if layer else ():
            lefts = np.sort(sw.undo_table(tables), axis=2)
            for (stack, _), left, alike in zip(layer, lefts, _alike(lefts), strict=True):
                key = left.tobytes()
                if key not in known:
                    known.add(key)
                    found.append(((*stack, sw), left))
                    if not alike:
                        continue
                    if left_to_ask == 0:
                        return
                    left_to_ask -= 1
                    if _are_copies(left):
                        yield *stack, sw
        layer = found


def _alike(tables: Points) -> NDArray[np.bool_]:
    """Per table whether its sets are translates of each other."""
    apart = tables - tables[:, :, :1]
    same: NDArray[np.bool_] = (apart == apart[:, :1]).all(axis=(1, 2))
    return same


def _are_copies(sets: Points) -> bool:
    return _have_list(tuple((sets[0] - sets[0, 0]).tolist()))


@lru_cache(maxsize=4096)
def _have_list(values: tuple[int, ...]) -> bool:
    """Whether some list has these copies, the least at 0."""
    try:
        return steps_of(np.array(values)) is not None
    except SearchError:
        return False


def _reached(stack: Stack) -> int:
    return max((sw.reach for sw in stack), default=0)


def _reach(shorter: Sequence[Stack], values: int, low: int, most: int) -> int:
    """How many bits may be reached, so that the work stays within its limit."""
    reached = Counter(map(_reached, shorter))
    reach = low + (SMALL if values <= MAX_PROBED else 0)
    while reach < most:
        held = sum(count for bits, count in reached.items() if bits <= reach + 1)
        stacks = held * _count(reach + 1 - low)
        if stacks > MAX_STACKS or stacks * values > MAX_VALUES:
            break
        reach += 1
    return min(reach, most)


def _count(bits: int) -> int:
    return (bits**3 - bits) // 3


def _singles(axis: str, low: int, reach: int) -> Sequence[Swizzle]:
    """All swizzles of bits from `low` up to `reach`, small reach first."""
    return [
        Swizzle(axis, bits, base, sign * (total - base - bits))
        for total in range(low + 2, reach + 1)
        for bits in range(1, total - low)
        for base in range(low, total - bits)
        for sign in (1, -1)
    ]
