"""Sides of products: which loop letters are rows, columns and batches of the kernel.

Boxes cut any dim of a result, kernels have tiles of rows and of columns. Rows are what one operand
of a product alone reaches, columns what the other does, all else are batches, of which a tile has
one index. `contract` decides the same of index dims.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TypeVar

import numpy as np

from axe_eq.schedule.box import TILE_LETTERS, UNIT_LETTERS, WHOLE
from axe_eq.schedule.summary import Columns, Summary

Dim = TypeVar("Dim", bound=Hashable)


def sides(
    products: Sequence[tuple[set[Dim], set[Dim]]], position: Callable[[Dim], int]
) -> tuple[set[Dim], set[Dim], set[Dim]]:
    """(rows, columns, batches) of products, of the dims that any of them reaches.

    A result's fastest dim is best a column, as tiles of rows are stored row by row; so is the only
    side of a product with a vector. What is on one side here and on the other there is a batch.

    Args:
        products: what each operand of every product reaches.
        position: of a dim in memory, larger ones are faster.
    """
    rows, cols, outer = set[Dim](), set[Dim](), set[Dim]()
    # Products of matrices first: they say which side vectors are on.
    for left, right in sorted(products, key=lambda ab: ab[0] <= ab[1] or ab[1] <= ab[0]):
        outer |= left & right
        a, b = left - right, right - left
        agreement = len(a & rows) + len(b & cols) - len(a & cols) - len(b & rows)
        fastest = [max(map(position, x), default=-1) for x in (a, b)]
        if agreement < 0 or (not rows | cols and a and (not b or fastest[0] > fastest[1])):
            a, b = b, a
        rows, cols = rows | a, cols | b
    outer |= rows & cols
    return rows - outer, cols - outer, outer


@dataclass(frozen=True)
class Matrices:
    """A cone of products whose tiles are p rows and q columns.

    Attributes:
        summary: the cone, with the letter p for rows and q for columns where these are cut, and
            letters of one index per block for batches.
        names: the cone's letters, and what they are here.
        whole: elements of rows and of columns that no letter cuts.
        turned: whether the columns of tiles are the rows of the cone.
    """

    summary: Summary
    names: Mapping[str, str]
    whole: tuple[int, int]
    turned: bool = False

    @property
    def there(self) -> tuple[int, int]:
        """Rows and columns that tiles cover."""
        s, sides = self.summary, zip(TILE_LETTERS, self.whole, strict=True)
        rows, cols = (s.extent(x) if s.has(x) else max(1, n) for x, n in sides)
        return rows, cols

    def named(self, columns: Columns) -> Columns:
        """A table of this cone's candidates with the letters of the cone as it was."""
        one = np.ones(len(columns))
        block = {old: columns.block.get(new, one) for old, new in self.names.items()}
        return replace(columns, block=columns.block | block)


@lru_cache(maxsize=4096)
def as_matrices(summary: Summary, turned: bool = False) -> Matrices:
    """A cone of products by the sides of its kernel.

    Args:
        summary: the cone.
        turned: rows for columns, and columns for rows.
    """
    kept = tuple(w.kept for w in summary.products)
    names, whole = _names(kept, summary.order, summary.extents)
    if turned:
        other = dict(zip(TILE_LETTERS, reversed(TILE_LETTERS), strict=True))
        names, whole = {old: other.get(new, new) for old, new in names.items()}, whole[::-1]
    return Matrices(_renamed(summary, names), names, whole, turned)


@lru_cache(maxsize=1024)
def _names(
    kept: Sequence[Sequence[tuple[str, int, str]]],
    order: Sequence[tuple[str, int]],
    extents: Sequence[tuple[str, int]],
) -> tuple[Mapping[str, str], tuple[int, int]]:
    """`names` and `whole` of a cone whose products keep such dims, see `Summary`."""
    products = [
        tuple({(x, e) for x, e, reach in w if side in reach} for side in "ab") for w in kept
    ]
    place = {dim: n for n, dim in enumerate(order)}
    rows, cols, _ = sides([(a, b) for a, b in products], lambda d: place.get(d, len(place)))
    names: dict[str, str] = {}
    for new, kind in zip(TILE_LETTERS, (rows, cols), strict=True):
        cut = [(e, x) for x, e in kind if x in TILE_LETTERS]
        if cut:
            names[max(cut)[1]] = new
    free = [x for x in (*TILE_LETTERS, *UNIT_LETTERS) if x not in names.values()]
    there = {x for x, _ in extents}
    wide = {x for x, e in extents if e > 1}
    for letter in (x for x, _ in extents if x in TILE_LETTERS and x not in names):
        # A letter of one index is a tile's where there is none: tiles hang over its end.
        fits = [x for x in free if x in UNIT_LETTERS and x not in there]
        if letter not in wide:
            fits = [*(x for x in free if x in TILE_LETTERS), *fits]
        if fits:
            names[letter] = fits[0]
            free.remove(fits[0])
    whole = tuple(prod(e for x, e in kind if x == WHOLE) for kind in (rows, cols))
    return names, (whole[0], whole[1])


def _renamed(summary: Summary, names: Mapping[str, str]) -> Summary:
    if all(old == new for old, new in names.items()):
        return summary

    def of(letters: str) -> str:
        return "".join(sorted(names.get(x, x) for x in letters))

    loads, stores = (
        tuple(
            a._replace(
                letters=of(a.letters),
                fast=names.get(a.fast, a.fast),
                strides=tuple((names.get(x, x), e, s) for x, e, s in a.strides),
            )
            for a in accesses
        )
        for accesses in (summary.loads, summary.stores)
    )
    products, vector, staged = (
        tuple(w._replace(letters=of(w.letters)) for w in works)
        for works in (summary.products, summary.vector, summary.staged)
    )
    return replace(
        summary, loads=loads, stores=stores, products=products, vector=vector, staged=staged,
        extents=tuple(sorted((names.get(x, x), e) for x, e in summary.extents)),
        resident=tuple((star, of(letters)) for star, letters in summary.resident),
    )  # fmt: skip
