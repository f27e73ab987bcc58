"""What a primitive leaves behind, to be compared with what its plan's calls did.

Wrong registers may go unnoticed where a kernel drops them later; here they are seen at once. This
covers what is done when the statement is: copies, maps, fills and positions, and reductions of
registers. Products and asynchronous copies show in what reads their results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from axe_eq.kernel import cells
from axe_eq.kernel.interp import Env, Ints, KernelFault
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.interp import tiles
from axe_eq.kernel.threads.interp.machine import Cta, Issue
from axe_eq.program.types import DTYPES

Read = Callable[[], Any]
ROUNDINGS = 8  # units in the last place that two ways to compute a cell may differ by


def promise(cta: Cta, s: ir.Primitive, env: Env, issue: Issue) -> Callable[[], None]:
    """What the primitive would leave, found before its plan runs; call the result afterwards.

    The result raises `KernelFault` where the plan did something else.
    """
    found = _promised(cta, s, env, issue)
    if found is None:
        return lambda: None
    values, read, scale = found

    def check() -> None:
        got = read()
        want = np.broadcast_to(values, got.shape)
        eps = np.finfo(want.dtype).eps if want.dtype.kind == "f" else 0
        with np.errstate(all="ignore"):
            near = np.abs(got - want) <= ROUNDINGS * eps * np.maximum(np.abs(want), scale)
            near &= np.isfinite(want)
        wrong = ~((got == want) | ((got != got) & (want != want)) | near)
        if wrong.any():
            at = tuple(int(x[0]) for x in np.nonzero(wrong))
            raise KernelFault(
                issue.what, f"its plan leaves {got[at]} in {s.views()[0]}", f"{want[at]}"
            )

    return check


def _promised(cta: Cta, s: ir.Primitive, env: Env, issue: Issue) -> tuple[Any, Read, Any] | None:
    """(values, what reads those that are there, what roundings are relative to)."""
    match s:
        case ir.Merge():
            return None  # memory's own value says it
        case ir.Copy() if not s.dst.buffer.is_private:
            return *_put(cta, s, env, issue), 0.0
        case ir.Copy() if not s.src.buffer.is_private:
            where = tiles.held(s.dst, issue)
            return _source(cta, s, env, issue, *where[:2]), _registers(cta, s.dst, where), 0.0
        case ir.Fetch():
            where = tiles.held(s.dst, issue)
            byte = tiles.thread_bytes(cta, s.src, env, issue, *where[:2])
            (there,) = cta.named((s.rank,), env, issue.what)
            there.memory.chunks(byte, s.src.buffer.itemsize, issue.what)
            values = there.memory.load(byte, DTYPES[s.src.buffer.dtype].numpy)[..., 0]
            return values, _registers(cta, s.dst, where), 0.0
        case ir.Copy():
            return _mapped(cta, ir.Map(cells.IDENTITY, s.dst, (s.src,)), issue)
        case ir.Gather():
            found = tiles.gathered_values(cta, s, env, issue)
            return found, _registers(cta, s.dst, tiles.held(s.dst, issue)), 0.0
        case ir.Map():
            return _mapped(cta, s, issue)
        case ir.Fill() | ir.Index():
            where = tiles.held(s.out, issue)
            dtype = DTYPES[s.out.buffer.dtype].numpy
            value = s.value if isinstance(s, ir.Fill) else tiles.positions(cta, s, env, issue)
            values = np.broadcast_to(np.asarray(value).astype(dtype), where[0].shape)
            return values, _registers(cta, s.out, where), 0.0
        case ir.Reduce():
            return _reduced(cta, s, issue)
        case ir.Scan():
            return _scanned(cta, s, issue)
    return None


def _registers(cta: Cta, view: ir.View, where: tiles.Where3) -> Read:
    return lambda: cta.regs(view.buffer)[0][where]


def _source(cta: Cta, s: ir.Copy, env: Env, issue: Issue, warp: Ints, lane: Ints) -> Any:
    """Elements of global or shared memory, for the threads that get them."""
    if s.src.buffer.is_global:
        return tiles.global_values(cta, s, env, issue, warp.shape)
    byte, dtype = tiles.thread_bytes(cta, s.src, env, issue, warp, lane), s.src.buffer.dtype
    cta.memory.chunks(byte, DTYPES[dtype].itemsize, issue.what)  # that are there
    return cta.memory.load(byte, DTYPES[dtype].numpy)[..., 0]


def _put(cta: Cta, s: ir.Copy, env: Env, issue: Issue) -> tuple[Any, Read]:
    """Registers, and the memory that they go to."""
    where = tiles.held(s.src, issue)
    n, view = tiles.n_copies(issue), s.dst
    values = cta.regs(s.src.buffer)[0][where][:n]
    if view.buffer.is_global:
        element, inside = tiles.global_elements(view, cta, env, issue)
        element, inside, values = np.broadcast_arrays(element, inside, values)
        tensor = cta.tensors[view.buffer.name]
        return values[inside], lambda: tensor.data[tensor.stored(element[inside])]
    byte = tiles.thread_bytes(cta, view, env, issue, *where[:2])[:n]
    return values, lambda: cta.memory.load(byte, values.dtype)[..., 0]


def _mapped(cta: Cta, s: ir.Map, issue: Issue) -> tuple[Any, Read, Any]:
    where = tiles.held(s.out, issue)
    held = [(v.buffer, tiles.operand_registers(s, v, issue)) for v in s.ins]
    values = [tiles.accumulate_type(cta.regs(b)[0][*where[:2], reg]) for b, reg in held]
    dtype = DTYPES[s.out.buffer.dtype].numpy
    result = np.asarray(cells.evaluate(s.cell, values)).astype(dtype)
    return np.broadcast_to(result, where[0].shape), _registers(cta, s.out, where), 0.0


def _scanned(cta: Cta, s: ir.Scan, issue: Issue) -> tuple[Any, Read, Any]:
    """All states and carries in a row; roundings are relative to merges of magnitudes."""
    views = (*s.states, *s.carries)
    where = [tiles.held(v, issue) for v in views]
    held = [
        tiles.accumulate_type(cta.regs(v.buffer)[0][w]) for v, w in zip(views, where, strict=True)
    ]
    n = len(s.states)

    def flat(values: list[Any]) -> Any:
        return np.concatenate([np.asarray(v, values[0].dtype).reshape(-1) for v in values])

    found = flat(tiles.scanned(s, held[:n], held[n:], issue))
    sizes = [np.abs(v) if v.dtype.kind == "f" else v for v in held]
    scale = np.abs(flat(tiles.scanned(s, sizes[:n], sizes[n:], issue))) * s.states[0].shape[s.dim]

    def read() -> Any:
        return flat([cta.regs(v.buffer)[0][w] for v, w in zip(views, where, strict=True)])

    return found, read, scale


def _reduced(cta: Cta, s: ir.Reduce, issue: Issue) -> tuple[Any, Read, Any]:
    values = tiles.accumulate_type(cta.regs(s.src.buffer)[0][tiles.held(s.src, issue)])
    where = tiles.held(s.out, issue)
    total = tiles.reduced(s, values, issue, where[0].shape)
    sizes = tiles.reduced(s, np.abs(values), issue, where[0].shape) if s.monoid == "+" else 0.0
    return total.astype(DTYPES[s.out.buffer.dtype].numpy), _registers(cta, s.out, where), sizes
