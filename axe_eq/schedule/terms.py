"""Terms of schedules: placed values, tile values, kernels.

``place(t, L)`` asks for value t materialised in layout L (an axe layout text, canonical); ``tile(t,
b)`` asks for the box b of it inside a kernel. A kernel is the cone of tile values chosen under one
`Kernel` root. Demand laws (pack `tiling`) answer the requests; only extraction chooses among the
answers.

A placed term denotes the contents of memory and no shape: a value and its reshapes are one placed
class. So whatever reads memory says as which type and in which layout it does; otherwise
congruence would make tiles of two shapes equal. `axe_eq.schedule.meaning` evaluates every term.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from axe_eq.layout.value.layout import Layout
from axe_eq.program.terms import ARGS, VALUE
from axe_eq.rule.term import STR, Analysis, Sort, Symbol, Term

PLACED = Sort("Placed")
TILE = Sort("Tile")
TILES = Sort("Tiles")

Placed = Annotated[Any, PLACED]
Tile = Annotated[Any, TILE]
Tiles = Annotated[Any, TILES]
Box = Annotated[Any, STR]
Boxes = Annotated[Any, STR]
LayoutText = Annotated[Any, STR]


def row_major(size: int) -> str:
    """The canonical text of the dense row-major layout of so many elements."""
    return str(Layout([(size, 1, "m")]))


place = Symbol("place", (VALUE, STR), PLACED, demand=True)
tile = Symbol("tile", (VALUE, STR), TILE, demand=True)
tiles = Symbol("tiles", (ARGS, STR), TILES, demand=True)

Buffer = Symbol("Buffer", (STR, STR), PLACED)  # input name, layout it arrives in
peek = Symbol("peek", (STR, TILE, STR), TILE, demand=True)  # view, a whole value, box of the view
Kernel = Symbol("Kernel", (TILE, STR), PLACED)  # root tile, layout it is stored in
Move = Symbol("Move", (PLACED, STR, STR), PLACED)  # source, its layout, layout wanted
Load = Symbol("Load", (PLACED, STR, STR, STR), TILE)  # source, type and layout it has, box
Cell = Symbol("Cell", (STR, STR, STR, TILES), TILE)  # signature, cell, box, operands
Gather = Symbol("Gather", (STR, STR, TILES), TILE)  # selector, box, operands
Scanned = Symbol("Scanned", (STR, STR, TILES), TILE)  # scan, box, operands
TNil = Symbol("TNil", (), TILES)
TCons = Symbol("TCons", (TILE, TILES), TILES)


def _no_arrival(term: Term, known: Any) -> None:
    return None


arrivals = Analysis("arrivals", VALUE, STR, _no_arrival)
"""The layouts an input may arrive in, as one text; stated by the encoder, computed by nothing."""


def layouts_text(layouts: Iterable[str]) -> str:
    """Layout texts as one."""
    return ";".join(layouts)


def layouts_in(text: str) -> tuple[str, ...]:
    """Inverse of `layouts_text`."""
    return tuple(text.split(";"))
