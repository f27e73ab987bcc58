"""From the kernels of a schedule graph to the kernel language.

What a cone is decides its schedule, never a name: sums of products become matrix products with the
rest of the cone as epilogue, reductions of rows stay in registers, a swap of the two fast dims goes
through shared memory, everything else is a map. A cone that no schedule covers is refused with the
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from axe_eq.errors import DispatchError, ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import Apply, Cell, renumber, used
from axe_eq.kernel.cells import Operand as Numbered
from axe_eq.kernel.expr import Int, var
from axe_eq.program.types import DTYPES
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph, TileNode
from axe_eq.target import Target
from axe_eq_backends.cuda.cones import Cone, Fold, Load, Root, read_cone
from axe_eq_backends.cuda.schedules.gemm import Extra, Matrix, Problem, Tiling, gemm
from axe_eq_backends.cuda.schedules.map import elementwise
from axe_eq_backends.cuda.schedules.rows import Reduction, reduce_rows
from axe_eq_backends.cuda.schedules.tensors import Operand, collapse
from axe_eq_backends.cuda.schedules.transpose import transpose

PANEL_BYTES = 128
WARPGROUP_ROWS = 64
# Rows of operands in L2 that a band of tiles shares; 16 tiles of 128 rows measured best.
BAND_ROWS = 2048
# A row this short is spread thin over threads: latency, not registers, decides there.
SHORT_ROW = 2048
SMEM_SLACK = 2048
# Accumulators a thread can hold beside everything else.
MOST_ACCUMULATORS, WARPGROUP_THREADS = 208, 128


@dataclass(frozen=True)
class Lowered:
    """A kernel, the buffer of the schedule graph behind every tensor of it, and its parameters."""

    kernel: ir.Kernel
    buffers: Mapping[str, str]
    params: Mapping[str, int] = field(default_factory=dict)


def lower(step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> Lowered:
    """The kernel of one step.

    Args:
        step: a kernel or a move of the graph.
        graph: the schedule graph it stands in.
        target: the machine, for capacities.

    Raises:
        DispatchError: no schedule covers the cone; says why.
    """
    cone = read_cone(step if isinstance(step, KernelStep) else _as_kernel(step, graph))
    try:
        return _schedule(cone, step, target)
    except ScheduleError as error:
        raise cone.refuse(str(error), "a cone that a schedule covers") from error


def _as_kernel(step: MoveStep, graph: ScheduleGraph) -> KernelStep:
    type_ = graph.buffers[step.writes[0].buffer].type
    node = TileNode("load", "", "", "", type_, access=0)
    return KernelStep(step.name, (node,), (0,), step.reads, step.writes, {}, "lanes")


def _schedule(cone: Cone, step: KernelStep | MoveStep, target: Target) -> Lowered:
    folds = cone.folds
    if not folds:
        turned = _as_transpose(cone)
        return turned or _as_map(cone)
    matrix = isinstance(step, KernelStep) and bool(step.row)
    if matrix and all(f.product for f in folds):
        return _Contraction(cone, step.parameters, target).lower()  # type: ignore[union-attr]
    if any(f.product for f in folds) and matrix:
        raise cone.refuse("mixes products with other reductions", "one kind (streaming sums)")
    return _as_rows(cone)


class _Names:
    """Names of tensors: those of their buffers, numbered where a buffer is read in two ways."""

    def __init__(self) -> None:
        self.buffers: dict[str, str] = {}

    def fresh(self, buffer: str) -> str:
        name, number = buffer, 1
        while name in self.buffers:
            number += 1
            name = f"{buffer}_{number}"
        self.buffers[name] = buffer
        return name


# -- cells --


def _as_map(cone: Cone) -> Lowered:
    names = _Names()
    loads = [cone.load(n) for n in range(len(cone.leaves))]
    operands = [Operand(names.fresh(x.buffer), x.dtype, x.strides) for x in loads]
    outputs = [(Operand(names.fresh(r.buffer), r.dtype, r.strides), r.cell) for r in cone.roots]
    shape = tuple(cone.shape) or (1,)
    if not cone.shape:
        operands = [replace(o, strides=(0,)) for o in operands]
        outputs = [(replace(o, strides=(1,)), c) for o, c in outputs]
    kernel = elementwise(shape, operands, outputs, name=cone.name)
    return Lowered(kernel, names.buffers)


def _as_transpose(cone: Cone) -> Lowered | None:
    """One dense tensor read with its two fast dims swapped; None for other cones."""
    if len(cone.leaves) != 1 or len(cone.roots) != 1 or cone.rank < 2:
        return None
    load, root = cone.load(0), cone.roots[0]
    pair = [Operand("x", load.dtype, load.strides), Operand("out", root.dtype, root.strides)]
    shape, (x, out) = collapse(cone.shape, pair, frozen=2)
    if len(shape) == 2:
        shape = (1, *shape)
        x, out = (replace(o, strides=(0, *o.strides)) for o in (x, out))
    if len(shape) != 3 or load.dtype != root.dtype:
        return None
    batch, rows, cols = shape  # of the result
    dense = (rows * cols, cols, 1), (rows * cols, 1, rows)
    for given, wanted in zip((out.strides, x.strides), dense, strict=True):
        if any(e > 1 and g != w for e, g, w in zip(shape, given, wanted, strict=True)):
            return None
    if rows == 1 or cols == 1:
        return None
    kernel = transpose((batch, cols, rows), load.dtype, root.cell, cone.name)
    return Lowered(kernel, {"x": load.buffer, "out": root.buffer})


# -- rows --


def _as_rows(cone: Cone) -> Lowered:
    dims = {f.dim for f in cone.folds}
    if len(dims) > 1:
        raise cone.refuse(
            f"reduces {len(dims)} different dims", "one dim, reduced any number of times"
        )
    (column,) = dims
    for fold in cone.folds:
        if any(c.offset or c.plain is None for c in fold.coords if c.terms):
            raise cone.refuse("reduces windows", "rows")
    order = [d for d in range(len(cone.shape)) if d != column] + [column]
    names = _Names()
    loads = [(n, leaf) for n, leaf in enumerate(cone.leaves) if isinstance(leaf, Load)]
    operands = [
        Operand(names.fresh(x.buffer), x.dtype, _ordered(x.strides, order)) for _, x in loads
    ]
    outputs = [
        Operand(names.fresh(r.buffer), r.dtype, _ordered(r.strides, order)) for r in cone.roots
    ]
    shape, fused = collapse([cone.shape[d] for d in order], [*operands, *outputs], frozen=1)
    if len(shape) == 1:
        shape, fused = (1, *shape), [replace(o, strides=(0, *o.strides)) for o in fused]
    if len(shape) != 2:
        raise cone.refuse(f"has rows over {len(shape) - 1} dims that are no single run", "one run")
    if shape[0] == 1:  # a stored row is a row, whatever its stride
        fused = [
            replace(o, strides=(shape[1], o.strides[1])) if n >= len(operands) else o
            for n, o in enumerate(fused)
        ]
    numbers = {n: i for i, (n, _) in enumerate(loads)}
    numbers |= {
        n: len(loads) + i
        for i, n in enumerate(n for n, leaf in enumerate(cone.leaves) if isinstance(leaf, Fold))
    }
    reductions = [Reduction(f.monoid, renumber(f.cell, numbers)) for f in cone.folds]
    stored = zip(fused[len(operands) :], cone.roots, strict=True)
    kernel = reduce_rows(
        (shape[0], shape[1]),
        fused[: len(operands)],
        reductions,
        [(o, renumber(r.cell, numbers)) for o, r in stored],
        name=cone.name,
        elements=8 if shape[1] <= SHORT_ROW else 32,
    )
    return Lowered(kernel, names.buffers)


def _ordered(strides: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides in another order of the dims; dims that a tensor does not reach have stride 0."""
    return tuple(strides[d] if d < len(strides) else 0 for d in order)


# -- products --


class _Contraction:
    """Sums of products over one (m, n, k), and a cell over them."""

    def __init__(self, cone: Cone, parameters: Mapping[str, int], target: Target) -> None:
        self.cone, self.parameters, self.target = cone, parameters, target
        self.names = _Names()

    def lower(self) -> Lowered:
        cone = self.cone
        if len(cone.roots) != 1:
            raise cone.refuse(f"stores {len(cone.roots)} results of products", "one")
        (root,) = cone.roots
        depths = {f.dim for f in cone.folds}
        if len(depths) != 1 or min(depths) < cone.rank:
            raise cone.refuse("sums products over several dims", "one")
        pairs = [self._pair(f) for f in cone.folds]
        self.k = cone.shape[min(depths)]
        self._split(pairs)
        products = tuple(
            (self._matrix(a, self.m_dims, min(depths)), self._matrix(b, self.n_dims, min(depths)))
            for a, b in self._oriented(pairs)
        )
        extras = self._extras(root)
        out = self._result(root)
        extents, params = self._extents()
        problem = Problem(
            *extents, products, self._epilogue(root, extras), tuple(e for _, e in extras), out
        )
        kernel = gemm(problem, self._tiling(problem), cone.name)
        return Lowered(kernel, self.names.buffers, params)

    def _extents(self) -> tuple[tuple[Int, Int, Int], dict[str, int]]:
        """(m, n, k); those of 1 are parameters: a constant 1 leaves a tensor no dim to box."""
        params = {x: 1 for x, e in zip("MNK", (self.m, self.n, self.k), strict=True) if e == 1}
        m, n, k = (
            var(x, low=1, high=1 << 30) if x in params else e
            for x, e in zip("MNK", (self.m, self.n, self.k), strict=True)
        )
        return (m, n, k), params

    def _pair(self, fold: Fold) -> tuple[Load, Load]:
        cell = fold.cell
        leaves = [
            self.cone.leaves[a.index]
            for a in (cell.args if isinstance(cell, Apply) else ())
            if isinstance(a, Numbered)
        ]
        loads = [leaf for leaf in leaves if isinstance(leaf, Load)]
        if not isinstance(cell, Apply) or len(loads) != len(cell.args) or len(loads) != 2:
            raise self.cone.refuse(
                f"computes an operand of a product in the kernel ({cell})", "operands in memory"
            )
        return loads[0], loads[1]

    # -- dims --

    def _split(self, pairs: Sequence[tuple[Load, Load]]) -> None:
        """Which dims of the result are rows and which are columns, and their extents."""
        cone = self.cone
        wide = [d for d in range(cone.rank) if cone.shape[d] > 1]
        kinds = [(self._reached(a, wide), self._reached(b, wide)) for a, b in pairs]
        rows, cols = kinds[0]
        if rows and cols and min(rows) > min(cols):
            rows, cols = cols, rows
        if rows & cols:
            raise cone.refuse("multiplies batches of matrices", "one product (no batch dims)")
        if any(
            {frozenset(k[0]), frozenset(k[1])} != {frozenset(rows), frozenset(cols)} for k in kinds
        ):
            raise cone.refuse("multiplies over several pairs of dims", "one (m, n, k)")
        self.m_dims, self.n_dims = sorted(rows), sorted(cols)
        self.m = prod(cone.shape[d] for d in self.m_dims)
        self.n = prod(cone.shape[d] for d in self.n_dims)

    def _reached(self, load: Load, dims: Sequence[int]) -> set[int]:
        return {d for d in dims if load.strides[d]}

    def _oriented(self, pairs: Sequence[tuple[Load, Load]]) -> list[tuple[Load, Load]]:
        """Every pair with the operand of the rows first."""
        found = []
        for a, b in pairs:
            reached = self._reached(a, [*self.m_dims, *self.n_dims])
            swap = reached != set(self.m_dims) or (not reached and bool(self.m_dims))
            found.append((b, a) if swap else (a, b))
        return found

    def _run(self, strides: Sequence[int], dims: Sequence[int], what: str) -> int:
        """The one stride of dims that are one run; 0 where none is reached."""
        stride = 0
        for d in reversed(dims):
            given = strides[d] if d < len(strides) else 0
            if d == dims[-1]:
                stride, extent = given, self.cone.shape[d]
            elif given != stride * extent:
                raise self.cone.refuse(f"reads {what} over dims that are no single run", "one run")
            else:
                extent *= self.cone.shape[d]
        return stride

    # -- tensors --

    def _matrix(self, load: Load, dims: Sequence[int], depth: int) -> Matrix:
        if load.dtype not in ("f16", "bf16"):
            raise self.cone.refuse(f"multiplies {load.dtype}", "f16 or bf16")
        key = load, tuple(dims)
        known = self.__dict__.setdefault("_matrices", {})
        if key not in known:
            along = self._run(load.strides, dims, load.buffer)
            deep = load.strides[depth] if depth < len(load.strides) else 0
            extent = prod(self.cone.shape[d] for d in dims)
            known[key] = self._strided(load, (along, deep), (extent, self.k))
        made: Matrix = known[key]
        return made

    def _strided(
        self, tensor: Load | Root, strides: tuple[int, int], shape: tuple[int, int]
    ) -> Matrix:
        """A matrix by its two strides; one of them is 1, up to extents of 1."""
        name = self.names.fresh(tensor.buffer)
        rows, cols = strides
        if cols == 1 or shape[1] == 1:
            return Matrix(name, tensor.dtype, 1, rows if shape[0] > 1 else shape[1])
        if rows == 1 or shape[0] == 1:
            return Matrix(name, tensor.dtype, 0, cols)
        raise self.cone.refuse(f"{tensor.buffer} has strides {strides}", "one contiguous dim")

    def _result(self, root: Root) -> Matrix:
        strides = tuple(
            self._run(root.strides, dims, root.buffer) for dims in (self.m_dims, self.n_dims)
        )
        return self._strided(root, (strides[0], strides[1]), (self.m, self.n))

    def _extras(self, root: Root) -> list[tuple[int, Extra]]:
        """Epilogue operands with their leaf numbers."""
        found = []
        for n in sorted(used(root.cell)):
            leaf = self.cone.leaves[n]
            if isinstance(leaf, Fold):
                continue
            rows = self._run(leaf.strides, self.m_dims, leaf.buffer)
            cols = self._run(leaf.strides, self.n_dims, leaf.buffer)
            dims = {(0, 0): "", (0, 1): "n", (1, 0): "m", (self.n, 1): "mn"}.get((rows, cols))
            if not dims:
                raise self.cone.refuse(
                    f"reads {leaf.buffer} with strides {(rows, cols)} after the product",
                    "a dense matrix, row or column",
                )
            found.append((n, Extra(self.names.fresh(leaf.buffer), dims, leaf.dtype)))
        return found

    def _epilogue(self, root: Root, extras: Sequence[tuple[int, Extra]]) -> Cell:
        """The root's cell over the accumulators, then the extras."""
        folds = [n for n, leaf in enumerate(self.cone.leaves) if isinstance(leaf, Fold)]
        numbers = {n: i for i, n in enumerate([*folds, *(n for n, _ in extras)])}
        return renumber(root.cell, numbers)

    # -- tiles --

    def _tiling(self, problem: Problem) -> Tiling:
        """The tile that extraction chose, with a result staging that fits beside its ring."""
        size = DTYPES[problem.products[0][0].dtype].itemsize
        given = self.parameters
        depth = min(given.get("k", 64), PANEL_BYTES // size)
        stages = given.get("stages", 4) * max(1, given.get("k", depth) // depth)
        rows = max(given.get("p", 2 * WARPGROUP_ROWS), WARPGROUP_ROWS)
        cols = max(given.get("q", 128), PANEL_BYTES // size)
        consumers = 1 if rows == WARPGROUP_ROWS else 2
        room = MOST_ACCUMULATORS * WARPGROUP_THREADS * consumers
        while len(problem.products) * rows * cols > room and cols > WARPGROUP_ROWS:
            cols //= 2
        matrices = {m.name: t for a, b in problem.products for m, t in ((a, rows), (b, cols))}
        stage = sum(matrices.values()) * depth * size
        out_size = DTYPES[problem.out.dtype].itemsize
        panels = -(-cols * out_size // PANEL_BYTES)
        panel = rows * min(cols * out_size, PANEL_BYTES)
        room = self.target.memory("smem").n_bytes - SMEM_SLACK
        # Storing all of the tile at once is worth more than a fourth stage, not than a third.
        choices = [(s, n) for s in range(min(stages, 8), 1, -1) for n in (panels, 2, 1)]
        choices.sort(key=lambda c: (c[0] < 3, c[1] < panels, -c[0], -c[1]))
        for n_stages, staged in choices:
            if staged <= panels and n_stages * stage + staged * panel <= room:
                return Tiling(
                    rows, cols, depth, n_stages, consumers,
                    max(1, BAND_ROWS // rows), staging=staged,
                )  # fmt: skip
        raise self.cone.refuse(f"takes {2 * stage + panel} bytes of smem", f"at most {room}")


Lower = Callable[[KernelStep, ScheduleGraph, Target], Lowered]

__all__ = ["DispatchError", "Lowered", "lower"]
