"""Shapes, regions and permutations as texts: what terms hold and laws compute with.

A shape is its extents with commas, a region ``begin:end`` per dim, a permutation its dims, spans
``axis:span`` per axis without spans of 1. Extents and bounds are polynomials in their one text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from axe_eq.errors import LayoutError
from axe_eq.layout.symbolic.polynomial import ONE, Polynomial, parse

Extents = tuple[Polynomial, ...]
Bounds = tuple[tuple[Polynomial, Polynomial], ...]

MAX_RANK = 64


def shape_text(extents: Iterable[Polynomial | int]) -> str:
    """The text of a shape."""
    return ",".join(str(extent) for extent in extents)


@lru_cache(maxsize=4096)
def read_shape(text: str) -> Extents:
    """The extents of a shape's text.

    Raises:
        LayoutError: not the text of a shape.
    """
    parts = _parts(text)
    extents = tuple(parse(part) for part in parts)
    if shape_text(extents) != text:
        raise LayoutError(f"shape {text!r}", "is not in its normal form", shape_text(extents))
    return extents


def region_text(bounds: Iterable[tuple[Polynomial | int, Polynomial | int]]) -> str:
    """The text of a region."""
    return ",".join(f"{begin}:{end}" for begin, end in bounds)


@lru_cache(maxsize=4096)
def read_region(text: str) -> Bounds:
    """The bounds of a region's text.

    Raises:
        LayoutError: not the text of a region.
    """
    bounds = []
    for part in _parts(text):
        begin, colon, end = part.partition(":")
        if not colon:
            raise LayoutError(f"region {text!r}", f"has {part!r}", "begin:end per dim")
        bounds.append((parse(begin), parse(end)))
    if region_text(bounds) != text:
        raise LayoutError(f"region {text!r}", "is not in its normal form", region_text(bounds))
    return tuple(bounds)


def perm_text(perm: Iterable[int]) -> str:
    """The text of a permutation."""
    return ",".join(map(str, perm))


@lru_cache(maxsize=4096)
def read_perm(text: str) -> tuple[int, ...]:
    """The dims of a permutation's text.

    Raises:
        LayoutError: not a permutation.
    """
    parts = _parts(text)
    dims = [str(dim) for dim in range(len(parts))]
    if sorted(parts, key=lambda part: (len(part), part)) != dims:
        raise LayoutError(f"permutation {text!r}", "is not one", f"each of 0..{len(parts) - 1}")
    return tuple(map(int, parts))


def spans_text(spans: Mapping[str, Polynomial | int]) -> str:
    """The text of spans."""
    return ",".join(f"{axis}:{spans[axis]}" for axis in sorted(spans) if spans[axis] != 1)


@lru_cache(maxsize=4096)
def _read_spans(text: str) -> tuple[tuple[str, Polynomial], ...]:
    spans: dict[str, Polynomial] = {}
    for part in _parts(text):
        axis, colon, span = part.partition(":")
        if not colon or not axis.isidentifier() or axis in spans:
            raise LayoutError(f"spans {text!r}", f"has {part!r}", "axis:span, each axis once")
        spans[axis] = parse(span)
    if spans_text(spans) != text:
        raise LayoutError(f"spans {text!r}", "is not in its normal form", spans_text(spans))
    return tuple(spans.items())


def read_spans(text: str) -> dict[str, Polynomial]:
    """Axis -> span of a text.

    Raises:
        LayoutError: not the text of spans.
    """
    return dict(_read_spans(text))


def span_of(spans: Mapping[str, Polynomial], axis: str) -> Polynomial:
    """The span on an axis."""
    return spans.get(axis, ONE)


def integers(values: Sequence[Polynomial]) -> tuple[int, ...] | None:
    """The values as integers; None where one has names."""
    found = tuple(value.constant for value in values)
    return None if None in found else found  # type: ignore[return-value]


def numbers_in(text: str) -> Iterable[Polynomial]:
    """Every number of the text of a shape, a region, a permutation or spans."""
    for part in _parts(text):
        for number in part.split(":"):
            yield parse(number)


def _parts(text: str) -> list[str]:
    """What commas outside brackets separate."""
    parts = text.split(",") if text else []
    if len(parts) > MAX_RANK:
        raise LayoutError("shape", f"{len(parts)} dims", f"at most {MAX_RANK}")
    return parts
