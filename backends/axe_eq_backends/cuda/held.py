"""Where compiled code must not move registers across matrix products that are on their way.

A compiler takes an asynchronous product for an ordinary statement: it may read the result before
the wait, write an operand after the fence, or leave what stands before a wait until after it, where
nothing runs beside it. So registers pass through empty statements that keep their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from axe_eq.kernel.threads import ir

Tiles = dict[ir.Buffer, None]


@dataclass
class Held:
    """Register tiles that pass through a place: `before` a statement, and `after` it."""

    before: Tiles = field(default_factory=dict)
    after: Tiles = field(default_factory=dict)


@dataclass
class _State:
    """Products on their way, oldest first, and tiles that ordinary code wrote since they were used.

    `fresh` are those that were written beside products, since the last wait.
    """

    started: list[ir.Buffer] = field(default_factory=list)
    written: Tiles = field(default_factory=dict)
    fresh: Tiles = field(default_factory=dict)


def held_registers(kernel: ir.Kernel) -> Mapping[ir.Statement, Held]:
    """What each product and each wait for products holds.

    Before a product: its registers that code wrote. Before a wait: what code wrote while products
    ran. After a wait: results of the products that it ends.
    """
    found: dict[ir.Statement, Held] = {}
    _body(kernel.body, _State(), found)
    return found


def _body(body: ir.Body, state: _State, found: dict[ir.Statement, Held]) -> None:
    for s in body:
        match s:
            case ir.Gemm(asynchronous=True):
                _product(s, state, found.setdefault(s, Held()))
            case ir.WaitGroup(kind="wgmma"):
                _wait(s, state, found.setdefault(s, Held()))
            case ir.Primitive():
                out = s.views()[0].buffer
                if out.memory == "reg":
                    state.written[out] = None
                    if state.started:
                        state.fresh[out] = None
            case ir.Roles():
                for role in s.branches:
                    _body(role.body, _State(), found)
            case _:
                # What the end of a loop's body leaves is what its next turn begins with.
                for inner in [*ir.children(s)] * (2 if isinstance(s, ir.For) else 1):
                    _body(inner, state, found)


def _product(s: ir.Gemm, state: _State, held: Held) -> None:
    used = [v.buffer for v in s.views() if v.buffer.memory == "reg"]
    held.before |= {b: None for b in used if b in state.written}
    for b in used:
        state.written.pop(b, None)
        state.fresh.pop(b, None)
    state.started.append(s.acc.buffer)


def _wait(s: ir.WaitGroup, state: _State, held: Held) -> None:
    if state.started:
        held.before |= state.fresh
    state.fresh.clear()
    ended = max(len(state.started) - s.pending, 0)
    rest = state.started[ended:]
    held.after |= {b: None for b in state.started[:ended] if b not in rest}
    state.started = rest
