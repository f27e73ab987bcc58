"""Loads of which kernels read only what integers say: their share of a cone's traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from axe_eq.extract.read.forest import GATHER, Choice, Forest, TileClass
from axe_eq.program.gathers import looks
from axe_eq.schedule.summary import Access


def looked_loads(
    forest: Forest, order: Sequence[int], picks: Mapping[int, Choice]
) -> dict[int, list[TileClass]]:
    """Loads of which only what integers say is read, each with the tiles that are gathered so."""
    found: dict[int, list[TileClass]] = {}
    read = {tile: _read_so(forest, picks[tile]) for tile in order if picks[tile].kind == GATHER}
    if not any(read.values()):
        return found
    plainly = set(order[:1])
    for tile in order:  # users before operands
        choice, by = picks[tile], read.get(tile, frozenset())
        for n, child in enumerate(choice.children):
            if n in by:
                found.setdefault(child, []).append(forest.tiles[tile])
            elif choice.reduces or tile not in found:
                plainly.add(child)
            else:
                found.setdefault(child, []).extend(found[tile])
    return {tile: tiles for tile, tiles in found.items() if tile not in plainly}


def _read_so(forest: Forest, choice: Choice) -> frozenset[int]:
    """Operands of a selector that are read where integers say."""
    types = tuple(forest.tiles[c].type for c in choice.children)
    return frozenset(look.operand for look in looks(choice.text, types))


def of_looks(access: Access, gathered: Sequence[TileClass]) -> Access:
    """The access of a load, or of the elements that are gathered from it where those are fewer."""
    n_bytes = float(sum(t.type.size for t in gathered) * access.itemsize)
    if not gathered or n_bytes >= access.n_bytes:
        return access
    most = max(gathered, key=lambda t: t.type.size)
    return access._replace(n_bytes=n_bytes, letters=most.key, star=most.star)
