"""Grids of a layout: its elements with their places, its places with their elements, far away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.draw.colour import HUES, hue, ramp
from axe_eq.draw.grid import ABSENT, BLANK, Cell, Frame, Grid, Rule
from axe_eq.errors import LayoutError
from axe_eq.layout.picture.matrix import (
    MOST,
    WIDE,
    Images,
    Matrix,
    Window,
    blocks,
    images,
    split_evenly,
)
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout, make

CLOSEST, WIDELY = 4.0, 24.0  # pixels between lines that are drawn, and that are drawn bold
NAMED = 16  # most columns whose cells spell out the names of their axes
ONE_LINE = 9  # most characters of a cell that names its axes in one line
MOST_PLACES = 2**20  # elements times copies that are sorted by place
LOCAL = (DEFAULT_AXIS, "reg")  # axes inside one device or thread: seldom what tells cells apart


def varying(layout: Layout) -> tuple[str, ...]:
    """Axes with more than one value, in the order of the slowest iter on each."""
    order = [axis for _, _, axis in (*layout.shard, *layout.replica)]
    known = dict.fromkeys([*order, *layout.axes])
    return tuple(axis for axis in known if layout.span(axis) > 1)


def shown_axes(*layouts: Layout) -> tuple[str, ...]:
    """Axes that the cells of these layouts have to tell: those that vary or differ."""
    names = dict.fromkeys(axis for layout in layouts for axis in varying(layout))
    for axis in dict.fromkeys(axis for layout in layouts for axis in layout.axes):
        if any(layout.range(axis) != (0, 0) for layout in layouts):
            names.setdefault(axis)
    return tuple(names) or (DEFAULT_AXIS,)


def colour_axis(axes: Sequence[str]) -> str:
    """The axis that colours cells where nobody says which."""
    return next((axis for axis in axes if axis not in LOCAL), axes[0])


class Scale(NamedTuple):
    """Colours of the values on one axis: hues for few, a ramp for many."""

    axis: str
    kinds: tuple[int, ...]
    low: int
    high: int

    def tone(self, value: int) -> str:
        """The tone of a value."""
        if value in self.kinds:
            return hue(self.kinds.index(value))
        return ramp(value, self.low, self.high)

    def legend(self) -> tuple[tuple[str, str], ...]:
        """Tones with the values that they stand for."""
        if self.kinds:
            named = ((hue(n), f"{self.axis} {value}") for n, value in enumerate(self.kinds))
            return tuple(named)
        ends = ((self.low, "least"), (self.high, "greatest"))
        return tuple((self.tone(value), f"{self.axis} {value}, the {end}") for value, end in ends)


def scale_of(axis: str, values: NDArray[np.int64]) -> Scale:
    """Colours that tell these values apart."""
    distinct = np.unique(values)
    kinds = tuple(int(v) for v in distinct) if len(distinct) <= HUES else ()
    return Scale(axis, kinds, int(distinct[0]), int(distinct[-1]))


@dataclass(frozen=True)
class Marked:
    """What is marked on a grid of elements.

    Attributes:
        differs: whether an element differs, over a flat window.
        first: the linear index of the first one that does.
    """

    differs: NDArray[np.bool_]
    first: int | None = None


def elements(
    matrix: Matrix,
    window: Window,
    found: Images,
    axes: Sequence[str],
    scale: Scale,
    marked: Marked | None = None,
    *,
    named: bool = True,
) -> Grid:
    """The elements of a window, each with its places.

    Args:
        matrix: how elements form rows and columns.
        window: which ones are drawn.
        found: their places, in the order of the window.
        axes: which axes a cell tells.
        scale: the colours.
        marked: elements that are outlined.
        named: cells spell out the names of several axes where there is room.
    """
    index = matrix.index(window).reshape(-1)
    named = named and len(axes) > 1 and len(window.columns) <= NAMED
    short = abbreviated(axes) if named else dict.fromkeys(axes, "")
    some_differ = marked is not None and bool(marked.differs.any())
    cells = []
    for number, x in enumerate(index.tolist()):
        lines = _in_one([short[axis] + found.text(axis, number) for axis in axes], named)
        marks: tuple[str, ...] = ()
        if marked is not None and marked.differs[number]:
            marks = ("first",) if x == marked.first else ("differs",)
        same = some_differ and not marks  # what differs has the colours
        tone = "plain" if same else scale.tone(found.least_of(scale.axis, number))
        title = f"{matrix.element(x)} (element {x}) at {found.coordinates(number)}"
        cells.append(Cell(tuple(lines), tone, marks, title, (x,)))
    row_breaks, column_breaks = matrix.breaks(window)
    width = len(window.columns)
    return Grid(
        [cells[start : start + width] for start in range(0, len(cells), width)],
        [matrix.row_label(row) for row in window.rows],
        [matrix.column_label(column) for column in window.columns],
        row_breaks,
        column_breaks,
        name="elements with their places",
        text=_order_text(axes, short),
    )


def abbreviated(axes: Sequence[str]) -> dict[str, str]:
    """A short name for every axis, in capitals: as many letters as tell it from the others."""
    found = {}
    for axis in axes:
        others = [other for other in axes if other != axis]
        length = next(
            (
                n
                for n in range(1, len(axis))
                if not any(o.lower().startswith(axis[:n].lower()) for o in others)
            ),
            len(axis),
        )
        found[axis] = axis[:length].upper()
    return found if len(set(found.values())) == len(found) else {axis: axis for axis in axes}


def _in_one(parts: Sequence[str], named: bool) -> list[str]:
    """The coordinates of a cell in one line where they are short, else one per line."""
    line = " ".join(parts)
    return [line] if named and len(line) <= ONE_LINE else list(parts)


def _order_text(axes: Sequence[str], short: Mapping[str, str]) -> str:
    """How to read a cell; "" where there is one axis."""
    if len(axes) == 1:
        return ""
    if any(short.values()):
        return ", ".join(f"{name} for {axis}" for axis, name in short.items())
    return f"in the order {'/'.join(axes)}"


def overview(
    layout: Layout,
    matrix: Matrix,
    axis: str,
    window: Window | None = None,
    differs: NDArray[np.bool_] | None = None,
) -> Grid:
    """All of a large matrix as blocks; each has the colour of its first element.

    Args:
        layout: any layout.
        matrix: how its elements form rows and columns.
        axis: the axis that colours.
        window: the part that is drawn in detail beside it, outlined.
        differs: blocks that are marked, ``[block row, block column]``.
    """
    rows, columns = blocks(matrix.n_rows), blocks(matrix.n_columns)
    index = np.array(
        [row.start * matrix.n_columns + column.start for row in rows for column in columns]
    )
    found = images(layout, index)
    scale = scale_of(axis, found.least(axis))
    cells = []
    for number, row in enumerate(rows):
        line = []
        for place, column in enumerate(columns):
            at = number * len(columns) + place
            marks = ("differs",) if differs is not None and differs[number, place] else ()
            title = (
                f"rows {row[0]} to {row[-1]}, columns {column[0]} to {column[-1]}; "
                f"{matrix.element(int(index[at]))} at {found.coordinates(at)}"
            )
            tone = scale.tone(found.least_of(axis, at))
            line.append(Cell((), tone, marks, title))
        cells.append(line)
    frames: tuple[Frame, ...] = ()
    if window is not None:
        seen = _touched(rows, window.rows), _touched(columns, window.columns)
        frames = (Frame(*seen, "window"),)
    return Grid(
        cells,
        [str(row[0]) for row in rows],
        [str(column[0]) for column in columns],
        name="overview",
        frames=frames,
        legend=scale.legend(),
        rules=tuple(_rules(layout, matrix, len(rows[0]), len(columns[0]))),
    )


def digit_pitches(layout: Layout, matrix: Matrix) -> tuple[list[int], list[int]]:
    """Rows, and columns, after which a digit of the layout moves on: tiles and blocks, ascending.

    Of the fastest dim of the rows and of the columns; nothing where digits lie across dims, and of
    boxes in boxes, whose digits need not be aligned.
    """
    dims = matrix.dims if layout.box is None else layout.padded
    if dims is None or len(dims) != len(matrix.dims) or layout.inner:
        return [], []
    try:
        cuts = make(layout.shard, (), ()).group(dims).blocks
    except LayoutError:
        return [], []
    sides: list[list[int]] = []
    for dim, extent in ((matrix.split - 1, matrix.n_rows), (len(dims) - 1, matrix.n_columns)):
        pitches, inner = [], 1
        for length, _, _ in reversed(cuts[dim] if dim >= 0 else ()):
            inner *= length
            if 1 < inner < extent:
                pitches.append(inner)
        sides.append(pitches)
    return sides[0], sides[1]


def _rules(layout: Layout, matrix: Matrix, high: int, wide: int) -> Iterator[Rule]:
    """Lines where digits move on, as far as they can be told apart; bold where they are few."""
    pitches = digit_pitches(layout, matrix)
    for across, found, size in ((True, pitches[0], high), (False, pitches[1], wide)):
        shown = [pitch for pitch in found if pitch / size * BLANK >= CLOSEST]
        for pitch in shown:
            yield Rule(across, pitch / size, "bold" if pitch / size * BLANK >= WIDELY else "fine")


def _touched(parts: Sequence[range], seen: range) -> range:
    """Which blocks have something of a range."""
    size = len(parts[0])
    return range(seen[0] // size, seen[-1] // size + 1)


# ---- places -------------------------------------------------------------------------------------


class Places(NamedTuple):
    """The places of a layout as a matrix: a dim per axis, or one axis wrapped into rows.

    Attributes:
        axes: the axes, slow to fast; those inside one device or thread last.
        lows: the least coordinate on each.
        matrix: their spans as rows and columns.
        drawn: the part that is drawn, from the least coordinates on.
        n_places: places that there are; of a wrapped axis the last row may have fewer.
    """

    axes: tuple[str, ...]
    lows: tuple[int, ...]
    matrix: Matrix
    drawn: Window
    n_places: int

    def coordinates(self, place: int) -> list[int]:
        """The coordinates of a place, one per axis."""
        if len(self.axes) == 1:
            return [self.lows[0] + place]
        digits = np.unravel_index(place, self.matrix.dims)
        return [low + int(digit) for low, digit in zip(self.lows, digits, strict=True)]

    def name(self, place: int) -> str:
        """A place as text."""
        pairs = zip(self.coordinates(place), self.axes, strict=True)
        return " ".join(f"{value}@{axis}" for value, axis in pairs)


def places_of(layout: Layout, most: int = MOST) -> Places:
    """How the places of a layout form rows and columns."""
    whole = make(layout.shard, layout.replica, layout.offsets, layout.swizzle)  # padding too
    axes = sorted(varying(layout), key=lambda axis: axis in LOCAL) or [DEFAULT_AXIS]
    lows, spans = [whole.range(a)[0] for a in axes], [whole.span(a) for a in axes]
    if len(axes) > 1:
        matrix = split_evenly(spans)
    else:
        wide = _pitch(layout, axes[0], spans[0], most)
        matrix = Matrix((-(-spans[0] // wide), wide), 1)
    return Places(tuple(axes), tuple(lows), matrix, matrix.window(0, most), prod(spans))


def _pitch(layout: Layout, axis: str, span: int, most: int) -> int:
    """The largest stride that fits a row, so that rows follow the layout's own."""
    strides = [abs(s) for e, s, name in layout.shard if name == axis and e > 1]
    return max((s for s in strides if 4 <= s <= most), default=min(span, WIDE))


def memory(layout: Layout, matrix: Matrix, places: Places) -> Grid | None:
    """The places of a layout, each with the elements that lie there; None where they are too many.

    A place that holds nothing is a hole, one that holds several elements is marked.
    """
    copies = prod(extent for extent, _, _ in layout.replica)
    if layout.size * copies > MOST_PLACES:
        return None
    holds = _holders(layout, places)
    cells = []
    for row in places.drawn.rows:
        line = []
        for column in places.drawn.columns:
            place = row * places.matrix.n_columns + column
            if place >= places.n_places:
                line.append(Cell((), ABSENT))
            else:
                held = holds.get(place, ())
                line.append(_place_cell(matrix, held, layout.size, places.name(place)))
        cells.append(line)
    rows, columns = _place_labels(places)
    split = places.matrix.split
    wrapped = len(places.axes) == 1
    corner = places.axes if wrapped else (*places.axes[:split], "\\", *places.axes[split:])
    row_breaks, column_breaks = places.matrix.breaks(places.drawn)
    return Grid(
        cells,
        rows,
        columns,
        frozenset() if wrapped else row_breaks,
        column_breaks,
        name=f"places on {' '.join(places.axes)} with their elements",
        corner=" ".join(corner),
    )


def _place_labels(places: Places) -> tuple[list[str], list[str]]:
    matrix, drawn = places.matrix, places.drawn
    if len(places.axes) == 1:
        starts = [str(places.lows[0] + row * matrix.n_columns) for row in drawn.rows]
        return starts, [str(column) for column in drawn.columns]
    rows = [places.coordinates(row * matrix.n_columns)[: matrix.split] for row in drawn.rows]
    columns = [places.coordinates(column)[matrix.split :] for column in drawn.columns]
    return [_commas(row) for row in rows], [_commas(column) for column in columns]


def _commas(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def _holders(layout: Layout, places: Places) -> dict[int, list[int]]:
    """The elements of every place that is drawn, ascending."""
    found = images(layout, np.arange(layout.size, dtype=np.int64))
    at = np.zeros((layout.size, 1), dtype=np.int64)
    spans = places.matrix.dims if len(places.axes) > 1 else (1,)
    for axis, low, span in zip(places.axes, places.lows, spans, strict=True):
        step = found.values[axis] - low if axis in found.values else np.zeros_like(at[:, :1])
        at = (at[:, :, None] * span + step[:, None, :]).reshape(layout.size, -1)
    rows, columns = np.divmod(at, places.matrix.n_columns)
    seen = (rows < places.drawn.rows.stop) & (columns < places.drawn.columns.stop)
    holds: dict[int, list[int]] = {}
    for x, place in zip(np.nonzero(seen)[0].tolist(), at[seen].tolist(), strict=True):
        holds.setdefault(place, []).append(x)
    return holds


def _place_cell(matrix: Matrix, held: Sequence[int], size: int, name: str) -> Cell:
    if not held:
        return Cell((), "hole", (), f"{name} holds nothing")
    lines = [matrix.element(x) for x in held[:2]]
    if len(held) > 2:
        lines[1] = f"+{len(held) - 1}"
    told = "; ".join(matrix.element(x) for x in held[:8]) + ("; …" if len(held) > 8 else "")
    marks = ("clash",) if len(held) > 1 else ()
    return Cell(
        tuple(lines), ramp(held[0], 0, size - 1), marks, f"{name} holds {told}", tuple(held[:8])
    )
