"""The pictures of docs: ``python -m examples.pictures docs/pictures``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import axe_eq as axe
from axe_eq.draw.grid import Grid, figure_svg
from axe_eq.draw.page import alone
from axe_eq.layout.picture.single import Look, parts_of
from axe_eq.mesh.timeline import timeline_svg
from axe_eq.program.types import DTYPES
from axe_eq.schedule.drawing import tracks_svg
from axe_eq.schedule.timeline import Event
from axe_eq_backends.nki.sim import simulate

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
    yield from of_layouts()
    yield from of_trainium()
    yield from of_meshes()


def of_layouts() -> Iterator[tuple[str, str]]:
    """Those of docs/layouts.md."""
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


def of_trainium() -> Iterator[tuple[str, str]]:
    """Those of docs/trainium.md: its product in SBUF, and on the engines."""
    chunks, before, after = "S[(2,4,6):(6@F,1@P,1@F)]", "S[(6,4):(1@P,1@F)]", "S[(6,4):(1@F,1@P)]"
    (kept,) = grids(chunks, "Places", shape=(8, 6))
    (rows,), (turned,) = grids(before, "Places"), grids(after, "Places")
    yield (
        "partitions",
        figure_svg(
            [
                (f"aT of 8 x 6: {chunks}", kept),
                (f"rows of 6 x 4: {before}", rows),
                (f"turned: {after}", turned),
            ]
        ),
    )

    aT, b = (np.ones(shape, DTYPES["bf16"].numpy) for shape in ((256, 256), (256, 1024)))
    exe = axe.compile(
        lambda aT, b: axe.nn.silu(aT.T @ b), "256x256:bf16", "256x1024:bf16", target="trn2"
    )
    ((name, text),) = exe.source.items()
    _, report = simulate(text, name, aT, b, target="trn2")
    items, lanes = report.timeline.items, ("dma 0", "tensor", "scalar", "vector")
    bars = [
        Event(s.start * 1e-9, s.stop * 1e-9, items[s.item].name, s.lane)
        for s in report.timeline.spans
        if s.lane in lanes
    ]
    kinds = {e.step: "move" if e.track == "dma 0" else "kernel" for e in bars}
    yield "engines", alone(tracks_svg(lanes, bars, kinds), "schedule.css")


def of_meshes() -> Iterator[tuple[str, str]]:
    """Those of docs/meshes.md: a redistribution, and blocks beside exchanges."""
    mesh = axe.Mesh({"x": 2, "y": 4})
    drawn = []
    for cut in ("P('x','y')", "P('y','x')"):
        of = str(axe.read("jax", cut, shape=(4, 8), mesh=mesh))
        drawn.append((f"{cut}: {of}, {elements(of).text}", elements(of)))
    yield "redistribution", figure_svg(drawn)

    mesh, shapes = axe.Mesh({"x": 2}), {(8192, 8192): "P(None,'x')", (8192, 4096): "P('x',None)"}
    x, w = (
        axe.Spec(shape, "f16", layout=axe.read("jax", cut, shape=shape, mesh=mesh))
        for shape, cut in shapes.items()
    )
    rows = axe.read("jax", "P('x',None)", shape=(8192, 4096), mesh=mesh)
    exe = axe.compile(lambda x, w: x @ w, x, w, target="h200", mesh=mesh, outputs=[rows])
    yield "blocks", alone(timeline_svg(exe.plan), "schedule.css")


def main(folder: str) -> None:
    """Write every picture."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, svg in pictures():
        Path(folder, f"{name}.svg").write_text(f"{svg}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
