"""Signals between devices, and waits for them: numbers in memory that devices see of each other.

What one thread adds to a number of another device is behind all that it knows (one fence of the
system, then `red.relaxed.sys`: a release pattern); who reads it (`ld.acquire.sys`) knows that too.
A bulk copy behind a wait sees it by the fence between ordinary accesses and the async proxy's.

Source: PTX ISA 8.5, sections 8 (memory consistency model), 9.7.12 (red, fence).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from axe_eq.errors import DispatchError
from axe_eq.kernel.expr import Int
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.target import Instr
from axe_eq_backends.cuda import threads

if TYPE_CHECKING:
    from axe_eq_backends.cuda.emit import Writer


def derive(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan a signal by ``signal.add``, ``clear`` or ``tell``, or a wait by ``signal.wait``."""
    for view in primitive.views():
        if view.buffer.memory != "gmem":
            raise DispatchError(row.name, f"a number lies in {view.buffer.memory}", "gmem")
        threads.check_dtype(row, view.buffer.dtype)
    if isinstance(primitive, ir.Signal):
        (last,), flags = _elements(primitive.last), _elements(primitive.flags)
        found = [("signal_clear", primitive.last.buffer, last)]
        found += [("signal_add", primitive.flags.buffer, e) for e in flags]
        calls = [Call(op, {"tensor": t, "element": e}) for op, t, e in found]
        calls.insert(1, Call("signal_fence", {}))
        return Plan(row, calls, notes=f"{len(flags)} devices")
    if isinstance(primitive, ir.Clear):
        own = primitive.flags.buffer
        found = [("signal_clear", own, e) for e in _elements(primitive.flags)]
        return Plan(row, [Call(op, {"tensor": t, "element": e}) for op, t, e in found])
    if isinstance(primitive, ir.Tell):
        if context.where.scope != "elect":
            raise DispatchError(row.name, f"scope {context.where.scope}", "one elected thread")
        calls = [Call("tell_fence", {})]
        for flag, count in zip(primitive.flags, primitive.counts, strict=True):
            (element,) = _elements(flag)
            args = {"tensor": flag.buffer, "element": element, "count": count}
            calls.append(Call("signal_tell", args))
        return Plan(row, calls, notes=f"{len(primitive.flags)} numbers")
    assert isinstance(primitive, ir.Await)
    (element,) = _elements(primitive.flag)
    args = {"tensor": primitive.flag.buffer, "element": element, "least": primitive.least}
    return Plan(row, [Call("signal_wait", args)], notes=f"at least {primitive.least}")


def _elements(view: ir.View) -> list[Int]:
    """The storage element of every number of a view of one dim."""
    (n,) = view.shape
    return [view[i : i + 1].place.at("m") for i in range(n)]


# -- texts -----------------------------------------------------------------------------------------


def signal_text(w: Writer, call: Call, s: ir.Primitive) -> None:
    """The first thread of the grid adds to a number, clears it, or puts all it knows before."""
    address = _address(w, call) if call.args else ""
    w.line(f"if (blockIdx.x == 0 && threadIdx.x == 0) {w.use(call.op)}({address});")


def tell_text(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Who issues it puts all that it knows before, or adds to a number."""
    args = f"{_address(w, call)}, {w.expr(call['count'])}" if call.args else ""
    w.line(f"{w.use(call.op)}({args});")


def wait_text(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Those who issue it read a number until it is there."""
    w.line(f"{w.use('signal_wait')}({_address(w, call)}, {call['least']});")


def _address(w: Writer, call: Call) -> str:
    name, element = w.name(call["tensor"]), call["element"]
    return name if element == 0 else f"{name} + {w.wide(element)}"


CALLS: Mapping[str, Callable[[Writer, Call, Any], None]] = {
    "signal_clear": signal_text, "signal_fence": signal_text, "signal_add": signal_text,
    "tell_fence": tell_text, "signal_tell": tell_text, "signal_wait": wait_text,
}  # fmt: skip
