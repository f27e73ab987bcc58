"""How a register tile meets memory: per digit, which thread or register, and which address.

Both layouts of a copy are refined to common digits. A digit of a thread axis becomes an expression
of the thread's number; a digit of ``reg`` becomes a constant per register. So every address is a
thread part plus a register part, before the swizzle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from axe_eq.errors import DispatchError
from axe_eq.kernel.expr import Expr, Int, Var, both, bounds, divisor, equal, evaluate, make, var
from axe_eq.kernel.placement import Placement, digits, number, refine
from axe_eq.kernel.plan import Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.ir import LANE, Where
from axe_eq.kernel.threads.placement import LANES
from axe_eq.kernel.threads.plan import Regs
from axe_eq.layout.value.swizzle import Swizzle
from axe_eq.target import Instr


def check_dtype(row: Instr, dtype: str, what: str = "dtype") -> None:
    """A row takes elements of this type.

    Raises:
        DispatchError: it does not; says which it takes.
    """
    if (dtype,) not in row.dtypes:
        raise DispatchError(row.name, f"{what} {dtype}", " ".join(t[0] for t in row.dtypes))


def named(plan: Plan, context: Context, stem: str, value: Int, element: bool = False) -> Int:
    """A value that a plan's calls use, computed once; `element` marks element numbers."""
    if not isinstance(value, Expr) or isinstance(value, Var):
        return value
    v = context.names.fresh(stem, *bounds(value), element=element)
    plan.lets.append((v, value))
    return v


def registers_of(view: ir.View, numbers: Iterable[int]) -> Regs:
    """Registers of a view, by their numbers in it."""
    base = number(view.place.at("reg"))
    return Regs(view.buffer, tuple(base + n for n in numbers))


class Step(NamedTuple):
    """One digit of a tile: `extent` steps of `step` elements along logical dim `dim`.

    It numbers threads or registers (`coordinate` on `axis`) and moves by `memory` elements.
    """

    extent: int
    dim: int
    step: int
    axis: str
    coordinate: int
    memory: Int


@lru_cache(maxsize=4096)
def steps(tile: Placement, memory: Placement) -> tuple[Step, ...]:
    """The common digits of a register tile and a memory view of one shape, fastest register last.

    Raises:
        LayoutError: the layouts have no common refinement.
    """
    out = []
    for dim, (a, b) in enumerate(zip(tile.blocks, memory.blocks, strict=True)):
        size = 1
        for d in reversed(refine(a, b, f"dim {dim} of {tile} and {memory}")):
            out.append(Step(d.extent, dim, size, d.a_axis, number(d.a), d.b))
            size *= d.extent
    return tuple(out)


def warp_of(where: Where) -> Var:
    """The warp's number in the scope, with its bound."""
    return var("warp", high=max(where.n_warps - 1, 0))


def check_threads(tile: Placement, where: Where) -> None:
    """Every thread of the scope holds exactly one part of the tile.

    Raises:
        LayoutError: naming the axis that is not covered once.
    """
    for axis, size in where.axes.items():
        digits(axis, tile, size, f"tile {tile}")
    stray = {i.axis for i in tile.iters + tile.replica} - set(where.axes) - {"reg"}
    if stray:
        raise DispatchError(
            f"tile {tile}", f"uses {' '.join(sorted(stray))} in scope {where.scope}",
            f"axes {' '.join([*where.axes, 'reg'])}",
        )  # fmt: skip


def thread_digit(axis: str, stride: int, extent: int, where: Where) -> Int:
    """The digit of a thread axis that an iter (extent, stride) takes."""
    number_: Var = LANE if axis == "lane" else warp_of(where)
    return number_ // stride % extent


def thread_part(all_steps: Iterable[Step], where: Where) -> Int:
    """The part of the address that depends on the thread."""
    total: Int = 0
    for s in all_steps:
        if s.axis != "reg":
            total = total + thread_digit(s.axis, s.coordinate, s.extent, where) * s.memory
    return total


def thread_index(all_steps: Iterable[Step], dim: int, where: Where) -> Int:
    """The part of the logical index of `dim` that depends on the thread."""
    total: Int = 0
    for s in all_steps:
        if s.axis != "reg" and s.dim == dim:
            total = total + thread_digit(s.axis, s.coordinate, s.extent, where) * s.step
    return total


class Register(NamedTuple):
    """One register: its number, its memory offset, its logical index offsets per dim."""

    number: int
    memory: Int
    at: tuple[int, ...]


def registers(all_steps: Sequence[Step], rank: int) -> list[Register]:
    """All registers of a thread, by number."""
    mine = [s for s in all_steps if s.axis == "reg"]
    out = []
    for at in product(*(range(s.extent) for s in mine)):
        offset, index, reg = 0, [0] * rank, 0
        memory: Int = offset
        for digit, s in zip(at, mine, strict=True):
            memory = memory + s.memory * digit
            index[s.dim] += digit * s.step
            reg += digit * s.coordinate
        out.append(Register(reg, memory, tuple(index)))
    return sorted(out, key=lambda r: r.number)


def first_replica(tile: Placement, where: Where) -> Int | None:
    """The condition that this thread holds the first copy; None where there is only one."""
    condition: Int | None = None
    for i in tile.replica:
        digit = thread_digit(i.axis, number(i.stride), number(i.extent), where)
        condition = both(condition, equal(digit, 0))
    return condition


def grid(where: Where) -> dict[str, npt.NDArray[np.int64]]:
    """Values of lane and warp for every thread of the scope, shape (warps, lanes)."""
    warp, lane = np.meshgrid(np.arange(where.n_warps), np.arange(LANES), indexing="ij")
    return {"lane": lane, "warp": warp, "thread": warp * LANES + lane}


def conflicts(byte: npt.NDArray[np.int64], width: int) -> int:
    """Shared-memory passes of one access of `width` bytes by 32 lanes, over the fewest possible.

    A pass serves 128 bytes in 32 banks of 4; lanes that read the same word share (CUDA C++ guide,
    shared memory of compute capability 5 and later).
    """
    lanes_per_pass = max(1, 128 // max(width, 4))
    worst = 1
    for start in range(0, LANES, lanes_per_pass):
        words = {
            int(b) // 4 + w
            for b in byte[start : start + lanes_per_pass]
            for w in range(max(1, width // 4))
        }
        banks = np.bincount([w % 32 for w in words], minlength=32)
        worst = max(worst, int(banks.max()))
    return worst


@dataclass(frozen=True)
class Swizzled:
    """How a swizzled address splits.

    `xor` holds where swizzle(thread + constant) = swizzle(thread) ^ swizzle(constant) on every
    thread and constant: then the thread part is swizzled once.
    """

    swizzle: Swizzle | None
    xor: bool

    def constant(self, c: int) -> int:
        """The register part after the swizzle."""
        return self.swizzle.apply(c) if self.swizzle and self.xor else c


def apply_swizzle(swizzle: Swizzle | None, address: Int) -> Int:
    """The swizzled address as an expression."""
    if swizzle is None or not swizzle.bits:
        return address
    if swizzle.shift < 0:
        raise DispatchError(f"swizzle {swizzle}", "shifts left", "a positive shift")
    return make("^", address, make(">>", make("&", address, swizzle.mask), swizzle.shift))


def split_swizzle(
    swizzle: Swizzle | None, thread: Int, constants: Sequence[int], where: Where
) -> Swizzled:
    """Decide by enumeration whether the swizzle splits over thread part and constants."""
    if swizzle is None or not swizzle.bits:
        return Swizzled(None, False)
    values = np.asarray(evaluate(thread, grid(where)), np.int64).ravel()
    whole = swizzle.apply(values)
    linear = all((swizzle.apply(values + c) == (whole ^ swizzle.apply(c))).all() for c in constants)
    return Swizzled(swizzle, linear)


def aligned_to(swizzle: Swizzle | None, offset: Int) -> bool:
    """Whether an offset leaves the swizzle's pattern in place."""
    return swizzle is None or divisor(offset) % (1 << swizzle.reach) == 0
