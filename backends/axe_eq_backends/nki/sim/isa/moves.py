"""Instructions that move: DMA, copies, fills, transposes, shuffles, registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from axe_eq_backends.nki.sim.dtypes import F32, dtype_of, is_integer, is_packed, name_of
from axe_eq_backends.nki.sim.enums import dge_mode as DGE
from axe_eq_backends.nki.sim.enums import engine as ENGINE
from axe_eq_backends.nki.sim.enums import oob_mode as OOB
from axe_eq_backends.nki.sim.errors import NkiError, shown
from axe_eq_backends.nki.sim.isa.registry import instruction
from axe_eq_backends.nki.sim.state import PSUM, SBUF, Run, current
from axe_eq_backends.nki.sim.storage import Array
from axe_eq_backends.nki.sim.views import Register, Tensor
from axe_eq_backends.nki.timing import TURNED_RUN_BYTES

RUN_BYTES = 2048  # contiguous, from which a DMA is near its rate (nki-dma-bandwidth-guide)


# -- DMA -------------------------------------------------------------------------------------------


@instruction(defaults={"priority": None, "unique_indices": True})
def dma_copy(
    dst: Any, src: Any, oob_mode: Any = OOB.error, dge_mode: Any = DGE.unknown,
    engine: Any = ENGINE.unknown, dst_rmw_op: Any = None,
) -> None:  # fmt: skip
    """Move elements, in order, between HBM and SBUF; casts by way of float32."""
    run = current()
    dst, src = run.tensor("dst", dst), run.tensor("src", src)
    if dst.size != src.size:
        raise run.wrong(
            "B1", f"dst {dst!r}", f"has {dst.size} elements", f"{src.size} as src {src!r}"
        )
    if dge_mode is DGE.hwdge and dst.dtype != src.dtype:
        raise run.wrong("B1", f"dst {dst!r}", f"has another dtype than src {src!r}",
                        "equal dtypes under hwdge")  # fmt: skip
    values, there = gathered(run, "src", src, oob_mode, exact=dst.dtype == src.dtype)
    if dst_rmw_op is not None:
        values = dst_rmw_op.cell(
            gathered(run, "dst", dst, oob_mode, exact=False)[0].reshape(values.shape),
            values.astype(F32),
        )
    scattered(run, "dst", dst, values, there, oob_mode)
    transfer(run, dst, src)


def gathered(
    run: Run, what: str, t: Tensor, mode: Any, *, exact: bool
) -> tuple[Array, Array | None]:
    """The values of a view, and which rows are there: None for all."""
    if t.moved is None or not t.moved.each_row:
        if t.moved is not None and mode is OOB.skip and not _inside(run, what, t):
            return np.zeros(t.shape, t.dtype if exact else F32), np.zeros(t.partitions, np.bool_)
        return run.read(what, t, exact=exact), None
    rows, there = _rows(run, what, t, mode)
    parts = [run.read(what, row, exact=exact) for row in rows]
    found = np.zeros((len(there), *t.shape[1:]), parts[0].dtype if parts else F32)
    for at, part in zip(np.flatnonzero(there), parts, strict=True):
        found[at] = part
    return found, None if there.all() else there


def scattered(
    run: Run, what: str, t: Tensor, values: Array, there: Array | None, mode: Any
) -> None:
    """Write a view whose rows may be indexed; rows that are not there stay as they are."""
    if t.moved is not None and t.moved.each_row:
        rows, inside = _rows(run, what, t, mode)
        values = values.reshape(t.shape)
        for at, row in zip(np.flatnonzero(inside), rows, strict=True):
            if there is None or there[at]:
                run.write(what, row, values[at])
        return
    if t.moved is not None and mode is OOB.skip and not _inside(run, what, t):
        return
    if there is None:
        run.write(what, t, values)
        return
    values = values.reshape(t.shape)
    for at in np.flatnonzero(there):
        run.write(what, t[int(at) : int(at) + 1], values[at])


def _inside(run: Run, what: str, t: Tensor) -> bool:
    """Whether an offset that is read now leaves the view in its tensor."""
    assert t.moved is not None
    by = t.moved.by
    at = (
        int(run.read(f"offset of {what}", by, exact=True).reshape(-1)[0])
        if isinstance(by, Tensor)
        else int(by)
    )
    return 0 <= at < t.moved.count


def _rows(run: Run, what: str, t: Tensor, mode: Any) -> tuple[list[Tensor], Array]:
    """A view for each row of an indexed tensor that is there, and which rows are."""
    moved = t.moved
    assert moved is not None
    index = run.read(f"indices of {what}", moved.by, exact=True)
    at = index.T.reshape(-1).astype(np.int64)[: t.shape[0]]
    there = (at >= 0) & (at < moved.count)
    if len(at) != t.shape[0]:
        raise run.wrong(
            "P1", f"indices of {what}", f"are {len(at)}", f"{t.shape[0]}, one for each row"
        )
    if mode is not OOB.skip and not there.all():
        wrong = int(at[~there][0])
        raise run.wrong("P1", f"indices of {what}", f"hold {wrong}", f"0 to {moved.count - 1}")
    views = [
        Tensor(
            t.storage,
            t.first + int(i) * moved.step,
            t.shape[1:] or (1,),
            t.steps[1:] or (t.itemsize,),
            t.dtype,
        )
        for i in at[there]
    ]
    return views, there


def transfer(run: Run, dst: Tensor, src: Tensor, *, least: int | None = None) -> None:
    """End a DMA: D1 of its runs, and its time."""
    n_bytes = max(dst.size * dst.itemsize, src.size * src.itemsize)
    length = least or min(dst.free_run(), src.free_run())
    if length < RUN_BYTES:
        run.warn("D1", "", f"moves {n_bytes} bytes in runs of {length}",
                 f"runs of {RUN_BYTES} bytes or more")  # fmt: skip
    run.issue("dma", ns=run.machine.dma_ns(n_bytes, length), n_bytes=n_bytes, run=length)


@instruction(defaults={"priority": None})
def dma_transpose(
    dst: Any, src: Any, axes: Any = None, dge_mode: Any = DGE.unknown, oob_mode: Any = OOB.error
) -> None:
    """Reverse the outer and inner dims while moving: (1, 0), (2, 1, 0) or (3, 1, 2, 0)."""
    run = current()
    dst, src = run.tensor("dst", dst), run.tensor("src", src)
    legal = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
    order = legal.get(src.ndim) if axes is None else tuple(axes)
    if order is None or order != legal.get(src.ndim):
        raise run.wrong("P1", f"axes {axes} of src {src!r}", "are none that it permutes",
                        "(1, 0), (2, 1, 0) or (3, 1, 2, 0)")  # fmt: skip
    if src.itemsize != 2 and run.machine.generation < 4 and dge_mode is DGE.hwdge:
        raise run.wrong(
            "E1", f"src {src!r}", f"has {src.itemsize} bytes per element", "2 under hwdge"
        )
    if dst.size != src.size:
        raise run.wrong(
            "B1", f"dst {dst!r}", f"has {dst.size} elements", f"{src.size} as src {src!r}"
        )
    values, _ = gathered(run, "src", src, oob_mode, exact=dst.dtype == src.dtype)
    run.write("dst", dst, np.ascontiguousarray(values.transpose(order)))
    transfer(run, dst, src, least=min(src.free_run(), TURNED_RUN_BYTES))


@instruction(defaults={"unique_indices": True})
def dma_compute(
    dst: Any, srcs: Any, reduce_op: Any, scales: Any = None, oob_mode: Any = OOB.error
) -> None:
    """Add sources up on the way; rows of one may be indexed."""
    run = current()
    dst = run.tensor("dst", dst)
    if reduce_op.name != "add":
        raise run.wrong("E1", f"reduce_op {reduce_op}", "is none of the DMA engine", "nl.add")
    total, there = np.zeros(dst.shape, F32), None
    for n, src in enumerate(srcs):
        src = run.tensor(f"srcs[{n}]", src)
        if src.size != dst.size:
            raise run.wrong(
                "B1", f"srcs[{n}] {src!r}", f"has {src.size} elements", f"{dst.size} as dst"
            )
        values, rows = gathered(run, f"srcs[{n}]", src, oob_mode, exact=False)
        factor = np.float32(1.0 if scales is None else scales[n])
        total = total + values.reshape(dst.shape) * factor
        there = rows if rows is not None else there
    scattered(run, "dst", dst, total, there, oob_mode)
    transfer(run, dst, srcs[0])


# -- copies and fills ------------------------------------------------------------------------------


@instruction(only={"dtype": "0.2"})
def tensor_copy(dst: Any, src: Any, engine: Any = ENGINE.unknown, dtype: Any = None) -> None:
    """Copy on chip; casts by way of float32 where dtypes differ.

    `dtype`, of dialect 0.2 alone, is what is cast to before the destination casts.
    """
    run = current()
    dst, src = run.on_chip(dst=dst, src=src)
    run.same(src=src, dst=dst)
    engines = ("vector", "scalar", "gpsimd") if run.machine.generation > 2 else ("vector", "gpsimd")
    values = run.read("src", src, exact=dst.dtype == src.dtype)
    if dtype is not None:
        values = values.astype(dtype_of(dtype)).astype(F32)
    run.write("dst", dst, values)
    run.issue(run.engine(engine, engines), src.free)


@instruction()
def memset(dst: Any, value: Any, engine: Any = ENGINE.unknown) -> None:
    """Fill with a constant."""
    run = current()
    (dst,) = run.on_chip(dst=dst)
    if not isinstance(value, bool | int | float | np.generic):
        raise NkiError("memset value", f"is {value!r}", "a number", at=shown(run.line))
    if is_packed(dst.dtype):
        if value != 0:
            raise run.wrong("E1", f"value {value}", f"fills {name_of(dst.dtype)}", "0")
        run.write("dst", dst, np.zeros(dst.shape, dst.dtype))
    else:
        held = np.float64 if not is_integer(dst.dtype) else np.int64
        run.write(
            "dst", dst, np.full(dst.shape, value, held if float(value).is_integer() else np.float64)
        )
    run.issue(run.engine(engine, ("vector", "gpsimd")), dst.free, "fill")


@instruction()
def tensor_copy_predicated(dst: Any, src: Any, predicate: Any, reverse_pred: bool = False) -> None:
    """Copy where an integer is not zero; elsewhere the destination stays."""
    run = current()
    dst, predicate = run.on_chip(dst=dst, predicate=predicate)
    run.same(dst=dst, predicate=predicate)
    if predicate.dtype.kind != "u":
        raise run.wrong("E1", f"predicate {predicate!r}", f"is {name_of(predicate.dtype)}",
                        "uint8, uint16 or uint32")  # fmt: skip
    chosen = run.read("predicate", predicate, exact=True).reshape(dst.shape) != 0
    chosen = ~chosen if reverse_pred else chosen
    if isinstance(src, Tensor):
        (src,) = run.on_chip(src=src)
        run.same(dst=dst, src=src)
        if src.buffer is PSUM and predicate.buffer is PSUM:
            raise run.wrong(
                "B2", f"src {src!r}", "is in PSUM as predicate is", "one of both in SBUF"
            )
        if src.dtype != dst.dtype:
            raise run.wrong("E1", f"src {src!r}", f"is no {name_of(dst.dtype)}", "the dtype of dst")
        values = run.read("src", src, exact=True).reshape(dst.shape)
    else:
        values = np.full(dst.shape, src, F32).astype(dst.dtype)
    if chosen.all():  # needs nothing that was there, and waits for it all the same
        run.uses(dst)
        old = values
    else:
        old = run.read("dst", dst, exact=True)
    run.write("dst", dst, np.where(chosen, values, old))
    run.issue("vector", dst.free, "select")


# -- across partitions -----------------------------------------------------------------------------


@instruction()
def nc_transpose(dst: Any, data: Any, engine: Any = ENGINE.unknown) -> None:
    """Swap partitions and free dims, up to 128 x 128 (tensor engine) or 32 x 32 (vector engine)."""
    run = current()
    dst, data = run.on_chip(dst=dst, data=data)
    p, f = data.partitions, data.free
    small = dst.buffer is not PSUM or data.buffer is PSUM
    chosen = run.engine(engine, ("tensor", "vector"), "vector" if small else "tensor")
    most = 128 if chosen == "tensor" else 32
    if max(p, f) > most:
        raise run.wrong(
            "M1",
            f"data {data!r}",
            f"is {p} x {f}",
            f"at most {most} x {most} on the {chosen} engine",
        )
    if (dst.partitions, dst.free) != (f, p):
        raise run.wrong("P1", f"dst {dst!r}", f"is {dst.partitions} x {dst.free}", f"{f} x {p}")
    if chosen == "tensor" and (data.buffer is not SBUF or dst.buffer is not PSUM):
        raise run.wrong(
            "B2",
            f"dst {dst!r}",
            f"is written from {data.buffer.value} by the tensor engine",
            "data in SBUF, dst in PSUM",
        )
    # Dialect 0.2 writes float32 where later ones ask for the dtype of the data.
    if dst.dtype != data.dtype and not (run.dialect == "0.2" and dst.dtype == F32):
        raise run.wrong("E1", f"dst {dst!r}", f"is no {name_of(data.dtype)}", "the dtype of data")
    values = run.read("data", data, exact=dst.dtype == data.dtype)
    run.write("dst", dst, values.reshape(p, f).T)
    if chosen == "vector":
        run.issue(chosen, max(p, f))
        return
    run.issue(chosen, p, "pe.transpose_f32" if data.dtype == F32 else "pe.transpose")


@instruction()
def nc_stream_shuffle(dst: Any, src: Any, shuffle_mask: Any) -> None:
    """In every 32 partitions, partition i takes partition mask[i]; 255 leaves it."""
    run = current()
    dst, src = run.on_chip(dst=dst, src=src)
    mask = [int(m) for m in shuffle_mask]
    if len(mask) != 32 or any(m != 255 and not 0 <= m < 32 for m in mask):
        raise run.wrong(
            "P1", f"shuffle_mask {mask}", f"has {len(mask)} entries", "32 of 0 to 31, or 255"
        )
    if dst.dtype != src.dtype or dst.free != src.free:
        raise run.wrong(
            "E1", f"dst {dst!r}", "differs in dtype or elements", f"those of src {src!r}"
        )
    for p in range(dst.partitions):
        come = p - p % 32 + mask[p % 32]
        if mask[p % 32] == 255:
            continue
        if come >= src.partitions:
            raise run.wrong(
                "P1", f"src {src!r}", f"has no partition {come}", "what shuffle_mask asks for"
            )
    run.by_rows = True
    taken = [p for p in range(dst.partitions) if mask[p % 32] != 255]
    values = {p: run.read("src", src[p - p % 32 + mask[p % 32]], exact=True) for p in taken}
    for p, value in values.items():
        run.write("dst", dst[p], value)
    run.issue("vector", src.free)


@instruction()
def tensor_partition_reduce(dst: Any, op: Any, data: Any) -> None:
    """Reduce over partitions, on the gpsimd engine."""
    run = current()
    dst, data = run.on_chip(dst=dst, data=data)
    values = run.read("data", data, exact=op.kind == "bitvec")
    run.write("dst", dst, op.reduce(values, (0,), True))
    run.issue("gpsimd", data.free, "fold")


# -- registers -------------------------------------------------------------------------------------


def register_alloc(x: Any = None) -> Register:
    """A register, with a value where one is given."""
    if isinstance(x, Tensor):
        run = current()
        run.begin("register_alloc")
        register = Register(_one(run, "x", x))
        run.issue("sync", 1)
        return register
    return Register(None if x is None else int(x))


def _one(run: Run, what: str, t: Tensor) -> int:
    if t.size != 1:
        raise run.wrong("P1", f"{what} {t!r}", f"has {t.size} elements", "1")
    return int(run.read(what, t, exact=True).reshape(-1)[0])


def _register(run: Run, what: str, given: Any) -> Register:
    if not isinstance(given, Register):
        raise NkiError(
            f"{run.op} {what}", f"is {given!r}", "a register of register_alloc", at=shown(run.line)
        )
    return given


@instruction()
def register_move(dst: Any, src: Any) -> None:
    """Put a constant or another register's value into a register."""
    run = current()
    _register(run, "dst", dst).value = int(src)
    run.issue("sync", 1)


@instruction()
def register_load(dst: Any, src: Any) -> None:
    """Read one element into a register."""
    run = current()
    _register(run, "dst", dst).value = _one(run, "src", run.tensor("src", src))
    run.issue("sync", 1)


@instruction()
def register_store(dst: Any, src: Any) -> None:
    """Write a register to a tensor of one element."""
    run = current()
    run.write("dst", dst, np.array(int(_register(run, "src", src))))
    run.issue("sync", 1)
