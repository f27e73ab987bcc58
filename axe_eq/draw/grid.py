"""A grid of cells with labels: the one shape of all pictures of layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from axe_eq.draw.colour import style

CHAR, LINE, PAD, GAP = 6.65, 13, 4, 7  # pixels: a character, a line, beside the text, at a break
LEAST, ROOM = 20, 480  # pixels: the smallest cell with text; what a few cells grow to
MOST_SIDE = 34  # pixels: of a cell that grew
MARGIN = 8  # pixels: of paper around a picture that stands alone
BLANK = 11  # pixels: a cell without text
WIDEST, BETWEEN = 1100, 28  # pixels: a row of grids in a figure, and the space between two


ABSENT = "absent"


class Cell(NamedTuple):
    """One cell.

    Args:
        lines: its text, from top to bottom.
        tone: the class of its colour, ``h0`` .., ``r0`` .., ``plain``, ``hole``; or `ABSENT`: the
            cell is not drawn.
        marks: outlines on it: ``differs``, ``first``, ``clash``, ``window``.
        title: shown when the pointer rests on it.
        keys: what it stands for; cells of all grids on a page with a common key light up together.
    """

    lines: tuple[str, ...] = ()
    tone: str = "plain"
    marks: tuple[str, ...] = ()
    title: str = ""
    keys: tuple[int, ...] = ()


class Frame(NamedTuple):
    """An outline around rows and columns of a grid, counted from its first ones."""

    rows: range
    columns: range
    mark: str


class Rule(NamedTuple):
    """Lines across a grid at every `pitch` rows, or columns, from its first one.

    Args:
        across: between rows; else between columns.
        pitch: in cells, and parts of them.
        mark: its class: ``fine`` or ``bold``.
    """

    across: bool
    pitch: float
    mark: str


@dataclass(frozen=True)
class Grid:
    """Rows of cells, all of one length.

    Attributes:
        cells: the rows.
        rows, columns: their labels.
        row_breaks, column_breaks: where a gap goes in front of a row or column.
        name: what the grid shows, for readers that see no picture.
        corner: what rows and columns are, in the corner between the labels.
        text: the order of the lines in a cell, where they do not say it; else "".
        frames: outlines around parts.
        legend: tones and marks with what they mean, as pairs.
        rules: lines across a grid without breaks.
    """

    cells: Sequence[Sequence[Cell]]
    rows: Sequence[str]
    columns: Sequence[str]
    row_breaks: frozenset[int] = frozenset()
    column_breaks: frozenset[int] = frozenset()
    name: str = ""
    corner: str = ""
    text: str = ""
    frames: tuple[Frame, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    rules: tuple[Rule, ...] = ()


class _Place(NamedTuple):
    """Where cells lie, in pixels."""

    lefts: list[int]
    tops: list[int]
    width: int
    height: int


def grid_svg(grid: Grid, *, styled: bool = True) -> str:
    """The grid as one SVG element.

    Args:
        grid: what is drawn.
        styled: with its own style sheet, so that it stands alone; a page brings the sheet once.
    """
    wide, high, drawn = _drawn(grid, styled)
    return _svg(wide, high, grid.name, drawn, styled)


def figure_svg(parts: Sequence[tuple[str, Grid]], lines: Sequence[str] = ()) -> str:
    """Several grids with captions as one SVG that stands alone.

    Args:
        parts: (caption, grid), from left to right, in rows of at most `WIDEST` pixels.
        lines: text below.
    """
    x = y = wide = row = 0
    bodies = []
    for caption, grid in parts:
        width, high, drawn = _drawn(grid, True)
        width = max(width, round(len(caption) * CHAR) + 4)
        if x and x + width > WIDEST:
            x, y, row = 0, y + row + BETWEEN, 0
        head = f'<text x="{x + 2}" y="{y + LINE}">{escape(caption)}</text>' if caption else ""
        top = y + (LINE + 8 if caption else 0)
        bodies.append(f'{head}<g transform="translate({x},{top})">{drawn}</g>')
        x += width + BETWEEN
        wide, row = max(wide, x - BETWEEN), max(row, top + high - y)
    for number, line in enumerate(lines):
        at = y + row + 10 + (number + 1) * (LINE + 3)
        bodies.append(f'<text x="2" y="{at}">{escape(line)}</text>')
        wide = max(wide, round(len(line) * CHAR) + 4)
    high = y + row + (16 + len(lines) * (LINE + 3) if lines else 0)
    return _svg(wide, high, "; ".join(caption for caption, _ in parts), "".join(bodies), True)


def _svg(wide: int, high: int, name: str, drawn: str, styled: bool) -> str:
    sheet, paper, edge = "", "", 0
    if styled:  # on paper of its own: what holds the picture may be light where this is dark
        edge = MARGIN
        wide, high = wide + 2 * edge, high + 2 * edge
        sheet = f"<style>{style()}</style>"
        paper = f'<rect class="paper" x="{-edge}" y="{-edge}" width="{wide}" height="{high}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="axe" width="{wide}" height="{high}" '
        f'viewBox="{-edge} {-edge} {wide} {high}" role="img" aria-label="{escape(name)}">'
        f"{sheet}{_HATCH}{paper}{drawn}</svg>"
    )


def _drawn(grid: Grid, alone: bool) -> tuple[int, int, str]:
    """Width, height and content of a grid."""
    place = _placed(grid)
    wide = (place.lefts[-1] if place.lefts else 0) + place.width + 2
    high = (place.tops[-1] if place.tops else 0) + place.height + 2
    if grid.columns:  # the last label may be wider than its column
        wide += max(0, round(len(grid.columns[-1]) * CHAR - place.width) // 2)
    over = "".join(_rule(rule, place) for rule in grid.rules)
    over += "".join(_frame(frame, place) for frame in grid.frames)
    return wide, high, _labels(grid, place) + _cells(grid, place, alone) + over


def _rule(rule: Rule, place: _Place) -> str:
    left, top = place.lefts[0], place.tops[0]
    right, bottom = place.lefts[-1] + place.width, place.tops[-1] + place.height
    step = rule.pitch * (place.height if rule.across else place.width)
    start, end = (top, bottom) if rule.across else (left, right)
    lines = []
    for number in range(1, int((end - start - 1) // step) + 1):
        at = start + number * step
        lines.append(f"M{left} {at:g}H{right}" if rule.across else f"M{at:g} {top}V{bottom}")
    return f'<path class="mark {rule.mark}" d="{"".join(lines)}"/>' if lines else ""


def grid_width(grid: Grid) -> int:
    """The width of a grid that is drawn, in pixels."""
    return _drawn(grid, False)[0]


def _frame(frame: Frame, place: _Place) -> str:
    left, top = place.lefts[frame.columns[0]], place.tops[frame.rows[0]]
    right = place.lefts[frame.columns[-1]] + place.width
    bottom = place.tops[frame.rows[-1]] + place.height
    return (
        f'<rect class="mark {frame.mark}" x="{left}" y="{top}" width="{right - left}" '
        f'height="{bottom - top}"/>'
    )


_HATCH = (
    '<defs><pattern id="axe-hole" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path class="hatch" d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5"/></pattern></defs>'
)


def _placed(grid: Grid) -> _Place:
    cells = [cell for row in grid.cells for cell in row]
    chars = max((len(line) for cell in cells for line in cell.lines), default=0)
    lines = max((len(cell.lines) for cell in cells), default=0)
    side = max(LEAST, min(MOST_SIDE, ROOM // max(len(grid.columns), len(grid.rows), 1)))
    width = max(side, round(chars * CHAR + 2 * PAD)) if chars else BLANK
    height = max(side, lines * LINE + PAD + 2) if lines else BLANK
    left = round(max((len(label) for label in (*grid.rows, grid.corner)), default=0) * CHAR) + 8
    top = LINE + 5 if any(grid.columns) or grid.corner else 2
    return _Place(
        _starts(len(grid.columns), left, width, grid.column_breaks),
        _starts(len(grid.rows), top, height, grid.row_breaks),
        width,
        height,
    )


def _starts(count: int, start: int, step: int, breaks: frozenset[int]) -> list[int]:
    found = []
    for number in range(count):
        start += GAP if number and number in breaks else 0
        found.append(start)
        start += step
    return found


def _labels(grid: Grid, place: _Place) -> str:
    drawn = []
    if grid.corner:
        drawn.append(f'<text class="soft" x="2" y="{LINE - 1}">{escape(grid.corner)}</text>')
    # Only as many column labels as there is room for.
    longest = max((len(label) for label in grid.columns), default=0)
    step = max(1, -(-round(longest * CHAR + 4) // place.width))
    for number, (x, label) in enumerate(zip(place.lefts, grid.columns, strict=True)):
        if label and number % step == 0:
            middle = x + place.width / 2
            drawn.append(f'<text class="soft m" x="{middle:g}" y="{LINE - 1}">{escape(label)}')
            drawn.append("</text>")
    every = max(1, -(-LINE // place.height))
    for number, (y, label) in enumerate(zip(place.tops, grid.rows, strict=True)):
        if label and number % every == 0:
            right, base = place.lefts[0] - 5, y + place.height / 2 + 4
            drawn.append(f'<text class="soft e" x="{right}" y="{base:g}">{escape(label)}</text>')
    return "".join(drawn)


def _cells(grid: Grid, place: _Place, alone: bool) -> str:
    drawn, marks = [], []
    for row, y in zip(grid.cells, place.tops, strict=True):
        for cell, x in zip(row, place.lefts, strict=True):
            if cell.tone != ABSENT:
                drawn.append(_cell(cell, x, y, place, alone))
                marks += [_mark(mark, x, y, place) for mark in cell.marks]
    return "".join(drawn + marks)  # marks above all cells: a neighbour would cover half a line


def _cell(cell: Cell, x: int, y: int, place: _Place, alone: bool) -> str:
    """A cell; its title is an element where the picture stands alone.

    On a page, whose script shows titles, it is an attribute: thousands of elements cost seconds.
    """
    keys = f' data-x="{" ".join(map(str, cell.keys))}"' if cell.keys else ""
    title, end = "", "/>"
    if cell.title and alone:
        end = f"><title>{escape(cell.title)}</title></rect>"
    elif cell.title:
        title = f' data-t="{escape(cell.title)}"'
    bad = " bad" if {"differs", "first"} & set(cell.marks) else ""
    first = y + (place.height - len(cell.lines) * LINE) / 2 + LINE - 3
    texts = "".join(
        f'<text class="m{bad}" x="{x + place.width / 2:g}" y="{first + n * LINE:g}">'
        f"{escape(line)}</text>"
        for n, line in enumerate(cell.lines)
        if line
    )
    return (
        f'<rect class="cell {cell.tone}"{keys}{title} x="{x}" y="{y}" width="{place.width}" '
        f'height="{place.height}"{end}{texts}'
    )


def _mark(mark: str, x: int, y: int, place: _Place) -> str:
    return (
        f'<rect class="mark {mark}" x="{x + 1}" y="{y + 1}" width="{place.width - 2}" '
        f'height="{place.height - 2}" rx="1"/>'
    )


def grid_text(grid: Grid) -> str:
    """The grid for a terminal: one line per row, lines of a cell joined by ``/``.

    A cell that differs carries ``*``, the first one ``>``, a place with several elements ``!``; a
    place that holds nothing is a dot.
    """
    shown = [[_shown(cell) for cell in row] for row in grid.cells]
    labels = [grid.corner, *grid.rows]
    left = max(map(len, labels), default=0)
    widths = [
        max([len(label), *(len(row[n]) for row in shown)]) for n, label in enumerate(grid.columns)
    ]
    lines = [_row(grid.corner.ljust(left), grid.columns, widths, grid.column_breaks)]
    for number, (label, row) in enumerate(zip(grid.rows, shown, strict=True)):
        if number and number in grid.row_breaks:
            lines.append("")
        lines.append(_row(label.rjust(left), row, widths, grid.column_breaks))
    return "\n".join(line.rstrip() for line in lines)


def _shown(cell: Cell) -> str:
    sign = ">" if "first" in cell.marks else "*" if "differs" in cell.marks else ""
    sign += "!" if "clash" in cell.marks else ""
    return sign + ("/".join(cell.lines) or ("·" if cell.tone == "hole" else ""))


def _row(label: str, cells: Sequence[str], widths: Sequence[int], breaks: frozenset[int]) -> str:
    text = label + " "
    for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        text += " | " if number and number in breaks else " "
        text += cell.rjust(width)
    return text
