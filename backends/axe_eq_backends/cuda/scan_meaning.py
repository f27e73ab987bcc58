"""What calls of scans do, for the interpreter: every thread on its registers, by lanes and warps.

Nothing here knows what the tile is: lanes read the lanes that the hardware's shuffles read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from axe_eq.kernel import cells
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.interp import Env
from axe_eq.kernel.plan import Call
from axe_eq.kernel.threads.interp.machine import Cta, Issue, Meaning
from axe_eq.kernel.threads.plan import Address, Regs
from axe_eq_backends.cuda.meaning_parts import load_shared, read_registers, write_registers

State = list[Any]


def _merged(call: Call, earlier: Sequence[Any], later: Sequence[Any]) -> State:
    both = [*earlier, *later]
    dtypes = [x.dtype for x in later]
    return [
        np.asarray(cells.evaluate(c, both)).astype(d)
        for c, d in zip(call["merge"], dtypes, strict=True)
    ]


def _chosen(condition: Any, one: Sequence[Any], other: Sequence[Any]) -> State:
    return [np.where(condition, a, b) for a, b in zip(one, other, strict=True)]


def _read(cta: Cta, regs: Sequence[Regs], env: Env, issue: Issue) -> State:
    return [read_registers(cta, r, env, issue) for r in regs]


def _write(cta: Cta, regs: Sequence[Regs], state: State, env: Env, issue: Issue) -> None:
    for r, values in zip(regs, state, strict=True):
        shape = (*env["lane"].shape, len(r.index))
        write_registers(cta, r, np.broadcast_to(values, shape), env, issue)


def _lane(call: Call) -> tuple[Any, int, int]:
    """The digit of every lane, its stride and extent."""
    stride, extent = call["lanes"]
    return np.arange(32)[:, None] // stride % extent, stride, extent


def _up(state: State, by: int) -> State:
    """The state of the lane so many below, of the first ones their own."""
    source = np.arange(32) - by
    return [x[:, np.where(source < 0, np.arange(32), source)] for x in state]


def scan_run(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Each thread merges its registers in order."""
    state = _read(cta, call["regs"], env, issue)
    steps = [[x[..., :1] for x in state]]
    for n in range(1, state[0].shape[-1]):
        steps.append(_merged(call, steps[-1], [x[..., n : n + 1] for x in state]))
    found = [np.concatenate(parts, -1) for parts in zip(*steps, strict=True)]
    _write(cta, call["regs"], found, env, issue)


def scan_lanes(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Lanes merge what the lanes before them in the row hold."""
    state = _read(cta, call["regs"], env, issue)
    digit, stride, extent = _lane(call)
    ends, step = [x[..., -1:] for x in state], 1
    while step < extent:
        ends = _chosen(digit >= step, _merged(call, _up(ends, step * stride), ends), ends)
        step *= 2
    found = _chosen(digit > 0, _merged(call, _up(ends, stride), state), state)
    _write(cta, call["regs"], found, env, issue)


def _last(call: Call, ends: State) -> State:
    """What the last lane of every lane's row holds."""
    digit, stride, extent = _lane(call)
    source = (np.arange(32)[:, None] + (extent - 1 - digit) * stride)[:, 0]
    return [x[:, source] for x in ends]


def scan_next(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Runs merge what the repeat before ends with."""
    state = _read(cta, call["regs"], env, issue)
    ends = [x[..., -1:] for x in _read(cta, call["before"], env, issue)]
    _write(cta, call["regs"], _merged(call, _last(call, ends), state), env, issue)


def scan_carry(cta: Cta, call: Call, env: Env, issue: Issue) -> None:
    """Runs merge the carry and the totals of earlier warps; the carry merges all totals."""
    state = _read(cta, call["regs"], env, issue)
    carry = _read(cta, call["carries"], env, issue)
    before = carry
    if call["count"] > 1:
        mine = np.asarray(evaluate(call["mine"], env))
        mine = np.broadcast_to(mine, env["lane"].shape)[..., None]
        for peer in range(call["count"]):
            total = [_peer(cta, call, n, peer, env, issue) for n in range(len(state))]
            before = _chosen(peer < mine, _merged(call, before, total), before)
            carry = _merged(call, carry, total)
    else:
        carry = _merged(call, carry, _last(call, [x[..., -1:] for x in state]))
    _write(cta, call["regs"], _merged(call, before, state), env, issue)
    _write(cta, call["carries"], carry, env, issue)


def _peer(cta: Cta, call: Call, part: int, peer: int, env: Env, issue: Issue) -> Any:
    """The total of a peer warp, as every thread reads it."""
    regs, at = call["regs"][part], call["addresses"][part]
    place = Address(at.buffer, at.byte + peer * call["step"] * at.buffer.itemsize)
    one = Regs(regs.buffer, regs.index[-1:])
    load = Call("ld_shared", {"regs": one, "address": place, "guard": None})
    values, _ = load_shared(cta, load, env, issue)
    return values.reshape(*env["lane"].shape, 1)


MEANINGS: Mapping[str, Meaning] = {
    "scan_run": scan_run, "scan_lanes": scan_lanes, "scan_next": scan_next,
    "scan_carry": scan_carry,
}  # fmt: skip
