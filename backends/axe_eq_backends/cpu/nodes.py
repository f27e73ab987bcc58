"""Tile nodes of a kernel with their texts read, and how each reads its operands' tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from axe_eq.errors import ScheduleError
from axe_eq.program.gathers import looks
from axe_eq.program.meaning import operand_view
from axe_eq.program.ops import Pull, Selector, selector
from axe_eq.program.signature import Affine, Signature, signature
from axe_eq.program.types import DTYPES, Array, ValueType, value_type
from axe_eq.schedule.box import GRID_LETTERS, WHOLE, Entry, Range, parse, ranges
from axe_eq.schedule.graph import KernelStep, TileNode
from axe_eq_backends.cpu.flat import cut

Loops = dict[str, Range]
Ranges = tuple[Range, ...]


class Tile(NamedTuple):
    """Part of a value: its elements and where they lie in it."""

    array: Array
    ranges: Ranges


@dataclass(frozen=True, eq=False)
class Node:
    """A tile node with its texts read.

    Attributes:
        number: its place in the kernel.
        place: what errors name.
        source: the node of the schedule graph.
        type: of the whole value.
        entries: its box.
        operands: nodes.
    """

    number: int
    place: str
    source: TileNode
    type: ValueType
    entries: tuple[Entry, ...]
    operands: tuple[Node, ...]

    @cached_property
    def letters(self) -> tuple[str, ...]:
        """Loop letters of the box."""
        return tuple(dict.fromkeys(e.letter for e in self.entries if e.letter not in ("", WHOLE)))

    @cached_property
    def everything(self) -> Ranges:
        """The ranges of the whole value."""
        return tuple(Range(0, extent) for extent in self.type.shape)

    @cached_property
    def accumulator(self) -> np.dtype[Any]:
        """The dtype the value is computed in."""
        return DTYPES[DTYPES[self.type.dtype].accumulate].numpy

    def ranges(self, loops: Loops | None) -> Ranges:
        """Where the box lies for these loop ranges; all of the value without loops."""
        if loops is None:
            return self.everything
        if not self._plain:
            return ranges(self.entries, loops, self.type)
        # The common case, which every chunk of every tile meets: no arithmetic, nothing built.
        found = []
        for entry, whole in zip(self.entries, self.everything, strict=True):
            loop = whole if entry.letter == WHOLE else loops[entry.letter]
            found.append(loop if loop.end <= whole.end else _clipped(loop, whole.end))
        return tuple(found)

    @cached_property
    def _plain(self) -> bool:
        return all(e.letter and e == Entry(e.letter) for e in self.entries)

    def wrong(self, wrong: str, expected: str) -> ScheduleError:
        """An error about this node."""
        return ScheduleError(self.place, wrong, expected)


def _clipped(loop: Range, extent: int) -> Range:
    return Range(min(loop.begin, extent), extent)


@dataclass(frozen=True, eq=False)
class Cell(Node):
    """A block operator."""

    @cached_property
    def sig(self) -> Signature:
        """The signature."""
        return signature(self.source.text)

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Extents of all index dims."""
        return self.sig.extents([o.type.shape for o in self.operands])

    @cached_property
    def stream(self) -> tuple[int, str] | None:
        """The reduced dim that streams and its letter."""
        found = None
        for dim, entry in self._reduced().items():
            if entry.letter == WHOLE:
                continue
            if entry.letter in self.letters or entry != Entry(entry.letter) or found:
                raise self.wrong(
                    f"reduces a dim boxed {entry}", "the whole dim, or one streaming letter"
                )
            found = dim, entry.letter
        return found

    def reduced_ranges(self, chunk: Range) -> Ranges:
        """The reduced dims: the one that streams at a chunk, the others whole."""
        streamed = self.stream[0] if self.stream else -1
        dims = self.sig.reduced
        return tuple(chunk if d == streamed else Range(0, self.extents[d]) for d in dims)

    def _reduced(self) -> dict[int, Entry]:
        """Box entries of the reduced dims that an operand reads as they are."""
        return {
            dim: entry
            for operand, node in zip(self.sig.operands, self.operands, strict=True)
            for projection, entry in zip(operand, node.entries, strict=True)
            if (dim := projection.plain) is not None and dim in self.sig.reduced
        }

    @cached_property
    def absent(self) -> tuple[int, ...]:
        """Reduced dims that no operand has."""
        present = {d for operand in self.sig.operands for p in operand for d, _ in p.terms}
        return tuple(d for d in self.sig.reduced if d not in present)

    @cached_property
    def transposes(self) -> tuple[tuple[int, ...] | None, ...]:
        """Per operand the index dims of its dims, where each is just one dim of its own."""
        found = []
        for operand in self.sig.operands:
            dims = tuple(p.plain for p in operand if p.plain is not None)
            simple = len(dims) == len(operand) and len(set(dims)) == len(dims)
            found.append(dims if simple else None)
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Gather(Node):
    """A selector."""

    @cached_property
    def declared(self) -> tuple[Selector, tuple[Any, ...]]:
        """The selector and its parameters."""
        return selector(self.source.text)

    @cached_property
    def pulls(self) -> list[list[Pull | None]]:
        """Per operand, per operand dim, where it is read; None where it must be whole."""
        declared, params = self.declared
        types = [o.type for o in self.operands]
        if declared.pull is None:
            return [[None] * t.rank for t in types]
        return declared.pull(params, types)

    @cached_property
    def where(self) -> frozenset[int]:
        """Operands that say where others are read, and are not moved."""
        types = [o.type for o in self.operands]
        return frozenset(look.by for look in looks(self.source.text, types))

    @cached_property
    def affine(self) -> bool:
        """Every operand dim is read along an output axis of its own."""
        return all(
            None not in operand and len({p.axis for p in operand if p}) == len(operand)
            for operand in self.pulls
        )

    @cached_property
    def passes(self) -> bool:
        """Every operand dim is whole, or read as it is."""
        return all(p is None or p == Pull(p.axis) for operand in self.pulls for p in operand)

    @cached_property
    def through(self) -> frozenset[int]:
        """Output axes along which operands are read as they are."""
        return frozenset(p.axis for operand in self.pulls for p in operand if p is not None)

    @cached_property
    def outside(self) -> Array:
        """The value outside every operand, as stored and then computed with."""
        declared, params = self.declared
        fill = declared.fill(params) if declared.fill else None
        stored = np.asarray(0 if fill is None else fill).astype(DTYPES[self.type.dtype].numpy)
        return stored.astype(self.accumulator)


@dataclass(frozen=True, eq=False)
class Scan(Node):
    """A scan."""


_KINDS: dict[str, type[Node]] = {"load": Node, "cell": Cell, "gather": Gather, "scan": Scan}


def read_nodes(step: KernelStep) -> list[Node]:
    """The nodes of a kernel with their texts read.

    Raises:
        ScheduleError: an unknown kind, a box of another rank than the value, or a letter that no
            loop runs over.
    """
    nodes: list[Node] = []
    for number, source in enumerate(step.nodes):
        place = f"step {step.name}, node {number} {source.kind} {source.text or source.type!r}"
        if source.kind not in _KINDS:
            raise ScheduleError(place, f"is a {source.kind!r}", " or ".join(_KINDS))
        type_, entries = value_type(source.type), parse(source.box)
        if len(entries) != type_.rank or any(not 0 <= o < number for o in source.operands):
            raise ScheduleError(
                place,
                f"has box {source.box!r} and operands {source.operands} for {type_}",
                "an entry per dim, and earlier nodes",
            )
        operands = tuple(nodes[o] for o in source.operands)
        nodes.append(_KINDS[source.kind](number, place, source, type_, entries, operands))
        _check_letters(nodes[-1])
    for root in step.roots:
        _check_root(nodes, root)
    return nodes


def _check_root(nodes: Sequence[Node], root: int) -> None:
    """A root exists, and its box has letters of the grid only."""
    if not 0 <= root < len(nodes):
        raise ScheduleError(f"root {root}", "is no node", f"0..{len(nodes) - 1}")
    if lost := [letter for letter in nodes[root].letters if letter not in GRID_LETTERS]:
        raise nodes[root].wrong(
            f"is stored in box {nodes[root].source.box!r}, but {lost[0]} is no grid letter",
            f"letters of {' '.join(GRID_LETTERS)}",
        )


def _check_letters(node: Node) -> None:
    """Operands may have the node's letters and the one it streams."""
    stream = node.stream if isinstance(node, Cell) else None
    known = {*node.letters, *(stream[1:] if stream else ())}
    for operand in node.operands:
        if lost := [letter for letter in operand.letters if letter not in known]:
            raise node.wrong(
                f"reads box {operand.source.box!r}, but nothing loops over {lost[0]} there",
                f"letters {' '.join(sorted(known)) or 'none'}",
            )


# -- operands of block operators ------------------------------------------------------------------


def transposed(node: Cell, dims: tuple[int, ...], tile: Tile, space: Ranges) -> Array:
    """The view of an operand whose dims are index dims.

    Args:
        node: the reader.
        dims: index dim of every operand dim, each another.
        tile: of the operand.
        space: ranges of all index dims.

    Returns:
        An array of index-space rank; dims the operand lacks have extent 1.

    Raises:
        ScheduleError: the tile does not hold what is read.
    """
    wanted = tuple(space[dim] for dim in dims)
    array = tile.array
    if wanted != tile.ranges:
        for want, have in zip(wanted, tile.ranges, strict=True):
            if want.begin < have.begin or want.end > have.end:
                raise _uncovered(node, want.begin, want.end - 1, have)
        array = cut(array, [within(w, have) for w, have in zip(wanted, tile.ranges, strict=True)])
    return _placed(array, dims, len(space))


def window(node: Cell, operand: Sequence[Affine], tile: Tile, space: Ranges) -> Array:
    """As `transposed`, for an operand that is read through windows, strides or constants."""
    relative = []
    for affine, have in zip(operand, tile.ranges, strict=True):
        first = affine.offset + sum(c * space[d].begin for d, c in affine.terms)
        steps = [c * (space[d].size - 1) for d, c in affine.terms]
        low, high = first + sum(min(0, s) for s in steps), first + sum(max(0, s) for s in steps)
        if low < have.begin or high >= have.end:
            raise _uncovered(node, low, high, have)
        relative.append(Affine(affine.terms, first - have.begin))
    return operand_view(relative, tile.array, [r.size for r in space])


def _uncovered(node: Node, low: int, high: int, have: Range) -> ScheduleError:
    return node.wrong(
        f"reads {low}..{high} of an operand's tile at {have.begin}..{have.end - 1}",
        "a box that covers what is read",
    )


def _placed(array: Array, dims: tuple[int, ...], rank: int) -> Array:
    """The array with its axes at these dims of a space of that rank; other dims have extent 1."""
    order, index = _placing(dims, rank)
    return cut(array.transpose(order), index)


@cache
def _placing(dims: tuple[int, ...], rank: int) -> tuple[tuple[int, ...], tuple[slice | None, ...]]:
    order = tuple(sorted(range(len(dims)), key=dims.__getitem__))
    return order, tuple(slice(None) if d in dims else None for d in range(rank))


# -- operands of selectors ------------------------------------------------------------------------


def alike(arrays: Sequence[Array], node: Gather) -> list[Array]:
    """The operands that are moved in one dtype: as stored where all are, else as computed."""
    stored, where = DTYPES[node.type.dtype].numpy, node.where
    same = all(a.dtype == stored for n, a in enumerate(arrays) if n not in where)
    one = stored if same else node.accumulator
    return [a if n in where else a.astype(one, copy=False) for n, a in enumerate(arrays)]


def landing(pulls: Sequence[Pull | None], shape: Sequence[int], where: Ranges) -> Ranges:
    """The part of a tile at `where` that an operand of this shape fills."""
    found = list(where)
    for pull, extent in zip(pulls, shape, strict=True):
        if pull is not None:
            found[pull.axis] = _inside(pull, found[pull.axis], extent)
    return tuple(found)


def _inside(pull: Pull, along: Range, extent: int) -> Range:
    """Where along an output axis the operand is read inside its extent."""
    if pull.scale == 0:
        return along if 0 <= pull.offset < extent else Range(along.begin, along.begin)
    low, high = -pull.offset, extent - 1 - pull.offset
    if pull.scale < 0:
        low, high = -high, -low
    step = abs(pull.scale)
    begin = max(along.begin, -(-low // step))
    return Range(begin, max(begin, min(along.end, high // step + 1)))


def read_along(node: Gather, pulls: Sequence[Pull | None], tile: Tile, where: Ranges) -> Array:
    """The operand's elements that fill `where`, its axes in the order of the output's.

    Output axes that the operand lacks have extent 1.

    Raises:
        ScheduleError: the tile does not hold what is read.
    """
    slices, axes = [], []
    for pull, have in zip(pulls, tile.ranges, strict=True):
        assert pull is not None  # an affine selector
        along = where[pull.axis]
        first = pull.scale * along.begin + pull.offset
        last = first + pull.scale * (along.size - 1)
        low, high = min(first, last), max(first, last)
        if low < have.begin or high >= have.end:
            raise _uncovered(node, low, high, have)
        slices.append(_steps(first - have.begin, pull.scale, along.size))
        axes.append(pull.axis)
    return _placed(cut(tile.array, slices), tuple(axes), len(where))


def _steps(first: int, step: int, count: int) -> slice:
    if step == 0:
        return slice(first, first + 1)  # broadcasts where it is stored
    stop = first + step * count
    return slice(first, stop if stop >= 0 else None, step)


def within(part: Range, of: Range) -> slice:
    """A part of a range as a slice of an array over that range."""
    return slice(part.begin - of.begin, part.end - of.begin)
