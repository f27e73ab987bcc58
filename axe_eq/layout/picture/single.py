"""One layout: its grids, its page, its text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from axe_eq.draw import page as html
from axe_eq.draw.grid import Grid, figure_svg, grid_svg, grid_text, grid_width
from axe_eq.layout.picture.banks import accesses, banks, without_swizzle
from axe_eq.layout.picture.describe import Description, aliasing_text, describe
from axe_eq.layout.picture.matrix import MOST, Matrix, Window, images, matrix_of
from axe_eq.layout.picture.panels import (
    colour_axis,
    digit_pitches,
    elements,
    memory,
    overview,
    places_of,
    scale_of,
    shown_axes,
)
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh

NARROW = 540  # pixels: of grids that stand side by side
FEW = 32  # rows and columns of a picture that is no page


class Look(NamedTuple):
    """What of a layout is drawn, and how.

    Args:
        shape: extents of the tensor; by default those of the box, or a cut between two iters.
        colour: the axis that colours the cells.
        at: the linear index of an element that the window shows, of a layout too large to draw.
        itemsize: bytes of one element, for the view of memory banks.
        mesh: the devices, for notations of shardings.
        meant: the layout, where what is drawn is it with its elements in the order of other dims.
        typed: the text that was given, where it is not the layout's own.
    """

    shape: tuple[int, ...] | None = None
    colour: str | None = None
    at: int | None = None
    itemsize: int | None = None
    mesh: Mesh | None = None
    meant: Layout | None = None
    typed: str = ""

    def title(self, drawn: Layout) -> list[str]:
        """What was typed, its layout, and what of it is drawn in another order, in lines."""
        first = [self.typed] if self.typed else []
        if self.meant is None:
            return [*first, str(drawn)]
        dims = "x".join(map(str, self.shape or ()))
        return [*first, str(self.meant), f"Drawn with its modes as dims in order, {dims}: {drawn}"]


USUAL = Look()


class Part(NamedTuple):
    """A grid with its heading, a note, and a note on its colours."""

    title: str
    note: str
    grid: Grid
    colours: str = ""


def parts_of(
    layout: Layout, look: Look = USUAL, most: int = MOST, *, named: bool = True
) -> list[Part]:
    """The pictures of a layout: from far away if it is large, its elements, its places, its banks.

    Args:
        layout: any layout.
        look: how it is drawn.
        most: rows and columns that are drawn one by one.
        named: cells spell out the names of several axes where there is room.

    Raises:
        LayoutError: a shape of another size.
        ArgumentError: banks of a layout that has none.
    """
    matrix = matrix_of(layout, look.shape)
    window, axes = matrix.window(look.at or 0, most), shown_axes(layout)
    axis = look.colour or colour_axis(axes)
    found = images(layout, matrix.index(window).reshape(-1))
    grid = elements(matrix, window, found, axes, scale_of(axis, found.least(axis)), named=named)
    note = "Every element with its place" + (f", {grid.text}." if grid.text else ".")
    parts = [Part("Elements", note + told(matrix, window), grid, f"The colour is {axis}.")]
    if window != matrix.whole():
        far = overview(layout, matrix, axis, window)
        note = "All elements in blocks, coloured by the first of each; the window is outlined."
        rows, columns = digit_pitches(layout, matrix)
        if rows or columns:
            said = [_every("rows", rows), _every("columns", columns)]
            note += f" Tiles begin {' and '.join(filter(None, said))}"
            note += "; lines where they can be told apart." if far.rules else "."
        parts.insert(0, Part("From far", note, far))
    places = places_of(layout, most)
    held = memory(layout, matrix, places)
    if held is not None:
        note = "Every place with its element."
        hatched = "Hatched places hold nothing."
        parts.append(Part("Places", note + told(places.matrix, places.drawn), held, hatched))
    if look.itemsize is not None:
        parts += _bank_parts(layout, matrix, look.itemsize)
    return parts


def _every(what: str, pitches: Sequence[int]) -> str:
    """Where digits move on, in words."""
    return f"every {' and '.join(map(str, pitches))} {what}" if pitches else ""


def _bank_parts(layout: Layout, matrix: Matrix, itemsize: int) -> list[Part]:
    """Memory as banks, and where there is a swizzle also as they would be without it."""
    note = "Memory in rows of 128 bytes, by bank."
    colours = (
        "The colour is the element's 16-byte piece of its row: a column of the tensor is read "
        "without conflicts where its colour is in all banks."
    )
    parts = [Part("Banks", note, banks(layout, matrix, itemsize), colours)]
    if layout.swizzle:
        plain = banks(without_swizzle(layout), matrix, itemsize)
        parts.append(Part("Banks without the swizzle", note, plain))
    return parts


def told(matrix: Matrix, window: Window) -> str:
    """Which part of a matrix is drawn, where it is not all of it."""
    if window == matrix.whole():
        return ""
    return (
        f" Drawn are rows {window.rows[0]} to {window.rows[-1]} of {matrix.n_rows}, columns "
        f"{window.columns[0]} to {window.columns[-1]} of {matrix.n_columns}."
    )


def panel(grid: Grid) -> str:
    """A grid in a frame of a page, with its legend."""
    legend = html.legend(grid.legend) if grid.legend else ""
    return html.panel(legend + grid_svg(grid, styled=False))


def layout_svg(layout: Layout, look: Look = USUAL) -> str:
    """The pictures of a layout in one SVG."""
    parts = parts_of(layout, look, FEW)
    read = (f"{part.title}, {part.grid.text}".removesuffix(", ") for part in parts)
    return figure_svg(list(zip(read, (p.grid for p in parts), strict=True)), look.title(layout))


def layout_text(layout: Layout, look: Look = USUAL) -> str:
    """The pictures of a layout for a terminal."""
    lines = look.title(layout)
    for part in parts_of(layout, look, FEW, named=False):
        if part.title != "From far":  # colours alone
            lines += ["", f"{part.title}. {part.note}", grid_text(part.grid)]
            if any("clash" in cell.marks for row in part.grid.cells for cell in row):
                lines.append("! a place that several elements share")
    if look.itemsize is not None:
        found = accesses(layout, matrix_of(layout, look.shape), look.itemsize)
        lines += ["", "turns  access", *(f"{turns:5}  {name}" for name, turns in found)]
    return "\n".join(lines)


def layout_html(layout: Layout, look: Look = USUAL) -> str:
    """One self-contained page of a layout."""
    title, *drawn = look.title(layout)
    shape = look.shape if look.meant is None else None
    known = describe(look.meant or layout, shape=shape, mesh=look.mesh)
    said = [html.code(line) if line == str(known.layout) else escape(line) for line in drawn]
    body = [*(f"<p>{line}</p>" for line in said), _facts(known)]
    body += _sections(parts_of(layout, look))
    if look.itemsize is not None:
        body.append(_accesses(layout, look.itemsize, look.shape))
    body.append(_notations(known))
    return html.page(title, body, formal=True, linked=True)


def _sections(parts: Sequence[Part]) -> list[str]:
    """The parts under headings; two narrow ones that follow each other stand side by side."""
    drawn, left = [], list(parts)
    while left:
        part = left.pop(0)
        if left and max(grid_width(part.grid), grid_width(left[0].grid)) <= NARROW:
            other = left.pop(0)
            drawn.append(f'<div class="pair">{_section(part)}{_section(other)}</div>')
        else:
            drawn.append(_section(part))
    return drawn


def _section(part: Part) -> str:
    return html.section(part.title, f"{part.note} {part.colours}".rstrip(), panel(part.grid))


def _facts(known: Description) -> str:
    pairs = [("elements", str(known.layout.size))]
    if known.copies != 1:
        pairs.append(("copies of each", str(known.copies or "too many")))
    for axis, extent in known.axes.items():
        pairs.append((f"span of {axis}", str(extent.span)))
        if extent.footprint != extent.span:
            pairs.append((f"footprint of {axis}", str(extent.footprint)))
    if known.holes:
        pairs.append((f"of {known.places} places hold nothing", str(known.holes)))
    normal = f"<p>canonical {html.code(str(known.canonical))}</p>"
    return f"{normal}<p>aliasing {escape(aliasing_text(known.aliasing))}</p>{html.facts(pairs)}"


def _notations(known: Description) -> str:
    texts, refused = [], []
    for name, text in known.notations.items():
        if isinstance(text, str):
            shown = escape(text).replace("\n", "<br>")
            texts.append([html.code(name), f"<code>{shown}</code>"])
        else:
            why = f"cannot: {text.wrong}" + (f"; expected {text.expected}" if text.expected else "")
            refused.append([html.code(name), f'<span class="soft">{escape(why)}</span>'])
    table = html.table(("notation", "text"), [*texts, *refused])
    return html.section("In every notation", "", table)


def _accesses(layout: Layout, itemsize: int, shape: Sequence[int] | None) -> str:
    matrix = matrix_of(layout, shape)
    columns = [("turns", accesses(layout, matrix, itemsize))]
    if layout.swizzle:
        plain = accesses(without_swizzle(layout), matrix, itemsize)
        columns.append(("turns without the swizzle", plain))
    rows = [
        [escape(many[0].name), *(str(access.turns) for access in many)]
        for many in zip(*(found for _, found in columns), strict=False)
    ]
    note = "An access takes as many turns as the busiest bank has words to give; 1 is the best."
    head = ("access", *(name for name, _ in columns))
    return html.section("Conflicts", note, html.table(head, rows, range(1, len(head))))
