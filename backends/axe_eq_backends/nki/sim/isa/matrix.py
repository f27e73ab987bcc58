"""The tensor engine: products into PSUM, and their accumulation groups (M1, M2, M3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from axe_eq_backends.nki.sim.dtypes import BF16, F16, F32, FP8, name_of
from axe_eq_backends.nki.sim.enums import matmul_perf_mode as MODE
from axe_eq_backends.nki.sim.hazards import group_written
from axe_eq_backends.nki.sim.isa.registry import instruction
from axe_eq_backends.nki.sim.state import PSUM, SBUF, Run, current
from axe_eq_backends.nki.sim.views import Tensor


@instruction(only={"accumulate": "0.3"}, defaults={
    "is_stationary_onezero": False, "is_moving_onezero": False})  # fmt: skip
def nc_matmul(
    dst: Any,
    stationary: Any,
    moving: Any,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: tuple[int, ...] = (),
    tile_size: tuple[int, ...] = (),
    perf_mode: Any = MODE.none,
) -> None:
    """Dst (+)= stationary.T @ moving, with the contracted dim on partitions."""
    run = current()
    dst, stationary, moving = (
        run.tensor(what, t)
        for what, t in (("dst", dst), ("stationary", stationary), ("moving", moving))
    )
    double = perf_mode is MODE.double_row
    k, m, n = _extents(run, dst, stationary, moving, double, tuple(tile_size))
    _dtypes(run, dst, stationary, moving, is_transpose, double)
    a = run.read("stationary", stationary).reshape(k, m)
    b = run.read("moving", moving).reshape(k, n)
    with np.errstate(all="ignore"):
        product = a.T @ b
    if _accumulates(run, dst, accumulate):
        product = dst.array().astype(F32).reshape(m, n) + product
    wide = moving.dtype == F32
    run.write("dst", dst, product, product=True)
    row = "pe.matmul_f32" if wide else "pe.matmul"
    run.issue("tensor", n / (2 if double else 1), row)


def _extents(
    run: Run, dst: Tensor, stationary: Tensor, moving: Tensor, double: bool, tile: tuple[int, ...]
) -> tuple[int, int, int]:
    """K, M and N, which fit the engine (M1)."""
    for what, t, memory in (
        ("stationary", stationary, SBUF),
        ("moving", moving, SBUF),
        ("dst", dst, PSUM),
    ):
        if t.buffer is not memory:
            raise run.wrong("M1", f"{what} {t!r}", f"is in {t.buffer.value}", memory.value.upper())
    deep = 2 if double else 1
    if double and (
        stationary.ndim < 3 or moving.ndim < 3 or {stationary.shape[1], moving.shape[1]} != {2}
    ):
        raise run.wrong(
            "M1",
            f"stationary {stationary!r}",
            "has no pair of rows as its first free dim",
            "shapes (K, 2, M) and (K, 2, N) under double_row",
        )
    k, m, n = stationary.partitions * deep, stationary.free // deep, moving.free // deep
    rows, columns = tile if tile else (run.machine.partitions, run.machine.most_stationary)
    if moving.partitions != stationary.partitions:
        raise run.wrong("M1", f"moving {moving!r}", f"has {moving.partitions} partitions",
                        f"{stationary.partitions} as stationary {stationary!r}")  # fmt: skip
    if stationary.partitions > rows or m > columns:
        raise run.wrong(
            "M1",
            f"stationary {stationary!r}",
            f"has {stationary.partitions} rows and {m} columns",
            f"at most {rows} and {columns}",
        )
    most = run.machine.most_moving
    if n > most:
        raise run.wrong("M1", f"moving {moving!r}", f"has {n} columns", f"at most {most}")
    if (dst.partitions, dst.free) != (m, n):
        raise run.wrong("M1", f"dst {dst!r}", f"is {dst.partitions} x {dst.free}", f"{m} x {n}")
    if run.machine.generation < 4:
        base = dst.storage.tile.address[1] if dst.storage.tile.address else 0
        start = base + dst.byte
        stop = start + sum((c - 1) * s for c, s in zip(dst.shape[1:], dst.steps[1:], strict=True))
        bank = run.machine.bank_bytes
        if start // bank != (stop + dst.itemsize - 1) // bank:
            raise run.wrong(
                "M1",
                f"dst {dst!r}",
                f"covers bytes {start} to {stop + dst.itemsize} of a partition",
                f"one bank of {bank} bytes",
            )
    return k, m, n


def _dtypes(
    run: Run, dst: Tensor, stationary: Tensor, moving: Tensor, transpose: bool, double: bool
) -> None:
    """Dtypes that the engine multiplies (E1) and how they pair (M1)."""
    generation = run.machine.generation
    for what, t in (("stationary", stationary), ("moving", moving)):
        multiplied = t.dtype in FP8 | {BF16, F16, F32}
        multiplied &= generation > 3 or name_of(t.dtype) != "float8_e4m3fn"
        if not multiplied and not (transpose and t.dtype.kind != "V"):
            floats = f"floats that the tensor engine of {run.machine.name} multiplies"
            raise run.wrong("E1", f"{what} {t!r}", f"is {name_of(t.dtype)}", floats)
    if (stationary.dtype == F32) != (moving.dtype == F32) and not transpose:
        raise run.wrong(
            "M1",
            f"moving {moving!r}",
            f"meets {name_of(stationary.dtype)} of stationary",
            "float32 with float32 alone",
        )
    if double and not {stationary.dtype, moving.dtype} <= FP8:
        raise run.wrong(
            "M1", f"stationary {stationary!r}", "is no 8-bit float under double_row", "8-bit floats"
        )
    legal = {F32, BF16} if generation > 3 else {F32}
    legal |= {moving.dtype, stationary.dtype} if transpose else set()
    if dst.dtype not in legal:
        raise run.wrong("M1", f"dst {dst!r}", f"is {name_of(dst.dtype)}",
                        " or ".join(sorted(name_of(d) for d in legal)))  # fmt: skip


def _accumulates(run: Run, dst: Tensor, asked: bool | None) -> bool:
    """Whether the product is added to what is there (M2)."""
    storage = dst.storage
    assert storage.product is not None
    by_product = dst.bits(storage.product)
    if asked is None:
        if not by_product.any():
            written = storage.whole or dst.bits(storage.init).any()
            if written and np.any(dst.array().astype(F32) != 0) and not storage.groups:
                raise run.wrong(
                    "M2", f"dst {dst!r}", "holds what no product wrote and is not zero",
                    "accumulate=False, or nothing written before",
                )  # fmt: skip
            asked = False
        elif by_product.all():
            asked = True
        else:
            raise run.wrong("M2", f"dst {dst!r}", "was written by products in part",
                            "all of it, or nothing of it")  # fmt: skip
    elif asked and not by_product.all():
        missing = int(by_product.size - np.count_nonzero(by_product))
        raise run.wrong(
            "M2",
            f"dst {dst!r}",
            f"has {missing} of {by_product.size} places that no product wrote",
            "accumulate=False for the first product of a group",
        )
    group_written(run, dst, bool(asked))
    return bool(asked)
