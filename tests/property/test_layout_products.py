"""Tile, direct sum and recovering their factors against enumeration, as in test_layout_algebra."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import LayoutError
from axe_eq.layout import direct_sum, direct_sum_left, direct_sum_right, tile, tile_of
from tests.property.layout_model import (
    Table,
    Vector,
    attempt,
    combined,
    levels_of,
    lists_for,
    product_of_lists,
    refusal,
    spans,
    table_of,
    vectors,
)

Start = Callable[..., Any]  # the fixture `campaign`
Pair = tuple[Any, tuple[int, ...], Any, tuple[int, ...]]


def pair(maker: Any) -> Pair:
    rank = maker.random.choice((1, 1, 2, 2, 3))
    a, b = maker.parts(most=8, copies=4), maker.parts(most=8, copies=4)
    return a, maker.shape(a.size(), rank), b, maker.shape(b.size(), rank)


def interleaved(
    a: Table, shape_a: Sequence[int], b: Table, shape_b: Sequence[int], weights: Any
) -> Table:
    domain = [extent for both in zip(shape_a, shape_b, strict=True) for extent in both]
    table = []
    for index in itertools.product(*map(range, domain)):
        x = int(np.ravel_multi_index(index[0::2], shape_a)) if shape_a else 0
        y = int(np.ravel_multi_index(index[1::2], shape_b)) if shape_b else 0
        table.append(combined(a[x], weights, b[y]))
    return table


@pytest.mark.parametrize("scaled", [True, False], ids=["tile", "direct_sum"])
def test_tile_and_direct_sum(campaign: Start, scaled: bool) -> None:
    run = campaign("tile" if scaled else "direct sum")
    operation = tile if scaled else direct_sum
    for maker in run.cases():
        a, shape_a, b, shape_b = pair(maker)
        run.saw(*(a.classes() | b.classes()))
        tables = a.table(), b.table()
        try:
            found = operation(a.layout(), shape_a, b.layout(), shape_b)
        except LayoutError as error:
            if "coordinates up to" in str(error):
                run.saw("too large for 63 bits")
                wide = (spans(tables[0])[axis] * spans(tables[1])[axis] for axis in ("m", "p"))
                assert max(wide) > 2**60
                continue
            run.saw("does not group")
            parts = ((a, shape_a), (b, shape_b))
            assert not all(attempt(part.layout().group, shape) for part, shape in parts)
            continue
        weights = spans(tables[1]) if scaled else {}
        assert table_of(found) == interleaved(tables[0], shape_a, tables[1], shape_b, weights)


@pytest.mark.parametrize("kind", ["tile_of", "direct_sum_left", "direct_sum_right"])
def test_recovering_a_factor_is_complete(campaign: Start, kind: str) -> None:
    run = campaign(kind)
    build = tile if kind == "tile_of" else direct_sum
    recovery = {"tile_of": tile_of, "direct_sum_left": direct_sum_left}.get(kind, direct_sum_right)
    flipped = kind == "direct_sum_right"
    for maker in run.cases():
        c, ratio, known, inner = pair(maker)
        operands = ((c.layout(), ratio), (known.layout(), inner))
        (left, shape_left), (right, shape_right) = operands[:: -1 if flipped else 1]
        whole_shape = tuple(x * y for x, y in zip(ratio, inner, strict=True))
        made = attempt(build, left, shape_left, right, shape_right)
        exists = made is not None and maker.random.random() < 0.6
        whole = maker.parts(most=prod(whole_shape), copies=4)
        if exists and made is not None:
            spelled = known._replace(shard=made.shard, replica=made.replica, offset=made.offset)
            whole = maker.respelled(spelled)
        else:
            whole = maker.resized(whole, prod(whole_shape))
        run.saw(*(whole.classes() | known.classes()))
        message = refusal(recovery, whole.layout(), whole_shape, known.layout(), inner)
        if message:
            run.saw("refused")
            if " in dim " in message:
                run.saw("index named")
                assert _breaks(whole.table(), known.table(), ratio, inner, message, flipped)
            assert not exists
            assert not _has_factor(whole, ratio, known, inner, kind)
            continue
        run.saw("recovered")
        found = recovery(whole.layout(), whole_shape, known.layout(), inner)
        factors = ((found, ratio), (known.layout(), inner))
        (left, shape_left), (right, shape_right) = factors[:: -1 if flipped else 1]
        again = build(left, shape_left, right, shape_right)
        assert table_of(again) == whole.table()


def _breaks(
    whole: Table, part: Table, ratio: Sequence[int], inner: Sequence[int], message: str, flip: bool
) -> bool:
    """Whether only the part's index moves up to the index named, and there not as the part does."""
    pairs = zip(inner, ratio, strict=True) if flip else zip(ratio, inner, strict=True)
    domain = [extent for both in pairs for extent in both]
    index = int(message.split("index ")[1].split()[0])
    digits = [int(digit) for digit in np.unravel_index(index, domain)]
    outer, own = (digits[1::2], digits[::2]) if flip else (digits[::2], digits[1::2])
    y = int(np.ravel_multi_index(own, inner))
    steps = [
        np.subtract(vectors(table[at])[0], vectors(table[0])[0]).tolist()
        for table, at in ((whole, index), (part, y))
    ]
    return not any(outer) and steps[0] != steps[1]


def _has_factor(
    whole: Any, ratio: Sequence[int], known: Any, inner: Sequence[int], kind: str
) -> bool:
    """Whether some layout is the missing factor, from the tables alone."""
    table, part = whole.table(), known.table()
    grid = tuple(spans(part)[axis] if kind == "tile_of" else 1 for axis in ("m", "p"))
    if attempt(known.layout().group, inner) is None:
        return False
    missing: dict[int, set[Vector]] = {}
    shapes = (inner, ratio) if kind == "direct_sum_right" else (ratio, inner)
    domain = [extent for both in zip(*shapes, strict=True) for extent in both]
    for position, index in enumerate(itertools.product(*map(range, domain))):
        halves = (
            (index[1::2], index[0::2]) if kind == "direct_sum_right" else (index[0::2], index[1::2])
        )
        x = int(np.ravel_multi_index(halves[0], ratio)) if ratio else 0
        y = int(np.ravel_multi_index(halves[1], inner)) if inner else 0
        step = np.subtract(vectors(table[position])[0], vectors(part[y])[0])
        missing.setdefault(x, set()).add(tuple(step.tolist()))
    if any(len(points) > 1 for points in missing.values()):
        return False
    base = [next(iter(missing[x])) for x in range(prod(ratio))]
    if any(value % size for point in base for value, size in zip(point, grid, strict=True)):
        return False
    cuts = set(levels_of(ratio))
    if not any(cuts <= set(levels_of(extents)) for extents in lists_for(base)):
        return False
    spread = [tuple(np.subtract(v, vectors(table[0])[0]).tolist()) for v in vectors(table[0])]
    start = {tuple(np.subtract(v, vectors(part[0])[0]).tolist()) for v in vectors(part[0])}
    return product_of_lists(spread, grid, start)  # type: ignore[arg-type]
