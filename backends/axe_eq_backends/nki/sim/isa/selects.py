"""Masks, patterns, gathers, searches and statistics: vector and gpsimd engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from axe_eq_backends.nki.sim.dtypes import F32, is_integer, name_of
from axe_eq_backends.nki.sim.enums import reduce_cmd as CMD
from axe_eq_backends.nki.sim.isa.cells import inputs, operator_of, scalar, summed
from axe_eq_backends.nki.sim.isa.registry import instruction
from axe_eq_backends.nki.sim.ops import OPS
from axe_eq_backends.nki.sim.state import PSUM, SBUF, Run, current
from axe_eq_backends.nki.sim.storage import Array
from axe_eq_backends.nki.sim.views import Tensor

U32 = np.dtype(np.uint32)
FEWEST, MOST = 8, 16384  # elements that max8 and its kin search


# -- patterns --------------------------------------------------------------------------------------


def _affine(
    run: Run, dst: Tensor, pattern: Sequence[Sequence[int]], offset: int, per_row: int
) -> Array:
    """Offset + partition * per_row + the sum of index * step over a pattern, per partition."""
    if len(pattern) > 4:
        raise run.wrong("P3", f"pattern {pattern}", f"has {len(pattern)} dims", "at most 4")
    flat = np.zeros(1, np.int64)
    for step, count in pattern:
        flat = (flat[:, None] + int(step) * np.arange(int(count))).reshape(-1)
    if len(flat) != dst.free:
        raise run.wrong(
            "P1", f"pattern {pattern}", f"counts {len(flat)} elements", f"{dst.free} as {dst!r}"
        )
    return flat[None] + int(offset) + np.arange(dst.partitions)[:, None] * int(per_row)


def _in_sbuf(run: Run, **views: Any) -> list[Tensor]:
    out = []
    for what, given in views.items():
        t = run.tensor(what, given)
        if t.buffer is not SBUF:
            raise run.wrong(
                "B2", f"{what} {t!r}", f"is in {t.buffer.value}", "SBUF: the gpsimd engine"
            )
        out.append(t)
    return out


@instruction()
def iota(dst: Any, pattern: Any, offset: Any = 0, channel_multiplier: int = 0) -> None:
    """Numbers of an affine pattern."""
    run = current()
    (dst,) = _in_sbuf(run, dst=dst)
    run.write("dst", dst, _affine(run, dst, pattern, offset, channel_multiplier))
    run.issue("gpsimd", dst.free, "index")


@instruction()
def affine_select(
    dst: Any, pattern: Any, channel_multiplier: int, on_true_tile: Any, on_false_value: Any,
    cmp_op: Any = OPS["equal"], offset: int = 0,
) -> None:  # fmt: skip
    """The tile where an affine expression compares with 0, else a constant."""
    run = current()
    dst, tile = _in_sbuf(run, dst=dst, on_true_tile=on_true_tile)
    run.same(on_true_tile=tile, dst=dst)
    values = _affine(run, dst, pattern, offset, channel_multiplier)
    chosen = operator_of(run, "cmp_op", cmp_op, kinds=("arithmetic",)).cell(values, 0) != 0
    x = run.read("on_true_tile", tile).reshape(chosen.shape)
    run.write("dst", dst, np.where(chosen, x, F32.type(on_false_value)))
    run.issue("gpsimd", dst.free, "index")


@instruction()
def range_select(
    dst: Any, on_true_tile: Any, comp_op0: Any, comp_op1: Any, bound0: Any, bound1: Any,
    reduce_cmd: Any = CMD.reset_reduce, reduce_res: Any = None, reduce_op: Any = OPS["maximum"],
    range_start: Any = 0, on_false_value: float = -3.4028235e38,
) -> None:  # fmt: skip
    """The tile where its index is between two bounds, else the least float; and the maximum."""
    run = current()
    run.at_least(3)
    dst, tile = run.on_chip(dst=dst, on_true_tile=on_true_tile)
    run.same(on_true_tile=tile, dst=dst)
    x = run.read("on_true_tile", tile).reshape(tile.partitions, -1)
    at = np.arange(x.shape[1], dtype=F32) + F32.type(int(range_start))
    chosen = np.ones(x.shape, np.bool_)
    for what, op, bound in (("bound0", comp_op0, bound0), ("bound1", comp_op1, bound1)):
        limit = scalar(run, what, bound, tile).reshape(-1, 1)
        chosen &= op.cell(at[None], limit) != 0
    values = np.where(chosen, x, F32.type(on_false_value))
    run.write("dst", dst, values)
    if reduce_op is not None:
        summed(run, "vector", reduce_op, values, tile, reduce_cmd, reduce_res)
    run.issue("vector", dst.free, "select")


@instruction("0.3")
def select_reduce(
    dst: Any, predicate: Any, on_true: Any, on_false: Any, reduce_res: Any = None,
    reduce_cmd: Any = CMD.idle, reduce_op: Any = OPS["maximum"], reverse_pred: bool = False,
) -> None:  # fmt: skip
    """A tile where an integer is not zero, else one value per partition; and the maximum."""
    run = current()
    dst, predicate, on_true = run.on_chip(dst=dst, predicate=predicate, on_true=on_true)
    run.same(on_true=on_true, predicate=predicate, dst=dst)
    if on_true.buffer is PSUM and predicate.buffer is PSUM:
        raise run.wrong(
            "B2", f"on_true {on_true!r}", "is in PSUM as predicate is", "one of both in SBUF"
        )
    if not is_integer(predicate.dtype) or predicate.itemsize > 2:
        raise run.wrong(
            "E1",
            f"predicate {predicate!r}",
            f"is {name_of(predicate.dtype)}",
            "int8, uint8, int16 or uint16",
        )
    chosen = run.read("predicate", predicate, exact=True).reshape(dst.shape) != 0
    (x,) = inputs(run, OPS["copy"], on_true=on_true)
    other = scalar(run, "on_false", on_false, dst)
    values = np.where(~chosen if reverse_pred else chosen, x.reshape(dst.shape), other)
    run.write("dst", dst, values)
    if reduce_cmd is not CMD.idle or reduce_res is not None:
        summed(run, "vector", reduce_op, values, dst, reduce_cmd, reduce_res)
    run.issue("vector", dst.free, "select")


# -- gathers ---------------------------------------------------------------------------------------


@instruction()
def nc_n_gather(dst: Any, data: Any, indices: Any) -> None:
    """Dst[p, i] = data[p, indices[p, i]], with free dims as one."""
    run = current()
    dst, data, indices = _in_sbuf(run, dst=dst, data=data, indices=indices)
    run.same(indices=indices, dst=dst)
    if indices.dtype != U32 or dst.dtype != data.dtype or indices.partitions != data.partitions:
        raise run.wrong("E1", f"indices {indices!r}", f"meet data {data!r} and dst {dst!r}",
                        "uint32, equal dtypes of data and dst, equal partitions")  # fmt: skip
    at = run.read("indices", indices, exact=True).reshape(data.partitions, -1).astype(np.int64)
    x = run.read("data", data, exact=True).reshape(data.partitions, -1)
    if at.size and at.max() >= x.shape[1]:
        raise run.wrong("P1", f"indices {indices!r}", f"hold {at.max()}", f"0 to {x.shape[1] - 1}")
    run.write("dst", dst, np.take_along_axis(x, at, 1))
    run.issue("gpsimd", dst.free)


@instruction()
def nonzero_with_count(dst: Any, src: Any, index_offset: int = 0, padding_val: int = -1) -> None:
    """Indices of elements that are not zero, padding, and their count; partitions 0, 16, 32, ..."""
    run = current()
    run.at_least(3)
    dst, src = _in_sbuf(run, dst=dst, src=src)
    if dst.free != src.free + 1 or dst.partitions != src.partitions:
        raise run.wrong("P1", f"dst {dst!r}", f"is {dst.partitions} x {dst.free}",
                        f"{src.partitions} x {src.free + 1}")  # fmt: skip
    run.by_rows = True
    for p in range(0, src.partitions, 16):
        x = run.read("src", src[p], exact=True).reshape(-1)
        found = np.flatnonzero(x) + int(index_offset)
        padding = np.full(len(x) - len(found), int(padding_val))
        run.write("dst", dst[p], np.concatenate([found, padding, [len(found)]]))
    run.issue("gpsimd", src.free)


# -- searches --------------------------------------------------------------------------------------


def _searched(run: Run, what: str, t: Tensor) -> Array:
    if not FEWEST <= t.free <= MOST:
        raise run.wrong(
            "P1", f"{what} {t!r}", f"has {t.free} elements per partition", f"{FEWEST} to {MOST}"
        )
    return run.read(what, t).reshape(t.partitions, -1)


def _eight(run: Run, what: str, t: Tensor, partitions: int) -> Tensor:
    if (t.partitions, t.free) != (partitions, 8):
        raise run.wrong("P1", f"{what} {t!r}", f"is {t.partitions} x {t.free}", f"{partitions} x 8")
    return t


@instruction()
def max8(dst: Any, src: Any) -> None:
    """The 8 largest elements of each partition, largest first."""
    run = current()
    dst, src = run.on_chip(dst=dst, src=src)
    x = _searched(run, "src", src)
    run.write("dst", _eight(run, "dst", dst, src.partitions), -np.sort(-x, axis=1)[:, :8])
    run.issue("vector", src.free)


@instruction()
def nc_find_index8(dst: Any, data: Any, vals: Any) -> None:
    """Where 8 values occur first; equal values take later places, absent ones all bits set."""
    run = current()
    dst, data, vals = run.on_chip(dst=dst, data=data, vals=vals)
    _eight(run, "dst", dst, data.partitions)
    _eight(run, "vals", vals, data.partitions)
    if name_of(dst.dtype) not in ("uint16", "uint32"):
        raise run.wrong("E1", f"dst {dst!r}", f"is {name_of(dst.dtype)}", "uint16 or uint32")
    x, v = _searched(run, "data", data), run.read("vals", vals).reshape(data.partitions, 8)
    found = np.full(v.shape, np.iinfo(dst.dtype).max, np.int64)
    for p in range(len(x)):
        taken: set[int] = set()
        for i, value in enumerate(v[p]):
            places = [int(at) for at in np.flatnonzero(x[p] == value) if int(at) not in taken]
            if places:
                found[p, i] = places[0]
                taken.add(places[0])
    run.write("dst", dst, found)
    run.issue("vector", data.free)


@instruction()
def nc_match_replace8(dst: Any, data: Any, vals: Any, imm: float, dst_idx: Any = None) -> None:
    """The data with the first occurrence of each of 8 values replaced; values in reverse order."""
    run = current()
    dst, data, vals = run.on_chip(dst=dst, data=data, vals=vals)
    run.same(data=data, dst=dst)
    _eight(run, "vals", vals, data.partitions)
    x, v = _searched(run, "data", data), run.read("vals", vals).reshape(data.partitions, 8)
    # Equal values are matched from the last to the first; a place is matched once.
    found = np.full(v.shape, -1, np.int64)
    matched = np.zeros(x.shape, np.bool_)
    for p in range(len(x)):
        for i in reversed(range(8)):
            places = np.flatnonzero((x[p] == v[p, i]) & ~matched[p])
            if len(places):
                found[p, i] = places[0]
                matched[p, places[0]] = True
    run.write("dst", dst, np.where(matched, F32.type(imm), x))
    if dst_idx is not None:
        (out,) = run.on_chip(dst_idx=dst_idx)
        _eight(run, "dst_idx", out, data.partitions)
        run.write("dst_idx", out, np.where(found < 0, np.iinfo(out.dtype).max, found))
    run.issue("vector", data.free)


# -- statistics ------------------------------------------------------------------------------------


@instruction()
def bn_stats(dst: Any, data: Any) -> None:
    """Count, mean and variance * count of the even and the odd elements of each partition."""
    run = current()
    dst, data = run.on_chip(dst=dst, data=data)
    if data.free > 512:
        raise run.wrong(
            "P1", f"data {data!r}", f"has {data.free} elements per partition", "at most 512"
        )
    if (dst.partitions, dst.free) != (data.partitions, 6):
        raise run.wrong(
            "P1", f"dst {dst!r}", f"is {dst.partitions} x {dst.free}", f"{data.partitions} x 6"
        )
    x = run.read("data", data).reshape(data.partitions, -1)
    out = np.zeros((data.partitions, 6), F32)
    for half in (0, 1):
        part = x[:, half::2]
        if part.shape[1]:
            mean = part.mean(1, keepdims=True)
            moments = np.concatenate([mean, ((part - mean) ** 2).sum(1, keepdims=True)], 1)
            out[:, 3 * half] = part.shape[1]
            out[:, 3 * half + 1 : 3 * half + 3] = moments
    run.write("dst", dst, out)
    run.issue("vector", data.free)


@instruction()
def bn_aggr(dst: Any, data: Any) -> None:
    """Mean and variance of what several bn_stats counted."""
    run = current()
    dst, data = run.on_chip(dst=dst, data=data)
    if data.free % 3 or (dst.partitions, dst.free) != (data.partitions, 2):
        raise run.wrong("P1", f"dst {dst!r}", f"meets data {data!r}",
                        "mean and variance of a multiple of three elements")  # fmt: skip
    x = run.read("data", data).reshape(data.partitions, -1, 3)
    count, mean, spread = x[..., 0], x[..., 1], x[..., 2]
    total = count.sum(1)
    centre = (count * mean).sum(1) / total
    variance = (spread.sum(1) + (count * (mean - centre[:, None]) ** 2).sum(1)) / total
    run.write("dst", dst, np.stack([centre, variance], 1))
    run.issue("vector", data.free)
