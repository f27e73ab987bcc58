"""Warp matrix products from registers: mma.sync m16n8k16.

Fragments hold 32-bit pairs: a (16, 16) in four, b (8, 16) in two, the accumulator (16, 8) in four
f32 (PTX ISA 9.7.14.5.8). Warps may divide the rows and columns of the tile; an operand that a warp
shares is replicated.
"""

from __future__ import annotations

from functools import lru_cache

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Context
from axe_eq.kernel.placement import Block, Iter, Placement, number, tile_of
from axe_eq.kernel.plan import Call, Plan, Regs
from axe_eq.layout import Layout
from axe_eq.target import Instr
from axe_eq_backends.cuda import threads

_PAIR = (Iter(4, 1, "lane"), Iter(2, 1, "reg"))
A = Placement(((Iter(2, 2, "reg"), Iter(8, 4, "lane")), (Iter(2, 4, "reg"), *_PAIR)))
B = Placement(((Iter(8, 4, "lane"),), (Iter(2, 2, "reg"), *_PAIR)))
C = Placement(((Iter(2, 2, "reg"), Iter(8, 4, "lane")), _PAIR))


def fragment(name: str, rows: int, cols: int, warps: tuple[int, int]) -> Layout:
    """The layout of an (m, k) operand "a", an (n, k) operand "b" or an (m, n) accumulator "c".

    `warps` divide (m, n), rows of warps outermost; each warp's tiles are numbered row by row.
    """
    atom = {"a": A, "b": B, "c": C}[name]
    (unit_rows, unit_cols), span = (number(e) for e in atom.shape), atom.extent_on("reg")
    split = {"a": (warps[0], 1), "b": (warps[1], 1), "c": warps}[name]
    strides = {"a": (warps[1], 0), "b": (1, 0), "c": (warps[1], 1)}[name]
    grid = rows // unit_rows // split[0], cols // unit_cols // split[1]
    shard = [
        (split[0], strides[0], "warp"), (grid[0], grid[1] * span, "reg"), *atom.blocks[0],
        (split[1], strides[1], "warp"), (grid[1], span, "reg"), *atom.blocks[1],
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
    found = [_tiles(v.place.static(), atom) for v, atom in zip(views, (A, B, C), strict=True)]
    (a_order, a_regs), (b_order, b_regs), (c_order, c_regs) = found
    depth = {axis for order in (a_order[1], b_order[1]) for axis, _, _ in order}
    if (a_order[0], b_order[0]) != c_order or depth - {"reg"}:
        raise DispatchError(row.name, "warps divide operands and accumulator differently", "alike")
    starts = [
        _starts(v, regs, size)
        for v, regs, size in zip(views, (a_regs, b_regs, c_regs), (8, 4, 4), strict=True)
    ]
    calls = _calls(gemm, starts)
    flops = 2.0 * gemm.acc.shape[0] * gemm.acc.shape[1] * gemm.a.shape[1]
    rate = row.flops_per_s / context.target.n_units / 1e9
    notes = f"{len(calls)} x m16n8k16 a warp"
    return Plan(row, calls, cycles=flops / rate, notes=notes)


def _starts(view: ir.View, blocks: tuple[Block, ...], n: int) -> list[list[int]]:
    table = Placement(blocks).coordinate("reg") * n + number(view.place.at("reg"))
    return [[int(x) for x in line] for line in table]


def _calls(gemm: ir.Gemm, starts: list[list[list[int]]]) -> list[Call]:
    a, b, c = starts
    return [
        Call(
            "mma",
            {
                "acc": Regs(gemm.acc.buffer, tuple(range(c[m][n], c[m][n] + 4))),
                "a": Regs(gemm.a.buffer, tuple(range(a[m][k], a[m][k] + 8))),
                "b": Regs(gemm.b.buffer, tuple(range(b[n][k], b[n][k] + 4))),
                "accumulate": gemm.accumulate if k == 0 else 1,
                "dtype": gemm.a.buffer.dtype,
            },
        )
        for k in range(len(a[0]))
        for m in range(len(c))
        for n in range(len(c[0]))
    ]
