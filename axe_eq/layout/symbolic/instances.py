"""Values that names and unknown layouts are tried with, the same in every process."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import prod
from typing import Any

from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import unknowns
from axe_eq.layout.symbolic.meaning import Meaning
from axe_eq.layout.symbolic.polynomial import Polynomial, fraction, parse
from axe_eq.layout.symbolic.shapes import numbers_in
from axe_eq.layout.value.iters import Iter
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.swizzle import Swizzle
from axe_eq.rule.term import Term, postorder

_NUMBERS = (1, 2, 3, 2)
_SMALL = 20  # choices with small numbers come first
_MOST = 32
_LARGE = 2**40
_ALL_FACTORS, _SOME_FACTORS = 2**16, 2**10  # up to how large a number, and which of a larger one
_STRIDES = (1, 1, 2, 3, 4, 6, 8, -1, -2, 0, 5)


def layout_of(
    rng: random.Random, elements: int, bound: int | None = None, *, plain: bool = False
) -> Layout:
    """A random layout.

    Args:
        rng: source of decisions.
        elements: its size.
        bound: where given, it lies on axis m with coordinates in [0, bound).
        plain: only iters on axis m.
    """
    extents = _factors(rng, elements)
    if bound is not None:
        return _indices(rng, extents, bound)
    if elements > _LARGE:  # where the coordinates of more iters might not fit
        return Layout([(elements, rng.choice((0, 1, 1, -1)), rng.choice("mn"))])
    if plain:
        return Layout([(extent, rng.choice(_STRIDES[:5]), "m") for extent in extents])
    axes = rng.choice(("m", "mn", "mn", "mmp"))
    stride, shard = 1, []
    for extent in extents:
        step = stride if rng.random() < 0.5 else rng.choice(_STRIDES)
        shard.append((extent, step, rng.choice(axes)))
        stride = abs(step) * extent or 1
    replica: list[Iter] = []
    while rng.random() < 0.3 and prod(e for e, _, _ in replica) < 6:
        replica.append((rng.choice((2, 2, 3)), rng.choice(_STRIDES), rng.choice(axes)))
    offset = {axis: rng.randint(-3, 4) for axis in "mn" if rng.random() < 0.25}
    swizzle = [Swizzle("m", 1, rng.randint(0, 1), rng.choice((1, 2)))] if rng.random() < 0.1 else ()
    return Layout(shard[::-1] if rng.random() < 0.7 else shard, replica, offset, swizzle)


def _factors(rng: random.Random, number: int) -> list[int]:
    factors = []
    while number > 1:
        most = number if number <= _ALL_FACTORS else _SOME_FACTORS
        found = [d for d in range(2, most + 1) if number % d == 0]
        factors.append(rng.choice(found if most == number else [*found, number]))
        number //= factors[-1]
    return factors


def _indices(rng: random.Random, extents: Sequence[int], bound: int) -> Layout:
    room, shard = bound - 1, []
    for extent in extents:
        most = room // (extent - 1)
        stride = rng.choice([s for s in (0, 1, 1, 2, 3, 4, most) if s <= most])
        room -= stride * (extent - 1)
        shard.append((extent, stride, "m"))
    rng.shuffle(shard)
    return Layout(shard, offset={"m": rng.randint(0, room)})


# -- what occurs in terms --------------------------------------------------------------------------


def names_in(terms: Iterable[Term]) -> set[str]:
    """Every name in the numbers of some terms."""
    found: set[str] = set()
    seen: set[Term] = set()
    for term in terms:
        for sub in postorder(term, seen):
            seen.add(sub)
            for number in numbers_of(sub):
                found |= names_of(number)
    return found


def names_of(number: Polynomial) -> set[str]:
    """Every name in a number, those in quotients included."""
    found: set[str] = set()
    for atom in number.atoms:
        parts = fraction(atom) if atom.startswith("(") else ()
        found |= {atom} if not parts else set().union(*map(names_of, parts))
    return found


def numbers_of(term: Term) -> Iterator[Polynomial]:
    """The numbers that stand as texts at the top of a term."""
    for place in TEXTS.get(term.symbol, ()):
        if term.args[place]:
            yield from numbers_in(term.args[place])
    if term.symbol in WEIGHTS:
        parts = term.args[WEIGHTS[term.symbol]].split(",")
        yield from (parse(part.partition(":")[2]) for part in parts if part)


WEIGHTS = {t.Spans: 0, t.ScaleIters: 1, t.ScaleCopies: 1}
"""Symbol -> place of its spans."""

TEXTS: dict[Any, tuple[int, ...]] = {
    t.SymIter: (0, 1), t.SymPrepend: (0, 1), t.SymCopy: (0, 1), t.SymShift: (0,),
    t.AnyLayout: (1, 2), t.Cut: (1,), t.Region: (1,), t.PlaceAt: (1,), t.Group: (1,),
    t.Permute: (1,), t.Slice: (1, 2), t.Tile: (1, 3), t.DirectSum: (1, 3), t.TileOf: (1, 3),
    t.LeftAddend: (1, 3), t.RightAddend: (1, 3), t.ShapeIs: (0,), t.CommonRefinement: (0, 1),
}  # fmt: skip
"""Symbol -> places of arguments that are numbers, shapes or regions."""


def choices(terms: Sequence[Term]) -> Iterator[Meaning]:
    """Choices of numbers and layouts for what occurs in terms, without end; small ones first.

    A name has the same number, and an unknown layout of one size is the same layout, in whatever
    terms they occur.
    """
    names, kinds = names_in(terms), unknowns(terms)
    for seed in count():
        yield _instance(names, kinds, seed)


def _instance(names: Iterable[str], kinds: Mapping[str, tuple[str, str]], seed: int) -> Meaning:
    numbers = {}
    for name in sorted(names):
        rng = _rng(seed, name)
        most = _NUMBERS if seed < _SMALL else range(1, min(4 + seed // _SMALL, _MOST))
        numbers[name] = rng.choice(most)
    layouts = {}
    for name, (elements, bound) in sorted(kinds.items()):
        size = parse(elements).at(numbers)
        top = parse(bound).at(numbers) if bound else None
        rng = _rng(seed, f"{name} {size} {top}")
        layouts[name] = layout_of(rng, size, top, plain=seed % 4 == 0)
    return Meaning(numbers, layouts)


def _rng(seed: int, name: str) -> random.Random:
    return random.Random(zlib.crc32(f"{seed} {name}".encode()))


def meanings(terms: Sequence[Term], number: int = 4) -> list[tuple[Any, ...]]:
    """What terms mean together, for several choices of numbers and layouts.

    Raises:
        LayoutError: a quotient that is no integer for a choice.
        SearchError: too large to enumerate.
    """
    names, kinds = names_in(terms), unknowns(terms)
    seeds = range(number if names or kinds else 1)  # without either all choices are one
    found = []
    for seed in seeds:
        meaning = _instance(names, kinds, seed)
        found.append(tuple(meaning.of(term) for term in terms))
    return found * (number // len(found))
