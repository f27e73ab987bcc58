"""Scans: every prefix of rows, or of columns, in one pass; any cells before, between and after.

A tile is scanned in registers, by shuffles and through shared memory, after a carry that it leaves
for the next tile of its rows. Where rows are contiguous neighbouring threads hold neighbouring
vectors of a row; else they hold neighbouring rows, and warps stand one after the other along them.
What lies past the end of a row stands after all of it, so nothing is masked but what is stored.
One CTA goes through all of a row: rows that are few and long wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import Cell, result_dtype
from axe_eq.kernel.cells import Operand as CellOperand
from axe_eq.kernel.expr import Int, ceil_div
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.live import most_words
from axe_eq.layout import Layout
from axe_eq_backends.cuda.schedules.tails import Problem
from axe_eq_backends.cuda.schedules.tensors import Space, begins, mapped, power_of_two_from

WARP, MAX_WARPS, MIN_WARPS = 32, 32, 4
REGISTERS, MOST_REGISTERS = 65536, 160
# Elements of a thread in a tile, and threads of a row: more wait longer for each other.
HELD, ROW_THREADS, FEW_ROW_THREADS = 16, 256, 1024


@dataclass(frozen=True)
class Prefix:
    """One scan: cells of a state's parts over operands and earlier values, see `prefixes.Parts`."""

    lift: tuple[Cell, ...]
    merge: tuple[Cell, ...]
    units: tuple[float, ...]
    finish: Cell


@dataclass(frozen=True)
class ScanTiling:
    """A tile, and who holds it.

    Attributes:
        fast: 1 where the scanned dim is the contiguous one, the columns; else it is the rows.
        wide: neighbours along the contiguous dim that a thread holds.
        along: threads along the scanned dim.
        across: threads along the other one.
        held: repeats of vectors (fast), or neighbours along the scanned dim, that a thread holds.
    """

    fast: int
    wide: int
    along: int
    across: int
    held: int

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.along * self.across // WARP

    @property
    def scanned(self) -> int:
        """Elements of a tile along the scanned dim."""
        return self.along * self.held * (self.wide if self.fast else 1)

    @property
    def other(self) -> int:
        """Elements of a tile along the other dim."""
        return self.across * (1 if self.fast else self.wide)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns."""
        return (self.other, self.scanned) if self.fast else (self.scanned, self.other)

    @property
    def layout(self) -> Layout:
        """The tile on threads and registers."""
        lanes = min(self.along, WARP)
        shard = [
            (self.across, self.along, "tx"), (self.along // lanes, lanes, "tx"),
            (self.held, self.wide, "reg"), (lanes, 1, "tx"), (self.wide, 1, "reg"),
        ] if self.fast else [
            (self.along, self.across, "tx"), (self.held, self.wide, "reg"),
            (self.across, 1, "tx"), (self.wide, 1, "reg"),
        ]  # fmt: skip
        return Layout([i for i in shard if i[0] != 1] or [(1, 1, "reg")])


def best_scan(extent: int, other: int, outer: int, fast: int, wide: int, units: int) -> ScanTiling:
    """The tile that is expected to be fastest for rows, or columns, of an extent.

    Args:
        extent: of the scanned dim.
        other: of the dim beside it.
        outer: how many such matrices there are.
        fast: 1 where the scanned dim is contiguous.
        wide: elements of a vector along the contiguous dim.
        units: units of the machine, that should all have work.
    """
    if fast:
        most = ROW_THREADS if outer * other >= units else FEW_ROW_THREADS
        along = min(power_of_two_from(-(-extent // HELD)), most)
        across = max(1, MIN_WARPS * WARP // along)
        held = min(-(-extent // (along * wide)), max(1, HELD // wide))
        return ScanTiling(1, wide, along, across, held)
    while wide > 1 and outer * -(-other // (WARP * wide)) < units:
        wide //= 2
    across = min(power_of_two_from(-(-other // wide)), WARP)
    held = max(1, HELD // wide)
    warps = min(power_of_two_from(-(-extent * across // (held * WARP))), HELD)
    return ScanTiling(0, wide, warps * WARP // across, across, held)


def scan_rows(
    problem: Problem, prefixes: Sequence[Prefix], tiling: ScanTiling, name: str = "scans"
) -> ir.Kernel:
    """The kernel.

    Args:
        problem: over (..., rows, columns), without reductions; of the two the scanned dim is what
            the tiling says. Cells of results are over operands and values of scans.
        prefixes: in order; their cells may use operands (by number) and the values of earlier scans
            (numbered after the operands).
        tiling: the tile.
        name: of the kernel.

    Raises:
        ScheduleError: the tile takes too many registers of a thread.
    """
    kernel = _Writer(problem, prefixes, tiling, name).write()
    held, most = most_words(kernel), min(REGISTERS // kernel.n_threads, MOST_REGISTERS)
    if held > most:
        raise ScheduleError(
            f"kernel {name}", f"holds {held} registers of a thread", f"at most {most}"
        )
    return kernel


_State = tuple[list[ir.View], list[ir.View], list[ir.Buffer]]


class _Writer:
    def __init__(
        self, problem: Problem, prefixes: Sequence[Prefix], tiling: ScanTiling, name: str
    ) -> None:
        self.p, self.shape, self.t = problem, problem.shape, tiling
        self.operands, self.prefixes = problem.operands, prefixes
        self.dim = 1 if tiling.fast else 0
        self.k = ThreadBuilder(name, tiling.warps)
        self.dtypes = [o.dtype for o in self.operands]

    def write(self) -> ir.Kernel:
        k, t = self.k, self.t
        self.space = Space(k, self.shape, self.operands, self.p.stored)
        self.like = k.reg("like", "f32", t.tile, t.layout)
        at = len(self.shape) - 2 + self.dim
        counts = [*self.shape[:-2], *map(ceil_div, self.shape[-2:], t.tile)]
        chunks, counts[at] = counts[at], 1
        self.states = [self._state(n, p) for n, p in enumerate(self.prefixes)]
        with k.tiles(prod(counts), persistent=False) as number:
            sizes = [1] * (len(counts) - 2) + [*t.tile]
            begin = begins(k, number, counts, sizes, whole=at)
            self._rows(begin, at, chunks)
        return k.finish()

    def _state(self, number: int, prefix: Prefix) -> _State:
        """Tiles, carries and scratch of one scan."""
        k, t = self.k, self.t
        found: _State = ([], [], [])
        dtypes = [result_dtype(cell, self.dtypes) for cell in prefix.lift]
        for part, dtype in enumerate(dtypes):
            name = f"scan{number}_{part}"
            tile = k.reg_like(name, dtype, self.like.all)
            found[0].append(tile.all)
            found[1].append(k.reg_reduced(f"carry{number}_{part}", dtype, tile.all, [self.dim]).all)
            if t.warps > 1:
                slots = t.wide * WARP * t.warps
                found[2].append(k.smem(f"totals{number}_{part}", dtype, (slots,)))
        self.dtypes.append(result_dtype(prefix.finish, dtypes))
        return found

    def _rows(self, begin: list[Int], at: int, chunks: Int) -> None:
        """All tiles of the same rows, in order."""
        k = self.k
        for (_, carries, _), prefix in zip(self.states, self.prefixes, strict=True):
            for carry, unit in zip(carries, prefix.units, strict=True):
                k.fill(carry, unit)
        with k.range(chunks, name="chunk") as chunk:
            here = k.let("at", chunk * self.t.scanned)
            self._chunk([here if d == at else b for d, b in enumerate(begin)])
            if self.t.warps > 1 and chunks != 1:
                k.sync()  # the next tile writes the totals that this one read

    def _chunk(self, begin: list[Int]) -> None:
        values = dict(enumerate(self._loads(begin)))
        for n, (prefix, (states, carries, scratch)) in enumerate(
            zip(self.prefixes, self.states, strict=True), len(self.operands)
        ):
            for cell, state in zip(prefix.lift, states, strict=True):
                mapped(self.k, cell, state, values)
            self.k.scan(prefix.merge, states, carries, self.dim, scratch)
            values[n] = self._finished(n, prefix, states)
        for out, cell in self.p.outputs:
            self.space.store(out, cell, values, begin, self.t.tile, self.like)

    def _finished(self, number: int, prefix: Prefix, states: list[ir.View]) -> ir.View:
        """The value of a scan: of most the state itself."""
        if isinstance(prefix.finish, CellOperand):
            return states[prefix.finish.index]
        value = self.k.reg_like(f"value{number}", self.dtypes[number], self.like.all).all
        mapped(self.k, prefix.finish, value, dict(enumerate(states)))
        return value

    def _loads(self, begin: list[Int]) -> list[ir.View]:
        return [self.space.load(o, begin, self.t.tile, self.like) for o in self.operands]
