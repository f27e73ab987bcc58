"""Values as views of cores: dims as digits of numbers.

A value is written as a view of a core: dims of both are lists of digits, each digit in one dim of
the core at most. Reshapes, transposes and copies only change the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count, pairwise
from math import prod
from operator import mul
from typing import Any

from axe_eq.program.ops import join_text
from axe_eq.program.signature import Affine, make, plain
from axe_eq.program.terms import op, sel, type_of
from axe_eq.program.types import value_type
from axe_eq.rule.term import Term

Dims = tuple[tuple[int, ...], ...]


class Apart(Exception):
    """Digits that cannot be written so."""


@dataclass(frozen=True)
class View:
    """A value as a view of a core.

    Attributes:
        core: whose elements the value has.
        inner: per dim of the core its digits, slow to fast; none where its extent is 1.
        outer: per dim of the value; digits that no dim of the core has repeat elements.
        extents: of the digits, each more than 1.
    """

    core: Term
    inner: Dims
    outer: Dims
    extents: Mapping[int, int]

    def size(self, digits: Iterable[int]) -> int:
        """How far digits count."""
        return prod(self.extents[d] for d in digits)


def shape(term: Term) -> tuple[int, ...]:
    """Shape of a well-typed value."""
    return value_type(type_of(term)).shape


def whole(term: Term) -> View:
    """A value as the view of itself."""
    extents = {d: n for d, n in enumerate(shape(term)) if n > 1}
    dims = tuple((d,) if n > 1 else () for d, n in enumerate(shape(term)))
    return View(term, dims, dims, extents)


# -- other dims over the same elements -------------------------------------------------------------


def reshaped(of: View, new: tuple[int, ...]) -> View:
    """A view with other dims over the same elements in row-major order.

    Raises:
        Apart: they cut its digits unevenly.
    """
    digits = [d for dim in of.outer for d in dim]
    of, digits = refined(of, digits, accumulate(reversed(new), mul))
    dims: list[tuple[int, ...]] = []
    at = len(digits)
    for extent in reversed(new):
        begin, size = at, 1
        while size < extent:
            begin -= 1
            size *= of.extents[digits[begin]]
        if size != extent:
            raise Apart
        dims.insert(0, tuple(digits[begin:at]))
        at = begin
    return replace(of, outer=tuple(dims))


def refined(of: View, digits: list[int], ends: Iterable[int]) -> tuple[View, list[int]]:
    """The view with digits cut so that each of these numbers is how far some last ones count."""
    for end in ends:
        size, at = 1, len(digits)
        while size < end and at:
            at -= 1
            size *= of.extents[digits[at]]
        if size == end:
            continue
        fast = end // (size // of.extents[digits[at]])
        if size % end or of.extents[digits[at]] % fast:
            raise Apart
        of, pair = cut(of, digits[at], fast)
        digits = [*digits[:at], *pair, *digits[at + 1 :]]
    return of, digits


def cut(of: View, digit: int, fast: int) -> tuple[View, tuple[int, int]]:
    """The view with a digit as two, the fast one of this extent."""
    new = max(of.extents) + 1
    pair = digit, new
    extents = {**of.extents, digit: of.extents[digit] // fast, new: fast}

    def dims(old: Dims) -> Dims:
        return tuple(tuple(e for d in dim for e in (pair if d == digit else (d,))) for dim in old)

    return View(of.core, dims(of.inner), dims(of.outer), extents), pair


def written(of: View) -> Term:
    """The value of a view: splits of its core, a transposition with copies, merges."""
    of = coalesced(of)
    term, axis = of.core, 0
    order: list[int] = []
    for dim in of.inner:
        if len(dim) > 1:
            factors = tuple(of.extents[d] for d in dim[1:])
            term = sel(join_text("split", axis, (-1, *factors)), term)
        order += dim or (-1,)
        axis += max(len(dim), 1)
    flat = [d for dim in of.outer for d in (dim or (-1,))]
    if order != flat:
        term = op(_moved(order, flat, of.extents), "id", term)
    for axis, dim in enumerate(of.outer):
        if len(dim) > 1:
            term = sel(join_text("merge", axis, len(dim)), term)
    return term


def _moved(order: Sequence[int], flat: Sequence[int], extents: Mapping[int, int]) -> str:
    """The signature that reads dims in this order as those; -1 is a dim of extent 1."""
    place = {d: n for n, d in enumerate(flat) if d >= 0}
    reads = [plain(place[d]) if d >= 0 else Affine(()) for d in order]
    fixed = {n: extents.get(d, 1) for n, d in enumerate(flat)}
    return make([reads], range(len(flat)), fixed=fixed).text


def coalesced(of: View) -> View:
    """Digits that follow each other in both as one."""
    after = [{a: b for dim in dims for a, b in pairwise(dim)}
             for dims in (of.inner, of.outer)]  # fmt: skip
    held = {d for dim in of.inner for d in dim}
    extents = dict(of.extents)
    gone = set()
    for a, b in reversed(list(after[1].items())):
        if after[0].get(a) == b or (a not in held and b not in held):
            gone.add(b)
    for dim in of.outer:
        for a, b in reversed(list(pairwise(dim))):
            if b in gone:
                extents[a] *= extents[b]

    def dims(old: Dims) -> Dims:
        return tuple(tuple(d for d in dim if d not in gone) for dim in old)

    return View(of.core, dims(of.inner), dims(of.outer), extents)


# -- dims that several values have -----------------------------------------------------------------


def common(
    term: Term, dims: Sequence[int], given: Sequence[tuple[View, Mapping[int, int]]]
) -> tuple[dict[int, list[int]], dict[int, int], dict[int, set[int]]]:
    """Dims of a value as digits that all its operands' dims are made of.

    Args:
        term: the value.
        dims: of it.
        given: operands, each with its dim of every such dim that it has.

    Returns:
        The digits of every dim, their extents, and how far the last ones of a dim count.

    Raises:
        Apart: they cut a dim unevenly.
    """
    ends = {d: {1, shape(term)[d]} for d in dims}
    for of, own in given:
        for d in dims:
            if d in own:
                dim = of.outer[own[d]]
                ends[d] |= {of.size(dim[n:]) for n in range(len(dim))}
    return *cut_at(ends), ends


def cut_at(ends: Mapping[int, set[int]]) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Numbers for the digits of dims that are cut so that some count to these ends; their extents.

    Raises:
        Apart: ends that do not divide each other.
    """
    numbers, digits, sizes = count(), dict[int, list[int]](), dict[int, int]()
    for d, own in ends.items():
        marks = sorted(own, reverse=True)
        if any(high % low for high, low in pairwise(marks)):
            raise Apart
        digits[d] = [next(numbers) for _ in marks[1:]]
        sizes |= {n: h // low for n, (h, low) in zip(digits[d], pairwise(marks), strict=True)}
    return digits, sizes


def named(
    of: View, digits: Mapping[int, list[int]], ends: Mapping[int, set[int]], free: int
) -> View:
    """The view with these dims cut at these ends, their digits called so, others from `free`."""
    names: dict[int, int] = {}
    for d in digits:
        of, fine = refined(of, list(of.outer[d]), sorted(ends[d]))
        of = replace(of, outer=(*of.outer[:d], tuple(fine), *of.outer[d + 1 :]))
        names |= dict(zip(fine, digits[d], strict=True))
    numbers = count(free)
    names |= {d: next(numbers) for d in of.extents if d not in names}

    def dims(old: Dims) -> Dims:
        return tuple(tuple(names[d] for d in dim) for dim in old)

    return View(
        of.core, dims(of.inner), dims(of.outer), {names[d]: n for d, n in of.extents.items()}
    )


def runs(inners: Sequence[Dims], wanted: set[int]) -> list[tuple[int, ...]]:
    """Digits in the order in which cores have them, those that all cores have together as one."""
    order = list(dict.fromkeys(d for inner in inners for dim in inner for d in dim if d in wanted))
    after = [{a: b for dim in inner for a, b in pairwise(dim)} for inner in inners]
    held = [{d for dim in inner for d in dim} for inner in inners]
    runs: list[tuple[int, ...]] = []
    for d in order:
        joins = bool(runs) and all(
            steps.get(runs[-1][-1]) == d or not {runs[-1][-1], d} & own
            for steps, own in zip(after, held, strict=True)
        )
        if joins:
            runs[-1] = (*runs[-1], d)
        else:
            runs.append((d,))
    return runs


def in_front(
    of: View, fronts: Sequence[tuple[int, ...]], touched: Sequence[int], digits: Mapping[int, Any]
) -> View:
    """An operand with these digits in front of the dims that are touched."""
    outer = (*fronts, *(of.outer[d] for d in touched))
    known = {d for dim in outer for d in dim}
    return View(of.core, of.inner, outer, {d: n for d, n in of.extents.items() if d in known})
