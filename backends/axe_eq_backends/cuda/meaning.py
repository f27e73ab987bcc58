"""What instruction calls do, by the hardware's rules: the plan level of the interpreter.

Nothing here reads a layout: addresses come from boxes, descriptors and lane rules, as the PTX ISA
states them, so a wrong plan gives wrong values, an uncovered element or a race.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from axe_eq.kernel import cells
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.interp import Env, Ints, KernelFault
from axe_eq.kernel.plan import Call
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.interp import signals, tiles
from axe_eq.kernel.threads.interp.machine import Cta, Issue, Meaning
from axe_eq.kernel.threads.plan import Address, Regs
from axe_eq.layout.value.swizzle import Swizzle
from axe_eq.program import ops
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda import scan_meaning
from axe_eq_backends.cuda.instrs import K_MAJOR, TMA
from axe_eq_backends.cuda.meaning_parts import (
    active_threads,
    byte_of,
    load_shared,
    read_registers,
    threads_of,
    write_registers,
)
from axe_eq_backends.cuda.tensor_map import TensorMap
from axe_eq_backends.cuda.wgmma import Operand

_TMA = TMA[0].limits
_WIDTHS = {form.code: form.width for form in K_MAJOR}  # bytes of a pattern's row, by layout code


# -- loads and stores --


def ld_global(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread reads consecutive elements, or fills its registers where the guard fails."""
    element, active, n = _global(call, env)
    for regs, step, extent in call.args.get("at", ()):
        at = read_registers(cta, regs, env, issue)[..., 0].astype(np.int64)
        if ((at < 0) | (at >= extent)).any():
            ends = f"reads indices from {at.min()} to {at.max()}"
            raise KernelFault(issue.what, ends, f"0 to {extent - 1}")
        element = element + step * at
    if "at" in call.args and (element[active.any(-1)] % n).any():
        raise KernelFault(f"{call}", f"reads {n} elements at a misaligned element", "alignment")
    values = cta.tensors[call["tensor"].name].read(
        element[..., None] + np.arange(n), active, call["fill"]
    )
    write_registers(cta, call["regs"], values, env, issue)


def st_global(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread with a true guard writes consecutive elements."""
    element, active, n = _global(call, env)
    values = read_registers(cta, call["regs"], env, issue, active.any(-1))
    tensor = cta.tensors[call["tensor"].name]
    tensor.write(element[..., None] + np.arange(n), values, active)


def merge_global(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread with a true guard has memory merge its elements with what is there."""
    element, active, n = _global(call, env)
    values = read_registers(cta, call["regs"], env, issue, active.any(-1))
    tensor = cta.tensors[call["tensor"].name]
    tensor.merge(element[..., None] + np.arange(n), values, active, call["monoid"])


def _global(call: Call, env: Env) -> tuple[Ints, Any, int]:
    """(first element of every thread, which elements of its vector are accessed, their number)."""
    shape, n = env["lane"].shape, len(call["regs"].index)
    element = np.broadcast_to(np.asarray(evaluate(call["element"], env)), shape)
    active = active_threads(call, env, shape)
    if call.op != "ld_global_apart" and (element[active] % n).any():
        raise KernelFault(f"{call}", f"accesses {n} elements at a misaligned element", "alignment")
    inside = n if call["inside"] is None else evaluate(call["inside"], env)
    before = 0 if call["before"] is None else evaluate(call["before"], env)
    first, end = (np.broadcast_to(np.asarray(e), shape)[..., None] for e in (before, inside))
    within = (np.arange(n) >= first) & (np.arange(n) < end)
    return element, active[..., None] & within, n


def ld_shared(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread with a true guard reads consecutive bytes of shared memory."""
    values, active = load_shared(cta, call, env, issue)
    write_registers(cta, call["regs"], values, env, issue, active)


def ld_peer(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread reads consecutive bytes of the shared memory of a CTA of the cluster."""
    warp, lane = threads_of(env, issue)
    (there,) = cta.named((call["rank"],), env, issue.what)
    dtype, n = DTYPES[call["regs"].buffer.dtype], len(call["regs"].index)
    byte = byte_of(call["address"], env, warp.shape)
    there.fetched(byte, n * dtype.itemsize, warp, lane, issue, cta)
    write_registers(cta, call["regs"], there.memory.load(byte, dtype.numpy, n), env, issue)


def st_shared(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread with a true guard writes consecutive bytes of shared memory."""
    warp, lane = threads_of(env, issue)
    active = active_threads(call, env, warp.shape)
    values = read_registers(cta, call["regs"], env, issue, active)[active]
    byte = byte_of(call["address"], env, warp.shape)[active]
    width = values.shape[-1] * values.itemsize
    who = issue.who
    cta.memory.access(byte, width, who, warp[active], lane[active], True, issue.what)
    cta.memory.store(byte, values)


def ldmatrix(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Lane l addresses row l % 8 of matrix l / 8 (PTX ISA 9.7.14.5.15)."""
    byte, count = _rows(call, env, issue), call["count"]
    warp, lane = threads_of(env, issue)
    used = lane < 8 * count
    cta.memory.access(byte[used], 16, issue.who, warp[used], lane[used], False, issue.what)
    dtype = DTYPES[call["regs"].buffer.dtype].numpy
    rows = cta.memory.load(byte[:, : 8 * count], dtype, 8).reshape(-1, count, 8, 8)
    if call["trans"]:
        rows = rows.swapaxes(-1, -2)
    for matrix, first in enumerate(call["regs"].index):
        fragment = rows[:, matrix].reshape(-1, 32, 2)
        regs = Regs(call["regs"].buffer, (first, first + 1))
        write_registers(cta, regs, fragment, env, issue)


def stmatrix(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """PTX ISA 9.7.14.5.16: the inverse of ldmatrix."""
    byte, count = _rows(call, env, issue), call["count"]
    warp, lane = threads_of(env, issue)
    used = lane < 8 * count
    cta.memory.access(byte[used], 16, issue.who, warp[used], lane[used], True, issue.what)
    for matrix, first in enumerate(call["regs"].index):
        regs = Regs(call["regs"].buffer, (first, first + 1))
        rows = read_registers(cta, regs, env, issue).reshape(-1, 8, 8)
        if call["trans"]:
            rows = rows.swapaxes(-1, -2)
        cta.memory.store(byte[:, 8 * matrix : 8 * matrix + 8], rows)


def _rows(call: Call, env: Env, issue: Issue) -> Ints:
    byte = byte_of(call["address"], env, env["lane"].shape)
    if len(call["regs"].index) != call["count"]:
        raise KernelFault(issue.what, f"{call['count']} matrices in {call['regs']}", "one each")
    if (byte[:, : 8 * call["count"]] % 16).any():
        raise KernelFault(issue.what, "a matrix row begins at a misaligned byte", "16-byte rows")
    return byte


# -- asynchronous copies --


def tma_load(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Box element (fastest dim first) goes to the dense byte, swizzled on the absolute address.

    A multicast one does so in every CTA that it names.
    """
    byte, element, inside = _box(cta, call, env, issue)
    copy = issue.primitive
    assert isinstance(copy, ir.CopyAsync)
    ranks = call.args.get("ranks", ())
    slots = tiles.receivers(cta, call["barrier"], call["slot"], ranks, env, issue)
    tiles.bulk_load(cta, copy, slots, byte, element, inside, issue)


def tma_store(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """The inverse; elements outside the tensor are not written. Memory may merge them."""
    byte, element, inside = _box(cta, call, env, issue)
    copy = issue.primitive
    assert isinstance(copy, ir.CopyAsync)
    tiles.bulk_store(cta, copy, byte, element, inside, issue)


def _box(cta: Cta, call: Call, env: Env, issue: Issue) -> tuple[Ints, Ints, Any]:
    m: TensorMap = call["map"]
    size = m.buffer.itemsize
    _check_map(m, cta.env, issue)
    if (at_byte := _absolute(call["address"], env)) % _TMA["align_bytes"]:
        raise KernelFault(issue.what, f"begins at byte {at_byte} of smem", "128-byte alignment")
    at = np.indices(m.box[::-1])[::-1]
    dense = sum(x * int(np.prod(m.box[:d], dtype=np.int64)) for d, x in enumerate(at)) * size
    byte = at_byte + dense
    if m.swizzle_bytes:
        byte = Swizzle("m", m.swizzle_bytes.bit_length() - 5, 4, 3).apply(byte)
    element, inside = np.asarray(evaluate(m.offset, cta.env), np.int64), np.asarray(True)
    for x, c, extent, stride in zip(at, call["coords"], m.shape, m.strides, strict=True):
        index = x + int(np.asarray(evaluate(c, env)).item())
        inside = inside & (index >= 0) & (index < evaluate(extent, cta.env))
        element = element + index * evaluate(stride, cta.env)
    return byte.ravel(), np.where(inside, element, 0).ravel(), np.asarray(inside).ravel()


def _check_map(m: TensorMap, env: Env, issue: Issue) -> None:
    """What the driver refuses to encode (CUDA driver API, cuTensorMapEncodeTiled)."""
    size, unit = m.buffer.itemsize, _TMA["stride_bytes"]
    strides = [int(evaluate(s, env)) * size for s in m.strides]
    row = m.box[0] * size
    ok = len(m.box) <= _TMA["rank"] and all(1 <= b <= _TMA["box"] for b in m.box)
    ok &= strides[0] == size and not any(s % unit for s in strides[1:])
    ok &= not row % unit and (row <= m.swizzle_bytes or not m.swizzle_bytes)
    ok &= m.swizzle_bytes in (0, 32, 64, 128)
    if not ok:
        raise KernelFault(issue.what, f"{m} has strides of {strides} bytes", "a map that encodes")


def _absolute(address: Address, env: Env) -> int:
    return address.buffer.offset + int(np.asarray(evaluate(address.byte, env)).item())


def cp_async_copy(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread copies consecutive bytes; zeros where the guard fails."""
    shape, n = env["lane"].shape, call["count"]
    warp, lane = threads_of(env, issue)
    live = np.broadcast_to(np.asarray(evaluate(call["live"], env), bool), shape)
    element = np.broadcast_to(np.asarray(evaluate(call["element"], env)), shape)
    active = active_threads(call, env, shape) & live
    byte = byte_of(call["address"], env, shape)
    size = call["tensor"].itemsize
    k = cta.memory.chunks(byte[live], n * size, issue.what)
    who = (
        np.broadcast_to(warp[live][:, None], k.shape),
        np.broadcast_to(lane[live][:, None], k.shape),
    )
    classes = cta.clocks.classes_of(issue.who, *who)
    cta.memory.check_write(k, classes, who[1], issue.what)
    queue = cta.queue("cp_async", issue.who.group)
    actor = cta.clocks.async_copies(0) + who[0]
    cta.memory.note_write(k, actor, queue.committed + 1, who[1])
    tensor = cta.tensors[call["tensor"].name]

    def effect() -> None:
        values = tensor.read(element[..., None] + np.arange(n), active[..., None])
        cta.memory.store(byte[live], values[live])

    queue.effects[-1].append(_once(effect))
    cta.defer(queue.effects[-1][-1])


def _once(effect: Any) -> Any:
    done = [False]

    def run() -> None:
        if not done[0]:
            done[0] = True
            effect()

    return run


# -- matrix products --


@lru_cache(maxsize=256)
def operand_bytes(o: Operand, mn: int, k: int, size: int) -> Ints:
    """Byte of element (mn, k) relative to the descriptor's start, before the swizzle.

    PTX ISA 9.7.15.5.1, canonical layouts: 8-row groups `sbo` apart where k is contiguous, with
    16-byte columns `lbo` apart if there is no swizzle; where mn is contiguous, groups of one
    swizzle row `lbo` apart along mn and groups of 8 k `sbo` apart.
    """
    lbo, sbo = (o.bits >> 16 & 0x3FFF) << 4, (o.bits >> 32 & 0x3FFF) << 4
    code = o.bits >> 62
    width = _WIDTHS[code]
    i, j = np.meshgrid(np.arange(mn), np.arange(k), indexing="ij")
    if not o.transposed:
        column = 16 // size
        step = lbo if code == 0 else 16
        return i // 8 * sbo + i % 8 * width + j // column * step + j % column * size
    row = width // size
    return i // row * lbo + i % row * size + j // 8 * sbo + j % 8 * width


def wgmma(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """One 64 x n x k product from two descriptors into an accumulator fragment."""
    n, k, size = call["n"], call["k"], DTYPES[call["dtype"]].itemsize
    if n % 8 or n > 256 or k * size != 32 or len(call["regs"].index) != n // 2:
        raise KernelFault(issue.what, f"m64n{n}k{k} into {call['regs']}", "an instruction's shape")
    reads = []
    for name, mn in (("a", 64), ("b", n)):
        form: Operand | None = call[f"{name}_form"]
        if form is None:
            reads.append(_read_fragment(cta, call[name], env, issue))
            continue
        byte = _start_of(call[name], form, env, issue) + operand_bytes(form, mn, k, size)
        byte = _swizzled(form.bits, byte)
        tiles.note_product_read(cta, byte, size, issue)
        reads.append(lambda byte=byte: cta.memory.load(byte, DTYPES[call["dtype"]].numpy)[..., 0])
    where = _fragment(call["regs"], n, issue)
    cta.check_registers(call["regs"].buffer, where[2], issue)
    keep = bool(evaluate(call["accumulate"], env))
    _start(cta, call["regs"].buffer, reads, where, keep, issue)


def _read_fragment(cta: Cta, regs: Regs, env: Env, issue: Issue) -> Any:
    """Rows in registers, read when the product runs."""
    if cta.touched.get((regs.buffer, issue.who.group), True):
        raise KernelFault(issue.what, "reads registers that ordinary code wrote", "wgmma_fence")
    where = _fragment(regs, 16, issue)
    cta.check_registers(regs.buffer, where[2], issue)
    return tiles.product_registers(cta, regs.buffer, where, issue)


def _start_of(address: Address, form: Operand, env: Env, issue: Issue) -> int:
    """The descriptor's start; a swizzled one lies in the first row of the pattern.

    Other rows would need the descriptor's base offset, which plans leave 0 (PTX ISA 9.7.15.5.1).
    """
    byte, width = _absolute(address, env), _WIDTHS[form.bits >> 62]
    if byte % 16 or (width > 16 and byte % (8 * width) >= width):
        wrong = f"an operand begins at byte {byte} of smem"
        raise KernelFault(issue.what, wrong, "the first row of its swizzle's pattern")
    return byte


def _swizzled(bits: int, byte: Ints) -> Ints:
    width = _WIDTHS[bits >> 62].bit_length() - 5
    return Swizzle("m", width, 4, 3).apply(byte) if width else byte


def _fragment(regs: Regs, n: int, issue: Issue) -> tuple[Ints, Ints, Ints]:
    """Where element (row, column) of an accumulator or of rows in registers is."""
    warp, lane, number = _places(n)
    return warp + issue.who.first_warp, lane, np.array(regs.index)[number]


@lru_cache(maxsize=64)
def _places(n: int) -> tuple[Ints, Ints, Ints]:
    """PTX ISA 9.7.15.5.2, figures of matrices A and D: (warp, lane, register) per (row, column)."""
    row, col = np.meshgrid(np.arange(64), np.arange(n), indexing="ij")
    return row // 16, row % 8 * 4 + col % 8 // 2, col // 8 * 4 + row % 16 // 8 * 2 + col % 2


def _start(
    cta: Cta,
    acc: ir.Buffer,
    reads: list[Any],
    where: tuple[Ints, Ints, Ints],
    keep: bool,
    issue: Issue,
) -> None:
    values, defined = cta.regs(acc)
    if cta.touched.get((acc, issue.who.group), True):
        raise KernelFault(issue.what, "takes registers that ordinary code used", "wgmma_fence")
    if keep and not defined[where].all():
        raise KernelFault(issue.what, f"accumulates into {acc}, which was never written")
    defined[where] = True

    def effect() -> None:
        a, b = (read().astype(np.float32) for read in reads)
        x = np.einsum("mk,nk->mn", a, b)
        values[where] = values[where] + x if keep else x
        cta.watch(acc.name, *where, values[where])

    cta.queue("wgmma", issue.who.group).effects[-1].append(effect)


def wgmma_commit(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Close the group."""
    assert isinstance(issue.primitive, ir.Gemm)
    tiles.commit_product(cta, issue.primitive, issue)


def wgmma_fence(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Hand the registers of the products that follow to them."""
    assert isinstance(issue.primitive, ir.Gemm)
    for view in issue.primitive.views():
        if view.buffer.memory == "reg":
            cta.touched[view.buffer, issue.who.group] = False


def mma(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Multiply fragments a (16, k) and b (8, k).

    PTX ISA 9.7.14.5.6 to 9.7.14.5.8: m16n8k16 of 16-bit types, and m16n8k4 to m16n8k16 of f64.
    """
    wide = call["dtype"] == "f64"
    lane = np.arange(32)[:, None]
    group, in_group = lane // 4, lane % 4
    i, j = (np.arange(len(call[name].index))[None] for name in ("a", "b"))
    if wide:
        a_row, a_col, b_col = group + i % 2 * 8, in_group + i // 2 * 4, in_group + j * 4
    else:
        a_row, a_col = group + i // 2 % 2 * 8, in_group * 2 + i % 2 + i // 4 * 8
        b_col = in_group * 2 + j % 2 + j // 2 * 8
    c = np.arange(4)[None]
    c_row, c_col = group + c // 2 * 8, in_group * 2 + c % 2
    fragments = [read_registers(cta, call[name], env, issue) for name in ("a", "b")]
    n, k = fragments[0].shape[0], i.shape[1] * 2
    dtype = np.float64 if wide else np.float32
    a, b = np.zeros((n, 16, k), dtype), np.zeros((n, 8, k), dtype)
    a[:, a_row, a_col] = fragments[0]
    b[:, np.broadcast_to(group, b_col.shape), b_col] = fragments[1]
    x = np.einsum("wmk,wnk->wmn", a, b)[:, c_row, c_col]
    keep = bool(evaluate(call["accumulate"], env))
    write_registers(
        cta,
        call["acc"],
        x + read_registers(cta, call["acc"], env, issue) if keep else x,
        env,
        issue,
    )


def fma(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread multiplies and adds registers, one after the other."""
    acc: Regs = call["acc"]
    held = tuple(sorted(set(acc.index)))
    place = {r: n for n, r in enumerate(held)}
    regs = Regs(acc.buffer, held)
    keep = bool(evaluate(call["accumulate"], env))
    dtype = DTYPES[acc.buffer.dtype].numpy
    shape = (*env["lane"].shape, len(held))
    total = read_registers(cta, regs, env, issue) if keep else np.zeros(shape, dtype)
    a, b = (read_registers(cta, call[name], env, issue).astype(dtype) for name in ("a", "b"))
    for step, r in enumerate(acc.index):
        total[..., place[r]] += a[..., step] * b[..., step]
    write_registers(cta, regs, total, env, issue)


# -- registers --


def map_cells(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread applies the cell to its registers."""
    ins = [tiles.accumulate_type(read_registers(cta, r, env, issue)) for r in call["ins"]]
    out: Regs = call["out"]
    result = cells.evaluate(call["cell"], ins)
    write_registers(
        cta, out, np.broadcast_to(result, (*env["lane"].shape, len(out.index))), env, issue
    )


def fill(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread sets its registers."""
    out: Regs = call["out"]
    write_registers(
        cta, out, np.full((*env["lane"].shape, len(out.index)), call["value"]), env, issue
    )


def index(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread sets its registers to the given values."""
    shape = env["lane"].shape
    values = [np.broadcast_to(evaluate(v, env), shape) for v in call["values"]]
    write_registers(cta, call["out"], np.stack(values, -1), env, issue)


def _merge(monoid: str, a: Any, b: Any) -> Any:
    """As it is written: by the cell that the monoid says it is merged by."""
    merging = cells.apply(ops.MONOIDS[monoid].merges, cells.arg(0), cells.arg(1))
    return cells.evaluate(merging, (a, b))


def accumulate(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Combine registers of one thread in order."""
    values = tiles.accumulate_type(read_registers(cta, call["ins"], env, issue))
    total = values[..., :1]
    for i in range(1, values.shape[-1]):
        total = _merge(call["monoid"], total, values[..., i : i + 1])
    write_registers(cta, call["out"], total, env, issue)


def shuffle(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Combine with the lane whose number differs in the mask."""
    values = read_registers(cta, call["regs"], env, issue)
    other = values[:, np.arange(32) ^ call["mask"]]
    write_registers(cta, call["regs"], _merge(call["monoid"], values, other), env, issue)


def ld_reduce(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Read values that lie `step` elements apart in shared memory and combine them in order."""
    regs, step = call["regs"], call["step"] * DTYPES[call["regs"].buffer.dtype].itemsize
    total, active = None, None
    for n in range(call["count"]):
        place = Address(call["address"].buffer, call["address"].byte + n * step)
        part = Call("ld_shared", {"regs": regs, "address": place, "guard": call["guard"]})
        value, active = load_shared(cta, part, env, issue)
        total = value if total is None else _merge(call["monoid"], total, value)
    write_registers(cta, regs, total, env, issue, active)


def sync(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Barrier of the scope."""
    cta.clocks.barrier(cta.clocks.classes(issue.who))


def signal_add(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """The first thread of the grid adds 1 to a number, or clears it.

    What its device knew when the kernel began is told with it, if a fence stands between.
    """
    tensor = cta.tensors[call["tensor"].name]
    signals.add(cta, tensor, _number(call, env), issue, is_more=call.op == "signal_add")


def signal_fence(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """What comes next is behind all that the thread knows."""
    cta.fenced = True


def signal_tell(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """A thread adds to a number: what it knows is told with it, if a fence stands between."""
    tensor, count = cta.tensors[call["tensor"].name], int(evaluate(call["count"], env))
    signals.tell(cta, tensor, _number(call, env), count, issue)


def signal_wait(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """The number is there, for the statement has waited; what it tells is known."""
    signals.acquire(cta, cta.tensors[call["tensor"].name], _number(call, env), issue)


def _number(call: Call, env: Env) -> Ints:
    return np.asarray(evaluate(call["element"], env), np.int64).reshape(-1)[:1]


MEANINGS: Mapping[str, Meaning] = {
    "ld_global": ld_global, "ld_global_apart": ld_global, "st_global": st_global,
    "ld_shared": ld_shared, "st_shared": st_shared, "ld_peer": ld_peer,
    "ldmatrix": ldmatrix, "stmatrix": stmatrix, "tma_load": tma_load,
    "tma_load_multicast": tma_load,
    "tma_store": tma_store, "tma_merge": tma_store, "merge_global": merge_global,
    "cp_async": cp_async_copy, "wgmma": wgmma,
    "wgmma_fence": wgmma_fence, "wgmma_commit": wgmma_commit, "mma": mma, "fma": fma,
    "map": map_cells, "fill": fill, "index": index, "accumulate": accumulate, "shuffle": shuffle,
    "ld_reduce": ld_reduce, "sync": sync, "signal_clear": signal_add, "signal_add": signal_add,
    "signal_fence": signal_fence, "tell_fence": signal_fence, "signal_tell": signal_tell,
    "signal_wait": signal_wait,
    **scan_meaning.MEANINGS,
}  # fmt: skip
