"""Warp matrix products from registers: mma.sync.

A row holds the layouts of its fragments: an (m, k) operand a, an (n, k) operand b, an (m, n)
accumulator c. Warps may divide the rows and columns of the tile; an operand that a warp shares is
replicated.
"""

from __future__ import annotations

from functools import lru_cache

from axe_eq.errors import DispatchError
from axe_eq.kernel.placement import Block, Placement, number, tile_of
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.placement import of_layout
from axe_eq.kernel.threads.plan import Regs
from axe_eq.layout import Layout
from axe_eq.target import Instr
from axe_eq_backends.cuda import threads
from axe_eq_backends.cuda.instrs import MMA


def row_of(dtype: str) -> Instr:
    """The row that multiplies an element type.

    Raises:
        DispatchError: there is none.
    """
    found = [r for r in MMA if r.dtypes[0][0] == dtype]
    if not found:
        known = " ".join(r.dtypes[0][0] for r in MMA)
        raise DispatchError("warp products", f"no row for {dtype}", known)
    return found[0]


def atom(row: Instr, name: str) -> Placement:
    """The fragment of one instruction: of operand "a" or "b", or the accumulator "c"."""
    m, n, k = row.shape
    return of_layout(row.operands[name], {"a": (m, k), "b": (n, k), "c": (m, n)}[name])


def fragment(name: str, rows: int, cols: int, warps: tuple[int, int], dtype: str = "f16") -> Layout:
    """The layout of an (m, k) operand "a", an (n, k) operand "b" or an (m, n) accumulator "c".

    `warps` divide (m, n) and take turns, so that a part of the rows is on all of them; each warp's
    tiles are numbered row by row. `dtype` is that of the factors.
    """
    unit = atom(row_of(dtype), name)
    (unit_rows, unit_cols), span = (number(e) for e in unit.shape), unit.extent_on("reg")
    split = {"a": (warps[0], 1), "b": (warps[1], 1), "c": warps}[name]
    strides = {"a": (warps[1], 0), "b": (1, 0), "c": (warps[1], 1)}[name]
    grid = rows // unit_rows // split[0], cols // unit_cols // split[1]
    shard = [
        (grid[0], grid[1] * span, "reg"), (split[0], strides[0], "warp"), *unit.blocks[0],
        (grid[1], span, "reg"), (split[1], strides[1], "warp"), *unit.blocks[1],
    ]  # fmt: skip
    replica = {"a": [(warps[1], 1, "warp")], "b": [(warps[0], warps[1], "warp")], "c": []}[name]
    return Layout([i for i in shard if i[0] != 1], replica)


Order = tuple[tuple[str, int, int], ...]


@lru_cache(maxsize=512)
def _tiles(place: Placement, atom: Placement) -> tuple[tuple[Order, ...], tuple[Block, ...]]:
    """Tile digits of a fragment per dim: which warps and registers take them, and the registers."""
    grid = tile_of(place, atom, f"fragment {place}")
    regs = tuple(tuple(i for i in b if i.axis == "reg") for b in grid)
    return tuple(map(_order, grid)), regs


def _order(block: Block) -> Order:
    """Tile digits, slow to fast: axis, extent, and the stride of warps (registers are private)."""
    out: list[tuple[str, int, int]] = []
    for i in block:
        extent, stride = number(i.extent), number(i.stride) if i.axis == "warp" else 0
        if out and out[-1][0] == i.axis == "reg":
            out[-1] = ("reg", out[-1][1] * extent, 0)
        else:
            out.append((i.axis, extent, stride))
    return tuple(out)


def product_of_registers(row: Instr, primitive: ir.Primitive, context: Context) -> ir.Gemm:
    """A synchronous product whose operands are in registers of the row's dtypes.

    Raises:
        DispatchError: it is none; names what differs.
    """
    assert isinstance(primitive, ir.Gemm)
    views = (primitive.a, primitive.b, primitive.acc)
    dtypes = tuple(v.buffer.dtype for v in views)
    if dtypes not in row.dtypes:
        raise DispatchError(row.name, f"dtypes {' '.join(dtypes)}", " ".join(row.dtypes[0]))
    if primitive.asynchronous or any(v.buffer.memory != "reg" for v in views):
        memories = " ".join(v.buffer.memory for v in views)
        raise DispatchError(row.name, f"operands in {memories}", "a product of registers")
    for view in views:
        threads.check_threads(view.place, context.where)
    return primitive


def derive(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan a synchronous matrix product for a row ``mma.<dtype>``."""
    gemm = product_of_registers(row, primitive, context)
    views = (gemm.a, gemm.b, gemm.acc)
    atoms = [atom(row, name) for name in "abc"]
    found = [_tiles(v.place.static(), unit) for v, unit in zip(views, atoms, strict=True)]
    (a_order, a_regs), (b_order, b_regs), (c_order, c_regs) = found
    depth = {axis for order in (a_order[1], b_order[1]) for axis, _, _ in order}
    if (a_order[0], b_order[0]) != c_order or depth - {"reg"}:
        raise DispatchError(row.name, "warps divide operands and accumulator differently", "alike")
    sizes = [unit.extent_on("reg") for unit in atoms]
    starts = [
        _starts(v, regs, size)
        for v, regs, size in zip(views, (a_regs, b_regs, c_regs), sizes, strict=True)
    ]
    calls = _calls(gemm, starts, sizes)
    flops = 2.0 * gemm.acc.shape[0] * gemm.acc.shape[1] * gemm.a.shape[1]
    rate = row.flops_per_s / context.target.n_units / 1e9
    notes = f"{len(calls)} x m{{}}n{{}}k{{}} a warp".format(*row.shape)
    return Plan(row, calls, cycles=flops / rate, notes=notes)


def _starts(view: ir.View, blocks: tuple[Block, ...], n: int) -> list[list[int]]:
    table = Placement(blocks).coordinate("reg") * n + number(view.place.at("reg"))
    return [[int(x) for x in line] for line in table]


def _calls(gemm: ir.Gemm, starts: list[list[list[int]]], sizes: list[int]) -> list[Call]:
    a, b, c = starts
    of_a, of_b, of_c = sizes
    return [
        Call(
            "mma",
            {
                "acc": Regs(gemm.acc.buffer, tuple(range(c[m][n], c[m][n] + of_c))),
                "a": Regs(gemm.a.buffer, tuple(range(a[m][k], a[m][k] + of_a))),
                "b": Regs(gemm.b.buffer, tuple(range(b[n][k], b[n][k] + of_b))),
                "accumulate": gemm.accumulate if k == 0 else 1,
                "dtype": gemm.a.buffer.dtype,
            },
        )
        for k in range(len(a[0]))
        for m in range(len(c))
        for n in range(len(c[0]))
    ]
