"""Triton layouts: linear layouts by their bases, and ``#ttg.blocked`` encodings.

A linear layout sends bits of hardware indices to coordinates of the tensor by XOR. Read as a layout
it is turned round: a tensor element lies at every hardware index that is sent to it. Bits that are
sent to nothing give replicas, XORs within one hardware dim give swizzles.

Source: Triton, ``LinearLayout.h`` and ``LinearLayoutConversions.cpp``; "Linear Layouts" (Zhou et
al., 2025), sec. 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple, NoReturn

from lark import Token, Transformer, v_args

from axe_eq.layout import iters as it
from axe_eq.layout.iters import Iter
from axe_eq.layout.notation import f2
from axe_eq.layout.notation.common import settled, without_box
from axe_eq.layout.notation.text import (
    Context,
    build,
    check_count,
    check_product,
    parse,
    refusal,
    refuse,
)
from axe_eq.layout.swizzle import MAX_BIT, Swizzle
from axe_eq.layout.swizzled import under_swizzles
from axe_eq.layout.value import Layout

Vector = tuple[int, ...]

AXES = {"register": "reg", "lane": "lane", "warp": "warp", "block": "cta", "offset": "m"}
"""Triton's hardware dims and their axes; another dim is an axis of its own name."""

_DIMS = {axis: dim for dim, axis in AXES.items()}
_THREADS = ("register", "lane", "warp", "block")
_BLOCKED = ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")
_CLUSTER = ("CTAsPerCGA", "CTASplitNum", "CTAOrder", "CGALayout")


class _Linear(NamedTuple):
    """Bases by hardware dim, in order, and the extents of the tensor where they are known."""

    bases: dict[str, list[Vector]]
    shape: tuple[int, ...] | None


class _Blocked(NamedTuple):
    fields: dict[str, Any]


class _Line(NamedTuple):
    dim: str
    place: int
    vector: Vector


@v_args(inline=True)
class _Texts(Transformer[Token, Any]):
    def INT(self, token: Token) -> int:
        return int(token)

    def vector(self, *items: Any) -> tuple[Any, ...]:
        return tuple(item for item in items if item is not None)

    def field(self, name: Token, value: Any) -> tuple[str, Any]:
        return str(name), value

    def blocked(self, *fields: tuple[str, Any]) -> _Blocked:
        return _Blocked(dict(fields))

    def linear(self, *fields: Any) -> _Linear:
        return _Linear({name: list(value) for name, value in fields if name != "alignment"}, None)

    def alignment(self, value: int) -> tuple[str, int]:
        return "alignment", value

    def basis(self, dim: Token, place: int, *vector: int) -> _Line:
        return _Line(str(dim), place, vector)

    def unit(self, dim: Token) -> _Line:
        return _Line(str(dim), 0, ())

    def size(self, _name: Token, extent: int) -> int:
        return extent

    def printed(self, *items: _Line | int | None) -> list[_Line | int | None]:
        return list(items)

    def start(self, item: Any) -> Any:
        return item


# ---- reading ------------------------------------------------------------------------------------


def read(text: str, context: Context) -> Layout:
    """Reads bases or an encoding; an encoding is adapted to the shape as Triton does.

    Registers are the axis ``reg``, lanes ``lane``, warps ``warp``, blocks of a cluster ``cta``,
    offsets in shared memory ``m``.

    Raises:
        NotationError: bad grammar, extents or bases that are no powers of two, an element that no
            hardware index holds, or an XOR of different hardware dims.
    """
    parsed = parse("triton", text, _Texts())
    if isinstance(parsed, list):
        linear = _printed(text, parsed)
        if context.shape not in (None, linear.shape):
            _refuse(text, f"shape {linear.shape}", f"the given shape {context.shape}")
    elif isinstance(parsed, _Blocked):
        linear = _blocked(text, parsed.fields, context.shape)
    else:
        linear = _fitted(text, parsed.bases, context.shape)
    return build("triton", text, lambda: _layout(text, linear))


def _refuse(text: str, wrong: str, expected: str) -> NoReturn:
    refuse("triton", text, wrong, expected)


def _printed(text: str, items: Sequence[Any]) -> _Linear:
    bases: dict[str, list[Vector]] = {}
    for line in (item for item in items if isinstance(item, _Line)):
        known = bases.setdefault(line.dim, [])
        if line.place and line.place != 1 << len(known):
            _refuse(text, f"{line.dim}={line.place}", f"{line.dim}={1 << len(known)}")
        if line.place:
            known.append(line.vector)
    sizes = tuple(item for item in items if isinstance(item, int))
    natural = _natural_shape(text, bases)
    if sizes and any(size < extent for size, extent in zip(sizes, natural, strict=False)):
        _refuse(text, f"out dims {sizes}", f"at least {natural}")
    return _Linear(bases, _checked_shape(text, sizes or natural, len(natural) or len(sizes)))


def _natural_shape(text: str, bases: dict[str, list[Vector]]) -> tuple[int, ...]:
    """The smallest extents that hold all bases, which must be vectors of one rank."""
    vectors: list[Any] = [vector for dim in bases.values() for vector in dim]
    for vector in vectors:
        if not isinstance(vector, tuple) or any(
            not isinstance(entry, int) or entry < 0 for entry in vector
        ):
            _refuse(text, f"basis {vector}", "a list of integers of at least 0")
    if len({len(vector) for vector in vectors}) > 1:
        _refuse(text, "bases of different ranks", "one rank")
    check_count("triton", text, "dims", max(map(len, vectors), default=0))
    columns = zip(*vectors, strict=True)
    return tuple(1 << max(entry.bit_length() for entry in column) for column in columns)


def _checked_shape(text: str, shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    if len(shape) != rank:
        _refuse(text, f"rank {rank}", f"the rank of the shape {shape}")
    check_product("triton", text, shape)
    for extent in shape:
        _check_power(text, f"shape {shape}", extent)
    return shape


def _check_power(text: str, wrong: str, extent: int) -> None:
    if extent < 1 or extent & (extent - 1):
        _refuse(text, wrong, "powers of two: linear layouts have no other extents")


def _fitted(text: str, bases: dict[str, list[Vector]], shape: tuple[int, ...] | None) -> _Linear:
    """Bases adapted to a shape: in registers first come the dims that registers vary already."""
    natural = _natural_shape(text, bases)
    if shape is None or not natural:
        return _Linear(bases, _checked_shape(text, shape or natural, len(shape or natural)))
    _checked_shape(text, shape, len(natural))
    if "offset" in bases and shape != natural:
        _refuse(text, f"offsets of shape {natural}", f"the given shape {shape}")
    varied = [dim for vector in bases.get("register", ()) for dim in _support(vector)]
    order = list(dict.fromkeys([*varied, *reversed(range(len(shape)))]))
    return _Linear(_resized(bases, natural, shape, order), shape)


def _support(vector: Vector) -> list[int]:
    return [dim for dim, entry in enumerate(vector) if entry]


def _resized(
    bases: dict[str, list[Vector]],
    natural: Sequence[int],
    shape: Sequence[int],
    order: Sequence[int],
) -> dict[str, list[Vector]]:
    """Bases that leave a smaller shape vanish, or go if they are registers; registers fill up."""
    resized: dict[str, list[Vector]] = {}
    for name, vectors in bases.items():
        kept = [_clipped(vector, shape) for vector in vectors]
        if name == "register":
            pairs = zip(vectors, kept, strict=True)
            kept = [new for old, new in pairs if any(new) or not any(old)]
        resized[name] = kept
    more = resized.setdefault("register", [])
    for dim in order:
        step = natural[dim]
        while step < shape[dim]:
            more.append(tuple(step if place == dim else 0 for place in range(len(shape))))
            step *= 2
    return resized


def _clipped(vector: Vector, shape: Sequence[int]) -> Vector:
    return tuple(
        0 if entry >= extent else entry for entry, extent in zip(vector, shape, strict=True)
    )


def _blocked(text: str, fields: dict[str, Any], shape: tuple[int, ...] | None) -> _Linear:
    """Bases of a blocked encoding: a tile of registers, lanes and warps, repeated in registers."""
    for name in fields:
        if name not in _BLOCKED + _CLUSTER:
            _refuse(text, f"unknown field {name}", f"one of {', '.join(_BLOCKED + _CLUSTER)}")
    per_thread, lanes, warps, order = (_field(text, fields, name) for name in _BLOCKED)
    rank = len(order)
    check_count("triton", text, "dims", rank)
    if any(len(column) != rank for column in (per_thread, lanes, warps)):
        _refuse(text, "fields of different ranks", f"{rank} entries each")
    if sorted(order) != list(range(rank)):
        _refuse(text, f"order {order}", f"a permutation of 0 to {rank - 1}")
    tile = [1] * rank
    bases: dict[str, list[Vector]] = {}
    for name, extents in zip(_THREADS[:3], (per_thread, lanes, warps), strict=True):
        bases[name] = []
        for dim in order:
            _check_power(text, f"{extents[dim]} in {tuple(extents)}", extents[dim])
            for _ in range(extents[dim].bit_length() - 1):
                bases[name].append(tuple(tile[dim] * (place == dim) for place in range(rank)))
                tile[dim] *= 2
    blocks = _cluster(text, fields, rank)
    counts = [1 << max((v[dim].bit_length() for v in blocks), default=0) for dim in range(rank)]
    whole = tuple(tile[dim] * counts[dim] for dim in range(rank)) if shape is None else shape
    _checked_shape(text, whole, rank)
    if any(extent % count for extent, count in zip(whole, counts, strict=True)):
        _refuse(text, f"shape {whole} over {tuple(counts)} blocks", "at least one element each")
    part = tuple(extent // count for extent, count in zip(whole, counts, strict=True))
    bases = _resized(bases, tile, part, order)
    bases["block"] = [tuple(map(int.__mul__, vector, part)) for vector in blocks]
    return _Linear(bases, whole)


def _field(text: str, fields: dict[str, Any], name: str) -> tuple[int, ...]:
    value = fields.get(name)
    if not isinstance(value, tuple) or not all(isinstance(entry, int) for entry in value):
        _refuse(text, f"{name} = {value}", "a list of integers")
    return value


def _cluster(text: str, fields: dict[str, Any], rank: int) -> list[Vector]:
    """Bases of the blocks of a cluster, in units of one block's part of the tensor."""
    if "CGALayout" in fields:
        bases = {"block": list(fields["CGALayout"])}
        if len(_natural_shape(text, bases)) not in (0, rank):
            _refuse(text, "CGALayout of another rank", f"vectors of {rank} entries")
        return bases["block"]
    if "CTAsPerCGA" not in fields:
        return []
    blocks, splits, order = (_field(text, fields, name) for name in _CLUSTER[:3])
    if any(len(column) != rank for column in (blocks, splits, order)):
        _refuse(text, "fields of different ranks", f"{rank} entries each")
    vectors: list[Vector] = []
    for dim in order:
        for extents in (blocks, splits):
            _check_power(text, f"{extents[dim]} in {extents}", extents[dim])
        for step in range(blocks[dim].bit_length() - 1):
            entry = 1 << step if 1 << step < splits[dim] else 0
            vectors.append(tuple(entry * (place == dim) for place in range(rank)))
    return vectors


# ---- a linear layout, turned round --------------------------------------------------------------


def _layout(text: str, linear: _Linear) -> Layout:
    shape = linear.shape or ()
    bits = (prod(shape) - 1).bit_length()
    for dim, basis in linear.bases.items():
        if len(basis) > MAX_BIT:
            _refuse(text, f"{len(basis)} bits of {dim}", f"at most {MAX_BIT}")
    columns = {dim: [_flat(vector, shape) for vector in linear.bases[dim]] for dim in linear.bases}
    _check_rows(text, columns, bits)
    places: dict[int, Iter] = {}
    replica: list[Iter] = []
    swizzles: list[Swizzle] = []
    for dim, vectors in columns.items():
        axis = AXES.get(dim, dim)
        for bit, row in _placed(text, dim, vectors, bits, swizzles):
            item = (2, 1 << row, axis)
            if bit is None:
                replica.append(item)
            else:
                places[bit] = item
    shard: list[Iter] = []
    for extent in shape:
        low = bits - (extent.bit_length() - 1)
        shard += it.fuse(places[bit] for bit in reversed(range(low, bits)))
        bits = low
    replica.sort(key=lambda item: (item[2], -item[1]))
    return Layout(shard, it.fuse(replica), None, swizzles)


def _flat(vector: Vector, shape: Sequence[int]) -> int:
    flat = 0
    for entry, extent in zip(vector, shape, strict=True):
        flat = flat * extent + entry
    return flat


def _check_rows(text: str, columns: dict[str, list[int]], bits: int) -> None:
    """Every bit of the tensor's index must come from exactly one hardware dim."""
    for bit in range(bits):
        dims = [dim for dim, vectors in columns.items() if any(v >> bit & 1 for v in vectors)]
        if not dims:
            _refuse(text, f"no hardware index holds element {1 << bit}", "all elements held")
        if len(dims) > 1:
            _refuse(text, f"an XOR of {' and '.join(dims)} bits", "an XOR within one hardware dim")


def _placed(
    text: str, dim: str, vectors: Sequence[int], bits: int, swizzles: list[Swizzle]
) -> Iterator[tuple[int | None, int]]:
    """The bit of the axis for every bit of the tensor that the dim holds, and for copies (None).

    The swizzles that follow are appended to `swizzles`.
    """
    rows = [bit for bit in range(bits) if any(vector >> bit & 1 for vector in vectors)]
    chosen = f2.independent(vectors)
    if len(chosen) < len(rows):
        _refuse(text, f"{dim} bits hold only some elements", "all elements held")
    free = [place for place in range(len(vectors)) if place not in chosen]
    square = []
    for place, vector in enumerate(vectors):
        column = sum((vector >> row & 1) << at for at, row in enumerate(rows))
        square.append(column | (1 << len(rows) + free.index(place) if place in free else 0))
    turned = f2.inverse(square)
    assert turned is not None  # independent columns, and the free bits themselves
    order = f2.diagonal(turned)
    matrix = [0] * len(order)
    for column, row in enumerate(order):
        matrix[row] = turned[column]
    swizzles += f2.swizzles(matrix, AXES.get(dim, dim))
    for column, row in enumerate(order):
        yield (rows[column] if column < len(rows) else None), row


# ---- writing ------------------------------------------------------------------------------------


def write(layout: Layout, context: Context) -> str:
    """Writes ``#ttg.linear`` for layouts on threads, the printed bases for other axes.

    Raises:
        NotationError: extents or strides that are no powers of two, an offset, elements that share
            a place, or places between them that hold nothing.
    """
    layout = settled(without_box("triton", _in_bits(layout)))
    if layout.offset:
        raise refusal("triton", layout, f"offset {layout.offset}", "index 0 holds element 0")
    shape = (layout.size,) if context.shape is None else context.shape
    if prod(shape) != layout.size:
        raise refusal("triton", layout, f"shape {shape}", f"{layout.size} elements")
    if any(extent & (extent - 1) for extent in shape):
        raise refusal("triton", layout, f"shape {shape}", "powers of two")
    bases: dict[str, list[Vector]] = {}
    for axis, held in _axis_bits(layout).items():
        bases[_DIMS.get(axis, axis)] = [
            _unflat(flat, shape) for flat in _axis_bases(layout, axis, held)
        ]
    if set(bases) <= set(_THREADS):
        fields = (f"{name} = {_vectors(bases.get(name, []))}" for name in _THREADS)
        return f"#ttg.linear<{{{', '.join(fields)}}}>"
    return _print(bases, shape)


def _in_bits(layout: Layout) -> Layout:
    """A layout in boxes as a list under swizzles where it XORs bits; canonical forms may differ."""
    found = under_swizzles(layout) if layout.box is not None else None
    return layout if found is None else found


def _axis_bits(layout: Layout) -> dict[str, list[tuple[int, int]]]:
    """Per axis (place of the bit, tensor index it holds, 0 for copies), before swizzles."""
    held: dict[str, list[tuple[int, int]]] = {}
    radix = 1
    shard = [(*item, True) for item in reversed(layout.shard)]
    copies = [(*item, False) for item in layout.replica]
    for extent, stride, axis, is_shard in [*shard, *copies]:
        powers = extent & (extent - 1) == 0 and stride > 0 and stride & (stride - 1) == 0
        if extent > 1 and not powers:
            raise refusal("triton", layout, f"iter {extent}:{stride}@{axis}", "powers of two")
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
        raise refusal("triton", layout, f"{wrong} of {axis}", "every place holds one element")
    columns = [1 << place for place in range(len(places))]
    for sw in reversed(layout.swizzle):
        if sw.axis == axis:
            if sw.reach > len(places):
                raise refusal("triton", layout, f"{sw} reaches past {axis}", "bits that exist")
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


def _unflat(flat: int, shape: Sequence[int]) -> Vector:
    entries: list[int] = []
    for extent in reversed(shape):
        flat, entry = divmod(flat, extent)
        entries.insert(0, entry)
    return tuple(entries)


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
