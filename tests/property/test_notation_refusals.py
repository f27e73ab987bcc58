"""Texts that are refused for lack of a padded box: an exhaustive search finds none either."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from axe_eq.errors import NotationError
from axe_eq.layout import Layout, Mesh
from axe_eq.layout.notation import read, write
from tests.unit.notation.test_shardings import dealt

COMBINE = -1


def parsed(text: str) -> tuple[list[int], list[int], list[list[int]]]:
    """Shape, minor_to_major and tiles."""
    found = re.fullmatch(r"\w+\[([\d,]*)\]\{([\d,]*)(?::T?((?:\([\d,*]*\))*)(?:S\(1\))?)?\}", text)
    assert found, text
    shape, order = ([int(n) for n in part.split(",") if n] for part in found.groups()[:2])
    tiles = re.findall(r"\(([\d,*]*)\)", found[3] or "")
    return shape, order, [[int(n.replace("*", "-1")) for n in t.split(",")] for t in tiles]


def offsets(text: str) -> list[int]:
    """Every element's offset by XLA's formulas: tile by tile, quotients before remainders."""
    shape, order, tiles = parsed(text)
    found = []
    for element in itertools.product(*map(range, shape)):
        dims = [(shape[dim], element[dim]) for dim in reversed(order)]
        for tile in tiles:
            dims = [(1, 0)] * (len(tile) - len(dims)) + dims
            kept, cut = dims[: len(dims) - len(tile)], dims[len(dims) - len(tile) :]
            quotients, remainders = [], []
            extent, index = 1, 0
            for size, (whole, place) in zip(tile, cut, strict=True):
                extent, index = extent * whole, index * whole + place
                if size != COMBINE:
                    quotients.append((-(-extent // size), index // size))
                    remainders.append((size, index % size))
                    extent, index = 1, 0
            dims = [*kept, *quotients, *remainders]
        offset = 0
        for extent, index in dims:
            offset = offset * extent + index
        found.append(offset)
    return found


def factorings(count: int) -> Iterator[tuple[int, ...]]:
    """All ordered factorings without ones."""
    if count == 1:
        yield ()
    for first in range(2, count + 1):
        if count % first == 0:
            yield from ((first, *rest) for rest in factorings(count // first))


def is_mixed_radix(values: Sequence[int]) -> bool:
    """Whether digits times strides give these values, of which padding may leave out the last."""
    if len(values) <= 2:
        return True
    step = values[1] - values[0]
    return any(
        all(v == values[i // extent * extent] + i % extent * step for i, v in enumerate(values))
        and (extent >= len(values) or is_mixed_radix(values[::extent]))
        for extent in range(2, len(values) + 1)
    )


def has_padded_box(table: Sequence[int]) -> bool:
    """Whether a sum over the dims of any box, each of them padded digits, gives this table."""
    for box in factorings(len(table)):
        values = (np.array(table) - table[0]).reshape(box)
        lines = [
            values[tuple(slice(None) if d == dim else 0 for d in range(len(box)))]
            for dim in range(len(box))
        ]
        total = np.zeros(1, dtype=np.int64)
        for line in lines:
            total = np.add.outer(total, line)
        if np.array_equal(total.reshape(box), values) and all(
            is_mixed_radix(line.tolist()) for line in lines
        ):
            return True
    return len(table) == 1


def test_digits_with_gaps_of_any_size_are_tilings(rng: np.random.Generator, full: bool) -> None:
    """No digit inside another one's step is refused, whether it divides that step or not."""
    for _ in range(1000 if full else 50):
        taken, digits = 1, []
        for extent in rng.integers(1, 6, int(rng.integers(1, 5))).tolist():
            stride = taken + int(rng.choice([0, 0, 1, 3, 4]))
            digits.append((extent, stride, "m"))
            taken = extent * stride
        layout = Layout([digits[place] for place in rng.permutation(len(digits))])
        shape = [extent for extent, _, _ in layout.shard]
        text = write("xla", layout, shape=shape)
        assert offsets(text) == layout.table("m").tolist(), (layout, text)


def test_uneven_shards_that_are_refused_have_no_padded_box(
    rng: np.random.Generator, full: bool
) -> None:
    """Device and local index as one number: a sum of digits of both is one of digits of that."""
    refused = 0
    while refused < (300 if full else 30):
        extent = int(rng.integers(2, 40))
        counts, factors = rng.integers(1, 5, 2).tolist(), rng.integers(1, 5, 2).tolist()
        placements = ", ".join(f"_StridedShard(0, {factor})" for factor in factors)
        mesh = Mesh({"a": counts[0], "b": counts[1]})
        try:
            read("dtensor", f"({placements})", shape=(extent,), mesh=mesh)
        except NotationError:
            refused += 1
            steps = [(counts[0], counts[1], factors[0]), (counts[1], 1, factors[1])]
            table = [0] * extent
            for device, values in dealt(extent, steps).items():
                for place, value in enumerate(values):
                    table[value] = 1000 * device + place
            assert not has_padded_box(table), (placements, mesh, extent)
