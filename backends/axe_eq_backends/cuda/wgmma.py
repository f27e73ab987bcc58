"""Warpgroup matrix products from shared memory, the rows' operand from registers too: wgmma.

One instruction multiplies 64 x k by k x n operand tiles. A tile's place in shared memory is a
descriptor: start, two strides between 8-row groups, and the swizzle (PTX ISA 9.7.15.5). Which
unknown is which stride follows from the operand form; the forms are rows of data. Rows in registers
are fragments that lie like 16 columns of an accumulator, so a product's result, rounded, is the
next one's operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import gcd

from axe_eq.errors import DispatchError, LayoutError
from axe_eq.kernel.expr import Int
from axe_eq.kernel.placement import Iter, Placement, number, sliced, tile_of, unify
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.plan import Address, Regs
from axe_eq.layout import Layout
from axe_eq.target import Instr
from axe_eq_backends.cuda import threads
from axe_eq_backends.cuda.instrs import SmemForm

CORE_ROWS = 8
Pattern = list[list[tuple[int, int | str]]]


def pattern(form: SmemForm, mn: int, k: int, size: int) -> Pattern:
    """How the (mn, k) tile of one instruction lies, in elements, with unknowns "lbo" and "sbo"."""
    wide, atom = form.width // size, 16 // size
    if form.major == "K" and form.swizzle_bits:
        return [[(mn // CORE_ROWS, "sbo"), (CORE_ROWS, wide)], [(k, 1)]]
    if form.major == "K":
        return [[(mn // CORE_ROWS, "sbo"), (CORE_ROWS, atom)], [(k // atom, "lbo"), (atom, 1)]]
    groups, wide = max(mn // wide, 1), min(wide, mn)
    return [
        [(groups, "lbo"), (wide, 1)],
        [(k // CORE_ROWS, "sbo"), (CORE_ROWS, form.width // size)],
    ]


@dataclass(frozen=True)
class Operand:
    """A matched operand: its form and the descriptor's constant bits."""

    form: SmemForm
    bits: int

    @property
    def transposed(self) -> int:
        """The instruction's transpose bit: 1 where k is not contiguous."""
        return int(self.form.major == "MN")

    def __str__(self) -> str:
        return f"{self.form.name} {self.bits:#x}"


@lru_cache(maxsize=1024)
def match(
    place: Placement, mn: int, k: int, size: int, forms: tuple[SmemForm, ...], thing: str
) -> Operand:
    """The form that an operand's (mn, k) corner has.

    Raises:
        DispatchError: none; every form's reason is given.
    """
    corner, reasons = sliced(place, (0, 0), (mn, k), thing), []
    for form in forms:
        bits = place.swizzle.bits if place.swizzle else 0
        if bits != form.swizzle_bits:
            reasons.append(f"{form.name}: swizzle of {bits} bits, needs {form.swizzle_bits}")
            continue
        try:
            found = unify(corner, pattern(form, mn, k, size), thing)
        except LayoutError as refusal:
            reasons.append(f"{form.name}: {refusal.wrong}, needs {refusal.expected}")
            continue
        # Strides of absent groups are never used; 16 bytes is what CUTLASS writes there.
        lbo, sbo = (found.get(n, 16 // size) * size >> 4 for n in ("lbo", "sbo"))
        return Operand(form, (lbo & 0x3FFF) << 16 | (sbo & 0x3FFF) << 32 | form.code << 62)
    raise DispatchError(thing, "; ".join(reasons), "a matrix operand's shared-memory form")


def accumulator(m: int, n: int) -> Layout:
    """The layout of an (m, n) f32 accumulator: m / 64 row tiles of the instruction's."""
    rows = [(m // 64, n // 2, "reg")] if m > 64 else []
    return Layout(
        [
            *rows,
            (4, 1, "warp"),
            (2, 2, "reg"),
            (8, 4, "lane"),
            (n // 8, 4, "reg"),
            (4, 1, "lane"),
            (2, 1, "reg"),
        ]
    )


# One k step of rows in registers (PTX ISA 9.7.15.5.1, figure of matrix A).
FRAGMENT = Placement(
    (
        (Iter(4, 1, "warp"), Iter(2, 2, "reg"), Iter(8, 4, "lane")),
        (Iter(2, 4, "reg"), Iter(4, 1, "lane"), Iter(2, 1, "reg")),
    )
)
FRAGMENT_REGISTERS = 8


def _instruction_accumulator(n: int) -> Placement:
    rows = (Iter(4, 1, "warp"), Iter(2, 2, "reg"), Iter(8, 4, "lane"))
    return Placement((rows, (Iter(n // 8, 4, "reg"), Iter(4, 1, "lane"), Iter(2, 1, "reg"))))


def derive(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan an asynchronous matrix product for a row ``wgmma.<dtype>``."""
    assert isinstance(primitive, ir.Gemm)
    gemm, (m, n_max, k) = primitive, row.shape
    views = (gemm.a, gemm.b)
    _check(row, gemm, context)
    (rows, depth), cols = gemm.a.shape, gemm.b.shape[0]
    step = row.limits.get("n_step", n_max)
    if rows % m or depth % k or cols % step:
        raise DispatchError(
            row.name, f"tile of {rows} x {cols} x {depth}",
            f"multiples of {m}, {step} and {k}",
        )  # fmt: skip
    size = gemm.a.buffer.itemsize
    wide = _line(gemm.b, step)
    widths = parts(cols, n_max, wide if wide < cols else step)
    matched: list[dict[int, Operand]] = []  # per operand by the rows or columns of an instruction
    for view, sizes, name in zip(views, ([m], widths), "ab", strict=True):
        if view.buffer.memory == "reg":
            matched.append({})
            continue
        if not threads.aligned_to(view.place.swizzle, view.place.at("m")):
            at = f"begins at element {view.place.at('m')}"
            raise DispatchError(f"operand {view}", at, "the swizzle's period")
        if name not in row.operands:
            raise DispatchError(
                row.name, f"has no layouts of operand {name}", "forms that it reads"
            )
        forms = row.operands[name]
        place, thing = view.place.static(), f"operand {view}"
        matched.append({mn: match(place, mn, k, size, forms, thing) for mn in sizes})
    calls = _calls(row, gemm, widths, matched)
    flops = 2.0 * rows * cols * depth
    names = [next((o.form.name for o in of.values()), "registers") for of in matched]
    efficiency = min(row.efficiency.get(name, 1.0) for name in names)
    rate = row.flops_per_s / context.target.n_units / 1e9  # per SM and nanosecond
    named = " and ".join(f"m{m}n{n}k{k}" for n in dict.fromkeys(widths))
    notes = f"{len(calls) - 2} x {named}, a {names[0]}, b {names[1]}"
    return Plan(row, calls, cycles=flops / rate / efficiency, notes=notes)


def _check(row: Instr, gemm: ir.Gemm, context: Context) -> None:
    dtypes = (gemm.a.buffer.dtype, gemm.b.buffer.dtype, gemm.acc.buffer.dtype)
    if dtypes not in row.dtypes:
        raise DispatchError(row.name, f"dtypes {' '.join(dtypes)}", " ".join(row.dtypes[0]))
    if not gemm.asynchronous:
        raise DispatchError(row.name, "the product is synchronous", "gemm_async")
    if context.where.scope not in ("cta", "warpgroup") or context.where.n_warps != 4:
        where = f"scope {context.where.scope} of {context.where.n_warps} warps"
        raise DispatchError(row.name, where, "one warpgroup")
    memories = [v.buffer.memory for v in (gemm.a, gemm.b, gemm.acc)]
    if memories[0] not in ("smem", "reg") or memories[1:] != ["smem", "reg"]:
        wanted = "smem smem reg, or reg smem reg"
        raise DispatchError(row.name, f"operands in {' '.join(memories)}", wanted)
    if memories[0] == "reg":
        threads.check_threads(gemm.a.place, context.where)


def parts(cols: int, most: int, step: int) -> list[int]:
    """Columns of as few instructions as multiply so many, of whole steps; alike where they can be.

    >>> parts(200, 256, 8), parts(384, 256, 64), parts(320, 256, 64), parts(264, 256, 8)
    ([200], [192, 192], [192, 128], [136, 128])
    """
    number = -(-cols // (most // step * step))
    first = -(-cols // (number * step)) * step
    return [*[first] * (number - 1), cols - first * (number - 1)]


def _line(view: ir.View, step: int) -> int:
    """Rows of an operand that lie side by side in shared memory, where they do: its panels'."""
    rows = view.place.blocks[0]
    return number(rows[-1].extent) if number(rows[-1].stride) == 1 else step


def _calls(
    row: Instr, gemm: ir.Gemm, widths: list[int], matched: list[dict[int, Operand]]
) -> list[Call]:
    (m, _, k), size = row.shape, gemm.a.buffer.itemsize
    rows, depth = gemm.a.shape
    unit, begins = gcd(*widths), [*accumulate([0, *widths])][:-1]
    starts = _accumulators(gemm.acc, unit)
    fragments = None if matched[0] else _first_registers(gemm.a, FRAGMENT, FRAGMENT_REGISTERS)
    calls = [Call("wgmma_fence", {})]
    for ki in range(0, depth, k):
        for mi in range(0, rows, m):
            for ni, n in zip(begins, widths, strict=True):
                first = starts[mi // m, ni // unit]
                several = [starts[mi // m, (ni + c) // unit] for c in range(0, n, unit)]
                if several != [first + c * unit // 2 for c in range(n // unit)]:
                    raise DispatchError(f"registers {gemm.acc}", "apart", f"{n} columns in a row")
                calls.append(
                    Call(
                        "wgmma",
                        {
                            "regs": Regs(gemm.acc.buffer, tuple(range(first, first + n // 2))),
                            "a": _start(gemm.a, mi, ki, m, k, size)
                            if fragments is None
                            else _fragment(gemm.a, fragments[mi // m, ki // k]),
                            "b": _start(gemm.b, ni, ki, n, k, size),
                            "a_form": matched[0].get(m),
                            "b_form": matched[1][n],
                            "accumulate": gemm.accumulate if ki == 0 else 1,
                            "n": n,
                            "k": k,
                            "dtype": gemm.a.buffer.dtype,
                        },
                    )
                )
    return [*calls, Call("wgmma_commit", {})]


def _start(view: ir.View, mn: int, k: int, n_mn: int, n_k: int, size: int) -> Address:
    part = sliced(view.place, (mn, k), (n_mn, n_k), f"operand {view}")
    return Address(view.buffer, part.at("m") * size)


def _fragment(view: ir.View, first: int) -> Regs:
    return Regs(view.buffer, tuple(range(first, first + FRAGMENT_REGISTERS)))


def _accumulators(acc: ir.View, n: int) -> dict[tuple[int, int], int]:
    """First register of every instruction tile of an accumulator."""
    return _first_registers(acc, _instruction_accumulator(n), n // 2)


def _first_registers(view: ir.View, atom: Placement, count: int) -> dict[tuple[int, int], int]:
    """First register of every tile of `count` registers.

    Raises:
        LayoutError: the registers are not a tiling of the instruction's.
    """
    grid = Placement(tile_of(view.place, atom, f"registers {view}"))
    if grid.has("lane", "warp") or view.place.replica:
        raise DispatchError(f"registers {view}", "tiles lie on other threads", "axis reg")
    base: Int = view.place.at("reg")
    table = grid.coordinate("reg")
    return {
        (i, j): number(base) + int(table[i, j]) * count
        for i in range(table.shape[0])
        for j in range(table.shape[1])
    }
