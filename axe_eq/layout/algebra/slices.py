"""Slices and permutations of an iter list, complete: an answer, or the index where all break.

Where the shape groups the list, a region is a window per dim. That loses nothing: if some list
computes the whole region, a window of it computes each dim (the innermost extent of a region is a
prefix of that list, and a level that does not divide it would have to repeat at every row).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from math import prod

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout.normal.recover_iters import NoIters, Vector, add, from_table, window
from axe_eq.layout.value.boxes import Dims
from axe_eq.layout.value.indexing import columns
from axe_eq.layout.value.iters import Iters, evaluate, split_blocks

Spans = Sequence[tuple[int, int]]

MAX_ELEMENTS = 2**24
MAX_LOOKED_AT = 2**16  # only to name the index in a refusal


def slice_shard(fused: Iters, shape: Sequence[int], spans: Spans) -> tuple[Iters, Vector]:
    """The iter list of a region, and the coordinates of its first element.

    Raises:
        NoIters: no list computes the region; the index is row-major in it.
        SearchError: undecided, see `slice_loose`.
    """
    blocks = split_blocks(fused, shape)
    try:
        if blocks is None:
            return _slice_merged(fused, shape, spans)
        parts, origin = _windows(blocks, shape, spans, padded=False)
    except NoIters as none:
        raise _first_break(fused, shape, spans, none) from None
    return tuple(chain.from_iterable(parts)), origin


def _first_break(fused: Iters, shape: Sequence[int], spans: Spans, found: NoIters) -> NoIters:
    """The first index of the region that breaks, from one dim that has no list.

    A list whose level fits no row may still compute the region up to some later row.
    """
    counts = [stop - start for start, stop in spans if stop - start > 1]
    if len(counts) > 1 and prod(counts) <= MAX_LOOKED_AT:
        try:
            from_table(columns(fused, region_index(shape, spans)))
        except NoIters as none:
            return none
    return found


def region_index(shape: Sequence[int], spans: Spans) -> NDArray[np.int64]:
    """The flat indices of a region, row-major."""
    index = np.zeros(1, dtype=np.int64)
    for extent, (start, stop) in zip(shape, spans, strict=True):
        index = np.add.outer(index * extent, np.arange(start, stop, dtype=np.int64)).reshape(-1)
    return index


def slice_dims(dims: Dims, spans: Spans) -> tuple[Dims, Vector]:
    """The dims of a region, and the coordinates of its first element; blocks may be padded.

    Raises:
        NoIters: no block computes a dim; the index is row-major in the region.
    """
    shape, blocks = [extent for extent, _ in dims], [block for _, block in dims]
    parts, origin = _windows(blocks, shape, spans, padded=True)
    counts = [end - begin for begin, end in spans]
    return tuple(zip(counts, parts, strict=True)), origin


def _windows(
    blocks: Sequence[Iters], shape: Sequence[int], spans: Spans, *, padded: bool
) -> tuple[list[Iters], Vector]:
    """The block of every window, and the coordinates of their first element.

    Raises:
        NoIters: no block computes a dim; the index is row-major in the region.
    """
    parts = list(blocks)
    origin: Vector = {}
    for dim in range(len(parts) - 1, -1, -1):  # a fast dim breaks before a slow one
        begin, end = spans[dim]
        if end - begin == shape[dim]:
            continue
        try:
            parts[dim], first = window(parts[dim], begin, end - begin, padded=padded)
        except NoIters as none:
            inner = prod([stop - start for start, stop in spans[dim + 1 :]])
            raise NoIters(none.index * inner, none.reason) from None
        add(origin, first)
    return parts, origin


def _slice_merged(fused: Iters, shape: Sequence[int], spans: Spans) -> tuple[Iters, Vector]:
    """`slice_shard` where a boundary of the shape cuts an iter: joins the dims on both sides."""
    shard: Iters = ()
    origin: Vector = {}
    groups = list(_joined(fused, shape))
    blocks = split_blocks(fused, [prod(shape[first:last]) for first, last in groups])
    assert blocks is not None
    for (first, last), block in zip(groups, blocks, strict=True):
        try:
            part, start = _slice_joint(block, shape[first:last], spans[first:last])
        except NoIters as none:
            inner = prod(stop - start for start, stop in spans[last:])
            raise NoIters(none.index * inner, none.reason) from None
        shard += part
        add(origin, start)
    return shard, origin


def _joined(fused: Iters, shape: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The finest runs of dims, as (first, last), whose products group the list."""
    total, first = prod(shape), 0
    for last, outer in enumerate(accumulate(shape, lambda a, b: a * b), start=1):
        if split_blocks(fused, (outer, total // outer)) is not None:
            yield first, last
            first = last


def _slice_joint(block: Iters, shape: Sequence[int], spans: Spans) -> tuple[Iters, Vector]:
    begin, count, inner = _flat_range(shape, spans)
    if inner == 1:
        return window(block, begin, count)
    elements = prod(stop - start for start, stop in spans)
    if elements > MAX_ELEMENTS:
        raise SearchError(
            f"slice {tuple(spans)} of shape {tuple(shape)}",
            f"{elements} elements that the iters do not follow",
            f"at most {MAX_ELEMENTS}",
        )
    index = region_index(shape, spans)
    return from_table(columns(block, index)), evaluate(block, int(index[0]))


def _flat_range(shape: Sequence[int], spans: Spans) -> tuple[int, int, int]:
    """The region as ``(begin, count, 1)`` of the flat index, or with a 0 where it has holes."""
    begin = count = 0
    whole = True  # so far every dim is a single index
    for extent, (start, stop) in zip(shape, spans, strict=True):
        if not whole and stop - start != extent:
            return 0, 0, 0
        begin = begin * extent + start
        count = (stop - start) if whole else count * extent
        whole = whole and stop - start == 1
    return begin, count, 1


def permute_shard(fused: Iters, shape: Sequence[int], order: Sequence[int]) -> Iters:
    """The iter list with the dims of `shape` in the order `order`.

    Raises:
        NoIters: no list computes it.
        SearchError: undecided, over 2**24 elements that do not group by `shape`.
    """
    runs = list(_runs(shape, order))
    merged = {run: prod(shape[dim] for dim in run) for run in runs}
    blocks = split_blocks(fused, [merged[run] for run in sorted(runs)])
    if blocks is not None:
        placed = dict(zip(sorted(runs), blocks, strict=True))
        return tuple(item for run in runs for item in placed[run])
    if prod(shape) > MAX_ELEMENTS:
        raise SearchError(
            f"permutation {tuple(order)} of shape {tuple(shape)}",
            f"{prod(shape)} elements that the shape does not group",
            f"at most {MAX_ELEMENTS}",
        )
    index = np.arange(prod(shape), dtype=np.int64).reshape(shape).transpose(order).reshape(-1)
    return from_table(columns(fused, index))


def _runs(shape: Sequence[int], order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The dims in their new order, cut where neighbours were none before; unit dims left out."""
    real = [dim for dim, extent in enumerate(shape) if extent > 1]
    place = {dim: i for i, dim in enumerate(real)}
    run: list[int] = []
    for dim in (dim for dim in order if shape[dim] > 1):
        if run and place[dim] != place[run[-1]] + 1:
            yield tuple(run)
            run = []
        run.append(dim)
    yield tuple(run)
