"""A cone as formulas: what its kernel's step would say, without names of buffers."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.extract.read.forest import LOAD, Choice, Forest
from axe_eq.schedule.graph import TileNode
from axe_eq.schedule.summary import Formula


def formula(
    forest: Forest,
    roots: Sequence[int],
    order: Sequence[int],
    picks: dict[int, Choice],
    stored: Sequence[str],
) -> Formula:
    """The nodes of a cone; not which part of its value each is, what they compute is the same.

    Args:
        forest: where the tile classes are.
        roots: tiles that are stored.
        order: all tiles, users before operands.
        picks: alternative taken of each.
        stored: layouts of the roots.
    """
    tiles = list(reversed(order))
    number = {tile: n for n, tile in enumerate(tiles)}
    loads = [picks[t] for t in tiles if picks[t].kind == LOAD]
    seen = list(dict.fromkeys((c.source, c.layout) for c in loads))
    nodes = []
    for tile in tiles:
        choice = picks[tile]
        access = seen.index((choice.source, choice.layout)) if choice.kind == LOAD else -1
        operands = tuple(number[c] for c in choice.children)
        type_ = str(forest.tiles[tile].type)
        nodes.append(TileNode(choice.kind, choice.text, choice.cell, "", type_, operands, access))
    layouts = tuple(layout for _, layout in seen)
    return Formula(tuple(nodes), tuple(number[r] for r in roots), layouts, tuple(stored))
