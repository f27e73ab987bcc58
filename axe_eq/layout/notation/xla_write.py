"""XLA text of a layout: the order of dimensions and the tiles whose result it is.

Every set of digits that lies in memory without overlap can be written: a tile peels the slowest
digits off, a tile as large as the array pads it, and tiles of 1 and of whole dimensions reorder.

Source: XLA, "Tiled layout"; that repeated tiles reach every order of digits is our construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.layout.normal.chains import ladder_of
from axe_eq.layout.normal.ladders import Ladder, iters_of, of_block, split
from axe_eq.layout.normal.nested_boxes import Stage
from axe_eq.layout.notation.xla_search import MAX_POINTS, MAX_TRIED, find_steps, widened
from axe_eq.layout.notation.xla_tiles import COMBINE, tile_array, tiled_extents
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout, make

Tile = list[int]

MAX_CHECKED = 2**20
"""Most elements of arrays behind each other whose text is read again before it is returned."""


class TilingError(Exception):
    """A layout that no tiling has; the text says why."""


class _Digit(NamedTuple):
    """A digit of one group's index, and the place it takes in memory.

    Args:
        group: number of the group of dimensions.
        radix: how much of the group's index one step covers.
        extent: values that occur.
        room: values that memory has room for.
        padded: elements that these values take where they are no multiple of one step; else 0.
    """

    group: int
    radix: int
    extent: int
    room: int
    padded: int = 0


class _Array(NamedTuple):
    """An array to write: groups of logical dimensions that no digit crosses, and their digits.

    Args:
        groups: the extents of each group's dimensions, slow to fast.
        digits: from the largest stride down.
        gap: the smallest stride.
        dims: the numbers of the dimensions in the groups; () where they are in logical order.
    """

    groups: tuple[tuple[int, ...], ...]
    digits: tuple[_Digit, ...]
    gap: int
    dims: tuple[int, ...] = ()

    def of_group(self, group: int) -> list[_Digit]:
        """One group's digits, slow to fast."""
        own = [digit for digit in self.digits if digit.group == group]
        return sorted(own, key=lambda digit: -digit.radix)


_Inner = _Array | Stage


class _Tiling(NamedTuple):
    minor_to_major: tuple[int, ...]
    tiles: list[Tile]

    def __str__(self) -> str:
        order = ",".join(map(str, self.minor_to_major))
        return f"{order}:T{''.join(map(_tile_text, self.tiles))}" if self.tiles else order


def layout_text(layout: Layout, shape: Sequence[int]) -> str:
    """The ``{...}`` of an array of this shape with this layout, the shortest of those tried.

    Raises:
        TilingError: no tiling has this map, with the reason.
        SearchError: the digits of boxes in boxes are not found within the limits.
    """
    try:
        first, behind = _find_chain(layout, shape)
    except TilingError as error:
        first, behind = _find_behind(layout, shape, str(error))
    found = (_tiling(first, order, tiles, behind) for order, tiles in _candidates(first))
    tiling = min(found, key=lambda tiling: len(str(tiling)))
    if behind and layout.size <= MAX_CHECKED:
        written = tile_array(shape, *tiling).table(DEFAULT_AXIS)
        assert np.array_equal(written, _places(layout)), (layout, tiling)
    return str(tiling)


def _find_behind(layout: Layout, shape: Sequence[int], wrong: str) -> tuple[_Array, list[_Inner]]:
    """`_find_chain` where digits are not one behind another, for the reason `wrong`."""
    if layout.size > MAX_POINTS:
        raise TilingError(f"{wrong}, and tiles are searched for up to {MAX_POINTS} elements")
    table = _places(layout)
    if table.min() < 0 or len(np.unique(table)) < layout.size:
        raise TilingError(wrong)
    found = find_steps(table, shape, partial(_is_placed, layout.size))
    if found is None:
        raise TilingError(f"{wrong}, and no tiles are found in {MAX_TRIED} tables")
    array = _find_array(found.ladder, [shape[dim] for dim in found.order])
    return array._replace(dims=found.order), list(found.steps)


def _is_placed(size: int, ladder: Ladder) -> bool:
    """Whether the digits of a ladder lie one behind another."""
    try:
        _find_array(ladder, (size,))
    except TilingError:
        return False
    return True


def _places(layout: Layout) -> NDArray[np.int64]:
    return layout.table(next(iter(layout.axes), DEFAULT_AXIS))


# ---- digits -------------------------------------------------------------------------------------


def _find_array(ladder: Ladder, shape: Sequence[int]) -> _Array:
    """Groups the dimensions so that no digit crosses a group, and lists all digits."""
    groups = _grouped(ladder, shape)
    strides: list[tuple[int, _Digit]] = []
    for group, (extents, own) in enumerate(groups):
        counts = iters_of(prod(extents), own)
        for (level, stride, _), (count, _, _) in zip(own, counts, strict=True):
            strides.append((stride, _Digit(group, level, count, count)))
    return _Array(tuple(extents for extents, _ in groups), *_placed(strides))


def _grouped(ladder: Ladder, shape: Sequence[int]) -> list[tuple[tuple[int, ...], Ladder]]:
    """The smallest groups of dimensions at whose boundaries digits are cut, with their digits."""
    groups: list[tuple[tuple[int, ...], Ladder]] = []
    begin, end = len(shape) - 1, len(shape)
    while end:
        two = prod(shape[:begin]), prod(shape[begin:end])
        halves = split(prod(two), ladder, two)
        if halves is None and begin:
            begin -= 1
            continue
        ladder, own = halves if halves is not None else ((), ladder)
        groups.insert(0, (tuple(shape[begin:end]), own))
        begin, end = begin - 1, begin
    return groups


def _find_chain(layout: Layout, shape: Sequence[int]) -> tuple[_Array, list[_Inner]]:
    """The array to write, and where boxes do not line up the others behind it.

    Then there is one per box that does something, and one for the list of iters. The place in one,
    padding counted, is the index of the next, which has one group.
    """
    ladder = ladder_of(layout)
    if ladder is not None:
        return _find_array(ladder, shape), []
    assert layout.box is not None
    assert layout.padded is not None
    stages = [Stage(layout.box, layout.padded), *layout.inner]
    first, *inner = [stage for stage in stages if stage.box != stage.padded or stage.order]
    room = it.size(layout.shard)
    end = _find_array(of_block(it.fuse(layout.shard), room), (room,))
    return _find_stage(first, shape), [*inner, end]


def _find_stage(stage: Stage, shape: Sequence[int] | None = None) -> _Array:
    """The array of a box, whose places are the indices of its padded shape."""
    rows, shape = stage.incoming(), shape or (prod(stage.box),)
    dense = ((prod(stage.padded), 1, DEFAULT_AXIS),)
    ladder = ladder_of(make(dense, (), (), (), rows, rows, (stage,)))
    assert ladder is not None  # there is but one box
    return _find_array(ladder, shape)


def _placed(strides: list[tuple[int, _Digit]]) -> tuple[tuple[_Digit, ...], int]:
    """The digits from the largest stride down, with their room, and the smallest stride."""
    strides.sort(key=lambda entry: -entry[0])
    placed: list[_Digit] = []
    above = 0
    for stride, digit in strides:
        if stride < 1:
            raise TilingError(f"stride {stride}, and tiles only have positive ones")
        room = above // stride if above else digit.extent
        if room < digit.extent:
            raise TilingError(f"strides {above} and {stride} interleave")
        uneven = above % stride > 0
        placed.append(digit._replace(padded=above) if uneven else digit._replace(room=room))
        above = stride
    return tuple(placed), max(above, 1)


# ---- tiles --------------------------------------------------------------------------------------


def _candidates(array: _Array) -> Iterator[tuple[tuple[int, ...], list[Tile]]]:
    """Orders of the groups, major to minor, with the tiles that finish the job."""
    found = False
    peeled = [] if any(digit.padded for digit in array.digits) else _orders(array)
    for order in peeled:
        tiles = _peel(array, order)
        if tiles is not None:
            found = True
            yield order, tiles
    if not found:
        order = tuple(range(len(array.groups)))
        yield order, _reorder(array, order)


def _orders(array: _Array) -> list[tuple[int, ...]]:
    """The logical order, and the orders in which groups first and last appear in memory."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, digit in enumerate(array.digits):
        first.setdefault(digit.group, place)
        last[digit.group] = place
    orders = [tuple(range(len(array.groups)))]
    for places in (first, last):
        order: list[int] = []
        behind = len(array.digits)
        for group in reversed(range(len(array.groups))):
            behind = places.setdefault(group, behind)  # an extent of 1 stays before its neighbour
        order = sorted(range(len(array.groups)), key=lambda group: (places[group], group))
        orders.append(tuple(order))
    return list(dict.fromkeys(orders))


def _peel(array: _Array, order: Sequence[int]) -> list[Tile] | None:
    """Tiles that each take the slowest digits off, in the order of the groups.

    Returns:
        None where the next digit in memory is not the slowest one left of its dimension.
    """
    left = {group: array.of_group(group) for group in order}
    extent = {group: prod(array.groups[group]) for group in order}
    tiles: list[Tile] = []
    place = 0
    while place < len(array.digits):
        taken = _next_digits(array.digits[place:], left, order)
        if not taken:
            return None
        tile = {group: taken[group].radix if group in taken else extent[group] for group in order}
        padded = {
            group: taken[group].room * tile[group]
            for group in taken
            if -(-extent[group] // tile[group]) != taken[group].room
        }
        if padded:
            extent |= padded
            tiles.append([extent[group] for group in order])
        if all(extent[group] == 1 or tile[group] == 1 for group in order):
            break
        tiles.append([tile[group] for group in order])
        extent = tile
        place += len(taken)
        for group in taken:
            left[group].pop(0)
    return tiles + ([[1], [array.gap]] if array.gap > 1 else [])


def _next_digits(
    digits: Sequence[_Digit], left: dict[int, list[_Digit]], order: Sequence[int]
) -> dict[int, _Digit]:
    """The longest run of next digits in memory that one tile can take off."""
    taken: dict[int, _Digit] = {}
    reached = -1
    for digit in digits:
        place = order.index(digit.group)
        if place <= reached or left[digit.group][0] != digit:
            break
        taken[digit.group] = digit
        reached = place
    return taken


class _Piece(NamedTuple):
    """A dimension of the array while tiles are applied: its extent and its digits, slow to fast."""

    extent: int
    digits: tuple[_Digit, ...]


_UNIT = _Piece(1, ())


def _reorder(array: _Array, order: Sequence[int]) -> list[Tile]:
    """Tiles that split every dimension into its digits, then move digits to the back, then pad."""
    tiles: list[Tile] = []
    pieces = [_Piece(prod(array.groups[group]), tuple(array.of_group(group))) for group in order]
    if len(pieces) > 1 and any(len(extents) > 1 for extents in array.groups):
        tiles.append([piece.extent for piece in pieces])  # makes every `*` part of the first tile
    while any(len(piece.digits) > 1 for piece in pieces):
        pieces = _tiled(tiles, pieces, [_cut_slowest(piece) for piece in pieces])
    now = [piece.digits[0] for piece in pieces if piece.digits]
    for run in _runs(now, array.digits):
        moved = [piece.extent if set(run) & set(piece.digits) else 1 for piece in pieces]
        pieces = _tiled(tiles, pieces, moved)
    if any(digit.room > digit.extent for digit in array.digits):
        tiles.append([piece.digits[0].room if piece.digits else 1 for piece in pieces])
    if array.gap > 1:
        tiles += [[1], [array.gap]]
    return tiles + _pad_runs(pieces, 2 if array.gap > 1 else 0)


def _pad_runs(pieces: Sequence[_Piece], behind: int) -> list[Tile]:
    """Tiles that each combine a digit with all faster ones and pad them, the fastest run first.

    Args:
        pieces: the array, one digit each at most, as in memory.
        behind: dims behind the pieces.
    """
    tiles: list[Tile] = []
    for piece in reversed(pieces):
        behind += 1
        if piece.digits and piece.digits[0].padded:
            tiles.append([COMBINE] * (behind - 1) + [piece.digits[0].padded])
            behind = 2  # one run, and the padded elements
    return tiles


def _cut_slowest(piece: _Piece) -> int:
    return piece.digits[0].radix if len(piece.digits) > 1 else 1


def _tiled(tiles: list[Tile], pieces: list[_Piece], tile: Tile) -> list[_Piece]:
    """The array after one more tile, whose leading ones are left out: they change nothing."""
    lead = next(place for place, extent in enumerate(tile) if extent > 1)
    tiles.append(tile[lead:])
    slow, fast = [], []
    for piece, extent in zip(pieces[lead:], tile[lead:], strict=True):
        if extent == 1:
            halves = piece, _UNIT
        elif extent == piece.extent:
            halves = _UNIT, piece
        else:
            outer = -(-piece.extent // extent)
            halves = _Piece(outer, piece.digits[:1]), _Piece(extent, piece.digits[1:])
        slow.append(halves[0])
        fast.append(halves[1])
    return pieces[:lead] + slow + fast


def _runs(now: Sequence[_Digit], wanted: Sequence[_Digit]) -> list[list[_Digit]]:
    """The wanted order in pieces that each already stand in order, without the first piece."""
    runs: list[list[_Digit]] = [[]]
    for digit in wanted:
        if runs[-1] and now.index(digit) < now.index(runs[-1][-1]):
            runs.append([])
        runs[-1].append(digit)
    return runs[1:]


# ---- text ---------------------------------------------------------------------------------------


def _tiling(
    array: _Array, order: Sequence[int], tiles: Sequence[Tile], behind: Sequence[_Inner]
) -> _Tiling:
    """The order of the dimensions and all tiles.

    Args:
        array: the first array.
        order: its groups, major to minor.
        tiles: its tiles.
        behind: boxes or arrays of one group, whose index is the place in what is before.
    """
    numbers = iter(array.dims or range(sum(map(len, array.groups))))
    dims = [[next(numbers) for _ in extents] for extents in array.groups]
    physical = [dim for group in order for dim in dims[group]]
    extents = [extent for group in order for extent in array.groups[group]]
    shown: list[Tile] = []
    if tiles:
        stars = [[COMBINE] * (len(array.groups[group]) - 1) for group in order]
        first = [[*star, extent] for star, extent in zip(stars, tiles[0], strict=False)]
        if len(tiles[0]) < len(order):  # a tile of the most minor dimensions only
            first = [[extent] for extent in tiles[0]]
        shown = [[entry for entries in first for entry in entries], *tiles[1:]]
    shown = [_without_units(tile) for tile in shown]
    for tile in shown:
        extents = tiled_extents(extents, tile)
    for inner in behind:
        tiles = _behind(inner, extents)
        for tile in tiles:
            extents = tiled_extents(extents, tile)
        shown += tiles
    return _Tiling(tuple(reversed(physical)), shown)


def _behind(inner: _Inner, extents: Sequence[int]) -> list[Tile]:
    """The tiles of an array of one group, whose index is the place in an array of these extents."""
    elements = prod(extents)
    array = _find_stage(widened(inner, elements)) if isinstance(inner, Stage) else inner
    tiles = _reorder(array, (0,))
    if elements < prod(array.groups[0]):
        tiles.insert(0, [prod(array.groups[0])])
    if not tiles:
        return []
    lead = next((place for place, extent in enumerate(extents) if extent > 1), len(extents) - 1)
    stars = [COMBINE] * (len(extents) - lead - 1)  # dims of 1 in front stay as they are
    return [_without_units(tile) for tile in ([*stars, *tiles[0]], *tiles[1:])]


def _without_units(tile: Tile) -> Tile:
    """The tile without leading extents of 1, which change nothing."""
    lead = next((place for place, extent in enumerate(tile) if extent != 1), len(tile) - 1)
    return tile[lead:]


def _tile_text(tile: Tile) -> str:
    return f"({','.join('*' if extent == COMBINE else str(extent) for extent in tile)})"
