"""A machine as somebody else would add it: its figures, an instruction, a monoid, a schedule.

Every door is one of docs/packs.md. The machine is one of the family "cuda", so that nothing else
has to be written for it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

import axe_eq as axe
from axe_eq import Pack
from axe_eq.errors import DispatchError
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.expr import ceil_div
from axe_eq.kernel.families import RowFamily
from axe_eq.kernel.ir import span
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.plan import Regs
from axe_eq.lower.own import Lowered
from axe_eq.lower.read import read_cone
from axe_eq.program.ops import Cell, monoid_of
from axe_eq.program.traced import Operand, Traced
from axe_eq.schedule.graph import KernelStep, ScheduleGraph
from axe_eq.schedule.summary import Columns, Summary, grid_of, traffic
from axe_eq.target import Instr, Target
from axe_eq_backends.cuda.meaning_parts import read_registers, write_registers
from axe_eq_backends.cuda.target import h200

PACK = Pack("chip", summary="a machine with an instruction of its own")

# -- an instruction: the absolute value, as one row ------------------------------------------------


def _derive(row: Instr, primitive: Any, context: Any) -> Plan:
    if not isinstance(primitive, ir.Map) or primitive.cell != apply("abs", arg(0)):
        raise DispatchError(row.name, "computes another cell", "the absolute value of one operand")
    views = (primitive.out, *primitive.ins)
    if {v.buffer.dtype for v in views} != {"f32"} or len({v.place.static() for v in views}) > 1:
        raise DispatchError(row.name, "has tiles that differ", "f32 in one layout")
    out, x = (Regs(v.buffer, tuple(range(v.place.extent_on("reg")))) for v in views)
    return Plan(row, [Call("magnitude", {"out": out, "x": x})], cycles=0.5, notes="bits cleared")


def _meaning(cta: Any, call: Call, env: Any, issue: Any) -> None:
    values = read_registers(cta, call["x"], env, issue)
    write_registers(cta, call["out"], np.abs(values), env, issue)


def _text(writer: Any, call: Call, statement: Any) -> None:
    out, x = writer.name(call["out"].buffer), writer.name(call["x"].buffer)
    for n in call["out"].index:
        writer.line(f'asm("abs.f32 %0, %1;" : "=f"({out}[{n}]) : "f"({x}[{n}]));')


PACK.row_family(
    "cuda",
    RowFamily(
        "magnitude", _derive, {"magnitude": _meaning}, {"magnitude": _text},
        samples={"|x|": (abs, ("9x40:f32",))},
    ),
)  # fmt: skip

# -- the machine: less shared memory, smaller clusters, and that row -------------------------------

CHIP = PACK.target(
    h200.replace(
        name="chip",
        smem=100 << 10,
        cluster=4,
        instrs=(*h200.instrs, Instr("magnitude.f32", "map", dtypes=(("f32",),), scope="thread")),
        source="made up",
    )
)

# -- monoids: one of a cell of ours, with its text; one of cells that everybody has ----------------

PACK.cell(Cell("mygcd", 2, np.gcd, "integer", commutative=True, associative=True))
PACK.spelling(
    "cuda", "mygcd",
    i32="[](int a, int b) {{ while (b) {{ int r = a % b; a = b; b = r; }} "
    "return abs(a); }}({0}, {1})",
)  # fmt: skip
PACK.monoid(monoid_of("mygcd", "mygcd", 0.0, lifts="abs", result="integer", exact=True, flops=40))
PACK.monoid(monoid_of("myfarthest", "maximum", 0.0, lifts="abs", exact=True, flops=2))


def mygcd(x: Operand, /) -> Traced:
    """The greatest common divisor of every row."""
    return axe.array.block("a b -> a; mygcd b", "id", x)


def myfarthest(x: Operand, /) -> Traced:
    """The greatest absolute value of every row."""
    return axe.array.block("a b -> a; myfarthest b", "id", x)


# -- a schedule with parameters: how many warps go through a vector together -----------------------


class Pieces:
    """Any cells of one f32 vector, in pieces that some warps hold."""

    name = "pieces_of_warps"
    families = ("cuda",)

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused but for a vector of whole pieces."""
        if summary.products or summary.n_folds or summary.scans:
            return "not cells alone"
        if len(summary.loads) != 1 or len(summary.stores) != 1:
            return "not one tensor to another"
        sizes = [extent for _, extent in summary.extents if extent > 1]
        if len(sizes) != 1 or summary.loads[0].n_bytes != 4 * sizes[0] or sizes[0] % 1024:
            return "not one dim of whole pieces of 4-byte elements"
        return None

    def price(self, summary: Summary, target: Target) -> Columns:
        """Fewer warps are said to be cheaper: here it shall be seen that the parameter arrives."""
        p, k, warps = grid_of((1024,), (1,), (2, 4, 8))
        columns = Columns({"p": p, "q": k, "k": k, "s": k}, {"warps": warps})
        once, _ = traffic(summary, columns)
        columns.time_s = 0.5 * target.launch_s + once / target.memories[0].bytes_per_s * warps
        return columns

    def lower(self, step: KernelStep, graph: ScheduleGraph, target: Target) -> Lowered:
        """Every warp holds 4 neighbours per lane, as often as it takes to cover a piece."""
        cone, warps = read_cone(step), dict(step.parameters)["warps"]
        load, root, extent = cone.load(0), cone.roots[0], cone.shape[0]
        k = ThreadBuilder("pieces_of_warps", warps=warps)
        x = k.tensor("X", load.dtype, (extent,), strides=(load.strides[0],))
        y = k.tensor("Y", root.dtype, (extent,), output=True)
        layout = f"S[({1024 // (128 * warps)},{warps},32,4):(4@reg,1@warp,1@lane,1@reg)]"
        with k.tiles(ceil_div(extent, 1024)) as tile:
            piece = span(tile * 1024, 1024)
            held = k.reg("held", load.dtype, (1024,), layout)
            k.copy(held.all, x[piece])
            k.map(root.cell, held.all, held.all)
            k.copy(y[piece], held.all)
        return Lowered(k.finish(), {"X": load.buffer, "Y": root.buffer})

    samples: ClassVar = {"two pieces": (lambda x: x * x + 1, ("2048:f32",))}


PACK.schedule(Pieces())
