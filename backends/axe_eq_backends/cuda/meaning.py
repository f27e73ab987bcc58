"""What instruction calls do, by the hardware's rules: the plan level of the interpreter.

Nothing here reads a layout: addresses come from boxes, descriptors and lane rules, as the PTX ISA
states them, so a wrong plan gives wrong values, an uncovered element or a race.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from axe_eq.kernel import cells, ir
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.interp import tiles
from axe_eq.kernel.interp.machine import Cta, Env, Issue, Meaning
from axe_eq.kernel.interp.memory import Ints, KernelFault
from axe_eq.kernel.plan import Address, Call, Regs, TensorMap
from axe_eq.layout.swizzle import Swizzle
from axe_eq.program import ops
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.instrs import SmemForm
from axe_eq_backends.cuda.wgmma import Operand


def _address(address: Address, env: Env, shape: tuple[int, ...]) -> Ints:
    byte = np.asarray(evaluate(address.byte, env), np.int64)
    return np.broadcast_to(address.buffer.offset + byte, shape)


def _active(call: Call, env: Env, shape: tuple[int, ...]) -> Any:
    guard = call["guard"]
    return np.broadcast_to(np.asarray(True if guard is None else evaluate(guard, env), bool), shape)


def _threads(env: Env, issue: Issue) -> tuple[Ints, Ints]:
    return env["warp"] + issue.who.first_warp, env["lane"]


def _read(cta: Cta, regs: Regs, env: Env, issue: Issue, active: Any = True) -> Any:
    """Registers of every thread, (warps, lanes, n); inactive threads' are not looked at."""
    warp, lane = _threads(env, issue)
    index = np.array(regs.index)
    active = np.broadcast_to(active, warp.shape)
    values, _ = cta.regs(regs.buffer)
    out = values[warp[..., None], lane[..., None], index]
    if active.any():
        where = warp[active][:, None], lane[active][:, None], index[None]
        out[active] = cta.read_regs(regs.buffer, *where, issue)
    return out


def _write(cta: Cta, regs: Regs, values: Any, env: Env, issue: Issue) -> None:
    warp, lane = _threads(env, issue)
    cta.write_regs(regs.buffer, warp[..., None], lane[..., None], np.array(regs.index), values)


# -- loads and stores --


def ld_global(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread reads consecutive elements, or fills its registers where the guard fails."""
    element, active, n = _global(call, env)
    values = cta.tensors[call["tensor"].name].read(
        element[..., None] + np.arange(n), active[..., None], call["fill"]
    )
    _write(cta, call["regs"], values, env, issue)


def st_global(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread with a true guard writes consecutive elements."""
    element, active, n = _global(call, env)
    values = _read(cta, call["regs"], env, issue, active)
    tensor = cta.tensors[call["tensor"].name]
    tensor.write(element[..., None] + np.arange(n), values, active[..., None])


def _global(call: Call, env: Env) -> tuple[Ints, Any, int]:
    shape, n = env["lane"].shape, len(call["regs"].index)
    element = np.broadcast_to(np.asarray(evaluate(call["element"], env)), shape)
    active = _active(call, env, shape)
    if (element[active] % n).any():
        raise KernelFault(f"{call}", f"accesses {n} elements at a misaligned element", "alignment")
    return element, active, n


def ld_shared(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread reads consecutive bytes of shared memory."""
    _write(cta, call["regs"], _load_shared(cta, call, env, issue), env, issue)


def _load_shared(cta: Cta, call: Call, env: Env, issue: Issue) -> Any:
    warp, lane = _threads(env, issue)
    dtype, n = DTYPES[call["regs"].buffer.dtype], len(call["regs"].index)
    byte = _address(call["address"], env, warp.shape)
    cta.memory.access(byte, n * dtype.itemsize, issue.who, warp, lane, False, issue.what)
    return cta.memory.load(byte, dtype.numpy, n)


def st_shared(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread with a true guard writes consecutive bytes of shared memory."""
    warp, lane = _threads(env, issue)
    active = _active(call, env, warp.shape)
    values = _read(cta, call["regs"], env, issue, active)[active]
    byte = _address(call["address"], env, warp.shape)[active]
    width = values.shape[-1] * values.itemsize
    who = issue.who
    cta.memory.access(byte, width, who, warp[active], lane[active], True, issue.what)
    cta.memory.store(byte, values)


def ldmatrix(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Lane l addresses row l % 8 of matrix l / 8 (PTX ISA 9.7.14.5.15)."""
    byte, count = _rows(call, env, issue), call["count"]
    warp, lane = _threads(env, issue)
    used = lane < 8 * count
    cta.memory.access(byte[used], 16, issue.who, warp[used], lane[used], False, issue.what)
    dtype = DTYPES[call["regs"].buffer.dtype].numpy
    rows = cta.memory.load(byte[:, : 8 * count], dtype, 8).reshape(-1, count, 8, 8)
    if call["trans"]:
        rows = rows.swapaxes(-1, -2)
    for matrix, first in enumerate(call["regs"].index):
        fragment = rows[:, matrix].reshape(-1, 32, 2)
        regs = Regs(call["regs"].buffer, (first, first + 1))
        _write(cta, regs, fragment, env, issue)


def stmatrix(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """PTX ISA 9.7.14.5.16: the inverse of ldmatrix."""
    byte, count = _rows(call, env, issue), call["count"]
    warp, lane = _threads(env, issue)
    used = lane < 8 * count
    cta.memory.access(byte[used], 16, issue.who, warp[used], lane[used], True, issue.what)
    for matrix, first in enumerate(call["regs"].index):
        regs = Regs(call["regs"].buffer, (first, first + 1))
        rows = _read(cta, regs, env, issue).reshape(-1, 8, 8)
        if call["trans"]:
            rows = rows.swapaxes(-1, -2)
        cta.memory.store(byte[:, 8 * matrix : 8 * matrix + 8], rows)


def _rows(call: Call, env: Env, issue: Issue) -> Ints:
    byte = _address(call["address"], env, env["lane"].shape)
    if (byte[:, : 8 * call["count"]] % 16).any():
        raise KernelFault(issue.what, "a matrix row begins at a misaligned byte", "16-byte rows")
    return byte


# -- asynchronous copies --


def tma_load(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Box element (fastest dim first) goes to the dense byte, swizzled on the absolute address."""
    byte, element, inside = _box(cta, call, env)
    copy = issue.primitive
    assert isinstance(copy, ir.CopyAsync)
    tiles.bulk_load(cta, copy, byte, element, inside, env, issue)


def tma_store(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """The inverse; elements outside the tensor are not written."""
    byte, element, inside = _box(cta, call, env)
    copy = issue.primitive
    assert isinstance(copy, ir.CopyAsync)
    tiles.bulk_store(cta, copy, byte, element, inside, issue)


def _box(cta: Cta, call: Call, env: Env) -> tuple[Ints, Ints, Any]:
    m: TensorMap = call["map"]
    size = m.buffer.itemsize
    at = np.indices(m.box[::-1])[::-1]
    dense = sum(x * int(np.prod(m.box[:d], dtype=np.int64)) for d, x in enumerate(at)) * size
    byte = _absolute(call["address"], env) + dense
    if m.swizzle_bytes:
        byte = Swizzle("m", m.swizzle_bytes.bit_length() - 5, 4, 3).apply_table(byte)
    element, inside = np.zeros((), np.int64), np.asarray(True)
    for x, c, extent, stride in zip(at, call["coords"], m.shape, m.strides, strict=True):
        index = x + int(np.asarray(evaluate(c, env)).item())
        inside = inside & (index >= 0) & (index < evaluate(extent, cta.env))
        element = element + index * evaluate(stride, cta.env)
    return byte.ravel(), np.where(inside, element, 0).ravel(), np.asarray(inside).ravel()


def _absolute(address: Address, env: Env) -> int:
    return address.buffer.offset + int(np.asarray(evaluate(address.byte, env)).item())


def cp_async_copy(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread copies consecutive bytes; zeros where the guard fails."""
    shape, n = env["lane"].shape, call["count"]
    warp, lane = _threads(env, issue)
    live = np.broadcast_to(np.asarray(evaluate(call["live"], env), bool), shape)
    element = np.broadcast_to(np.asarray(evaluate(call["element"], env)), shape)
    active = _active(call, env, shape) & live
    byte = _address(call["address"], env, shape)
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


def operand_bytes(o: Operand, mn: int, k: int, size: int) -> Ints:
    """Byte of element (mn, k) relative to the descriptor's start, before the swizzle.

    PTX ISA 9.7.15.5.1, canonical layouts: 8-row groups `sbo` apart where k is contiguous, with
    16-byte columns `lbo` apart if there is no swizzle; where mn is contiguous, groups of one
    swizzle row `lbo` apart along mn and groups of 8 k `sbo` apart.
    """
    lbo, sbo = (o.bits >> 16 & 0x3FFF) << 4, (o.bits >> 32 & 0x3FFF) << 4
    code = o.bits >> 62
    width = {0: 16, 1: 128, 2: 64, 3: 32}[code]
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
    reads = []
    for name, mn in (("a", 64), ("b", n)):
        form: Operand = call[f"{name}_form"]
        byte = _absolute(call[name], env) + operand_bytes(form, mn, k, size)
        byte = _swizzled(form.form, form.bits, byte)
        tiles.note_product_read(cta, byte, size, issue)
        reads.append(lambda byte=byte: cta.memory.load(byte, DTYPES[call["dtype"]].numpy)[..., 0])
    gemm = issue.primitive
    assert isinstance(gemm, ir.Gemm)
    where = _fragment(call["regs"], n, issue)
    _start(cta, gemm, reads, where, bool(evaluate(call["accumulate"], env)), issue)


def _swizzled(form: SmemForm, bits: int, byte: Ints) -> Ints:
    width = {0: 0, 1: 3, 2: 2, 3: 1}[bits >> 62]
    return Swizzle("m", width, 4, 3).apply_table(byte) if width else byte


def _fragment(regs: Regs, n: int, issue: Issue) -> tuple[Ints, Ints, Ints]:
    """PTX ISA 9.7.15.5.2, figure of matrix D: (warp, lane, register) of element (row, column)."""
    row, col = np.meshgrid(np.arange(64), np.arange(n), indexing="ij")
    warp = row // 16 + issue.who.first_warp
    lane = row % 8 * 4 + col % 8 // 2
    number = col // 8 * 4 + row % 16 // 8 * 2 + col % 2
    return warp, lane, np.array(regs.index)[number]


def _start(
    cta: Cta,
    gemm: ir.Gemm,
    reads: list[Any],
    where: tuple[Ints, Ints, Ints],
    keep: bool,
    issue: Issue,
) -> None:
    values, defined = cta.regs(gemm.acc.buffer)
    if cta.touched.get((gemm.acc.buffer, issue.who.group), True):
        raise KernelFault(issue.what, "takes registers that ordinary code used", "wgmma_fence")
    if keep and not defined[where].all():
        raise KernelFault(issue.what, f"accumulates into {gemm.acc}, which was never written")
    defined[where] = True

    def effect() -> None:
        a, b = (read().astype(np.float32) for read in reads)
        x = np.einsum("mk,nk->mn", a, b)
        values[where] = values[where] + x if keep else x

    cta.queue("wgmma", issue.who.group).effects[-1].append(effect)


def wgmma_commit(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Close the group."""
    assert isinstance(issue.primitive, ir.Gemm)
    tiles.commit_product(cta, issue.primitive, issue)


def wgmma_fence(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Hand the accumulator's registers to the products that follow."""
    assert isinstance(issue.primitive, ir.Gemm)
    cta.touched[issue.primitive.acc.buffer, issue.who.group] = False


def mma(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Multiply fragments a (16, 16) and b (8, 16) (PTX ISA 9.7.14.5.8, m16n8k16)."""
    lane = np.arange(32)
    group, pair = lane[:, None] // 4, lane[:, None] % 4 * 2
    i = np.arange(8)[None]
    a_row, a_col = group + i // 2 % 2 * 8, pair + i % 2 + i // 4 * 8
    b_col = pair + i[:, :4] % 2 + i[:, :4] // 2 * 8
    c_row, c_col = group + i[:, :4] // 2 * 8, pair + i[:, :4] % 2
    fragments = [_read(cta, call[name], env, issue) for name in ("a", "b")]
    n = fragments[0].shape[0]
    a, b = np.zeros((n, 16, 16), np.float32), np.zeros((n, 8, 16), np.float32)
    a[:, a_row, a_col] = fragments[0]
    b[:, np.broadcast_to(group, b_col.shape), b_col] = fragments[1]
    x = np.einsum("wmk,wnk->wmn", a, b)[:, c_row, c_col]
    keep = bool(evaluate(call["accumulate"], env))
    _write(cta, call["acc"], x + _read(cta, call["acc"], env, issue) if keep else x, env, issue)


# -- registers --


def map_cells(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread applies the cell to its registers."""
    ins = [tiles.accumulate_type(_read(cta, r, env, issue)) for r in call["ins"]]
    out: Regs = call["out"]
    result = cells.evaluate(call["cell"], ins)
    _write(cta, out, np.broadcast_to(result, (*env["lane"].shape, len(out.index))), env, issue)


def fill(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread sets its registers."""
    out: Regs = call["out"]
    _write(cta, out, np.full((*env["lane"].shape, len(out.index)), call["value"]), env, issue)


def index(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread sets its registers to the given values."""
    shape = env["lane"].shape
    values = [np.broadcast_to(evaluate(v, env), shape) for v in call["values"]]
    _write(cta, call["out"], np.stack(values, -1), env, issue)


def _merge(monoid: str, a: Any, b: Any) -> Any:
    return ops.MONOIDS[monoid].merge((a,), (b,))[0]


def accumulate(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Combine registers of one thread in order."""
    values = tiles.accumulate_type(_read(cta, call["ins"], env, issue))
    total = values[..., :1]
    for i in range(1, values.shape[-1]):
        total = _merge(call["monoid"], total, values[..., i : i + 1])
    _write(cta, call["out"], total, env, issue)


def shuffle(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Combine with the lane whose number differs in the mask."""
    values = _read(cta, call["regs"], env, issue)
    other = values[:, np.arange(32) ^ call["mask"]]
    _write(cta, call["regs"], _merge(call["monoid"], values, other), env, issue)


def ld_combine(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Read from shared memory and combine."""
    old = _read(cta, call["regs"], env, issue)
    new = _load_shared(cta, call, env, issue)
    _write(cta, call["regs"], _merge(call["monoid"], old, new), env, issue)


def sync(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Barrier of the scope."""
    cta.clocks.barrier(cta.clocks.classes(issue.who))


MEANINGS: Mapping[str, Meaning] = {
    "ld_global": ld_global, "st_global": st_global, "ld_shared": ld_shared,
    "st_shared": st_shared, "ldmatrix": ldmatrix, "stmatrix": stmatrix, "tma_load": tma_load,
    "tma_store": tma_store, "cp_async": cp_async_copy, "wgmma": wgmma,
    "wgmma_fence": wgmma_fence, "wgmma_commit": wgmma_commit, "mma": mma, "map": map_cells,
    "fill": fill, "index": index, "accumulate": accumulate, "shuffle": shuffle,
    "ld_combine": ld_combine, "sync": sync,
}  # fmt: skip
