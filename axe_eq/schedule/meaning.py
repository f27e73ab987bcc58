"""What schedule terms mean, evaluated with numpy: contents of memory, and parts of values.

A placed term means contents of memory. A tile means, whatever blocks its letters range over, the
part of a value that its box covers then. These are the definitions that demand laws are tested
against; neither laws nor runners take part. What a step must not depend on, such as the elements
outside a box, holds junk here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from axe_eq.errors import ScheduleError
from axe_eq.layout import Layout
from axe_eq.program.meaning import (
    array_type,
    cell_values,
    evaluate_nodes,
    evaluate_scan,
    evaluate_unchecked,
    finish,
    index_views,
    lift,
    merge,
    moved,
)
from axe_eq.program.node import op_type, scan_type, sel_type
from axe_eq.program.ops import State
from axe_eq.program.signature import Signature, signature
from axe_eq.program.terms import decode, operands, type_of
from axe_eq.program.types import DTYPES, Array, ValueType, value_type
from axe_eq.rule.term import Symbol, Term
from axe_eq.schedule import terms as s
from axe_eq.schedule.box import STREAM_LETTERS, UNIT_LETTERS, WHOLE, Range, letters, parse, ranges
from axe_eq.schedule.contents import Contents, read, write
from axe_eq.schedule.views import is_signature, view_type

Inputs = Mapping[str, Array]
Loops = dict[str, Range]
Region = Sequence[tuple[int, int]]  # begin and end of every dim
_BLOCK = {"p": 2, "q": 3, "k": 2, "s": 3, **dict.fromkeys(UNIT_LETTERS, 1)}  # elements
_MOST_PARTS = 12  # choices of blocks for which the meaning of one tile is listed


class Evaluator:
    """Evaluates schedule terms.

    Args:
        inputs: input name -> array.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self._rng = np.random.default_rng(0)

    def value(self, term: Term) -> Array:
        """A value of the program."""
        node = decode(term)
        return evaluate_nodes([node], self.inputs, evaluate_unchecked)[node]

    def junk(self, type: ValueType) -> Array:
        """Values that nothing may depend on, other ones each time."""
        of = DTYPES[type.dtype]
        if of.kind != "f":
            return self._rng.integers(0, 2 if of.kind == "b" else 99, type.shape).astype(of.numpy)
        wild = self._rng.choice([np.nan, 1.0, -1.0], type.shape) * self._rng.uniform(1, 99)
        return np.asarray(wild, of.numpy)

    # -- memory -----------------------------------------------------------------------------------

    def memory(self, term: Term) -> Contents:
        """Contents that a placed term means.

        Raises:
            ScheduleError: the term means none: it reads what is not there, or does not fit.
        """
        evaluate = _PLACED.get(term.symbol)
        if evaluate is None:
            raise ScheduleError(f"term {term.symbol.name}", "has no meaning", "a placed term")
        return evaluate(self, *term.args)

    def place(self, value: Term, layout: str) -> Contents:
        """A value in a layout."""
        return write(self.value(value), layout)

    def buffer(self, name: str, layout: str) -> Contents:
        """An input as it arrives."""
        return write(self.inputs[name], layout)

    def move(self, source: Term, before: str, after: str) -> Contents:
        """What is in one layout, in another."""
        memory = self.memory(source)
        flat = ValueType(array_type(memory.values).dtype, (Layout.parse(before).size,))
        return write(read(memory, before, flat), after)

    def kernel(self, tile: Term, layout: str) -> Contents:
        """What the blocks of a kernel write, part by part."""
        type_, box = tile_type(tile), box_of(tile)
        result = self.junk(type_)
        for loops in _blocks(_extents(box, type_)):
            region = _slices(_region(box, loops, type_))
            result[region] = self.tile(tile, loops)[region]
        return write(result, layout)

    # -- tiles ------------------------------------------------------------------------------------

    def parts(self, term: Term) -> list[tuple[Region, Array]]:
        """Regions and contents of the part that a tile is, for some choices of blocks."""
        type_, box = tile_type(term), box_of(term)
        choices = list(_blocks(_extents(box, type_)))
        found = []
        for loops in choices[:: max(1, len(choices) // _MOST_PARTS)]:
            region = _region(box, loops, type_)
            found.append((region, np.asarray(self.tile(term, loops)[_slices(region)])))
        return found

    def tile(self, term: Term, loops: Loops) -> Array:
        """The whole value, right in the tile's box and junk outside."""
        type_, box = tile_type(term), box_of(term)
        region = _region(box, loops, type_)
        result = self.junk(type_)
        if all(begin < end for begin, end in region):
            result[_slices(region)] = self._inside(term, loops, region, type_)
        return result

    def _inside(self, term: Term, loops: Loops, region: Region, type: ValueType) -> Array:
        """The elements of a tile in a region, which is not empty."""
        name, args = term.symbol, term.args
        if name is s.tile:
            return self.value(args[0])[_slices(region)]
        if name is s.Load:
            return read(self.memory(args[0]), args[2], type)[_slices(region)]
        if name is s.peek:
            return viewed(args[0], self.tile(args[1], loops))[_slices(region)]
        if name is s.Gather:
            operands = [self.tile(t, loops) for t in tiles_in(args[2])]
            return moved(args[0], operands)[_slices(region)]
        if name is s.Scanned:
            operands = [self.tile(t, loops) for t in tiles_in(args[2])]
            return evaluate_scan(args[0], operands)[_slices(region)]
        return self._cell(term, loops, region).astype(DTYPES[type.dtype].numpy)

    def _cell(self, term: Term, loops: Loops, region: Region) -> Array:
        """A block operator in a region of its output; letters that only operands have stream."""
        sig_text, cell, box, given = term.args
        sig, tiles = signature(sig_text), list(tiles_in(given))
        types = [tile_type(t) for t in tiles]
        extents = sig.extents([t.shape for t in types])
        state: State | None = None
        for streamed in _blocks(_streaming(box, tiles, types)):
            now = loops | streamed
            views = index_views(sig, [self.tile(t, now) for t in tiles], extents)
            space = [*region, *_reduced(sig, tiles, types, now, extents)]
            views = [_cut(view, space) for view in views]
            if not sig.monoid:
                return _out(sig, cell_values(cell, views)[0], region)
            if all(view.size for view in views):
                new = lift(sig.monoid, cell, views, sig.reduced)
                state = new if state is None else merge(sig.monoid, state, new)
        if state is None:
            raise ScheduleError(f"op {sig_text!r}", f"reads nothing for box {box!r}", "operands")
        return _out(sig, finish(sig.monoid, state), region)


_PLACED: dict[Symbol, Callable[..., Contents]] = {
    s.place: Evaluator.place,
    s.Buffer: Evaluator.buffer,
    s.Move: Evaluator.move,
    s.Kernel: Evaluator.kernel,
}


# -- tiles -----------------------------------------------------------------------------------------


def viewed(text: str, value: Array) -> Array:
    """A view of an array."""
    if not is_signature(text):
        return moved(text, [value])
    sig = signature(text)
    (view,) = index_views(sig, [value], extents := sig.extents([value.shape]))
    return np.broadcast_to(view, extents)


_BOX_AT = {s.tile: 1, s.Load: 3, s.peek: 2, s.Cell: 2, s.Gather: 1, s.Scanned: 1}


def box_of(term: Term) -> str:
    """The box of a tile."""
    return str(term.args[_BOX_AT[term.symbol]])


def tile_type(term: Term) -> ValueType:
    """Type of the value that a tile is a part of."""
    if term.symbol is s.tile:
        return value_type(type_of(term.args[0]))
    if term.symbol is s.Load:
        return value_type(term.args[1])
    if term.symbol is s.peek:
        return view_type(term.args[0], tile_type(term.args[1]))
    given = tuple(tile_type(t) for t in tiles_in(term.args[-1]))
    if term.symbol is s.Gather:
        return sel_type(term.args[0], given)
    if term.symbol is s.Scanned:
        return scan_type(term.args[0], given)
    return op_type(term.args[0], term.args[1], given)


def tiles_in(term: Term) -> Iterator[Term]:
    """The tiles that a list of tiles means; its rest may be a request."""
    while term.args:
        if term.symbol is s.tiles:
            values, boxes = term.args
            found = zip(operands(values), boxes.split(";"), strict=False)
            yield from (s.tile(value, box) for value, box in found)
            return
        yield term.args[0]
        term = term.args[1]


def _extents(box: str, type: ValueType) -> dict[str, int]:
    """Extent of every letter of a box: the longest dim it runs over."""
    found: dict[str, int] = {}
    for entry, extent in zip(parse(box), type.shape, strict=True):
        if entry.letter not in ("", WHOLE):
            found[entry.letter] = max(extent, found.get(entry.letter, 1))
    return found


def _blocks(extents: Mapping[str, int]) -> Iterator[Loops]:
    """All choices of one block per letter; the last block of a letter may be short."""
    ways = [
        [Range(at, min(at + _BLOCK[letter], extent)) for at in range(0, extent, _BLOCK[letter])]
        for letter, extent in extents.items()
    ]
    return (dict(zip(extents, choice, strict=True)) for choice in product(*ways))


def _streaming(box: str, tiles: Sequence[Term], types: Sequence[ValueType]) -> dict[str, int]:
    """Letters of operands that the box itself does not have, with their extents."""
    found: dict[str, int] = {}
    for tile, type_ in zip(tiles, types, strict=True):
        for letter, extent in _extents(box_of(tile), type_).items():
            if letter not in letters(box):
                found[letter] = max(extent, found.get(letter, 1))
    return found


def _region(box: str, loops: Loops, type: ValueType) -> Region:
    return [(r.begin, max(r.begin, r.end)) for r in ranges(parse(box), loops, type)]


def _slices(region: Region) -> tuple[slice, ...]:
    return tuple(slice(begin, end) for begin, end in region)


def _reduced(
    sig: Signature,
    tiles: Sequence[Term],
    types: Sequence[ValueType],
    loops: Loops,
    extents: Sequence[int],
) -> Region:
    """What is reduced at once: of a dim that streams the present block, of others everything."""
    found = {d: (0, extents[d]) for d in sig.reduced}
    for operand, tile, type_ in zip(sig.operands, tiles, types, strict=True):
        region = _region(box_of(tile), loops, type_)
        covered = zip(operand, parse(box_of(tile)), region, strict=True)
        for projection, entry, bounds in covered:
            if projection.plain in found and entry.letter in STREAM_LETTERS:
                found[projection.plain] = bounds
    return list(found.values())


def _cut(view: Array, space: Region) -> Array:
    """A view on part of the index space; dims that an operand lacks stay of extent 1."""
    ways = zip(view.shape, space, strict=True)
    return view[tuple(slice(None) if n == 1 and e > b else slice(b, e) for n, (b, e) in ways)]


def _out(sig: Signature, value: Array, region: Region) -> Array:
    """A value with all index dims as one with the output dims."""
    return np.broadcast_to(value.reshape(value.shape[: sig.n_out]), [e - b for b, e in region])
