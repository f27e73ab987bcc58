"""Every tiling of small arrays is one layout, with the map that XLA's note defines.

The note's definition is written down as loops over tiles and indices, and knows nothing of layouts.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from axe_eq.errors import LayoutError
from axe_eq.layout import Layout, same_map
from axe_eq.layout.notation import read, write

COMBINE = -1
ENTRIES = (1, 2, 3, 4, COMBINE)
Tile = tuple[int, ...]
TILES: list[Tile] = [(n,) for n in ENTRIES[:-1]]
TILES += [(a, b) for a in ENTRIES for b in ENTRIES[:-1]]
TRIPLES: list[Tile] = [(a, b, c) for a in ENTRIES for b in ENTRIES for c in ENTRIES[:-1]]
WHOLE = 5  # one case of the family in so many with --full
SAMPLED = 223  # and one of those in so many without
ASKED = 11  # one case in so many is asked everything, and boxes in boxes: all, or every fourth


class Case(NamedTuple):
    """An array: extents, dimensions major to minor, and tiles."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    tiles: tuple[Tile, ...]

    def text(self) -> str:
        shown = ("*".join(map(str, tile)).replace("*", ",") for tile in self.tiles)
        tiles = "".join(f"({tile.replace('-1', '*')})" for tile in shown)
        order = ",".join(map(str, reversed(self.order)))
        return f"f32[{','.join(map(str, self.shape))}]{{{order}:T{tiles}}}"


def offsets(case: Case) -> tuple[list[int], int]:
    """Every element's place in memory by the note, and the number of places."""
    found: list[int] = []
    memory = 1
    for element in itertools.product(*map(range, case.shape)):
        bounds = [case.shape[dim] for dim in case.order]
        index = [element[dim] for dim in case.order]
        for tile in case.tiles:
            while len(bounds) < len(tile):
                bounds.insert(0, 1)
                index.insert(0, 0)
            first = len(bounds) - len(tile)
            sizes = list(tile)
            while COMBINE in sizes:  # one asterisk at a time, as the note does it
                star = sizes.index(COMBINE)
                at = first + star
                index[at : at + 2] = [index[at] * bounds[at + 1] + index[at + 1]]
                bounds[at : at + 2] = [bounds[at] * bounds[at + 1]]
                del sizes[star]
            head, last = bounds[:first], bounds[first:]
            place = index[first:]
            quotients = [e // t for e, t in zip(place, sizes, strict=True)]
            remainders = [e % t for e, t in zip(place, sizes, strict=True)]
            counts = [(d + t - 1) // t for d, t in zip(last, sizes, strict=True)]
            bounds = head + counts + sizes
            index = index[:first] + quotients + remainders
        linear = 0
        for digit, bound in zip(index, bounds, strict=True):
            linear = linear * bound + digit
        found.append(linear)
        memory = prod(bounds)
    return found, memory


def family() -> Iterator[Case]:
    """Shapes up to 6 x 6 x 3; up to three tiles with extents 1 to 4 and asterisks."""
    shape: tuple[int, ...]
    order: tuple[int, ...]
    for n in range(1, 7):
        for levels in (1, 2, 3):
            for tiles in itertools.product(TILES, repeat=levels):
                yield Case((n,), (0,), tiles)
    for shape in itertools.product(range(1, 7), range(1, 7)):
        for order in itertools.permutations(range(2)):
            two = itertools.product(TILES, repeat=2)
            three = itertools.product(TILES, TRIPLES, TILES)
            for tiles in itertools.chain(two, itertools.islice(three, sum(shape), None, 31)):
                yield Case(shape, order, tiles)
    for shape in itertools.product(range(1, 7), range(1, 7), range(1, 4)):
        for order in itertools.permutations(range(3)):
            two = itertools.product(TRIPLES, (*TILES, *TRIPLES))
            for tiles in itertools.islice(two, sum(shape) + order[0], None, 211):
                yield Case(shape, order, tiles)


def test_the_note_s_own_numbers() -> None:
    assert offsets(Case((3, 5), (0, 1), ((2, 2),)))[0][2 * 5 + 3] == 17
    combined = Case((2, 7, 8, 11, 10), (0, 1, 2, 3, 4), ((COMBINE, COMBINE, 2, COMBINE, 3),))
    assert offsets(combined) == offsets(Case((112, 110), (0, 1), ((2, 3),)))


def test_every_tiling_is_one_layout(full: bool) -> None:
    met: Counter[str] = Counter()
    forms: dict[tuple[int, ...], tuple[str, Layout]] = {}
    last: dict[int, tuple[Layout, list[int]]] = {}
    for number, case in enumerate(family()):
        if number % (WHOLE if full else WHOLE * SAMPLED):
            continue
        text = case.text()
        layout, (places, memory) = read("xla", text), offsets(case)
        met[_kind(layout)] += 1
        assert layout.table("m").tolist() == places, text
        assert layout.size == len(places)
        assert layout.footprint.get("m", 1) == memory
        asked = met["read"] % ASKED == 0
        if asked or (layout.inner and (not full or met["read"] % 4 == 0)):
            _ask(case, layout, places, met)
            other, table = last.get(layout.size, (layout, places))
            wrong = next((x for x, place in enumerate(places) if table[x] != place), None)
            found = same_map(layout, other)
            assert (None if found is None else found.x) == wrong, (text, str(other))
            last[layout.size] = layout, places
            form = layout.canonical()
            assert form.table("m").tolist() == places, text
            known = forms.setdefault(tuple(places), (text, form))
            assert known[1] == form, (text, known[0])
            met["a map met before"] += known[0] != text
        met["read"] += 1
    print(f"\nxla tilings: {met['read']} read, 0 refused")
    for name, count in sorted(met.items()):
        print(f"  {count:6} {name}")
    assert met["boxes in boxes"] * 50 > met["read"]
    assert met["digits reordered between boxes"] * 200 > met["read"]


def _kind(layout: Layout) -> str:
    if any(stage.order for stage in layout.inner):
        return "digits reordered between boxes"
    if layout.inner:
        return "boxes in boxes"
    return "a list" if layout.box is None else "one box"


def _ask(case: Case, layout: Layout, places: Sequence[int], met: Counter[str]) -> None:
    """Everything else that is asked of a layout, against the places."""
    text = case.text()
    assert Layout.parse(str(layout)) == layout, text
    assert layout.span("m") == max(places) - min(places) + 1
    assert layout.aliasing().injective, text
    assert layout(len(places) - 1) == {((("m", places[-1]),) if places[-1] else ())}
    if layout.inner:
        _cut(case, layout, places, met)
    for form in (layout, layout.canonical()):
        again = read("xla", write("xla", form, shape=case.shape), shape=case.shape)
        assert again.table("m").tolist() == list(places), (text, str(form))


def _cut(case: Case, layout: Layout, places: Sequence[int], met: Counter[str]) -> None:
    """The first half of every dimension, and the dimensions turned round."""
    table, shape = np.array(places).reshape(case.shape), case.shape
    half = [(0, -(-extent // 2)) for extent in shape]
    turned = tuple(reversed(range(len(shape))))
    for wanted, operation in (
        (table[tuple(slice(*span) for span in half)], partial(layout.slice, shape, half)),
        (table.T, partial(layout.permute, shape, turned)),
    ):
        try:
            found = operation()
        except LayoutError:
            met["no boxes with 64 digits"] += 1
            continue
        assert found.table("m").tolist() == wanted.reshape(-1).tolist(), case
