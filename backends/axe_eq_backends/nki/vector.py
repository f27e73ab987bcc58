"""Cells, reductions and fills on the vector, scalar and GpSimd engines: one instruction each.

Engines compute in float32 and round at their output; bits of integers stay what they are, and
sums and products of 32-bit integers are GpSimd's (nki.isa.tensor_tensor).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import Apply, Cell, Constant, Operand
from axe_eq.kernel.dispatch import Context
from axe_eq.kernel.expr import Var
from axe_eq.kernel.plan import Call, Plan
from axe_eq.program.types import DTYPES
from axe_eq.target import Instr
from axe_eq_backends.nki.access import Access, walked
from axe_eq_backends.nki.build import PARTITION, CopyReduce
from axe_eq_backends.nki.clock import ns_of, timed

# Cells as operators of nki.language ("Supported Math Operators"): division is none of them.
ARITHMETIC = {
    "add": "add", "sub": "subtract", "mul": "multiply", "maximum": "maximum",
    "minimum": "minimum", "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal", "and": "logical_and", "or": "logical_or",
    "xor": "logical_xor",
}  # fmt: skip
BITS = {
    "bit_and": "bitwise_and", "bit_or": "bitwise_or", "bit_xor": "bitwise_xor",
    "shl": "left_shift", "shr": "right_shift",
}  # fmt: skip
WRAPPING = ("add", "sub", "mul")  # of 32-bit integers: exact on GpSimd alone
FUSED = ("add", "sub", "mul", "maximum", "minimum")  # two of them in one instruction
FUNCTIONS = {
    "exp": "exp", "log": "log", "tanh": "tanh", "sigmoid": "sigmoid", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "abs": "abs", "sign": "sign", "sin": "sin", "erf": "erf", "atan": "arctan",
}  # fmt: skip
FOLDS = {
    "+": "add", "*": "multiply", "max": "maximum", "min": "minimum", "and": "minimum",
    "or": "maximum",
}  # fmt: skip
INTEGERS = ("i32",)
# The cells at the root of what a row computes; "" is an operand.
_CELLS: Mapping[str, frozenset[str]] = {
    "cast": frozenset(("", "cast")), "tensor_tensor": frozenset((*ARITHMETIC, *BITS)),
    "tensor_scalar": frozenset((*ARITHMETIC, *BITS)), "scalar_tensor_tensor": frozenset(FUSED),
    "select": frozenset(("where",)), "reciprocal": frozenset(("div",)),
    "activation": frozenset(FUNCTIONS), "integers": frozenset(WRAPPING),
}  # fmt: skip


@dataclass(frozen=True)
class Walk:
    """The operands of a primitive as an engine walks them.

    Attributes:
        row, context: of the derivation.
        out, ins: accesses.
        loops: around them.
    """

    row: Instr
    context: Context[ir.Where]
    out: Access
    ins: tuple[Access, ...]
    loops: list[Var]

    @staticmethod
    def of(row: Instr, context: Context[ir.Where], out: ir.View, ins: Sequence[ir.View]) -> Walk:
        """Of a primitive whose operands broadcast to its output."""
        for view in (out, *ins):
            if view.buffer.is_global:
                raise DispatchError(row.name, f"{view} lies in {view.buffer.memory}", "on chip")
            if row.scope == "gpsimd" and view.buffer.memory == "psum":
                raise DispatchError(row.name, f"{view} lies in psum", "sbuf, which GpSimd reaches")
        found, loops = walked((out, *ins), out.shape, row.name, context.names, row.limits["dims"])
        return Walk(row, context, found[0], tuple(found[1:]), loops)

    def plan(self, calls: Sequence[Call]) -> Plan:
        """The plan of calls in the loops."""
        return timed(self.row, calls, self.loops)

    def call(self, name: str, row: Instr | None = None, **args: Any) -> Call:
        """A call that writes the output, and takes what the row says, or another one."""
        ns = ns_of(row or self.row, self.context, self.out.elements)
        return Call(name, {"dst": self.out, **args}, ns)

    def column(self, n: int) -> Access:
        """An operand that is one value per partition, as one element of each."""
        return replace(self.ins[n], steps=((1, 1),))

    def is_column(self, n: int) -> bool:
        """Whether an operand is one value per partition beside more of the output."""
        return self.ins[n].is_column and self.out.elements != 1


def refuse(row: Instr, wrong: str, expected: str) -> DispatchError:
    """Why a row does not take a primitive."""
    return DispatchError(row.name, wrong, expected)


def _mapped(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> tuple[ir.Map, Walk]:
    """A map, walked; what the row never computes is refused before, for most rows never do."""
    if not isinstance(s, ir.Map):
        raise refuse(row, f"is a {s.name}", "a map")
    cell, known = s.cell, _CELLS[row.name.partition(".")[2]]
    name = cell.cell.partition(" ")[0] if isinstance(cell, Apply) else ""
    if name not in known:
        raise refuse(row, f"is {cell}", " ".join(known).strip())
    if isinstance(cell, Apply) and (wanted := _unlike(row.name.partition(".")[2], s, cell)):
        raise refuse(row, f"is {cell}", wanted)
    return s, Walk.of(row, context, s.out, s.ins)


def _unlike(kind: str, s: ir.Map, cell: Apply) -> str:
    """What a row takes, where the operands of a cell are plainly others; "" where they may fit."""
    nested = any(isinstance(a, Apply) for a in cell.args)
    plain = all(isinstance(a, Operand) for a in cell.args)
    if kind == "tensor_tensor" and not plain:
        return "two tiles"
    if kind == "scalar_tensor_tensor" and not nested:
        return "(tile op number) op tile"
    if kind == "integers" and not _is_wrapping(s, cell):
        return "a sum, difference or product of two i32"
    return ""


def _copied(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    if not isinstance(s, ir.Copy):
        raise refuse(row, f"is a {s.name}", "a copy")
    walk = Walk.of(row, context, s.dst, (s.src,))
    return walk.plan([walk.call("tensor_copy", src=walk.ins[0], engine=row.scope)])


def _cast(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """A copy to another element type, which rounds as the type does; bits where it is the same."""
    s, walk = _mapped(row, s, context)
    cell = s.cell
    if isinstance(cell, Apply) and cell.cell == f"cast {s.out.buffer.dtype}":
        (cell,) = cell.args
    if not isinstance(cell, Operand):
        raise refuse(row, f"is {s.cell}", "a cast")
    src, dst = (v.buffer.dtype for v in (s.ins[0], s.out))
    if DTYPES[src].kind == "f" and DTYPES[dst].kind != "f" and isinstance(s.cell, Operand):
        raise refuse(row, f"rounds {src} to {dst}", "whole numbers, said by a cast")
    return walk.plan([walk.call("tensor_copy", src=walk.ins[0], engine=row.scope)])


def _is_wrapping(s: ir.Map, cell: Cell) -> bool:
    whole = all(v.buffer.dtype in INTEGERS for v in s.views())
    return whole and isinstance(cell, Apply) and cell.cell in WRAPPING


def _tensor_tensor(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """One operator of two tiles."""
    s, walk = _mapped(row, s, context)
    c = s.cell
    known = ARITHMETIC | BITS
    if not isinstance(c, Apply) or c.cell not in known or len(c.args) != 2:
        raise refuse(row, f"is {c}", "one operator of two operands")
    if not all(isinstance(a, Operand) for a in c.args):
        raise refuse(row, f"is {c}", "two tiles")
    if _is_wrapping(s, c):
        raise refuse(row, f"rounds {c.cell} of 32-bit integers to float32", "other operands")
    a, b = (walk.ins[x.index] for x in c.args if isinstance(x, Operand))
    if a.buffer.memory == b.buffer.memory == "psum":
        raise refuse(row, "both operands are in psum", "one at most")
    _check_bits(row, s, c.cell)
    return walk.plan(
        [walk.call("tensor_tensor", data1=a, data2=b, op=known[c.cell], engine=row.scope)]
    )


def _check_bits(row: Instr, s: ir.Map, cell: str) -> None:
    if cell in BITS and len({v.buffer.dtype for v in s.views()} - {"i32"}):
        dtypes = " ".join(v.buffer.dtype for v in s.views())
        raise refuse(row, f"takes bits of {dtypes}", "i32 alone")


def _tensor_scalar(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """A tile with numbers or values per partition, by one operator or two in a row."""
    s, walk = _mapped(row, s, context)
    c = s.cell
    if not isinstance(c, Apply) or len(c.args) != 2:
        raise refuse(row, f"is {c}", "an operator of a tile and a number")
    known = BITS if c.cell in BITS else ARITHMETIC
    inner = [a for a in c.args if isinstance(a, Apply)]
    if inner and (c.cell not in FUSED or len(inner) > 1):
        raise refuse(row, f"is {c}", "two operators of arithmetic in a row")
    parts = [inner[0], c] if inner else [c]
    args: dict[str, Any] = {"data": None}
    for n, part in enumerate(parts):
        if part.cell not in known or len(part.args) != 2 or (inner and part.cell not in FUSED):
            raise refuse(row, f"is {c}", "operators of the engine")
        tile, other, swapped = _tile_and_other(row, walk, part, n > 0)
        if n == 0:
            args["data"] = tile
        args |= {f"op{n}": known[part.cell], f"operand{n}": other}
        if swapped and part.cell not in _SYMMETRIC:
            args[f"reverse{n}"] = True
    if _is_wrapping(s, c):
        raise refuse(row, f"rounds {c.cell} of 32-bit integers to float32", "other operands")
    _check_bits(row, s, c.cell)
    if c.cell in BITS and not isinstance(args["operand0"], int):
        raise refuse(row, f"is {c}", "bits of a tile and a whole number")
    return walk.plan([walk.call("tensor_scalar", **args, engine=row.scope)])


_SYMMETRIC = frozenset(
    {"add", "mul", "maximum", "minimum", "eq", "ne", "and", "or", "xor", "bit_and", "bit_or",
     "bit_xor"}
)  # fmt: skip


def _tile_and_other(
    row: Instr, walk: Walk, c: Apply, nested: bool
) -> tuple[Access | None, Access | float, bool]:
    """(tile, number or column, whether the tile is the second operand)."""
    held: list[Access | float | None] = []
    for a in c.args:
        if isinstance(a, Operand):
            held.append(walk.ins[a.index])
        else:
            held.append(number_of(a) if isinstance(a, Constant) else None)

    def is_small(n: int) -> bool:
        x, a = held[n], c.args[n]
        if isinstance(x, Access):
            return x.buffer.dtype == "f32" and walk.is_column(a.index)  # type: ignore[union-attr]
        return x is not None

    for n in (1, 0):
        other, operand = held[n], c.args[n]
        first = held[1 - n]
        if isinstance(operand, Operand) and is_small(n):
            other = walk.column(operand.index)
        if is_small(n) and other is not None:
            if nested and first is None:
                return None, other, n == 0
            if not nested and isinstance(first, Access) and not is_small(1 - n):
                return first, other, n == 0
            if not nested and isinstance(first, Access) and walk.out.elements == 1:
                return first, other, n == 0
    raise refuse(row, f"is {c}", "a tile beside a number or an f32 per partition")


def number_of(c: Constant) -> float:
    """A constant as an instruction has it: whole for integers."""
    value: float = c.value
    return int(value) if isinstance(value, bool) else value


def _scalar_tensor_tensor(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """(tile op number) op tile."""
    s, walk = _mapped(row, s, context)
    c = s.cell
    if not isinstance(c, Apply) or c.cell not in FUSED or len(c.args) != 2 or _is_wrapping(s, c):
        raise refuse(row, f"is {c}", "two operators of arithmetic")
    inner = [a for a in c.args if isinstance(a, Apply)]
    plain = [a for a in c.args if isinstance(a, Operand)]
    if len(inner) != 1 or len(plain) != 1 or inner[0].cell not in FUSED or len(inner[0].args) != 2:
        raise refuse(row, f"is {c}", "(tile op number) op tile")
    tile, other, swapped = _tile_and_other(row, walk, inner[0], False)
    assert tile is not None
    second = walk.ins[plain[0].index]
    if tile.buffer.memory == second.buffer.memory == "psum":
        raise refuse(row, "both operands are in psum", "one at most")
    args: dict[str, Any] = {
        "data": tile, "op0": ARITHMETIC[inner[0].cell], "operand0": other,
        "op1": ARITHMETIC[c.cell], "operand1": second,
    }  # fmt: skip
    if swapped and inner[0].cell not in _SYMMETRIC:
        args["reverse0"] = True
    if isinstance(c.args[0], Operand) and c.cell not in _SYMMETRIC:
        args["reverse1"] = True
    return walk.plan([walk.call("scalar_tensor_tensor", **args)])


def _select(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """A choice: the one value everywhere, then the other where the condition holds."""
    s, walk = _mapped(row, s, context)
    c = s.cell
    if not isinstance(c, Apply) or c.cell != "where":
        raise refuse(row, f"is {c}", "a choice")
    condition, yes, no = c.args
    if not isinstance(condition, Operand) or not isinstance(yes, Operand):
        raise refuse(row, f"is {c}", "a condition and a value in tiles")
    if s.ins[condition.index].buffer.dtype != "bool":
        raise refuse(row, f"asks {s.ins[condition.index].buffer.dtype}", "bool")
    held = [s.ins[a.index].buffer for a in (yes, no) if isinstance(a, Operand)]
    if any(b.dtype != s.out.buffer.dtype for b in held):
        raise refuse(row, "chooses among several element types", "one")
    if any(v.buffer.storage is s.out.buffer.storage for v in s.ins):
        raise refuse(row, "writes over what it chooses from", "another tile")

    def like(kind: str) -> Instr:
        return sibling(row, kind, context)

    if isinstance(no, Operand):
        first = walk.call("tensor_copy", like("copy"), src=walk.ins[no.index], engine=row.scope)
    elif isinstance(no, Constant):
        value = filled(no.value, s.out.buffer.dtype)
        first = walk.call("memset", like("fill"), value=value, engine=row.scope)
    else:
        raise refuse(row, f"is {c}", "values in tiles, or numbers")
    second = walk.call(
        "tensor_copy_predicated", src=walk.ins[yes.index], predicate=walk.ins[condition.index]
    )
    return walk.plan([first, second])


def sibling(row: Instr, kind: str, context: Context[ir.Where]) -> Instr:
    """The row of the same engine that does something else; the row itself where it has none."""
    name = f"{row.scope}.{kind}"
    return next((r for r in context.target.instrs if r.name == name), row)


def filled(value: float, dtype: str) -> float:
    """A number as `memset` takes it: of the kind of the element type."""
    return float(value) if DTYPES[dtype].kind == "f" else int(value)


def _reciprocal(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    s, walk = _mapped(row, s, context)
    match s.cell:
        case Apply("div", (Constant(1), Operand())):
            return walk.plan([walk.call("reciprocal", data=walk.ins[0])])
    raise refuse(row, f"is {s.cell}", "one over a tile")


def _activation(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """A function of a tile, which may be multiplied by a number and added to a column before."""
    s, walk = _mapped(row, s, context)
    c = s.cell
    if not isinstance(c, Apply) or c.cell not in FUNCTIONS or len(c.args) != 1:
        raise refuse(row, f"is {c}", f"one of {' '.join(FUNCTIONS)}")
    (x,) = c.args
    args: dict[str, Any] = {"op": FUNCTIONS[c.cell]}
    if isinstance(x, Apply) and x.cell == "add" and isinstance(x.args[1], Operand):
        bias = x.args[1].index
        if not walk.ins[bias].is_column or s.ins[bias].buffer.dtype != "f32":
            raise refuse(row, f"adds {s.ins[bias]}", "an f32 per partition")
        x, args["bias"] = x.args[0], walk.column(bias)
    if isinstance(x, Apply) and x.cell == "mul" and isinstance(x.args[1], Constant):
        args["scale"], x = float(x.args[1].value), x.args[0]
    if not isinstance(x, Operand):
        raise refuse(row, f"is a function of {x}", "a tile")
    if DTYPES[s.ins[x.index].buffer.dtype].kind == "b":
        raise refuse(row, "is a function of bools", "numbers")
    return walk.plan([walk.call("activation", data=walk.ins[x.index], **args)])


def _integers(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """Sums, differences and products of 32-bit integers, modulo 2^32."""
    s, walk = _mapped(row, s, context)
    c = s.cell
    if not isinstance(c, Apply) or not _is_wrapping(s, c) or len(c.args) != 2:
        raise refuse(row, f"is {c}", "a sum, difference or product of two i32")
    if not all(isinstance(a, Operand) for a in c.args):
        raise refuse(row, f"is {c}", "two tiles")
    a, b = (walk.ins[x.index] for x in c.args if isinstance(x, Operand))
    op = ARITHMETIC[c.cell]
    return walk.plan([walk.call("tensor_tensor", data1=a, data2=b, op=op, engine=row.scope)])


def _reduced(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """A reduction along the free axis of every partition."""
    if not isinstance(s, ir.Reduce):
        raise refuse(row, f"is a {s.name}", "a reduction")
    if s.monoid not in FOLDS:
        raise refuse(row, f"reduces by {s.monoid}", " ".join(FOLDS))
    if s.src.buffer.dtype in INTEGERS:
        raise refuse(row, "rounds 32-bit integers to float32", "floats")
    out, src, loops = _folded(row, s, context)
    args = {"dst": out, "op": FOLDS[s.monoid], "data": src}
    return timed(row, [Call("tensor_reduce", args, ns_of(row, context, src.elements))], loops)


def _copied_and_reduced(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """A product by one, whose results are reduced on the way."""
    if not isinstance(s, CopyReduce):
        raise refuse(row, f"is a {s.name}", "a copy with a reduction")
    if (op := FOLDS.get(s.monoid)) is None or {v.buffer.dtype for v in s.views()} != {"f32"}:
        raise refuse(row, f"reduces by {s.monoid}", f"f32 by one of {' '.join(FOLDS)}")
    walk = Walk.of(row, context, s.out, (s.src,))
    out, _, loops = _folded(row, ir.Reduce(s.monoid, s.reduced, s.src, s.dims, None), context)
    if loops or walk.loops or out.elements != 1:
        raise refuse(row, f"has {out.elements} results per partition", "one")
    return walk.plan([walk.call("tensor_scalar_reduce", data=walk.ins[0], op0="multiply",
                                operand0=1.0, reduce_op=op, reduce_res=out)])  # fmt: skip


def _folded(
    row: Instr, s: ir.Reduce, context: Context[ir.Where]
) -> tuple[Access, Access, list[Var]]:
    """(output, operand, loops): the operand's steps are the output's, then one that is reduced.

    Raises:
        DispatchError: it reduces partitions, or what is no single step.
    """
    for view in s.views():
        if view.buffer.is_global:
            raise refuse(row, f"{view} lies in {view.buffer.memory}", "on chip")
    if any(_on_partitions(s.src, d) for d in s.dims):
        raise refuse(row, "reduces across partitions", "the free axis")
    once = [1 if d in s.dims else e for d, e in enumerate(s.src.shape)]
    along = [e if d in s.dims else 1 for d, e in enumerate(s.src.shape)]
    dims = row.limits["dims"] - 1  # one is that which is reduced
    kept = _narrowed(s.src, once)
    (out, first), loops = walked((s.out, kept), once, row.name, context.names, dims)
    (over,), more = walked((_narrowed(s.src, along),), along, row.name, context.names, dims)
    if len(over.steps) > 1 or more:
        raise refuse(row, f"reduces {len(over.steps)} steps", "one")
    steps = (*first.steps, *(over.steps or ((1, 1),)))
    return out, Access(s.src, first.first, first.partitions, first.begin, steps), loops


def _on_partitions(view: ir.View, dim: int) -> bool:
    return any(i.axis == PARTITION for i in view.place.blocks[dim])


def _narrowed(view: ir.View, shape: Sequence[int]) -> ir.View:
    """The first elements of a view, along some dims."""
    extent = list(view.extent)
    for d, e in zip(view.dims, shape, strict=True):
        extent[d] = e
    return ir.View(view.buffer, view.begin, tuple(extent), view.dims)


def _filled(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    if not isinstance(s, ir.Fill):
        raise refuse(row, f"is a {s.name}", "a fill")
    walk = Walk.of(row, context, s.out, ())
    value = filled(s.value, s.out.buffer.dtype)
    return walk.plan([walk.call("memset", value=value, engine=row.scope)])


def _index(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """Positions along one dim: a step per partition, or per element of the free axis."""
    if not isinstance(s, ir.Index):
        raise refuse(row, f"is a {s.name}", "positions")
    walk = Walk.of(row, context, s.out, ())
    block = s.out.place.blocks[s.dim]
    if len(block) > 1:
        raise refuse(row, f"counts along {len(block)} iters", "one")
    across = bool(block) and block[0].axis == PARTITION
    if walk.loops:
        raise refuse(row, "counts along too many dims", "a pattern")
    steps = [
        (1 if block and not across and stride == block[0].stride else 0, n)
        for stride, n in walk.out.steps
    ] or [(0, 1)]
    if block and not across and not any(step for step, _ in steps):
        raise refuse(row, f"counts along dim {s.dim} with others as one step", "a step of its own")
    call = walk.call("iota", pattern=steps, offset=s.begin, channel_multiplier=int(across))
    return walk.plan([call])


# Per monoid of a scan: the operators by which an element meets what stands before it.
SCANS = {"add": ("multiply", "add"), "mul": ("multiply", "add"), "maximum": ("maximum", "add"),
         "minimum": ("minimum", "add")}  # fmt: skip


def _scanned(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """Prefixes along the free axis, in place; `scratch` holds the operand that changes nothing.

    A sum takes the element before times 1 and adds an element; the others take an element and the
    one before, and add 0.
    """
    if not isinstance(s, ir.Scan) or len(s.states) != 1 or len(s.scratch) != 1:
        raise refuse(row, f"is a {s.name}", "a scan of one operand beside a constant tile")
    (merge,) = s.merge
    if not isinstance(merge, Apply) or merge.cell not in SCANS or len(merge.args) != 2:
        raise refuse(row, f"merges by {merge}", " ".join(SCANS))
    (state,), (carry,), (other,) = s.states, s.carries, s.scratch
    if _on_partitions(state, s.dim) or any(v.buffer.dtype != "f32" for v in (state, carry)):
        raise refuse(row, "scans partitions, or other than f32", "the free axis of f32")
    once = [1 if d == s.dim else e for d, e in enumerate(state.shape)]
    along = [e if d == s.dim else 1 for d, e in enumerate(state.shape)]
    first = _narrowed(state, once)
    # Every row of the other free dims by itself.
    (rows, before), loops = walked((first, carry), once, row.name, context.names, 1)
    (line,), more = walked((_narrowed(state, along),), along, row.name, context.names, 2)
    if more or len(line.steps) > 1:
        raise refuse(row, f"scans {len(line.steps)} steps", "one")
    n = line.elements
    own = Access(state, rows.first, rows.partitions, rows.begin, line.steps or ((1, 1),))
    fixed = Access(other.all, 0, rows.partitions, 0, ((0, n),))
    a, b = (fixed, own) if merge.cell == "add" else (own, fixed)
    op0, op1 = SCANS[merge.cell]
    last = line.steps[0][0] * (n - 1) if line.steps else 0
    held = replace(before, steps=((1, 1),))
    end = Access(state, rows.first, rows.partitions, rows.begin + last, ((1, 1),))
    scan = {"dst": own, "data0": a, "data1": b, "initial": held, "op0": op0, "op1": op1}
    keep = {"dst": held, "src": end, "engine": row.scope}
    calls = [
        Call("tensor_tensor_scan", scan, ns_of(row, context, n)),
        Call("tensor_copy", keep, ns_of(sibling(row, "copy", context), context, 1)),
    ]
    return timed(row, calls, loops)


_BY_ROW: dict[str, Callable[[Instr, ir.Primitive, Context[ir.Where]], Plan]] = {
    "copy": _copied, "cast": _cast, "tensor_tensor": _tensor_tensor,
    "tensor_scalar": _tensor_scalar, "scalar_tensor_tensor": _scalar_tensor_tensor,
    "select": _select, "reciprocal": _reciprocal, "activation": _activation,
    "integers": _integers, "reduce": _reduced, "fill": _filled, "index": _index,
    "scan": _scanned, "copy_reduce": _copied_and_reduced,
}  # fmt: skip


def derive(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """The plan of a primitive by one of the rows of these engines."""
    found = _BY_ROW.get(row.name.partition(".")[2])
    if found is None:
        raise refuse(row, "has no derivation", f"one of {' '.join(_BY_ROW)}")
    return found(row, s, context)
