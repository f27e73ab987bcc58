"""Shared-memory layouts that the matrix instructions and the bulk copies read, as layouts."""

from __future__ import annotations

from math import prod

from axe_eq.layout import Layout
from axe_eq.layout.value.swizzle import Swizzle
from axe_eq_backends.cuda.instrs import SmemForm

MOST_PANEL = 256  # columns that a bulk copy stores


def swizzle(width: int, itemsize: int) -> tuple[Swizzle, ...]:
    """The hardware's swizzle of `width` bytes (32, 64 or 128), on elements; none for others."""
    bits = width.bit_length() - 5 if width in (32, 64, 128) else 0
    return (Swizzle("m", bits, 4, 3).scaled(-(itemsize.bit_length() - 1)),) if bits else ()


def panels(lead: tuple[int, ...], rows: int, cols: int, itemsize: int, width: int = 128) -> Layout:
    """(lead..., rows, cols) as column panels of `width` bytes, swizzled, panel after panel."""
    wide = min(width // itemsize, cols)
    inner = [(rows, wide), (cols // wide, rows * wide), (wide, 1)]
    shard = [*_lead(lead, rows * cols), *inner]
    return Layout(shard, swizzle=swizzle(wide * itemsize, itemsize))


def swizzled_width(cols: int, itemsize: int) -> int:
    """Columns of a tile of results that are lines of at most 128 bytes, as swizzles take them."""
    return min(128 // itemsize, cols & -cols)


def panel_width(
    cols: int,
    itemsize: int,
    major: int = 1,
    most: int = MOST_PANEL,
    whole: bool = False,
    lines: bool = True,
) -> int:
    """Columns of a tile of results that are stored at once: a panel.

    It has lines of 128 or 64 bytes, which are swizzled, where columns are so many of them. Others
    have lines that follow each other: an odd number of 16 bytes is in all banks without a swizzle.
    Where only narrow panels divide the columns, as eights alone do 184 of them, wider ones do not:
    the last begins earlier, and stores again what the panel before it stored. Where columns are
    contiguous (`major` 0) each of them is lines of its own, and the last panel may have fewer.
    Rows that begin anywhere are read back by threads, whose numbers are powers of two: so are
    panels of those.

    Args:
        cols: of the tile.
        itemsize: bytes of an element.
        major: the result's contiguous dim.
        most: columns that registers hold at once, 8 at least.
        whole: whether panels divide the columns, however narrow.
        lines: whether rows begin at multiples of 16 bytes.

    >>> panel_width(192, 2), panel_width(160, 2), panel_width(80, 2), panel_width(152, 2)
    (64, 32, 80, 152)
    >>> panel_width(184, 2, most=64), panel_width(184, 2, most=64, whole=True)
    (64, 8)
    >>> panel_width(168, 1, most=128), panel_width(80, 2, lines=False)
    (64, 16)
    >>> panel_width(152, 2, major=0), panel_width(128, 2, most=48)
    (56, 32)
    """
    if not major:
        return -(-cols // -(-cols // min(64, most)) // 8) * 8
    widest = swizzled_width(cols, itemsize)
    while widest > most:
        widest //= 2
    if widest * itemsize >= 64 or not lines:
        return widest
    widths = range(8, min(cols, most) + 1, 8)
    even = [n for n in widths if cols % n == 0]
    found = max([n for n in even if 32 <= n <= 128] or even, default=widest)
    if found * itemsize >= 64 or whole:
        return found
    # In all banks, as above; of these the least that is stored, a store costing some columns.
    wide = {n: n * itemsize for n in widths if n * itemsize >= 64}
    known = [n for n, width in wide.items() if width in (64, 128) or width % 32 == 16]
    return min(known, key=lambda n: -(-cols // n) * (n + 8), default=found)


def staged_panels(panels: int, most: int) -> int:
    """Panels in shared memory: they take slots in turn, over the ends of tiles, in whole rounds.

    >>> staged_panels(4, 8), staged_panels(3, 2)
    (4, 1)
    """
    return next(n for n in range(min(most, panels), 0, -1) if panels % n == 0)


def transposed_panels(lead: tuple[int, ...], rows: int, cols: int, itemsize: int) -> Layout:
    """(lead..., rows, cols) with rows contiguous: row panels of 128 bytes, swizzled."""
    wide = min(128 // itemsize, rows)
    inner = [(rows // wide, wide * cols), (wide, 1), (cols, wide)]
    shard = [*_lead(lead, rows * cols), *inner]
    return Layout(shard, swizzle=swizzle(wide * itemsize, itemsize))


def lines(buffers: int, rows: int, cols: int, along_cols: int, pad: int) -> Layout:
    """Buffers of (rows, cols), the lines along one of both `pad` elements further apart."""
    pitch = (cols if along_cols else rows) + pad
    steps = [(rows, pitch), (cols, 1)] if along_cols else [(rows, 1), (cols, pitch)]
    return Layout([(buffers, (rows if along_cols else cols) * pitch), *steps])


def operand(stages: int, rows: int, k: int, itemsize: int, form: SmemForm) -> Layout:
    """A ring of (rows, k) matrix operands in one of wgmma's forms."""
    if form.major == "MN":
        wide = form.width // itemsize
        shard = [(stages, rows * k), (rows // wide, wide * k), (wide, 1), (k, wide)]
        return Layout(shard, swizzle=swizzle(form.width, itemsize))
    if form.swizzle_bits:
        return panels((stages,), rows, k, itemsize, form.width)
    atom = 16 // itemsize
    return Layout([(stages, rows * k), (rows, atom), (k // atom, rows * atom), (atom, 1)])


def vectors(rows: int, cols: int, most: int, lanes: int = 32, warps: int = 4) -> Layout:
    """A row-major (rows, cols) tile over a warpgroup's registers, in vectors of `most` elements.

    Rows and columns are powers of two, at least an element for every thread.
    """
    wide = min(most, rows * cols // (lanes * warps), cols)
    along = min(cols // wide, lanes)
    down = lanes // along
    shard = [
        (rows // (warps * down), cols // along, "reg"), (warps, 1, "warp"), (down, along, "lane"),
        (cols // wide // along, wide, "reg"), (along, 1, "lane"), (wide, 1, "reg"),
    ]  # fmt: skip
    return Layout([i for i in shard if i[0] > 1])


def _lead(lead: tuple[int, ...], unit: int) -> list[tuple[int, int]]:
    return [(e, unit * prod(lead[d + 1 :])) for d, e in enumerate(lead)]
