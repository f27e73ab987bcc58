"""Persistent, warp-specialised matrix products with any cell epilogue (Hopper).

out = cell(A0 B0^T, A1 B1^T, ..., extras): one or several products over one index space, then a cell
over the accumulators and extra tensors that are rows, columns or whole. A producer warpgroup keeps
a ring of operand tiles full by bulk copies; consumer warpgroups multiply and store through shared
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from axe_eq.errors import ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.build import Builder, Pipe
from axe_eq.kernel.cells import IDENTITY, Cell
from axe_eq.kernel.expr import Int, Var, ceil_div, divisor, minimum, var
from axe_eq.kernel.ir import span
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.instrs import K_MAJOR, MN_MAJOR, SmemForm
from axe_eq_backends.cuda.schedules import tiles
from axe_eq_backends.cuda.wgmma import accumulator

FORMS = {form.name: form for form in K_MAJOR + MN_MAJOR}


@dataclass(frozen=True)
class Matrix:
    """A matrix argument: logical (rows, k) operand or (rows, cols) tensor.

    Attributes:
        name: its name.
        dtype: element type.
        major: the contiguous dim: 1 (row-major) or 0.
        stride: elements between neighbours of the other dim; None where dense.
    """

    name: str
    dtype: str = "f16"
    major: int = 1
    stride: Int | None = None


@dataclass(frozen=True)
class Extra:
    """An epilogue operand: "mn" (whole), "n" (a value per column) or "m" (per row)."""

    name: str
    dims: str
    dtype: str = "f16"


@dataclass(frozen=True)
class Problem:
    """What to compute: products over (m, n, k), then a cell.

    Attributes:
        m, n, k: extents, known or run-time parameters.
        products: pairs of operands, a of (m, k) and b of (n, k).
        cell: over the accumulators in order, then the extras.
        extras: epilogue operands.
        out: the result, (m, n).
    """

    m: Int
    n: Int
    k: Int
    products: tuple[tuple[Matrix, Matrix], ...] = ((Matrix("A"), Matrix("B")),)
    cell: Cell = IDENTITY
    extras: tuple[Extra, ...] = ()
    out: Matrix = Matrix("C")


@dataclass(frozen=True)
class Tiling:
    """How to compute it.

    Attributes:
        m, n, k: tile of one CTA and step.
        stages: slots of the operand ring.
        consumers: consumer warpgroups; they divide the tile's rows.
        raster: tile rows of a band, for reuse of operands in L2.
        forms: shared-memory form per operand name; by default the widest swizzle that fits.
        staging: result panels a consumer keeps in shared memory; 0 means all of its tile.
    """

    m: int = 128
    n: int = 256
    k: int = 64
    stages: int = 3
    consumers: int = 2
    raster: int = 8
    forms: dict[str, str] = field(default_factory=dict)
    staging: int = 0

    def __hash__(self) -> int:
        return hash(
            (self.m, self.n, self.k, self.stages, self.consumers, self.raster, self.staging)
        )


def gemm(problem: Problem, tiling: Tiling = Tiling(), name: str = "gemm") -> ir.Kernel:
    """The kernel.

    Raises:
        ScheduleError: the tile does not divide into warpgroups, or nothing is multiplied.
    """
    return _Writer(problem, tiling, name).write()


class _Writer:
    def __init__(self, problem: Problem, tiling: Tiling, name: str) -> None:
        self.p, self.t = problem, tiling
        rows = tiling.m // tiling.consumers
        if tiling.m % tiling.consumers or rows % 64:
            wrong = f"{tiling.m} rows for {tiling.consumers} warpgroups"
            raise ScheduleError(f"tiling of {name}", wrong, "a multiple of 64 rows each")
        self.k = Builder(name, 4 * (tiling.consumers + 1))
        self.rows = rows
        self.size = DTYPES[problem.out.dtype].itemsize
        self.wide = min(128 // self.size, tiling.n)
        self.panels = tiling.n // self.wide
        self.staged = min(tiling.staging or self.panels, self.panels)

    def write(self) -> ir.Kernel:
        k, t = self.k, self.t
        for dim in (self.p.m, self.p.n, self.p.k):
            if isinstance(dim, Var):
                k.kernel.params.append(dim)
        self._declare()
        self.full, self.empty = k.mbarriers("full", t.stages), k.mbarriers("empty", t.stages)
        self.rows_of_tiles = k.let("tiles_m", ceil_div(self.p.m, t.m))
        self.cols_of_tiles = k.let("tiles_n", ceil_div(self.p.n, t.n))
        self.steps = k.let("steps", ceil_div(self.p.k, t.k))
        with k.roles():
            with k.warpgroups(t.consumers, t.consumers + 1):
                self._produce()
            with k.warpgroups(0, t.consumers) as group:
                self._consume(group)
        return k.finish()

    # -- buffers --

    def _declare(self) -> None:
        k, t, p = self.k, self.t, self.p
        self.operands: dict[str, tuple[ir.Buffer, ir.Buffer, int]] = {}
        for pair in p.products:
            for matrix, extent, tile in ((pair[0], p.m, t.m), (pair[1], p.n, t.n)):
                if matrix.name not in self.operands:
                    tensor = self._tensor(matrix, (extent, p.k))
                    size = DTYPES[matrix.dtype].itemsize
                    layout = tiles.operand(t.stages, tile, t.k, size, self._form(matrix))
                    ring = k.smem(
                        f"{matrix.name}_ring", matrix.dtype, (t.stages, tile, t.k), layout
                    )
                    self.operands[matrix.name] = tensor, ring, tile
        shapes = {"mn": (p.m, p.n), "m": (p.m,), "n": (p.n,)}
        self.extras = [k.tensor(e.name, e.dtype, shapes[e.dims]) for e in p.extras]
        self.out = self._tensor(p.out, (p.m, p.n), output=True)
        lead = (t.consumers, self.staged)
        layout = (
            tiles.panels(lead, self.rows, self.wide, self.size)
            if p.out.major
            else tiles.transposed_panels(lead, self.rows, self.wide, self.size)
        )
        self.bulk = divisor(self._leading(p.out, (p.m, p.n)) * self.size) % 16 == 0
        if self.bulk:
            shape = (*lead, self.rows, self.wide)
            self.stage_out = k.smem(f"{p.out.name}_staging", p.out.dtype, shape, layout)

    def _leading(self, matrix: Matrix, shape: tuple[Int, Int]) -> Int:
        return shape[matrix.major] if matrix.stride is None else matrix.stride

    def _tensor(self, matrix: Matrix, shape: tuple[Int, Int], output: bool = False) -> ir.Buffer:
        leading = self._leading(matrix, shape)
        strides = (leading, 1) if matrix.major else (1, leading)
        return self.k.tensor(matrix.name, matrix.dtype, shape, strides=strides, output=output)

    def _form(self, matrix: Matrix) -> SmemForm:
        named = self.t.forms.get(matrix.name)
        if named is not None:
            return FORMS[named]
        size = DTYPES[matrix.dtype].itemsize
        widest = min(128, self.t.k * size) if matrix.major else 128
        return next(f for f in (K_MAJOR if matrix.major else MN_MAJOR) if f.width <= widest)

    # -- roles --

    @contextmanager
    def _tiles(self) -> Iterator[tuple[Int, Int]]:
        """This CTA's tiles, in bands of `raster` tile rows: first row and column of each."""
        k, t = self.k, self.t
        with k.tiles(self.rows_of_tiles * self.cols_of_tiles) as tile:
            band_size = self.cols_of_tiles * t.raster
            band = k.let("band", tile // band_size)
            inside = k.let("inside", tile % band_size)
            height = k.let("height", minimum(self.rows_of_tiles - band * t.raster, t.raster))
            row = (band * t.raster + inside % height) * t.m
            yield k.let("row", row), k.let("col", inside // height * t.n)

    def _produce(self) -> None:
        k, t = self.k, self.t
        with k.one_thread():
            pipe = k.pipe(t.stages, parity=1)
            with self._tiles() as (row, col), k.range(self.steps, name="step") as step:
                k.wait(self.empty, pipe.stage, pipe.parity)
                with k.arrives(self.full, pipe.stage):
                    self._load(pipe, row, col, step * t.k)
                pipe.advance()

    def _load(self, pipe: Pipe, row: Int, col: Int, depth: Int) -> None:
        begin = {a.name: row for a, _ in self.p.products} | {
            b.name: col for _, b in self.p.products
        }
        for name, (tensor, ring, tile) in self.operands.items():
            part = tensor[span(begin[name], tile), span(depth, self.t.k)]
            self.k.copy_async(ring[pipe.stage], part)

    def _consume(self, group: Int) -> None:
        k, t = self.k, self.t
        pipe = k.pipe(t.stages)
        accs = [
            k.reg("acc", "f32", (self.rows, t.n), accumulator(self.rows, t.n))
            for _ in self.p.products
        ]
        previous = k.state("previous", 0, high=t.stages - 1)
        with self._tiles() as (row, col):
            row = k.let("group_row", row + group * self.rows)
            vectors = self._vectors(accs[0], row, col)
            with k.range(self.steps, name="step") as step:
                k.wait(self.full, pipe.stage, pipe.parity)
                self._multiply(accs, pipe, group, step)
                k.wait_group("wgmma", len(accs))  # the step before is done: its slot is free
                with k.when(step > 0), k.one_thread():
                    k.arrive(self.empty, previous)
                k.assign(previous, pipe.stage)
                pipe.advance()
            k.wait_group("wgmma", 0)
            with k.one_thread():
                k.arrive(self.empty, previous)
            for panel in range(self.panels):
                self._store(accs, vectors, group, row, col, panel)
        if self.bulk:
            with k.one_thread():
                k.wait_group("bulk", 0)

    def _multiply(self, accs: list[ir.Buffer], pipe: Pipe, group: Int, step: Int) -> None:
        for acc, (a, b) in zip(accs, self.p.products, strict=True):
            left, right = self.operands[a.name][1], self.operands[b.name][1]
            # One consumer takes the whole tile, which begins where its swizzle does.
            first = group * self.rows if self.t.consumers > 1 else 0
            rows = left[pipe.stage, span(first, self.rows)]
            self.k.gemm_async(acc.all, rows, right[pipe.stage], accumulate=step > 0)

    # -- epilogue --

    def _vectors(self, acc: ir.Buffer, row: Int, col: Int) -> list[ir.Buffer | None]:
        """Rows and columns of the epilogue, read before the products: never waited for."""
        k, found = self.k, list[ir.Buffer | None]()
        for extra, tensor in zip(self.p.extras, self.extras, strict=True):
            if extra.dims == "mn":
                found.append(None)
                continue
            dim = "mn".index(extra.dims)
            held = k.reg_reduced(extra.name, extra.dtype, acc.all, [1 - dim])
            begin, size = (row, self.rows) if dim == 0 else (col, self.t.n)
            k.copy(held.all[0] if dim else held.all[:, 0], tensor[span(begin, size)])
            found.append(held)
        return found

    def _store(
        self,
        accs: list[ir.Buffer],
        vectors: list[ir.Buffer | None],
        group: Int,
        row: Int,
        col: Int,
        panel: int,
    ) -> None:
        k, cols = self.k, slice(panel * self.wide, (panel + 1) * self.wide)
        rows_at, cols_at = span(row, self.rows), span(col + panel * self.wide, self.wide)
        ins = [acc[:, cols] for acc in accs]
        for extra, tensor, held in zip(self.p.extras, self.extras, vectors, strict=True):
            if held is None:
                whole = k.reg_like(extra.name, extra.dtype, ins[0])
                k.copy(whole.all, tensor[rows_at, cols_at])
                ins.append(whole.all)
            else:
                ins.append(held[:, cols] if extra.dims == "n" else held.all)
        result = k.reg_like(self.p.out.name, self.p.out.dtype, ins[0])
        if not self.bulk:
            k.map(self.p.cell, result.all, *ins)
            k.copy(self.out[rows_at, cols_at], result.all)
            return
        slot = self.stage_out[group, panel % self.staged]
        with k.one_thread():
            k.wait_group("bulk_read", self.staged - 1)
        k.sync()
        k.map(self.p.cell, result.all, *ins)
        k.copy(slot, result.all)
        k.fence_async()
        k.sync()
        with k.one_thread():
            k.copy_async(self.out[rows_at, cols_at], slot)
            k.commit("bulk")


def parameters(divisors: tuple[int, int, int] = (1, 8, 8)) -> tuple[Int, Int, Int]:
    """Run-time extents (m, n, k) with proven divisors."""
    return tuple(var(n, d, low=d, high=1 << 30) for n, d in zip("MNK", divisors, strict=True))  # type: ignore[return-value]


__all__ = ["Extra", "Matrix", "Problem", "Tiling", "gemm", "parameters"]
