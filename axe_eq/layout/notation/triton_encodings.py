"""Triton's encodings as linear layouts: bases by hardware dim, for a tensor of some shape.

A distributed encoding is a tile of registers, lanes and warps of one block of threads. The tile is
repeated in registers until it fills the block's part of the tensor; bases that leave a smaller
tensor become copies, but those of registers go in blocked and linear encodings and slices. Blocks
of a cluster split the tensor, or repeat it.

Source: Triton, ``TritonGPUAttrDefs.td`` (what the fields mean) and ``LinearLayoutConversions.cpp``
(the order of the bits); checked against Triton 3.9 by tests/oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from axe_eq.layout.notation.text import check_count, check_product, refuse, spelling
from axe_eq.layout.notation.triton_text import Bases, Encoding, Vector

THREADS = ("register", "lane", "warp", "block")
_CLUSTER = ("CTAsPerCGA", "CTASplitNum", "CTAOrder")
Shape = tuple[int, ...]


class Linear(NamedTuple):
    """Bases by hardware dim, in order, and the extents of the tensor.

    Args:
        bases: where each bit of a hardware index goes.
        shape: powers of two.
        padding: ``(interval, elements)``: so many elements follow every interval of offsets.
    """

    bases: dict[str, list[Vector]]
    shape: Shape
    padding: tuple[tuple[int, int], ...] = ()


def linear_of(meant: Bases | Encoding, shape: Shape | None) -> Linear:
    """The linear layout of printed bases or of an encoding.

    Args:
        meant: what the text says.
        shape: extents of the tensor; without them those that the encoding covers once.

    Raises:
        NotationError: extents or fields that are no powers of two, fields that are missing or do
            not fit, an encoding that is not known, or a shape that is needed and not said.
    """
    if isinstance(meant, Bases):
        return _printed(meant, shape)
    if shape is not None:
        _check_shape(shape, len(shape))
    if meant.name not in _ENCODINGS:
        hint = f"one of {', '.join(_ENCODINGS)}, or the printed bases of its linear layout"
        refuse(f"encoding {meant.name}", hint)
    return _ENCODINGS[meant.name](_Fields(meant), shape)


# ---- fields -------------------------------------------------------------------------------------


class _Fields:
    """The fields of an encoding, checked as they are asked for."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding

    def only(self, *names: str) -> None:
        """Checks that there are no other fields; those of clusters may always be there."""
        known = (*names, *_CLUSTER, "CGALayout")
        for name in self.encoding.fields:
            if name not in known:
                refuse(f"unknown field {name}", f"one of {', '.join(known)}")

    def has(self, name: str) -> bool:
        return name in self.encoding.fields

    def _given(self, name: str, expected: str) -> object:
        if name not in self.encoding.fields:
            refuse(f"no {name}", f"{name} = {expected}")
        return self.encoding.fields[name]

    def vector(self, name: str, rank: int | None = None) -> tuple[int, ...]:
        value = self._given(name, "a list of integers")
        if not isinstance(value, tuple) or not all(isinstance(entry, int) for entry in value):
            refuse(f"{name} = {value}", "a list of integers")
        if rank is not None and len(value) != rank:
            refuse(f"{name} = {list(value)}", f"{rank} entries, as other fields have")
        check_count("dims", len(value))
        return value

    def powers(self, name: str, rank: int | None = None) -> tuple[int, ...]:
        found = self.vector(name, rank)
        for entry in found:
            _check_power(f"{entry} in {name}", entry)
        return found

    def order(self, name: str, rank: int | None = None) -> tuple[int, ...]:
        found = self.vector(name, rank)
        if sorted(found) != list(range(len(found))):
            refuse(f"{name} {list(found)}", f"a permutation of 0 to {len(found) - 1}")
        return found

    def integer(self, name: str, *among: int) -> int:
        value = self._given(name, "an integer")
        if type(value) is not int or (among and value not in among):
            refuse(f"{name} = {value}", f"one of {among}" if among else "an integer")
        return value

    def power(self, name: str) -> int:
        value = self.integer(name)
        _check_power(f"{name} = {value}", value)
        return value

    def flag(self, name: str) -> bool:
        value = self.encoding.fields.get(name, "false")
        if value not in ("true", "false"):
            refuse(f"{name} = {value}", "true or false")
        return bool(value == "true")

    def parent(self, *names: str) -> _Fields:
        value = self.encoding.fields.get("parent")
        if not isinstance(value, Encoding):
            refuse("no parent", "parent = #ttg...")
        if value.name not in names:
            refuse(f"{self.encoding.name} of {value.name}", f"of {', '.join(names)}")
        return _Fields(value)

    def shaped(self, shape: Shape | None, rank: int) -> Shape:
        """The tensor's extents, for encodings that do not say any."""
        if shape is None:
            refuse(f"the tensor's extents, which {self.encoding.name} leaves out, are not "
                        "known", spelling().shape)  # fmt: skip
        return _check_shape(shape, rank)

    def blocks(self, rank: int) -> list[Vector]:
        """Bases of the blocks of a cluster, in units of one block's part of the tensor."""
        if self.has("CGALayout"):
            found = list(self.encoding.fields["CGALayout"])
            if len(_natural({"block": found})) not in (0, rank):
                refuse("CGALayout of another rank", f"vectors of {rank} entries")
            return found
        if not self.has("CTAsPerCGA"):
            return []
        counts, splits = (self.powers(name, rank) for name in _CLUSTER[:2])
        vectors: list[Vector] = []
        for dim in self.order("CTAOrder", rank):
            for step in range(counts[dim].bit_length() - 1):
                entry = 1 << step if 1 << step < splits[dim] else 0
                vectors.append(tuple(entry * (place == dim) for place in range(rank)))
        return vectors

    def part(self, whole: Shape) -> list[int]:
        """The extents of one block's part of the tensor."""
        blocks = [_clipped(vector, whole) for vector in self.blocks(len(whole))]
        return [e // c for e, c in zip(whole, _counts(blocks, len(whole)), strict=True)]


def _check_power(wrong: str, extent: int) -> None:
    if extent < 1 or extent & (extent - 1):
        refuse(wrong, "powers of two: linear layouts have no other extents")


def _check_shape(shape: Shape, rank: int) -> Shape:
    if len(shape) != rank:
        refuse(f"rank {rank}", f"the rank of the shape {shape}")
    check_product(shape)
    for extent in shape:
        _check_power(f"shape {shape}", extent)
    return shape


# ---- bases --------------------------------------------------------------------------------------


Step = tuple[str, int | None, int]
"""A hardware dim whose bits multiply the tile so often along a dim, or repeat it (None)."""


def _along(
    name: str, extents: Sequence[int], order: Sequence[int], but: int | None = None
) -> list[Step]:
    """The steps of a hardware dim over dims in order, which repeats along one."""
    return [(name, None if dim == but else dim, extents[dim]) for dim in order]


def _tile(rank: int, steps: Sequence[Step]) -> tuple[dict[str, list[Vector]], list[int]]:
    """The bases that steps make, and the extents that they cover."""
    extents = [1] * rank
    bases: dict[str, list[Vector]] = {}
    for name, dim, times in steps:
        own = bases.setdefault(name, [])
        for _ in range(times.bit_length() - 1):
            own.append(_unit(rank, 0, 0) if dim is None else _unit(rank, dim, extents[dim]))
            if dim is not None:
                extents[dim] *= 2
    return bases, extents


def _unit(rank: int, dim: int, length: int) -> Vector:
    return tuple(length if place == dim else 0 for place in range(rank))


def _natural(bases: dict[str, list[Vector]]) -> Shape:
    """The smallest extents that hold all bases, which must be vectors of one rank."""
    vectors: list[object] = [vector for dim in bases.values() for vector in dim]
    columns: list[tuple[int, ...]] = []
    for vector in vectors:
        if not isinstance(vector, tuple) or any(
            not isinstance(entry, int) or entry < 0 for entry in vector
        ):
            refuse(f"basis {vector}", "a list of integers of at least 0")
        columns.append(vector)
    if len({len(vector) for vector in columns}) > 1:
        refuse("bases of different ranks", "one rank")
    check_count("dims", max(map(len, columns), default=0))
    return tuple(
        1 << max(entry.bit_length() for entry in column) for column in zip(*columns, strict=True)
    )


def _whole(
    tile: tuple[dict[str, list[Vector]], list[int]],
    order: Sequence[int],
    blocks: list[Vector],
    shape: Shape | None,
    fill: str = "register",
    *,
    drop: bool = False,
) -> Linear:
    """A tile over the tensor: each block's part filled with it, the blocks side by side.

    Args:
        tile: of one block, from `_tile`.
        order: the dims along which the tile is repeated, first to last.
        blocks: bases of the blocks, in units of their parts.
        shape: of the tensor; by default one tile per block.
        fill: the hardware dim whose bits repeat the tile.
        drop: its bits that leave the part go; else they are copies.
    """
    bases, extents = tile
    rank = len(extents)
    if shape is None:
        shape = tuple(e * c for e, c in zip(extents, _counts(blocks, rank), strict=True))
    blocks = [_clipped(vector, shape) for vector in blocks]
    part = tuple(e // count for e, count in zip(shape, _counts(blocks, rank), strict=True))
    bases = _resized(bases, extents, part, order, fill, drop=drop)
    bases["block"] = [tuple(map(int.__mul__, vector, part)) for vector in blocks]
    return Linear(bases, shape)


def _counts(blocks: Sequence[Vector], rank: int) -> list[int]:
    return [1 << max((v[dim].bit_length() for v in blocks), default=0) for dim in range(rank)]


def _resized(
    bases: dict[str, list[Vector]],
    natural: Sequence[int],
    shape: Sequence[int],
    order: Sequence[int],
    fill: str = "register",
    *,
    drop: bool = True,
) -> dict[str, list[Vector]]:
    """Bases that leave a smaller shape become copies, or are dropped; others fill a larger one."""
    resized: dict[str, list[Vector]] = {}
    for name, vectors in bases.items():
        kept = [_clipped(vector, shape) for vector in vectors]
        if name == fill and drop:
            pairs = zip(vectors, kept, strict=True)
            kept = [new for old, new in pairs if any(new) or not any(old)]
        resized[name] = kept
    more = resized.setdefault(fill, [])
    for dim in order:
        step = natural[dim]
        while step < shape[dim]:
            more.append(_unit(len(shape), dim, step))
            step *= 2
    return resized


def _clipped(vector: Vector, shape: Sequence[int]) -> Vector:
    return tuple(
        0 if entry >= extent else entry for entry, extent in zip(vector, shape, strict=True)
    )


def _row_major(rank: int) -> list[int]:
    return list(range(rank))[::-1]


def _swapped(rank: int) -> list[int]:
    """The dims from the fastest one, the last two of them exchanged."""
    order = _row_major(rank)
    return [order[1], order[0], *order[2:]]


# ---- linear layouts that are written out --------------------------------------------------------


def _printed(printed: Bases, shape: Shape | None) -> Linear:
    bases: dict[str, list[Vector]] = {}
    for line in printed.lines:
        known = bases.setdefault(line.dim, [])
        if line.place and line.place != 1 << len(known):
            refuse(f"{line.dim}={line.place}", f"{line.dim}={1 << len(known)}")
        if line.place:
            known.append(line.vector)
    natural, sizes = _natural(bases), printed.sizes
    if sizes and any(size < extent for size, extent in zip(sizes, natural, strict=False)):
        refuse(f"out dims {sizes}", f"at least {natural}")
    found = _check_shape(sizes or natural, len(natural) or len(sizes))
    if shape not in (None, found):
        refuse(f"shape {found}", f"the given shape {shape}")
    return Linear(bases, found)


def _linear(given: _Fields, shape: Shape | None) -> Linear:
    """Bases adapted to a shape: in registers first come the dims that registers vary already."""
    fields = given.encoding.fields
    bases = {name: list(value) if isinstance(value, tuple) else [value]
             for name, value in fields.items() if name != "alignment"}  # fmt: skip
    natural = _natural(bases)
    if shape in (None, natural) or not natural:
        return Linear(bases, _check_shape(shape or natural, len(shape or natural)))
    _check_shape(shape, len(natural))
    if "offset" in bases and shape != natural:
        refuse(f"offsets of shape {natural}", f"the given shape {shape}")
    varied = [
        dim for vector in bases.get("register", ()) for dim, entry in enumerate(vector) if entry
    ]
    order = list(dict.fromkeys([*varied, *_row_major(len(shape))]))
    return Linear(_resized(bases, natural, shape, order), shape)


# ---- distributed encodings ----------------------------------------------------------------------


def _blocked(given: _Fields, shape: Shape | None) -> Linear:
    names = ("sizePerThread", "threadsPerWarp", "warpsPerCTA")
    given.only(*names, "order")
    order = given.order("order")
    rank = len(order)
    steps: list[Step] = []
    for name, field in zip(THREADS, names, strict=False):
        steps += _along(name, given.powers(field, rank), order)
    return _whole(_tile(rank, steps), order, given.blocks(rank), shape, drop=True)


def _mma_fields(given: _Fields) -> tuple[int, tuple[int, ...], tuple[int, int]]:
    """The version, the warps, and the rows and columns of one instruction's result."""
    given.only("versionMajor", "versionMinor", "warpsPerCTA", "instrShape")
    version = given.integer("versionMajor", 2, 3)
    warps = given.powers("warpsPerCTA")
    rank = len(warps)
    if rank < 2:
        refuse(f"warpsPerCTA = {list(warps)}", "at least 2 dims")
    shape = given.powers("instrShape", 3 if version == 3 else rank)
    rows, columns = shape[:2] if version == 3 else shape[-2:]
    if rows != 16 or columns < 8:
        refuse(f"instrShape = {list(shape)}", "16 rows and at least 8 columns")
    return version, warps, (rows, columns)


def _mma_steps(inner: int, outer: int, extents: tuple[int, int], width: int) -> list[Step]:
    """What 32 lanes hold of one instruction's operand or result.

    Along the inner dim `width` values per lane and 4 lanes, then 8 lanes along the outer one; the
    rest in registers, along the outer dim first.
    """
    rows, columns = extents
    return [
        ("register", inner, width), ("lane", inner, 4), ("lane", outer, 8),
        ("register", outer, rows // 8), ("register", inner, columns // (width * 4)),
    ]  # fmt: skip


def _warp_order(version: int, rank: int) -> list[int]:
    """Warp groups stand along the rows first."""
    return _swapped(rank) if version == 3 else _row_major(rank)


def _mma(given: _Fields, shape: Shape | None) -> Linear:
    version, warps, extents = _mma_fields(given)
    rank = len(warps)
    steps = _mma_steps(rank - 1, rank - 2, extents, 2)
    steps += _along("warp", warps, _warp_order(version, rank))
    return _whole(_tile(rank, steps), _row_major(rank), given.blocks(rank), shape)


def _dot_operand(given: _Fields, shape: Shape | None) -> Linear:
    given.only("opIdx", "parent", "kWidth")
    number, parent = given.integer("opIdx", 0, 1), given.parent("nvidia_mma", "blocked")
    if parent.encoding.name == "blocked":
        return _fma_operand(given, parent, number, shape)
    version, warps, _ = _mma_fields(parent)
    rank, width = len(warps), given.power("kWidth")
    if version == 3 and number == 1:
        refuse("opIdx = 1 of versionMajor = 3", "operand 0: the other lies in shared memory")
    along = rank - 1 if number == 0 else rank - 2  # the dim that is summed over
    order = _row_major(rank) if number == 0 else _swapped(rank)
    extents = (16 if number == 0 else 8, width * 8)
    steps = _mma_steps(along, order[1], extents, width)
    steps += _along("warp", warps, _warp_order(version, rank), along)
    return _whole(_tile(rank, steps), order, _summed(parent.blocks(rank), along), shape)


def _fma_operand(given: _Fields, parent: _Fields, number: int, shape: Shape | None) -> Linear:
    """An operand of a product of threads: each holds all that is summed over."""
    order = parent.order("order")
    rank = len(order)
    if rank < 2:
        refuse(f"dot_op of {rank} dims", "at least 2")
    along = rank - 1 if number == 0 else rank - 2
    whole = given.shaped(shape, rank)
    held = list(parent.powers("sizePerThread", rank))
    held[along] = whole[along]
    steps = _along("register", held, order)
    steps += _along("lane", parent.powers("threadsPerWarp", rank), order, along)
    steps += _along("warp", parent.powers("warpsPerCTA", rank), order, along)
    return _whole(_tile(rank, steps), order, _summed(parent.blocks(rank), along), whole)


def _summed(blocks: Sequence[Vector], along: int) -> list[Vector]:
    """Blocks of an operand: none of them splits the dim that is summed over."""
    return [tuple(0 if d == along else e for d, e in enumerate(v)) for v in blocks]


def _slice(given: _Fields, shape: Shape | None) -> Linear:
    """The parent of a tensor with one more dim, of extent 1, without that dim."""
    given.only("dim", "parent")
    dim, parent = given.integer("dim"), given.parent(*_DISTRIBUTED)
    if not 0 <= dim <= (dim if shape is None else len(shape)):
        refuse(f"dim = {dim}", f"a dim of the parent, 0 to {len(shape or ())}")
    wider = None if shape is None else (*shape[:dim], 1, *shape[dim:])
    found = _ENCODINGS[parent.encoding.name](parent, wider)
    if dim >= len(found.shape):
        refuse(f"dim = {dim}", f"a dim of the parent, 0 to {len(found.shape) - 1}")
    bases = {
        name: [(*vector[:dim], *vector[dim + 1 :]) for vector in vectors]
        for name, vectors in found.bases.items()
    }
    bases["register"] = [vector for vector in bases.get("register", ()) if any(vector)]
    return Linear(bases, (*found.shape[:dim], *found.shape[dim + 1 :]))


# ---- encodings of shared memory -----------------------------------------------------------------


def _swizzled(given: _Fields, shape: Shape | None) -> Linear:
    """Row r has its columns in groups of `vec`, whose number is XORed with a phase of r."""
    given.only("vec", "perPhase", "maxPhase", "order", "hasLeadingOffset")
    if given.flag("hasLeadingOffset"):
        refuse("hasLeadingOffset = true", "nvmma_shared, which names its rows of bytes")
    order = given.order("order")
    whole = given.shaped(shape, len(order))
    vec, per_phase, phases = map(given.power, ("vec", "perPhase", "maxPhase"))
    part = given.part(whole)
    tile = _tile(len(order), _along("offset", part, order))
    if len(order) > 1:
        rows = [vector[order[1]] for vector in tile[0]["offset"]]
        _exchange(tile, order[0], rows, vec, per_phase, phases)
    return _whole(tile, order, given.blocks(len(order)), whole, "offset")


def _nvmma(given: _Fields, shape: Shape | None) -> Linear:
    """Boxes of the tensor memory accelerator, whose rows of bytes are swizzled in groups of 8."""
    given.only("swizzlingByteWidth", "transposed", "elementBitWidth", "fp4Padded", "rank")
    if given.flag("fp4Padded"):
        refuse("fp4Padded = true", "elements without padding between them")
    width = given.integer("swizzlingByteWidth", 0, 32, 64, 128)
    bits, turned = given.power("elementBitWidth"), given.flag("transposed")
    rank = given.integer("rank") if given.has("rank") else 2 if shape is None else len(shape)
    whole = given.shaped(shape, rank)
    box = [min(256, extent) for extent in given.part(whole)]
    dims = [*range(1, rank), 0] if turned and width else list(range(rank))  # slow to fast in memory
    if width:
        box[dims[-1]] = 8 * width // bits
        rows = prod(box[dim] for dim in dims[:-1])
        if rank < 2 or rows < 8 or box[dims[-1]] > whole[dims[-1]]:
            refuse(f"shape {whole}", f"8 rows of {width} bytes at least")
    tile = _tile(rank, _along("offset", box, dims[::-1]))
    if width:
        row = box[dims[-1]].bit_length() - 1  # the bits of a row before it
        counts = [1 << bit >> row for bit in range(len(tile[0]["offset"]))]
        _exchange(tile, dims[-1], counts, 128 // bits, 128 // width, width // 16)
    return _whole(tile, range(rank), given.blocks(rank), whole, "offset")


def _exchange(
    tile: tuple[dict[str, list[Vector]], list[int]],
    column: int,
    rows: Sequence[int],
    vec: int,
    per_phase: int,
    phases: int,
) -> None:
    """XORs the columns of a tile, in groups of `vec`, with the phase of their row, bit by bit."""
    bases, extents = tile
    for place, (vector, row) in enumerate(zip(bases["offset"], rows, strict=True)):
        if row:
            moved = vec * (row // per_phase % phases) % extents[column]
            bases["offset"][place] = (*vector[:column], moved, *vector[column + 1 :])


def _padded(given: _Fields, shape: Shape | None) -> Linear:
    """Offsets of a linear layout, with elements between intervals that hold nothing."""
    given.only("order", "shape", "offset", "block")
    if given.has("offset"):
        found = _linear(given, shape)
    else:
        extents = given.powers("shape")
        steps = _along("offset", extents, given.order("order", len(extents)))
        if shape not in (None, extents):
            refuse(f"shape {extents}", f"the given shape {shape}")
        found = _whole(_tile(len(extents), steps), (), given.blocks(len(extents)), None, "offset")
    for interval, padding in given.encoding.padding:
        _check_power(f"interval {interval}", interval)
        if padding < 1:
            refuse(f"padding {padding}", "at least 1 element")
    return found._replace(padding=given.encoding.padding)


_DISTRIBUTED = ("blocked", "nvidia_mma", "dot_op", "slice", "linear")
_ENCODINGS: dict[str, Callable[[_Fields, Shape | None], Linear]] = {
    "blocked": _blocked,
    "nvidia_mma": _mma,
    "dot_op": _dot_operand,
    "slice": _slice,
    "linear": _linear,
    "shared_linear": _linear,
    "swizzled_shared": _swizzled,
    "nvmma_shared": _nvmma,
    "padded_shared": _padded,
}
