"""From cones of products to contractions, and from those to kernels.

Which index dims are rows, columns, batches or reduced follows from which operands reach them. The
persistent kernel takes a contraction where bulk copies and warpgroup products take its operands as
they lie; every other one goes through registers, element by element where it must.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from axe_eq.errors import AxeError, DispatchError, LayoutError, ScheduleError
from axe_eq.kernel.cells import Apply, Cell, renumber, used
from axe_eq.kernel.placement import Block, Iter, Placement, merged
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.lower.formulas import Cone, Fold, Load, Looked, Position
from axe_eq.program.types import DTYPES
from axe_eq.schedule.box import TILE_LETTERS, WHOLE
from axe_eq.target import Target
from axe_eq_backends.cuda.cost import (
    CONSUMERS,
    LEAST_COLS,
    OF_REGISTERS,
    OF_TILES,
    SMEM_SLACK,
    STAGES,
    WARPGROUP_ROWS,
)
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.contraction import Contraction, Product, Span, spanned
from axe_eq_backends.cuda.schedules.gemm import (
    BULK_BYTES,
    GROUP_THREADS,
    MOST_HELD,
    PANEL_BYTES,
    PART_ROWS,
    Extra,
    Matrix,
    Problem,
    Tiling,
    gemm,
)  # fmt: skip
from axe_eq_backends.cuda.schedules.products import (
    MOST_SIDE,
    Tile,
    bytes_read,
    largest_tile,
    least_tile,
    products,
    step_depth,
)  # fmt: skip
from axe_eq_backends.cuda.schedules.tensors import Look, Operand
from axe_eq_backends.cuda.sides import sides

FAMILY = OF_TILES  # of the rows that the persistent kernel is written with
BAND = 16  # rows of tiles in a band where nobody chose


def contraction(cone: Cone, fresh: Callable[[str], str]) -> Contraction:
    """The contraction that a cone is, as it reads it: dims are not fused.

    Args:
        cone: whose reductions are all sums of products over dims of their own.
        fresh: names a tensor of a buffer.

    Raises:
        DispatchError: a sum of products of other sums.
    """
    leaves = list(enumerate(cone.leaves))
    folds = [(n, leaf) for n, leaf in leaves if isinstance(leaf, Fold)]
    reads = [(n, leaf) for n, leaf in leaves if isinstance(leaf, Load | Position)]
    # A factor that the results read too, as b in a[:, None] * b - b, is a tensor for each of them.
    multiplied, beside = (set().union(*(used(x.cell) for x in of)) for of in (
        (fold for _, fold in folds), cone.roots,
    ))  # fmt: skip
    again = [(n, leaf) for n, leaf in reads if n in multiplied & beside]
    operands = tuple(
        operand(cone, leaf, fresh(leaf.buffer) if isinstance(leaf, Load) else "")
        for _, leaf in (*reads, *again)
    )
    numbers = {n: i for i, (n, _) in enumerate(reads)}
    numbers |= {n: i for i, (n, _) in enumerate(folds, len(operands))}
    made = []
    for _, fold in folds:
        assert isinstance(fold.cell, Apply)
        below = used(fold.cell) & {n for n, _ in folds}
        if below:
            raise cone.refuse("multiplies what another product gives", "operands in memory")
        a, b = (renumber(x, numbers) for x in fold.cell.args)
        made.append(Product(a, b, (fold.dtypes[0], fold.dtypes[1]), fold.dims))
    order = _by_stride(cone)
    outer, rows, cols = _kinds(cone, operands, made, order)
    turned = [_turned(p, operands, rows, cols) for p in made]
    numbers |= {n: i for i, (n, _) in enumerate(again, len(reads))}
    stored = tuple(
        (Operand(fresh(r.buffer), r.dtype, r.strides, r.offset), renumber(r.cell, numbers))
        for r in cone.roots
    )
    return Contraction(tuple(cone.shape), outer, rows, cols, operands, tuple(turned), stored)


def tile_sizes(c: Contraction, letters: Sequence[str], chosen: Mapping[str, int]) -> dict[str, int]:
    """What extraction chose, with p for the tile's rows and q for its columns.

    Args:
        c: the contraction.
        letters: of the boxes of its result's dims, as in `Cone`; empty where nobody chose.
        chosen: blocks by letter, and other parameters.
    """
    if not letters:
        return dict(chosen)
    found = {name: size for name, size in chosen.items() if name not in TILE_LETTERS}
    for name, dims in zip(TILE_LETTERS, (c.rows, c.cols), strict=True):
        cut = [chosen[letters[d]] for d in dims if letters[d] in TILE_LETTERS]
        found[name] = max(cut) if cut else c.extent([d for d in dims if letters[d] == WHOLE])
    return found


def operand(cone: Cone, leaf: Load | Position, name: str) -> Operand:
    """A leaf over all dims of the index space, under a name."""
    if isinstance(leaf, Load):
        looks = tuple(_look(cone, x) for x in leaf.looks)
        return Operand(name, leaf.dtype, leaf.strides, leaf.offset, leaf.window, looks=looks)
    strides = tuple(int(d == leaf.dim) for d in range(len(cone.shape)))
    return Operand(f"index_{leaf.dim}", "i32", strides, counts=True)


def _look(cone: Cone, x: Looked) -> Look:
    along = reached(cone, x.cell)
    reach = tuple(d in along for d in range(len(cone.shape)))
    return Look(x.cell, x.dtype, x.stride, x.extent, reach)


def reached(cone: Cone, cell: Cell) -> set[int]:
    """Dims of the index space that a cell over loads and positions depends on."""
    found = set[int]()
    for n in used(cell):
        leaf = cone.leaves[n]
        if isinstance(leaf, Position):
            found.add(leaf.dim)
        else:
            load = cone.load(n)
            found |= {d for d, stride in enumerate(load.strides) if stride}
            found = found.union(*(reached(cone, x.cell) for x in load.looks))
    return found


def _by_stride(cone: Cone) -> list[int]:
    """Dims of the result, slow to fast as its first root has them in memory."""
    strides = cone.roots[0].strides
    return sorted(range(cone.rank), key=lambda d: (-abs(strides[d]), d))


def _reached(cell: Cell, operands: Sequence[Operand]) -> set[int]:
    """Index dims that a cell depends on."""
    read = [operands[n] for n in used(cell)]
    return {d for o in read for d, stride in enumerate(o.strides) if stride}


def _kinds(
    cone: Cone, operands: Sequence[Operand], made: Sequence[Product], order: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(outer, rows, cols), each in `order`; what no product reaches is an outer dim too."""
    wide = {d for d in order if cone.shape[d] > 1}
    reached = [(_reached(p.a, operands) & wide, _reached(p.b, operands) & wide) for p in made]
    rows, cols, _ = sides(reached, order.index)
    of_outer, of_rows, of_cols = (
        tuple(d for d in order if d in kind) for kind in (wide - rows - cols, rows, cols)
    )
    return of_outer, of_rows, of_cols


def _turned(
    p: Product, operands: Sequence[Operand], rows: Sequence[int], cols: Sequence[int]
) -> Product:
    """The product with the factor of the rows first."""
    a, b = _reached(p.a, operands), _reached(p.b, operands)
    if a & set(cols) or b & set(rows):
        return replace(p, a=p.b, b=p.a, dtypes=(p.dtypes[1], p.dtypes[0]))
    return p


# -- kernels --


class Written(NamedTuple):
    """The kernel of a contraction.

    Attributes:
        kernel: the persistent kernel, or one through registers.
        other: why it is not the persistent one; "" where it is.
        planned: its plan, which tells whether the persistent kernel takes the contraction.
    """

    kernel: ir.Kernel
    other: str = ""
    planned: Planned | None = None


def kernel(
    c: Contraction, name: str, target: Target, parameters: Mapping[str, int], row: str = ""
) -> Written:
    """The kernel of a contraction.

    Args:
        c: what to compute.
        name: of the kernel.
        target: the machine, for capacities and instruction rows.
        parameters: blocks by letter, stages and CTAs of a cluster, as extraction chose them; may be
            empty.
        row: the instruction row that extraction chose; "" where nobody did.

    Raises:
        DispatchError, ScheduleError: no kernel takes it.
    """
    fused = c.fused()
    family = row.partition(".")[0]
    if family in OF_REGISTERS:
        chosen = products(fused, _tile(fused, name, target, parameters), name)
        return Written(chosen, f"{row} was chosen")
    if family not in ("", FAMILY):
        raise DispatchError(
            f"kernel {name}", f"was priced on {row}, which no kernel is written with",
            f"rows of {', '.join((FAMILY, *OF_REGISTERS))}",
        )  # fmt: skip
    # What CTAs of a cluster would share may be cut where bulk copies cannot: then each is alone.
    for clusters in (True, False) if parameters.get("cluster", 1) > 1 else (False,):
        try:
            made = _persistent(fused, name, target, parameters, clusters)
            return Written(made, planned=plan(made, target))
        except (DispatchError, LayoutError, ScheduleError) as refusal:
            reason = _text(refusal)
    return Written(products(fused, _tile(fused, name, target, parameters), name), reason)


def _text(error: AxeError) -> str:
    return f"{error.thing}: {error.wrong}" + (f" ({error.hint})" if error.hint else "")


class _Persistent:
    """A contraction as the problem of the persistent kernel."""

    def __init__(
        self, c: Contraction, name: str, target: Target, parameters: Mapping[str, int]
    ) -> None:
        self.c, self.name, self.target, self.parameters = c, name, target, parameters
        (self.out, self.cell), *more = c.outputs
        if more or len(c.depths) > 1:
            raise self.refuse(
                f"{len(c.outputs)} results of sums over {len(c.depths)} spaces", "one of each"
            )
        self.dtype = c.dtype
        rows = [r for r in target.rows("gemm") if r.family == FAMILY]
        if not any((self.dtype, self.dtype, "f32") in r.dtypes for r in rows):
            raise self.refuse(f"{self.dtype} factors", "a row of warpgroup products")
        self.pairs = [(self._factor(p.a), self._factor(p.b)) for p in c.products]
        self.size = DTYPES[self.dtype].itemsize

    def refuse(self, wrong: str, expected: str) -> ScheduleError:
        """An error about this contraction."""
        return ScheduleError(f"persistent kernel of {self.name}", wrong, expected)

    def _factor(self, cell: Cell) -> Operand:
        operand = self.c.plain(cell)
        if operand is None or operand.dtype != self.dtype or any(operand.window):
            raise self.refuse(f"a factor is computed ({cell})", "tensors as they lie")
        return operand

    def kernel(self, clusters: bool) -> ir.Kernel:
        """The kernel, in clusters of CTAs if that is wanted, chosen, and possible."""
        c = self.c
        tiling = self._tiling()
        rows, self.m = spanned(c, c.rows, tiling.m)
        cols, self.n = spanned(c, c.cols, tiling.n)
        parts, self.k = self._depth(tiling.k)
        self.lead, self.parts = (*c.outer, *rows, *cols), parts
        pairs = tuple((self._matrix(a, self.m), self._matrix(b, self.n)) for a, b in self.pairs)
        extras = c.extras
        numbers = {len(c.operands) + n: n for n in range(len(pairs))}
        numbers |= {n: len(pairs) + i for i, n in enumerate(extras)}
        problem = Problem(
            self.m.extent,
            self.n.extent,
            self.k.extent,
            pairs,
            renumber(self.cell, numbers),
            tuple(self._extra(c.operands[n]) for n in extras),
            self._result(),
            tuple(c.shape[d] for d in self.lead),
            tuple(c.shape[d] for d in self.parts),
        )
        return gemm(problem, self._clustered(tiling) if clusters else tiling, self.name)

    def _depth(self, tile: int) -> tuple[tuple[int, ...], Span]:
        """Outer reduced dims and the one that steps run along: contiguous where rows are not."""
        (depth,) = self.c.depths
        operands = [o for pair in self.pairs for o in pair]
        needed = {d for o in operands for d in depth if o.strides[d] == 1}
        if len(needed) > 1:
            raise self.refuse("operands contiguous along different reduced dims", "the same")
        best = max(needed or depth, key=lambda d: self.c.shape[d], default=None)
        inner = () if best is None else (best,)
        return tuple(d for d in depth if d != best), Span(inner, self.c.extent(inner), tile)

    # -- tensors --

    def _place(self, operand: Operand, parts: Sequence[int], *spans: Span) -> Placement:
        """Over the outer dims, the parts and the spans; the tensor's unit runs stay iters."""
        c = self.c
        blocks: list[Block] = [
            (Iter(c.shape[d], operand.strides[d], "m"),) if operand.strides[d] else ()
            for d in (*self.lead, *parts)
        ]
        for s in spans:
            blocks.append(merged(Iter(c.shape[d], operand.strides[d], "m") for d in s.dims))
        offset = (("m", operand.offset),) if operand.offset else ()
        return Placement(tuple(blocks), offset=offset)

    def _matrix(self, operand: Operand, side: Span) -> Matrix:
        """An operand over its side and the reduced dim, contiguous along one of them."""
        place = self._place(operand, self.parts, side, self.k)
        *lead, across, depth = place.blocks
        for dims, block in ((side.dims, across), (self.k.dims, depth)):
            if any(not operand.strides[d] for d in dims):
                raise self.refuse(f"{operand.name} does not reach all of {block}", "whole factors")
        major = int(not across or across[-1].stride != 1)
        across = across or (Iter(1, BULK_BYTES // self.size, "m"),)
        depth = depth or (Iter(1, 1 if major else BULK_BYTES // self.size, "m"),)
        if depth[-1].stride != 1 and across[-1].stride != 1:
            strides = f"({across[-1].stride}, {depth[-1].stride})"
            raise self.refuse(f"{operand.name} has strides {strides}", "one contiguous dim")
        return Matrix(
            operand.name, operand.dtype, major, place=replace(place, blocks=(*lead, across, depth))
        )

    def _result(self) -> Matrix:
        out = self.out
        size = DTYPES[out.dtype].itemsize
        place = self._place(out, (), self.m, self.n)
        *lead, rows, cols = place.blocks
        if len([b for b in lead if b]) < len(lead):
            raise self.refuse(f"{out.name} does not reach every outer dim", "a whole result")
        major = int(not rows or rows[-1].stride != 1 or (bool(cols) and cols[-1].stride == 1))
        apart = (Iter(1, max(1, BULK_BYTES // size), "m"),)
        rows = rows or apart
        cols = cols or ((Iter(1, 1, "m"),) if major else apart)
        place = replace(place, blocks=(*lead, rows, cols))
        return Matrix(out.name, out.dtype, major, place=place)

    def _extra(self, operand: Operand) -> Extra:
        if any(operand.window):
            raise self.refuse(f"{operand.name} is read in a window", "whole tensors")
        spans = {"m": self.m, "n": self.n}
        if operand.counts:
            (dim,) = (d for d, step in enumerate(operand.strides) if step)
            dims = "".join(n for n, s in spans.items() if dim in s.dims)
            outer = 0 if dims else self.lead.index(dim)
            return Extra(operand.name, dims, operand.dtype, counts=outer)
        kept = {n: s for n, s in spans.items() if any(operand.strides[d] for d in s.dims)}
        place = self._place(operand, (), *kept.values())
        return Extra(operand.name, "".join(kept), operand.dtype, place)

    # -- tiles --

    def _tiling(self) -> Tiling:
        """The tile that extraction chose; what it left open as large as fits."""
        given, size = self.parameters, self.size
        (deep,) = self.c.depths
        depth = min(PANEL_BYTES // size, max(16, _up(self.c.extent(deep))))
        # Blocks are given clipped to the extent; kernels have whole ones, of two warpgroups or one.
        rows = given.get("p", 2 * WARPGROUP_ROWS)
        consumers = 1 if rows <= WARPGROUP_ROWS else CONSUMERS
        rows = _multiple(rows, consumers * WARPGROUP_ROWS)
        cols = _multiple(given.get("q", min(128, self.c.extent(self.c.cols))), LEAST_COLS)
        room = MOST_HELD * GROUP_THREADS * consumers // len(self.pairs)
        while "q" not in given and rows * cols > room and cols > LEAST_COLS:
            cols -= LEAST_COLS
        names = {o.name: t for a, b in self.pairs for o, t in ((a, rows), (b, cols))}
        stage = sum(names.values()) * depth * size
        out_size = DTYPES[self.out.dtype].itemsize
        panels = -(-cols * out_size // PANEL_BYTES)
        panel = rows * min(cols * out_size, PANEL_BYTES)
        room = self.target.memory("smem").n_bytes - SMEM_SLACK
        stages = (given["stages"],) if "stages" in given else sorted(STAGES, reverse=True)
        staged = (given["staging"],) if "staging" in given else range(panels, 0, -1)
        for n_stages, n_panels in product(stages, staged):
            if n_stages * stage + min(n_panels, panels) * panel <= room:
                return Tiling(
                    rows, cols, depth, n_stages, consumers,
                    given.get("band", BAND), staging=min(n_panels, panels),
                )  # fmt: skip
        raise self.refuse(f"takes {min(stages) * stage + panel} bytes of smem", f"at most {room}")

    def _clustered(self, tiling: Tiling) -> Tiling:
        """The tiling in clusters along rows or columns.

        Best where the fewest tiles of clusters are not there, then where the larger operand tile is
        shared; as it was where no side has as many tiles.
        """
        n = self.parameters.get("cluster", 1)
        sides = (("m", self.m, tiling.n), ("n", self.n, tiling.m))
        ways = []
        for along, span, shared in sides:
            if span.count >= n and shared % (PART_ROWS * n) == 0:
                ways.append((-(-span.count // n) * n / span.count, -shared, along))
        return replace(tiling, cluster=n, along=min(ways)[2]) if ways else tiling


def _persistent(
    c: Contraction, name: str, target: Target, parameters: Mapping[str, int], clusters: bool
) -> ir.Kernel:
    return _Persistent(c, name, target, parameters).kernel(clusters)


def _tile(c: Contraction, name: str, target: Target, parameters: Mapping[str, int]) -> Tile:
    """A tile that covers little of what is not there and leaves no unit without work."""
    dtype, matrix = _multiplied(c, name, target)
    room, least = largest_tile(dtype) // len(c.products), least_tile(matrix)
    given = parameters.get("p", MOST_SIDE), parameters.get("q", MOST_SIDE)
    chosen = "p" in parameters or "q" in parameters
    m, n = (
        min(MOST_SIDE, max(low, _up(min(c.extent(dims), most))))
        for dims, low, most in zip((c.rows, c.cols), least, given, strict=True)
    )

    def smaller(m: int, n: int) -> tuple[int, int]:
        return (m // 2, n) if (n <= m and m > least[0]) or n <= least[1] else (m, n // 2)

    while m * n > room and (m, n) != least:
        m, n = smaller(m, n)
    batches = c.extent(c.outer)
    while not chosen and m * n > 32 * 32 and batches * _tiles(c, m, n) < target.n_units:
        m, n = smaller(m, n)
    deepest = max((c.extent(d) for d in c.depths), default=1)
    read = bytes_read(c, dtype)
    k = step_depth(m, n, matrix, dtype, len(c.products), deepest, read)
    return Tile(m, n, k, matrix, dtype)


def _multiplied(c: Contraction, name: str, target: Target) -> tuple[str, bool]:
    """What factors are multiplied in, and whether matrix units do it: the type itself, or wider."""
    for dtype in (c.dtype, DTYPES[c.dtype].accumulate):
        rows = [r for r in target.rows("gemm") if (dtype, dtype) == r.dtypes[0][:2]]
        for family in OF_REGISTERS:
            if any(r.family == family for r in rows):
                return dtype, family == OF_REGISTERS[0]
    raise ScheduleError(f"kernel {name}", f"multiplies {c.dtype}", "a row for products of it")


def _tiles(c: Contraction, m: int, n: int) -> int:
    return -(-c.extent(c.rows) // m) * -(-c.extent(c.cols) // n)


def _multiple(n: int, of: int) -> int:
    """The smallest multiple that is at least n."""
    return -(-n // of) * of


def _up(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


__all__ = ["Written", "contraction", "kernel", "operand"]
