"""An instruction row of Trainium and a schedule, as somebody else would add them.

A machine has the rows that it says, so the row comes with one: a trn2 with it, of the family "nki",
for which nothing else has to be written. The schedule is for trn2 as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from axe_eq import Pack
from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.families import RowFamily
from axe_eq.kernel.plan import Call, Plan
from axe_eq.lower.own import Lowered
from axe_eq.lower.read import read_cone
from axe_eq.schedule.graph import KernelStep, ScheduleGraph
from axe_eq.schedule.summary import Columns, Summary, grid_of
from axe_eq.target import Instr, Target
from axe_eq_backends.nki.access import walked
from axe_eq_backends.nki.build import EngineBuilder, rows_of
from axe_eq_backends.nki.meaning import read, write
from axe_eq_backends.nki.target import trn2

PACK = Pack("core", summary="a NeuronCore with an instruction of its own")

# -- an instruction row: the absolute value, as a maximum with its negative ------------------------


def _derive(row: Instr, primitive: Any, context: Any) -> Plan:
    if not isinstance(primitive, ir.Map) or primitive.cell != apply("abs", arg(0)):
        raise DispatchError(row.name, "computes another cell", "the absolute value of one operand")
    views = (primitive.out, *primitive.ins)
    if any(v.buffer.memory != "sbuf" or v.buffer.dtype != "f32" for v in views):
        raise DispatchError(row.name, "has other tiles", "f32 in SBUF")
    (out, x), loops = walked(views, primitive.out.shape, row.name, context.names, 4)
    ns = float(row.limits["ns"])
    return Plan(row, [Call("magnitude", {"dst": out, "data": x}, ns)], cycles=ns, loops=loops)


def _meaning(core: Any, call: Call, env: Any) -> None:
    write(core, call["dst"], env, np.abs(read(core, call["data"], env, call)))


def _text(writer: Any, call: Call) -> None:
    out, x = writer.access(call["dst"]), writer.access(call["data"])
    writer.line(f"nisa.tensor_scalar(dst={out}, data={x}, op0=nl.multiply, operand0=-1.0)")
    writer.line(f"nisa.tensor_tensor(dst={out}, data1={out}, data2={x}, op=nl.maximum)")


PACK.row_family(
    "nki",
    RowFamily(
        "magnitude", _derive, {"magnitude": _meaning}, {"magnitude": _text},
        samples={"|x|": (abs, ("9x40:f32",))},
    ),
)  # fmt: skip

# -- the machine: an eighth of the SBUF, and that row ----------------------------------------------

_ROW = Instr("magnitude.f32", "map", dtypes=(("f32",),), scope="vector", limits={"ns": 1})
PACK.target(trn2.replace(name="core", sbuf=28 << 17, instrs=(*trn2.instrs, _ROW), source="made up"))

# -- a schedule with a parameter: how many columns stand in a tile ---------------------------------


class Strips:
    """Any cells of one f32 matrix of up to 128 rows, some columns at a time."""

    name = "strips"
    families = ("nki",)

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused but for cells of one matrix."""
        if summary.products or summary.n_folds or summary.scans:
            return "not cells alone"
        if len(summary.loads) != 1 or len(summary.stores) != 1:
            return "not one tensor to another"
        sizes = [extent for _, extent in summary.extents if extent > 1]
        if len(sizes) != 2 or sizes[0] > 128 or sizes[1] % 256:
            return "not up to 128 rows of whole strips"
        return None

    def price(self, summary: Summary, target: Target) -> Columns:
        """Wide strips are said to be cheaper: here it shall be seen that the parameter arrives."""
        p, k, wide = grid_of((1,), (1,), (128, 256))
        columns = Columns({"p": p, "q": k, "k": k, "s": k}, {"wide": wide})
        columns.time_s = target.launch_s / wide
        return columns

    def lower(self, step: KernelStep, graph: ScheduleGraph, target: Target) -> Lowered:
        """A tile per strip."""
        cone, wide = read_cone(step), dict(step.parameters)["wide"]
        load, root, (rows, cols) = cone.load(0), cone.roots[0], cone.shape
        k = EngineBuilder("strips", target)
        x = k.tensor("X", load.dtype, (rows, cols), strides=load.strides)
        y = k.tensor("Y", root.dtype, (rows, cols), output=True)
        shape = rows, wide
        with k.range(cols // wide) as strip:
            at = ir.span(0, rows), ir.span(strip * wide, wide)
            held = k.sbuf("held", load.dtype, shape, rows_of(shape, 0))
            made = k.sbuf("made", root.dtype, shape, rows_of(shape, 0))
            k.copy(held.all, x[at])
            k.map(root.cell, made.all, held.all)
            k.copy(y[at], made.all)
        return Lowered(k.finish(), {"X": load.buffer, "Y": root.buffer})


PACK.schedule(Strips())
