"""Bulk tensor copies between global and shared memory (TMA).

One copy moves a box of the tensor, dense in shared memory (swizzled within rows of 32 to 128
bytes). The box grows along every dim while the shared layout continues the dense product; what
remains is a loop of calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import NamedTuple

from axe_eq.errors import DispatchError
from axe_eq.kernel.expr import Int, divisor
from axe_eq.kernel.placement import Block, Iter, group, number
from axe_eq.kernel.plan import Call, Plan, Require
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.plan import Address
from axe_eq.layout.value.swizzle import Swizzle
from axe_eq.program.types import DTYPES
from axe_eq.target import Instr
from axe_eq_backends.cuda import threads
from axe_eq_backends.cuda.tensor_map import TensorMap, swizzle_bytes

ALIGNED_BYTES = 16
# Of one dim of a tensor map (CUDA driver API, cuTensorMapEncodeTiled).
MOST_EXTENT, MOST_STRIDE_BYTES = 1 << 32, 1 << 40
SWIZZLE_ATOM_LOG2, SWIZZLE_SHIFT = 4, 3  # 16-byte chunks, XORed with the row number modulo 8


class Dim(NamedTuple):
    """One dim of the tensor map, before boxes are chosen."""

    size: Int
    stride: Int
    begin: Int
    extent: int
    smem: Block


class Boxed(NamedTuple):
    """A map dim with its box and the loop that is left, (count, smem stride) slow to fast."""

    dim: Dim
    box: int
    loop: tuple[tuple[int, int], ...]


def derive(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan an asynchronous copy for ``tma.load``, ``tma.load_multicast`` or ``tma.store``.

    Or for ``tma.merge``, which is a store that memory merges with what it holds.
    """
    assert isinstance(primitive, ir.CopyAsync)
    load = row.name not in ("tma.store", "tma.merge")
    if isinstance(primitive, ir.MergeAsync):
        check_monoid(row, primitive.monoid, tensor_of=primitive.dst)
    tensor, tile = (primitive.src, primitive.dst) if load else (primitive.dst, primitive.src)
    if tensor.buffer.memory != "gmem":
        side = "source" if load else "destination"
        raise DispatchError(row.name, f"the {side} lies in {tensor.buffer.memory}", "gmem")
    threads.check_dtype(row, tensor.buffer.dtype)
    if context.where.scope != "elect":
        raise DispatchError(row.name, f"scope {context.where.scope}", "one elected thread")
    _check_ranks(row, primitive)
    if load and primitive.barrier is None:
        raise DispatchError(row.name, "no barrier to complete on", "k.arrives(barrier, slot)")
    swizzle = _width(tile)
    dims = _map_dims(tensor, tile)
    boxes = _boxes(dims, tile.buffer.itemsize, swizzle, row.limits)
    plan = Plan(row, [], align={tensor.buffer.name: row.limits["stride_bytes"]})
    _require(plan, tensor, dims, row.limits["stride_bytes"])
    offset = tensor.buffer.place.at("m")
    if divisor(offset * tensor.buffer.itemsize) % row.limits["stride_bytes"]:
        wrong = f"begins at byte {offset * tensor.buffer.itemsize}"
        raise DispatchError(
            f"tensor {tensor.buffer}", wrong, f"a multiple of {row.limits['stride_bytes']}"
        )
    tensor_map = TensorMap(
        tensor.buffer,
        tuple(b.dim.size for b in boxes),
        tuple(b.dim.stride for b in boxes),
        tuple(b.box for b in boxes),
        swizzle,
        offset,
    )
    _check_base(tile, row.limits["align_bytes"])
    _add_calls(plan, row.name.replace(".", "_"), tensor_map, boxes, primitive, tile)
    box_bytes = prod(tensor_map.box) * tile.buffer.itemsize
    plan.cycles = len(plan.calls) * max(64.0, box_bytes / 64)
    shown = "x".join(map(str, tensor_map.box))
    plan.notes = f"{len(plan.calls)} boxes of {shown}, swizzle {swizzle} bytes"
    return plan


def check_monoid(row: Instr, monoid: str, tensor_of: ir.View) -> None:
    """Memory adds what it rounds as cells do; of integers it keeps the greatest and least too.

    Raises:
        DispatchError: it merges otherwise.
    """
    known = ("+", "max", "min") if DTYPES[tensor_of.buffer.dtype].kind == "i" else ("+",)
    if monoid not in known:
        wrong = f"{tensor_of.buffer.dtype} by {monoid}"
        raise DispatchError(row.name, wrong, f"by {' '.join(known)}")


def _check_ranks(row: Instr, copy: ir.CopyAsync) -> None:
    """One row copies into one CTA, another into those that the copy names."""
    several = row.name == "tma.load_multicast"
    if several and not copy.ranks:
        raise DispatchError(row.name, "the destination is one CTA's", "CTAs of a cluster (ranks=)")
    if copy.ranks and not several:
        named = ", ".join(map(str, copy.ranks))
        raise DispatchError(row.name, f"the destination is in CTAs {named}", "the own CTA")


def _width(tile: ir.View) -> int:
    """The copy's swizzle in bytes, checked to be the hardware's."""
    swizzle, size = tile.place.swizzle, tile.buffer.itemsize
    if swizzle is None:
        return 0
    width = swizzle_bytes(swizzle, size)
    expected = Swizzle("m", width.bit_length() - 5, SWIZZLE_ATOM_LOG2, SWIZZLE_SHIFT)
    if width not in (32, 64, 128) or swizzle.scaled(size.bit_length() - 1) != expected:
        raise DispatchError(
            f"view {tile}", f"swizzle {swizzle} of {size}-byte elements",
            "16-byte chunks XORed with 8-row numbers: 32, 64 or 128 bytes",
        )  # fmt: skip
    return width


def _map_dims(tensor: ir.View, tile: ir.View) -> list[Dim]:
    """One map dim per iter of the tensor's layout, with the shared-memory iters it fills."""
    blocks = dict(zip(tensor.dims, tile.place.blocks, strict=True))
    if tensor.buffer.place.swizzle is not None:
        raise DispatchError(f"tensor {tensor.buffer}", "is swizzled", "a plain layout")
    dims: list[Dim] = []
    for d, block in enumerate(tensor.buffer.place.blocks):
        # A dim of extent 1 has no iter; boxes that reach past it need one, with any stride.
        unit = (Iter(1, ALIGNED_BYTES // tensor.buffer.itemsize, "m"),)
        parts = _split(tensor, d, block or (unit if tensor.extent[d] > 1 else ()))
        extents = [extent for _, _, extent in parts]
        smem = group(blocks.get(d, ()), extents, f"view {tile}")
        dims += [
            Dim(i.extent, i.stride, begin, extent, inner)
            for (i, begin, extent), inner in zip(parts, smem, strict=True)
        ]
    return dims


def _split(tensor: ir.View, d: int, block: Block) -> list[tuple[Iter, Int, int]]:
    """The part of dim `d` as (iter, begin, extent), slow to fast."""
    begin, extent = tensor.begin[d], tensor.extent[d]
    out: list[tuple[Iter, Int, int]] = []
    for position, i in reversed(list(enumerate(block))):
        if position == 0:
            out.insert(0, (i, begin, extent))
            return out
        size = number(i.extent)
        if extent % size == 0 and divisor(begin) % size == 0:
            out.insert(0, (i, 0, size))
            extent //= size
        elif size % extent == 0 and divisor(begin) % extent == 0:
            out.insert(0, (i, begin % size, extent))
            extent = 1
        else:
            raise DispatchError(
                f"view {tensor}", f"{extent} elements from {begin} cross iter {i}", "whole iters"
            )
        begin = begin // size
    return out


def _boxes(dims: list[Dim], size: int, swizzle: int, limits: Mapping[str, int]) -> list[Boxed]:
    """Order the dims, then grow the box along the dense product of the shared layout."""
    unit = [d for d in dims if d.stride == 1]
    if len(unit) != 1 or len(dims) > limits["rank"]:
        strides = ", ".join(str(d.stride) for d in dims)
        raise DispatchError(
            "tensor map", f"strides ({strides})", f"one stride 1 and at most {limits['rank']} dims"
        )
    rest = [d for d in dims if d is not unit[0]]
    rest.sort(key=lambda d: number(d.smem[-1].stride) if d.smem else 1 << 62)
    out: list[Boxed] = []
    run = 1
    for d in [unit[0], *rest]:
        cap = min(limits["box"], swizzle // size if swizzle and not out else limits["box"])
        boxed = _grow(d, run, cap)
        run *= boxed.box
        out.append(boxed)
    row = out[0].box * size
    if (swizzle and row != swizzle) or row % limits["stride_bytes"]:
        needed = swizzle or f"a multiple of {limits['stride_bytes']}"
        raise DispatchError("box", f"contiguous rows of {row} bytes", f"{needed} bytes")
    return out


def _grow(d: Dim, run: int, cap: int) -> Boxed:
    iters = list(d.smem)
    box = 1
    while iters and iters[-1].stride == run * box and box < cap:
        i = iters.pop()
        extent = number(i.extent)
        take = max(n for n in range(1, extent + 1) if extent % n == 0 and box * n <= cap)
        if take < extent:
            iters.append(Iter(extent // take, number(i.stride) * take, "m"))
            box *= take
            break
        box *= take
    return Boxed(d, box, tuple((number(i.extent), number(i.stride)) for i in iters))


def _require(plan: Plan, tensor: ir.View, dims: list[Dim], multiple: int) -> None:
    """Strides are multiples of 16 bytes, proven or to be checked at launch; numbers fit a map."""
    size = tensor.buffer.itemsize
    for d in dims:
        if isinstance(d.size, int) and d.size > MOST_EXTENT:
            raise DispatchError(f"tensor {tensor.buffer}", f"extent {d.size}", f"{MOST_EXTENT}")
        if isinstance(d.stride, int) and not 0 < d.stride * size < MOST_STRIDE_BYTES:
            wrong, most = f"stride of {d.stride * size} bytes", f"1..{MOST_STRIDE_BYTES - 1}"
            raise DispatchError(f"tensor {tensor.buffer}", wrong, most)
        if d.stride == 1 or divisor(d.stride * size) % multiple == 0:
            continue
        if isinstance(d.stride, int):
            raise DispatchError(
                f"tensor {tensor.buffer}", f"stride of {d.stride * size} bytes",
                f"multiples of {multiple}",
            )  # fmt: skip
        plan.requires.append(Require(f"byte stride of {tensor.buffer}", d.stride * size, multiple))


def _check_base(tile: ir.View, align: int) -> None:
    """The tile begins where the swizzle's pattern does."""
    place, size = tile.place, tile.buffer.itemsize
    period = max(align, (1 << place.swizzle.reach) * size if place.swizzle else 1)
    if divisor(place.at("m") * size) % period:
        raise DispatchError(
            f"view {tile}", f"begins at byte {place.at('m') * size}", f"a multiple of {period}"
        )


def _add_calls(
    plan: Plan,
    op: str,
    tensor_map: TensorMap,
    boxes: list[Boxed],
    copy: ir.CopyAsync,
    tile: ir.View,
) -> None:
    loops = [(d, n, stride) for d, b in enumerate(boxes) for n, stride in b.loop]
    size, base = tile.buffer.itemsize, tile.place.at("m")
    for at in product(*(range(n) for _, n, _ in loops)):
        coords = [b.dim.begin for b in boxes]
        offset = base
        steps = [b.box for b in boxes]
        for digit, (d, n, stride) in reversed(list(zip(at, loops, strict=True))):
            coords[d] = coords[d] + digit * steps[d]
            steps[d] *= n
            offset = offset + digit * stride
        _check_step(offset - base, tile)
        args: dict[str, object] = {
            "map": tensor_map,
            "coords": tuple(coords),
            "address": Address(tile.buffer, offset * size),
        }
        if isinstance(copy, ir.MergeAsync):
            args |= {"monoid": copy.monoid}
        elif op != "tma_store":
            args |= {"barrier": copy.barrier, "slot": copy.slot}
        if copy.ranks:
            args |= {"ranks": copy.ranks}
        plan.calls.append(Call(op, args))


def _check_step(offset: Int, tile: ir.View) -> None:
    swizzle = tile.place.swizzle
    period = max(128 // tile.buffer.itemsize, 1 << swizzle.reach if swizzle else 1)
    if divisor(offset) % period:
        raise DispatchError(f"view {tile}", f"a box begins at element {offset}", f"of {period}")
