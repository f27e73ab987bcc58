"""Kernels as text, at both levels: primitives, and plans where they are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Planned, describe
from axe_eq.kernel.expr import Int
from axe_eq.kernel.plan import TensorMap


def show(kernel: ir.Kernel, planned: Planned | None = None) -> str:
    """The kernel as text; with `planned`, instruction calls stand below their primitives."""
    warps = f"{kernel.n_warps} warp" + ("" if kernel.n_warps == 1 else "s")
    lines = [f"kernel {kernel.name}, {warps}, {kernel.smem_bytes} bytes of smem"]
    shown = [
        f"{p}" + (f" (multiple of {p.divisor})" if p.divisor > 1 else "") for p in kernel.params
    ]
    lines += [f"  params {', '.join(shown)}"] if shown else []
    if kernel.cluster > 1:
        lines.append(f"  clusters of {kernel.cluster} CTAs")
    each = "CTA" if kernel.cluster == 1 else "cluster"
    grid = "persistent over" if kernel.persistent else f"one {each} for each of"
    lines.append(f"  {grid} {kernel.tiles} tiles")
    for buffer in kernel.tensors + kernel.buffers:
        at = f" at byte {buffer.offset}" if buffer.memory == "smem" else ""
        shape = "x".join(map(str, buffer.shape))
        lines.append(f"  {buffer.memory} {buffer} {buffer.dtype}[{shape}]{at} = {buffer.place}")
    for b in kernel.barriers:
        lines.append(f"  barrier {b.name}[{b.slots}] at byte {b.offset}, {b.arrivals} arrivals")
    for name, tensor_map in planned.maps.items() if planned else ():
        lines.append(f"  {name} = {tensor_map}")
    return "\n".join([*lines, *_body(kernel.body, planned, 1)]) + "\n"


def _body(body: ir.Body, planned: Planned | None, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for statement in body:
        yield indent + line(statement)
        if isinstance(statement, ir.Primitive) and planned is not None:
            yield from (f"{indent}  | {text}" for text in _plan(statement, planned))
        if isinstance(statement, ir.Roles):
            for role in statement.branches:
                regs = f", {role.registers} registers" if role.registers else ""
                yield f"{indent}  warpgroups {role.low}..{role.high - 1} as {role.var}{regs}:"
                yield from _body(role.body, planned, depth + 2)
        else:
            for inner in ir.children(statement):
                yield from _body(inner, planned, depth + 1)


def _plan(primitive: ir.Primitive, planned: Planned) -> Iterator[str]:
    plan = planned.plan(primitive)
    yield f"{plan.row.name}: {plan.notes}"
    yield from (f"{v} = {value}" for v, value in plan.lets)
    for call in plan.calls:
        args = {
            k: planned.map_name(v) if isinstance(v, TensorMap) else v for k, v in call.args.items()
        }
        shown = ", ".join(f"{k}={_value(v)}" for k, v in args.items() if v is not None)
        yield f"{call.op}({shown})"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_value, value)) + ")"
    return str(value)


def line(s: ir.Statement) -> str:
    """One statement, without the bodies inside it."""
    match s:
        case ir.For():
            return f"for {s.var} in range({s.start}, {s.stop}, {s.step}):"
        case ir.If():
            return f"if {s.condition}:"
        case ir.Roles():
            return "roles:"
        case ir.Scope():
            return {"elect": "one thread:"}.get(s.kind, f"each {s.kind}:")
        case ir.Let() | ir.Assign():
            return f"{s.var} {':=' if isinstance(s, ir.Let) else '='} {s.value}"
        case ir.Wait():
            return f"wait {s.barrier.name}[{s.slot}] parity {s.parity}"
        case ir.Arrive():
            return f"arrive {s.barrier.name}[{s.slot}]{_of_ctas(s.ranks)}"
        case ir.ClusterArrive():
            return "arrive at the cluster's barrier"
        case ir.ClusterWait():
            return "wait for the cluster"
        case ir.Expect():
            return f"arrive {s.barrier.name}[{s.slot}] expecting {s.n_bytes} bytes"
        case ir.Sync():
            return "sync"
        case ir.FenceAsync():
            return "fence_async"
        case ir.Commit():
            return f"commit {s.kind}"
        case ir.WaitGroup():
            return f"wait_group {s.kind} {s.pending}"
        case _:
            return _primitive(s)


def _of_ctas(ranks: Sequence[Int]) -> str:
    return f" of CTAs {', '.join(map(str, ranks))}" if ranks else ""


def _primitive(s: ir.Statement) -> str:
    assert isinstance(s, ir.Primitive)
    text = describe(s)
    match s:
        case ir.CopyAsync(barrier=ir.MBarrier(name=name)):
            return f"{text}, completes {name}[{s.slot}]{_of_ctas(s.ranks)}"
        case ir.Gemm():
            return f"{text}, accumulate {s.accumulate}" + (", async" if s.asynchronous else "")
        case ir.Map():
            return f"{text}: {s.cell}"
        case ir.Reduce():
            return f"{text}: {s.monoid} over dims {s.dims}"
        case ir.Scan():
            return f"{text}: {', '.join(map(str, s.merge))} along dim {s.dim}"
        case ir.Fill():
            return f"{text}: {s.value}"
        case ir.Index():
            return f"{text}: {s.begin} + position along dim {s.dim}"
        case _:
            return text
