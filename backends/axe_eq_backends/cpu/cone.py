"""One kernel: its tile nodes, evaluated box by box as a device would.

The grid letters are walked block by block; inside a block a reduction whose operands have a
streaming letter that it lacks walks that letter chunk by chunk, merging states of its monoid.
Everything else is evaluated on tiles. Between nodes values keep their accumulation dtype; they are
rounded where they are stored. An exact kernel (`KernelStep.rounds`) keeps the meaning's own order
of every reduction instead, which blocks would change, so it runs as one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from axe_eq.errors import ScheduleError
from axe_eq.program import meaning
from axe_eq.program.ops import State, scan
from axe_eq.program.types import Array
from axe_eq.schedule.box import TILE_LETTERS, UNIT_LETTERS, Range
from axe_eq.schedule.graph import KernelStep
from axe_eq.walk import reached
from axe_eq_backends.cpu.flat import Coverage, View, cut
from axe_eq_backends.cpu.nodes import (
    Cell,
    Gather,
    Loops,
    Node,
    Ranges,
    Scan,
    Tile,
    alike,
    landing,
    read_along,
    transposed,
    window,
    within,
)  # fmt: skip


def sweeps(nodes: Sequence[Node]) -> dict[int, tuple[Cell, ...]]:
    """Per streaming reduction those that its loop can serve too, itself included.

    Reductions share a loop over one letter and extent where their boxes have the same letters and
    none needs another's result: a reduction that needs one stands at a higher level.

    Args:
        nodes: of one kernel, operands before users.
    """
    level: dict[int, int] = {}
    groups: dict[Any, list[Cell]] = {}
    for node in nodes:
        stream = node.stream if isinstance(node, Cell) else None
        below = max((level[o.number] for o in node.operands), default=0)
        level[node.number] = below + (stream is not None)
        if isinstance(node, Cell) and stream is not None:
            key = stream[1], node.extents[stream[0]], below, frozenset(node.letters)
            groups.setdefault(key, []).append(node)
    return {m.number: tuple(group) for group in groups.values() for m in group}


class Kernel:
    """One kernel over its buffers.

    Args:
        step: the kernel.
        reads, writes: its buffers, aligned with the step's accesses; `reads` by node number.
        coverage: one per write where stores are to be checked.
    """

    def __init__(
        self,
        step: KernelStep,
        nodes: Sequence[Node],
        reads: Mapping[int, View],
        writes: Sequence[View],
        coverage: Sequence[Coverage] = (),
    ) -> None:
        self.step, self.reads, self.writes, self.coverage = step, reads, writes, coverage
        self.roots = [nodes[r] for r in step.roots]
        self._sweeps = sweeps(self._needed())
        self._cuts: dict[tuple[str, int], list[Range]] = {}
        self._latest: dict[int, tuple[Any, Tile]] = {}
        self._constants: dict[int, Array] = {}

    def run(self) -> None:
        """Compute every root and store it.

        Raises:
            ScheduleError: a box that its operands do not cover, or (where coverage is given) an
                element that is not stored exactly once.
        """
        if self.step.rounds:
            self._run_rounded()
        else:
            for loops in self._blocks():
                self._store_block(loops)
        for coverage in self.coverage:
            coverage.check()

    def _blocks(self) -> Iterator[Loops]:
        """The blocks of the grid; letters that change slowly first, so that tiles are kept."""
        used = {letter for root in self.roots for letter in root.letters}
        order = [letter for letter in (*UNIT_LETTERS, *TILE_LETTERS) if letter in used]
        cuts = [self._chunks(letter, self._extent(letter)) for letter in order]
        for parts in product(*cuts):
            yield dict(zip(order, parts, strict=True))

    def _extent(self, letter: str) -> int:
        if letter not in self.step.loops:
            raise ScheduleError(
                f"step {self.step.name}", f"has no loop over {letter}", "every letter of its boxes"
            )
        return self.step.loops[letter]

    def _chunks(self, letter: str, extent: int) -> list[Range]:
        """The ranges that a loop over a letter walks through; always the same objects."""
        if (letter, extent) not in self._cuts:
            whole = 1 if letter in UNIT_LETTERS else extent
            size = max(1, min(self.step.parameters.get(letter, whole), extent))
            self._cuts[letter, extent] = [
                Range(begin, min(begin + size, extent)) for begin in range(0, extent, size)
            ]
        return self._cuts[letter, extent]

    def _store_block(self, loops: Loops) -> None:
        for number, root in enumerate(self.roots):
            # A root without one of the grid's letters is stored by the first block along it.
            if any(loops[letter].begin for letter in loops if letter not in root.letters):
                continue
            where = root.ranges(loops)
            if all(r.size for r in where):
                self._store(number, self.tile(root, loops))

    def _store(self, number: int, tile: Tile) -> None:
        self.writes[number].write(tile.ranges, tile.array)
        if self.coverage:
            self.coverage[number].add(tile.ranges)

    def _run_rounded(self) -> None:
        values: dict[int, Array] = {}
        for node in self._needed():
            values[node.number] = self._rounded(node, [values[o.number] for o in node.operands])
        for number, root in enumerate(self.roots):
            self._store(number, Tile(values[root.number], root.everything))

    def _needed(self) -> list[Node]:
        found = reached(self.roots, lambda node: node.operands)
        return sorted(found, key=lambda node: node.number)

    def _rounded(self, node: Node, operands: list[Array]) -> Array:
        if isinstance(node, Cell):
            return meaning.evaluate_op(node.source.text, node.source.cell, operands)
        if isinstance(node, Gather):
            return meaning.moved(node.source.text, operands)
        if isinstance(node, Scan):
            return meaning.evaluate_scan(node.source.text, operands)
        return np.asarray(self.reads[node.number].read(node.everything), order="C")

    # -- tiles ------------------------------------------------------------------------------------

    def tile(self, node: Node, loops: Loops | None) -> Tile:
        """The node's tile; its latest one is kept, for other users and blocks.

        Args:
            node: a node.
            loops: the ranges of its letters (others are ignored); None for the whole value.
        """
        key = _key(node, loops)
        latest = self._latest.get(node.number)
        if latest is not None and latest[0] == key:
            return latest[1]
        where = node.ranges(loops)
        if not all(r.size for r in where):
            tile = Tile(np.empty([r.size for r in where], node.accumulator), where)
        elif isinstance(node, Cell):
            tile = self._cell(node, where, loops)
        elif isinstance(node, Gather):
            tile = Tile(self._gather(node, where, loops), where)
        elif isinstance(node, Scan):
            tile = Tile(self._scan(node, where, loops), where)
        else:
            tile = Tile(self.reads[node.number].read(where), where)
        self._latest[node.number] = key, tile
        return tile

    # -- block operators --------------------------------------------------------------------------

    def _cell(self, node: Cell, where: Ranges, loops: Loops | None) -> Tile:
        if not node.sig.monoid:
            value = meaning.cell_values(node.source.cell, self._views(node, where, loops))[0]
            return _finished(node, where, value)
        if node.stream is None or loops is None:
            whole = (*where, *(Range(0, node.extents[d]) for d in node.sig.reduced))
            return _finished(
                node, where, meaning.finish(node.sig.monoid, self._lift(node, whole, loops))
            )
        self._sweep(node, loops)
        return self._latest[node.number][1]

    def _sweep(self, first: Cell, loops: Loops) -> None:
        """Walk a streaming loop once for all reductions that can share it."""
        group = [m for m in self._sweeps[first.number] if self._pending(m, loops)]
        where = [m.ranges(loops) for m in group]
        states: list[State | None] = [None] * len(group)
        assert first.stream is not None
        dim, letter = first.stream
        for chunk in self._chunks(letter, first.extents[dim]):
            inside = loops | {letter: chunk}
            for n, member in enumerate(group):
                part = self._lift(member, (*where[n], *member.reduced_ranges(chunk)), inside)
                state = states[n]
                states[n] = part if state is None else meaning.merge(member.sig.monoid, state, part)
        for member, ranges, state in zip(group, where, states, strict=True):
            assert state is not None  # extents are at least 1
            tile = _finished(member, ranges, meaning.finish(member.sig.monoid, state))
            self._latest[member.number] = _key(member, loops), tile

    def _pending(self, node: Cell, loops: Loops) -> bool:
        latest = self._latest.get(node.number)
        known = latest is not None and latest[0] == _key(node, loops)
        return not known and all(r.size for r in node.ranges(loops))

    def _lift(self, node: Cell, space: Ranges, loops: Loops | None) -> State:
        views = self._views(node, space, loops)
        return meaning.lift(node.sig.monoid, node.source.cell, views, node.sig.reduced)

    def _views(self, node: Cell, space: Ranges, loops: Loops | None) -> list[Array]:
        """The operands on this part of the index space."""
        views = []
        for number, operand in enumerate(node.operands):
            tile = self.tile(operand, loops)
            dims = node.transposes[number]
            if dims is None:
                views.append(window(node, node.sig.operands[number], tile, space))
            else:
                views.append(transposed(node, dims, tile, space))
        if node.absent:
            shape = [space[d].size if d in node.absent else e for d, e in enumerate(views[0].shape)]
            views[0] = np.broadcast_to(views[0], shape)
        return views

    # -- scans ------------------------------------------------------------------------------------

    def _scan(self, node: Scan, where: Ranges, loops: Loops | None) -> Array:
        axis = scan(node.source.text)[1]
        tiles = [self.tile(o, loops) for o in node.operands]
        if any(t.ranges != where for t in tiles) or where[axis] != node.everything[axis]:
            raise node.wrong(
                f"reads {tiles[0].ranges} for {where}", f"its own box, all of axis {axis}"
            )
        return meaning.scanned(node.source.text, [t.array for t in tiles])

    # -- selectors --------------------------------------------------------------------------------

    def _gather(self, node: Gather, where: Ranges, loops: Loops | None) -> Array:
        if not node.operands:
            return cut(self._constant(node), [slice(r.begin, r.end) for r in where])
        if node.affine:
            return self._pulled(node, where, [self.tile(o, loops) for o in node.operands])
        # A selector can run on tiles along axes that it leaves alone; else it needs all of them.
        inside = loops if node.passes else None
        tiles = alike([self.tile(o, inside).array for o in node.operands], node)
        declared, params = node.declared
        return _clipped(node, declared.run(params, tiles), where)

    def _constant(self, node: Gather) -> Array:
        if node.number not in self._constants:
            self._constants[node.number] = meaning.evaluate_sel(node.source.text, [])
        return self._constants[node.number]

    def _pulled(self, node: Gather, where: Ranges, tiles: Sequence[Tile]) -> Array:
        """Every operand copied to where it lands in the tile; the rest is outside."""
        arrays = alike([t.array for t in tiles], node)
        outside = node.outside.astype(arrays[0].dtype)
        result = np.full([r.size for r in where], outside, outside.dtype)
        for operand, pulls, array, tile in zip(
            node.operands, node.pulls, arrays, tiles, strict=True
        ):
            fills = landing(pulls, operand.type.shape, where)
            if all(r.size for r in fills):
                into = cut(result, [within(r, w) for r, w in zip(fills, where, strict=True)])
                into[...] = read_along(node, pulls, Tile(array, tile.ranges), fills)
        return result


def _key(node: Node, loops: Loops | None) -> tuple[Range, ...] | None:
    return None if loops is None else tuple([loops[letter] for letter in node.letters])


def _finished(node: Cell, where: Ranges, value: Array) -> Tile:
    """The tile of a value of index-space rank; dims that no operand has are broadcast."""
    shape = [r.size for r in where]
    if list(value.shape[: len(shape)]) == shape:
        return Tile(value.reshape(shape), where)
    return Tile(np.broadcast_to(value.reshape(value.shape[: len(shape)]), shape), where)


def _clipped(node: Gather, result: Array, where: Ranges) -> Array:
    """The tile from a selector's result, which has axes it passes through as the tiles had them."""
    slices = []
    for axis, (have, whole, r) in enumerate(zip(result.shape, node.type.shape, where, strict=True)):
        if have == whole:
            slices.append(slice(r.begin, r.end))
        elif have == r.size and axis in node.through:
            slices.append(slice(None))
        else:
            raise node.wrong(
                f"gives {have} elements of axis {axis} for a tile of {r.size}",
                f"{whole}, or the tile's along an axis it leaves alone",
            )
    return cut(result, slices)
