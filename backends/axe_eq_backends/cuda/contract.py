"""From cones of products to contractions, and from those to kernels.

Which index dims are rows, columns, batches or reduced follows from which operands reach them. A
candidate's row and parameters say which kernel it is: the persistent one takes operands that bulk
copies and warpgroup products take as they lie, the other one goes through registers, element by
element where it must.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import Apply, Cell, renumber, used
from axe_eq.kernel.placement import Block, Iter, Placement, merged
from axe_eq.kernel.threads import ir
from axe_eq.lower.formulas import Cone, Fold, Load, Looked, Position
from axe_eq.program.types import DTYPES
from axe_eq.target import Instr
from axe_eq_backends.cuda.instrs import MN_MAJOR
from axe_eq_backends.cuda.schedules.contraction import Contraction, Product, Span, spanned
from axe_eq_backends.cuda.schedules.gemm import Extra, Matrix, Problem, Tiling, gemm
from axe_eq_backends.cuda.schedules.gemm_copies import BULK_BYTES
from axe_eq_backends.cuda.schedules.product_tiles import Tile
from axe_eq_backends.cuda.schedules.products import products
from axe_eq_backends.cuda.schedules.tensors import Look, Operand
from axe_eq_backends.cuda.sides import sides

# Families of rows that kernels are written with: from tile memory, and of registers.
OF_TILES, OF_REGISTERS = "wgmma", ("mma", "fma")


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


def operand(cone: Cone, leaf: Load | Position, name: str) -> Operand:
    """A leaf over all dims of the index space, under a name."""
    if isinstance(leaf, Load):
        looks = tuple(_look(cone, x) for x in leaf.looks)
        return Operand(
            name, leaf.dtype, leaf.strides, leaf.offset, leaf.window, looks=looks, end=leaf.end
        )
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


def kernel(
    c: Contraction, name: str, row: Instr, parameters: Mapping[str, int], merges: str = ""
) -> ir.Kernel:
    """The kernel of a contraction on an instruction row, by a candidate's parameters.

    With `merges` memory merges its result with what it holds, by that monoid.

    Raises:
        DispatchError, ScheduleError: it cannot be written so.
    """
    fused, dtype = c.fused(), row.dtypes[0][0]
    held = fused.dtype if row.family == OF_TILES else DTYPES[fused.dtype].accumulate
    if dtype not in (fused.dtype, held):
        raise ScheduleError(f"kernel {name}", f"multiplies {fused.dtype} by {row.name}", held)
    if row.family == OF_TILES:
        found = fused.turned() if parameters["turned"] else fused
        return _Persistent(found, name, Tiling.of(parameters)).kernel(merges)
    if merges:
        raise ScheduleError(f"kernel {name}", f"merges its result on {row.name}", OF_TILES)
    matrix = row.family == OF_REGISTERS[0]
    return products(fused, Tile(**parameters, matrix=matrix, dtype=dtype), name)


class _Persistent:
    """A contraction as the problem of the persistent kernel."""

    def __init__(self, c: Contraction, name: str, tiling: Tiling) -> None:
        self.c, self.name, self.tiling, self.dtype = c, name, tiling, c.dtype
        (self.out, self.cell), *more = c.outputs
        if more or len(c.depths) > 1:
            raise self.refuse(
                f"{len(c.outputs)} results of sums over {len(c.depths)} spaces", "one of each"
            )
        self.pairs = [(self._factor(p.a), self._factor(p.b)) for p in c.products]
        ends = {o.end for pair in self.pairs for o in pair}
        if len(ends) > 1 or any(c.operands[n].end for n in c.extras):
            raise self.refuse("operands in other parts than others", "the same parts")
        (self.end,) = ends
        self.size = DTYPES[self.dtype].itemsize

    def refuse(self, wrong: str, expected: str) -> ScheduleError:
        """An error about this contraction."""
        return ScheduleError(f"persistent kernel of {self.name}", wrong, expected)

    def _factor(self, cell: Cell) -> Operand:
        operand = self.c.plain(cell)
        if operand is None or operand.dtype != self.dtype or any(operand.window):
            raise self.refuse(f"a factor is computed ({cell})", "tensors as they lie")
        return operand

    def kernel(self, merges: str = "") -> ir.Kernel:
        """The kernel; memory may merge its result with what it holds."""
        c, tiling = self.c, self.tiling
        rows, self.m = spanned(c, c.rows, tiling.m, self._in_lines, tiling.cluster_rows)
        cols, self.n = spanned(c, c.cols, tiling.n, self._in_lines, tiling.cluster_cols)
        parts, self.k = self._depth(tiling.k)
        if self.end and self.k.extent % tiling.k:
            raise self.refuse(f"steps of {tiling.k} in parts of {self.k.extent}", "whole steps")
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
            self.end and (self.lead.index(self.end[0]), self.end[2]),
            merges,
        )
        return gemm(problem, tiling, self.name)

    def _in_lines(self, covered: Mapping[int, int]) -> bool:
        """Whether what a tile covers of operands that are contiguous there is lines of memory."""
        least = min(form.width for form in MN_MAJOR)
        runs = [
            n * self.size
            for d, n in covered.items()
            for o in {o for pair in self.pairs for o in pair}
            if o.strides[d] == 1
        ]
        return all(run % least == 0 for run in runs)

    def _depth(self, tile: int) -> tuple[tuple[int, ...], Span]:
        """Outer reduced dims and the one that steps run along: contiguous where rows are not."""
        (depth,) = self.c.depths
        operands = [o for pair in self.pairs for o in pair]
        needed = {d for o in operands for d in depth if o.strides[d] == 1}
        needed |= {self.end[1]} if self.end else set()
        if len(needed) > 1:
            raise self.refuse("operands contiguous along different reduced dims", "the same")
        best = max(needed or depth, key=lambda d: self.c.shape[d], default=None)
        inner = () if best is None else (best,)
        return tuple(d for d in depth if d != best), Span(inner, self.c.extent(inner), tile)

    # -- tensors --

    def _place(self, operand: Operand, parts: Sequence[int], *spans: Span) -> Placement:
        """Over the outer dims, the parts and the spans; the tensor's unit runs stay iters."""
        extents = list(self.c.shape)
        slow = None
        if operand.end:  # its parts are places along one dim
            slow, fast, extents[fast] = operand.end
        blocks: list[Block] = [
            (Iter(extents[d], operand.strides[d], "m"),) if operand.strides[d] and d != slow else ()
            for d in (*self.lead, *parts)
        ]
        for s in spans:
            blocks.append(merged(Iter(extents[d], operand.strides[d], "m") for d in s.dims))
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
