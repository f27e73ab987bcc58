"""Registers, guards and shared memory of threads: what the meanings of calls share."""

from __future__ import annotations

from typing import Any

import numpy as np

from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.interp import Env, Ints
from axe_eq.kernel.plan import Call
from axe_eq.kernel.threads.interp.machine import Cta, Issue
from axe_eq.kernel.threads.plan import Address, Regs
from axe_eq.program.types import DTYPES


def byte_of(address: Address, env: Env, shape: tuple[int, ...]) -> Ints:
    """The byte of shared memory that every thread addresses."""
    byte = np.asarray(evaluate(address.byte, env), np.int64)
    return np.broadcast_to(address.buffer.offset + byte, shape)


def active_threads(call: Call, env: Env, shape: tuple[int, ...]) -> Any:
    """Which threads have a true guard."""
    guard = call["guard"]
    return np.broadcast_to(np.asarray(True if guard is None else evaluate(guard, env), bool), shape)


def threads_of(env: Env, issue: Issue) -> tuple[Ints, Ints]:
    """Warp (of the CTA) and lane of every thread."""
    return env["warp"] + issue.who.first_warp, env["lane"]


def read_registers(cta: Cta, regs: Regs, env: Env, issue: Issue, active: Any = True) -> Any:
    """Registers of every thread, (warps, lanes, n); inactive threads' are not looked at."""
    warp, lane = threads_of(env, issue)
    index = np.array(regs.index)
    active = np.broadcast_to(active, warp.shape)
    cta.check_registers(regs.buffer, index, issue)
    values, _ = cta.regs(regs.buffer)
    out = values[warp[..., None], lane[..., None], index]
    if active.any():
        where = warp[active][:, None], lane[active][:, None], index[None]
        out[active] = cta.read_regs(regs.buffer, *where, issue)
    return out


def write_registers(
    cta: Cta, regs: Regs, values: Any, env: Env, issue: Issue, active: Any = None
) -> None:
    """Registers of every thread, (warps, lanes, n); of the active ones, (threads, n)."""
    warp, lane = threads_of(env, issue)
    warp, lane = (warp, lane) if active is None else (warp[active], lane[active])
    index = np.array(regs.index)
    cta.write_regs(regs.buffer, warp[..., None], lane[..., None], index, values, issue)


def load_shared(cta: Cta, call: Call, env: Env, issue: Issue) -> tuple[Any, Any]:
    """(values of the active threads, which are active)."""
    warp, lane = threads_of(env, issue)
    active = active_threads(call, env, warp.shape)
    dtype, n = DTYPES[call["regs"].buffer.dtype], len(call["regs"].index)
    byte = byte_of(call["address"], env, warp.shape)[active]
    who, width = issue.who, n * dtype.itemsize
    cta.memory.access(byte, width, who, warp[active], lane[active], False, issue.what)
    return cta.memory.load(byte, dtype.numpy, n), active
