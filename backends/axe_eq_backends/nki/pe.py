"""The tensor engine: products with the reduced dim on partitions, and transposes through PSUM."""

from __future__ import annotations

from dataclasses import dataclass

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Context
from axe_eq.kernel.expr import Int, Var
from axe_eq.kernel.plan import Call, Plan
from axe_eq.target import Instr
from axe_eq_backends.nki.access import Access, Digit, refined, repeats, swapped
from axe_eq_backends.nki.build import FREE, PARTITION
from axe_eq_backends.nki.clock import ns_of, timed


def derive(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """The plan of a product, or of a copy that swaps partitions and the free axis."""
    if isinstance(s, ir.Gemm):
        return _matmul(row, s, context)
    if isinstance(s, ir.Copy):
        return _transpose(row, s, context)
    raise DispatchError(row.name, f"is a {s.name}", "a gemm or a copy")


@dataclass(frozen=True)
class _Side:
    """One letter of a product: its digits over two operands, and where each must have it."""

    name: str
    operands: tuple[str, str]
    digits: list[Digit]
    axes: tuple[str, str]
    most: int

    def split(self, row: Instr) -> tuple[Digit, list[Digit]]:
        """The digit that one instruction covers, and those that are loops.

        Raises:
            DispatchError: it lies elsewhere.
        """
        if not self.digits:
            return Digit(1, ((1, self.axes[0]), (1, self.axes[1]))), []
        inner = [
            d for d in self.digits if d.at[0][1] == self.axes[0] and d.at[1][1] == self.axes[1]
        ]
        if self.axes == (FREE, FREE):
            inner = inner[-1:]
        rest = [d for d in self.digits if d not in inner]
        if len(inner) > 1 or any({a for _, a in d.at} != {FREE} for d in rest):
            shown = " ".join(f"{d.extent}:{'/'.join(a for _, a in d.at)}" for d in self.digits)
            raise DispatchError(
                row.name, f"{self.name} lies as {shown}", f"on {' and '.join(self.axes)}"
            )
        if not inner:  # the whole letter is a loop
            return Digit(1, ((1, self.axes[0]), (1, self.axes[1]))), rest
        (d,) = inner
        for (stride, axis), o in zip(d.at, self.operands, strict=True):
            if axis == PARTITION and stride != 1:
                raise DispatchError(row.name, f"{o} has partitions with stride {stride}", "1")
        if d.extent > self.most:
            if d.extent % self.most:
                raise DispatchError(
                    row.name, f"{self.name} of {d.extent}", f"a multiple of {self.most}"
                )
            slow, d = d.cut(self.most)
            rest = [*rest, slow]
        return d, rest


def _matmul(row: Instr, s: ir.Gemm, context: Context[ir.Where]) -> Plan:
    """Acc (+)= a b^T, K on partitions of both operands (Axe, section 3.4, systolic GEMM).

    K is what both operands have on partitions, M what the first one has on the free axis and the
    sum on partitions, N what the second and the sum have on the free axis. The fastest digit of
    each is the instruction's; the rest are loops, the depth innermost.
    """
    memories = tuple(v.buffer.memory for v in s.views())
    if memories != ("psum", "sbuf", "sbuf"):
        raise DispatchError(row.name, f"operands in {' '.join(memories)}", "psum sbuf sbuf")
    kinds = tuple(v.buffer.dtype for v in (s.a, s.b, s.acc))
    if kinds not in row.dtypes:
        raise DispatchError(row.name, f"multiplies {' '.join(kinds)}", "element types of the row")
    bank = context.target.memory("psum").bank_bytes // s.acc.buffer.itemsize
    (am, ak), (bn, bk), (cm, cn) = (v.place.blocks for v in (s.a, s.b, s.acc))
    (m, n), depth = s.acc.shape, s.a.shape[1]
    most_m, most_n, most_k = row.shape
    sides = (
        _Side("m", ("a", "c"), refined((am, cm), m, row.name), (FREE, PARTITION), most_m),
        _Side("n", ("b", "c"), refined((bn, cn), n, row.name), (FREE, FREE), min(most_n, bank)),
        _Side("k", ("a", "b"), refined((ak, bk), depth, row.name), (PARTITION, PARTITION), most_k),
    )
    at: dict[str, dict[str, Int]] = {
        o: {PARTITION: v.place.at(PARTITION), FREE: v.place.at(FREE)}
        for o, v in (("a", s.a), ("b", s.b), ("c", s.acc))
    }
    loops: list[Var] = []
    inner: dict[str, Digit] = {}
    started: Int = s.accumulate
    for side in sides:
        inner[side.name], outer = side.split(row)
        for d in outer:
            v = context.names.fresh(side.name, 0, d.extent - 1)
            loops.append(v)
            for o, (stride, axis) in zip(side.operands, d.at, strict=True):
                at[o][axis] = at[o][axis] + v * stride
            if side.name == "k":
                started = _either(started, v)

    def operand(view: ir.View, o: str, partitions: int, d: Digit, position: int) -> Access:
        step = ((d.stride(position), d.extent),)
        return Access(view, at[o][PARTITION], partitions, at[o][FREE], step)

    dm, dn, dk = (inner[x] for x in "mnk")
    call = Call("nc_matmul", {
        "dst": operand(s.acc, "c", dm.extent, dn, 1),
        "stationary": operand(s.a, "a", dk.extent, dm, 0),
        "moving": operand(s.b, "b", dk.extent, dn, 0),
        "accumulate": started,
    }, ns_of(row, context, dn.extent, "column_cycles"))  # fmt: skip
    return timed(row, [call], loops, f"{repeats(loops)} of {dm.extent} x {dn.extent} x {dk.extent}")


def _either(started: Int, v: Var) -> Int:
    """Whether anything was summed before: `started`, or a later turn."""
    if isinstance(started, int):
        return 1 if started else v > 0
    return (started + v) > 0


def _transpose(row: Instr, s: ir.Copy, context: Context[ir.Where]) -> Plan:
    """A copy from SBUF to PSUM whose partitions are what was the free axis."""
    memories = s.dst.buffer.memory, s.src.buffer.memory
    if memories != ("psum", "sbuf"):
        raise DispatchError(row.name, f"copies {memories[1]} to {memories[0]}", "sbuf to psum")
    if (s.dst.buffer.dtype,) not in row.dtypes:
        raise DispatchError(row.name, f"turns {s.dst.buffer.dtype}", "16 bits, or f32")
    dst, src, between = swapped(row, s)
    if between:
        raise DispatchError(row.name, "is no swap of partitions and one free dim", "one")
    what = "f32_column_cycles" if s.dst.buffer.dtype == "f32" else "column_cycles"
    call = Call(
        "nc_transpose", {"dst": dst, "data": src}, ns_of(row, context, src.partitions, what)
    )
    return timed(row, [call], notes=f"{src.partitions} x {dst.partitions}")
