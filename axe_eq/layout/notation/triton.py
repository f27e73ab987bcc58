"""Triton layouts: linear layouts by their bases, and encodings.

A linear layout sends bits of hardware indices to coordinates of the tensor by XOR. Read as a layout
it is turned round: a tensor element lies at every hardware index that is sent to it. Bits that are
sent to nothing give replicas, XORs within one hardware dim give swizzles.

Source: Triton, ``LinearLayout.h`` and ``LinearLayoutConversions.cpp``; "Linear Layouts" (Zhou et
al., 2025), sec. 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from axe_eq.layout.normal.elimination import stacks
from axe_eq.layout.notation import f2
from axe_eq.layout.notation.common import in_bits, settled, without_box
from axe_eq.layout.notation.text import Context, refuse
from axe_eq.layout.notation.triton_encodings import THREADS, Linear, linear_of
from axe_eq.layout.notation.triton_text import Bases, Vector, understood
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.indexing import flatten, unflatten
from axe_eq.layout.value.iters import Iter
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.swizzle import MAX_BIT, Swizzle

AXES = {"register": "reg", "lane": "lane", "warp": "warp", "block": "cta", "offset": "m"}
"""Triton's hardware dims and their axes; another dim is an axis of its own name."""

_DIMS = {axis: dim for dim, axis in AXES.items()}
# ---- reading ------------------------------------------------------------------------------------


def read(text: str, context: Context) -> Layout:
    """Reads bases or an encoding; an encoding is adapted to the shape as Triton does.

    Registers are the axis ``reg``, lanes ``lane``, warps ``warp``, blocks of a cluster ``cta``,
    offsets in shared memory ``m``.

    Raises:
        NotationError: bad grammar, extents or bases that are no powers of two, an element that no
            hardware index holds, an XOR of different hardware dims, or padding behind an XOR.
    """
    said = understood(text)
    if said.shape is not None and context.shape not in (None, said.shape):
        refuse(f"shape {said.shape}", f"the given shape {context.shape}")
    linear = linear_of(said.meant, said.shape or context.shape)
    return _layout(linear)


def dims(text: str) -> tuple[int, ...] | None:
    """The extents of the tensor that a type, printed sizes or a padded encoding state."""
    said = understood(text)
    if isinstance(said.meant, Bases):
        return said.meant.sizes or None
    stated = said.meant.fields.get("shape")
    return said.shape or (stated if isinstance(stated, tuple) else None)


# ---- a linear layout, turned round --------------------------------------------------------------


def _layout(linear: Linear) -> Layout:
    shape = linear.shape
    bits = (prod(shape) - 1).bit_length()
    for dim, basis in linear.bases.items():
        if len(basis) > MAX_BIT:
            refuse(f"{len(basis)} bits of {dim}", f"at most {MAX_BIT}")
    columns = {d: [flatten(v, shape) for v in basis] for d, basis in linear.bases.items()}
    _check_rows(columns, bits)
    places: dict[int, Iter] = {}
    replica: list[Iter] = []
    swizzles: list[Swizzle] = []
    for dim, vectors in columns.items():
        axis = AXES.get(dim, dim)
        for bit, row in _placed(dim, vectors, bits, swizzles):
            padding = linear.padding if dim == "offset" else ()
            item = (2, _padded(1 << row, padding), axis)
            if bit is None:
                replica.append(item)
            else:
                places[bit] = item
    if linear.padding and any(sw.axis == AXES["offset"] for sw in swizzles):
        refuse("padding behind an XOR of offsets", "padding behind bits in some order")
    shard: list[Iter] = []
    for extent in shape:
        low = bits - (extent.bit_length() - 1)
        shard += it.fuse(places[bit] for bit in reversed(range(low, bits)))
        bits = low
    replica.sort(key=lambda item: (item[2], -item[1]))
    return Layout(shard, it.fuse(replica), None, swizzles)


def _padded(offset: int, padding: Sequence[tuple[int, int]]) -> int:
    """A power of two with the padding before it: sums of such offsets are padded by the sum."""
    return offset + sum(offset // interval * elements for interval, elements in padding)


def _check_rows(columns: dict[str, list[int]], bits: int) -> None:
    """Every bit of the tensor's index must come from exactly one hardware dim."""
    for bit in range(bits):
        dims = [dim for dim, vectors in columns.items() if any(v >> bit & 1 for v in vectors)]
        if not dims:
            refuse(f"no hardware index holds element {1 << bit}", "all elements held")
        if len(dims) > 1:
            refuse(f"an XOR of {' and '.join(dims)} bits", "an XOR within one hardware dim")


def _placed(
    dim: str, vectors: Sequence[int], bits: int, swizzles: list[Swizzle]
) -> Iterator[tuple[int | None, int]]:
    """The bit of the axis for every bit of the tensor that the dim holds, and for copies (None).

    The swizzles that follow are appended to `swizzles`.
    """
    rows = [bit for bit in range(bits) if any(vector >> bit & 1 for vector in vectors)]
    chosen = f2.independent(vectors)
    if len(chosen) < len(rows):
        refuse(f"{dim} bits hold only some elements", "all elements held")
    free = [place for place in range(len(vectors)) if place not in chosen]
    square = []
    for place, vector in enumerate(vectors):
        column = sum((vector >> row & 1) << at for at, row in enumerate(rows))
        square.append(column | (1 << len(rows) + free.index(place) if place in free else 0))
    turned = f2.inverse(square)
    assert turned is not None  # independent columns, and the free bits themselves
    stack = stacks(AXES.get(dim, dim), turned, len(turned) + 1)[0]
    swizzles += stack
    for column, place in enumerate(turned):
        for sw in stack:
            place = sw.undo(place)
        yield (rows[column] if column < len(rows) else None), place.bit_length() - 1


# ---- writing ------------------------------------------------------------------------------------


def write(layout: Layout, context: Context) -> str:
    """Writes ``#ttg.linear`` for layouts on threads, the printed bases for other axes.

    Raises:
        NotationError: extents or strides that are no powers of two, an offset, elements that share
            a place, or places between them that hold nothing.
    """
    layout = settled(without_box(in_bits(layout)))
    if layout.offset:
        refuse(f"offset {layout.offset}", "index 0 holds element 0")
    shape = (layout.size,) if context.shape is None else context.shape
    if prod(shape) != layout.size:
        refuse(f"shape {shape}", f"{layout.size} elements")
    if any(extent & (extent - 1) for extent in shape):
        refuse(f"shape {shape}", "powers of two")
    bases: dict[str, list[Vector]] = {}
    for axis, held in _axis_bits(layout).items():
        bases[_DIMS.get(axis, axis)] = [
            unflatten(flat, shape) for flat in _axis_bases(layout, axis, held)
        ]
    if set(bases) <= set(THREADS):
        fields = (f"{name} = {_vectors(bases.get(name, []))}" for name in THREADS)
        return f"#ttg.linear<{{{', '.join(fields)}}}>"
    return _print(bases, shape)


def _axis_bits(layout: Layout) -> dict[str, list[tuple[int, int]]]:
    """Per axis (place of the bit, tensor index it holds, 0 for copies), before swizzles."""
    held: dict[str, list[tuple[int, int]]] = {}
    radix = 1
    shard = [(*item, True) for item in reversed(layout.shard)]
    copies = [(*item, False) for item in layout.replica]
    for extent, stride, axis, is_shard in [*shard, *copies]:
        powers = extent & (extent - 1) == 0 and stride > 0 and stride & (stride - 1) == 0
        if extent > 1 and not powers:
            refuse(f"iter {extent}:{stride}@{axis}", "powers of two")
        for bit in range(extent.bit_length() - 1):
            place = stride.bit_length() - 1 + bit
            held.setdefault(axis, []).append((place, radix << bit if is_shard else 0))
        if is_shard:
            radix *= extent
    return held


def _axis_bases(layout: Layout, axis: str, held: list[tuple[int, int]]) -> list[int]:
    """The tensor index of every bit of an axis."""
    places = sorted(place for place, _ in held)
    if places != list(range(len(places))):
        clash = len(set(places)) < len(places)
        wrong = "iters overlap in a bit" if clash else "places between the elements are empty"
        refuse(f"{wrong} of {axis}", "every place holds one element")
    columns = [1 << place for place in range(len(places))]
    for sw in reversed(layout.swizzle):
        if sw.axis == axis:
            if sw.reach > len(places):
                refuse(f"{sw} reaches past {axis}", "bits that exist")
            columns = [sw.apply(column) for column in columns]
    turned = f2.inverse(columns)
    assert turned is not None  # swizzles are one to one
    index = dict(held)
    return [
        _xor(index[place] for place in range(len(places)) if column >> place & 1)
        for column in turned
    ]


def _xor(values: Iterator[int]) -> int:
    total = 0
    for value in values:
        total ^= value
    return total


def _vectors(vectors: Sequence[Vector]) -> str:
    return f"[{', '.join(f'[{_comma(vector)}]' for vector in vectors)}]"


def _print(bases: dict[str, list[Vector]], shape: Sequence[int]) -> str:
    lines: list[str] = []
    for dim, vectors in bases.items():
        for place, vector in enumerate(vectors):
            head = f" - {dim}" if place == 0 else f"   {dim}"
            lines.append(f"{head}={1 << place} -> ({_comma(vector)})")
        if not vectors:
            lines.append(f" - {dim} is a size 1 dimension")
    sizes = ", ".join(f"dim{dim} (size {extent})" for dim, extent in enumerate(shape))
    return "\n".join([*lines, f"where out dims are: [{sizes}]"])


def _comma(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
