"""The pictures of docs/layouts.md: ``python -m examples.pictures docs/pictures``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import axe_eq as axe
from axe_eq.draw.grid import Grid, figure_svg
from axe_eq.layout.picture.single import Look, parts_of

FRAGMENT = "S[(8,2,4,2):(4@lane,1@warp,1@lane,1@reg)]"


def grids(text: str, *titles: str, **options: object) -> Iterator[Grid]:
    """Chosen parts of the picture of a layout."""
    look = Look(**options)  # type: ignore[arg-type]
    found = {part.title: part.grid for part in parts_of(axe.Layout.parse(text), look)}
    yield from (found[title] for title in titles)


def elements(text: str, *shape: int) -> Grid:
    """The elements of a layout with their places."""
    (grid,) = grids(text, "Elements", shape=shape or None)
    return grid


def pictures() -> Iterator[tuple[str, str]]:
    """File name and SVG of every picture."""
    row, column = "S[(4,8):(8,1)]", "S[(4,8):(1,4)]"
    yield (
        "orders",
        figure_svg([(f"rows: {row}", elements(row)), (f"columns: {column}", elements(column))]),
    )

    tiled = "S[(2,2,4,2):(16,2,4,1)]"
    (places,) = grids(tiled, "Places", shape=(4, 8))
    yield (
        "tiles",
        figure_svg([(f"2 x 2 tiles: {tiled}", elements(tiled, 4, 8)), ("its memory", places)]),
    )

    (places,) = grids(FRAGMENT, "Places", shape=(8, 16))
    grid_of_threads = elements(FRAGMENT, 8, 16)
    yield "threads", figure_svg([(f"{FRAGMENT}, {grid_of_threads.text}", grid_of_threads)])
    yield "registers", figure_svg([(f"places of {FRAGMENT}", places)])

    copied = "S[(4,4):(1@gpuid,1@m)] + R[(2):(4@gpuid)] + 8@gpuid"
    (places,) = grids(copied, "Places", shape=(4, 4))
    drawn = elements(copied, 4, 4)
    yield "copies", figure_svg([(f"{copied}, {drawn.text}", drawn), ("its places", places)])

    mesh = axe.Mesh({"x": 2, "y": 2})
    sharded = axe.read("jax", "P('x', 'y')", shape=(5, 6), mesh=mesh)
    (places,) = grids(str(sharded), "Places")
    drawn = elements(str(sharded))
    caption = f"P('x', 'y') of 5 x 6: {sharded}, {drawn.text}"
    yield "shards", figure_svg([(caption, drawn), ("its devices", places)])

    padded = str(axe.read("xla", "f32[3,5]{1,0:T(2,2)}"))
    (places,) = grids(padded, "Places")
    yield (
        "padding",
        figure_svg([("f32[3,5]{1,0:T(2,2)}", elements(padded)), (f"its memory: {padded}", places)]),
    )

    swizzled = "sw(3,2,3)@m . S[(8,32):(32,1)]"
    with_it, without = grids(
        swizzled, "Banks", "Banks without the swizzle", shape=(8, 32), itemsize=4
    )
    yield "swizzle", figure_svg([("S[(8,32):(32,1)]", without), (swizzled, with_it)])

    grid, tile = axe.Layout.parse("S[(2,3):(3,1)]"), axe.Layout.parse("S[(2,2):(1,2)]")
    whole = axe.tile(grid, (2, 3), tile, (2, 2))
    yield (
        "tile",
        figure_svg(
            [
                (f"A = {grid}", elements(str(grid))),
                (f"B = {tile}", elements(str(tile))),
                (f"tile(A, B) = {whole}", elements(str(whole), 4, 6)),
            ]
        ),
    )

    yield "difference", axe.draw("S[(2,2,4):(100,10,1)]", "S[(4,4):(10,1)]", shape=(4, 4)).svg()


def main(folder: str) -> None:
    """Write every picture."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, svg in pictures():
        Path(folder, f"{name}.svg").write_text(f"{svg}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
