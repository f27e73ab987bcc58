"""From cones with a structured reduction of products to streaming kernels.

Which dims are rows, columns and batches follows from what every load reaches: columns only the
values, rows only the scores' left operands, the streamed dim is the reduced one, the rest are
batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

from axe_eq.kernel.cells import Apply, Cell, Operand, arg, renumber, substituted, used
from axe_eq.kernel.structured import ONLINE
from axe_eq.lower.formulas import Cone, Fold, Leaf, Load, Position, Root
from axe_eq.program.types import DTYPES
from axe_eq.target import Target
from axe_eq_backends.cuda.leaves import Names
from axe_eq_backends.cuda.schedules.chunks import Problem, RowResult, Tensor, Tiling, grid
from axe_eq_backends.cuda.schedules.tile_order import Taken


def is_streaming(cone: Cone) -> bool:
    """Whether a reduction of the cone is structured."""
    return any(f.monoid in ONLINE for f in cone.folds)


def read_problem(cone: Cone) -> tuple[Problem, dict[str, str]]:
    """The problem of a cone, and the buffer behind every tensor.

    Raises:
        DispatchError: what streaming kernels do not compute; says what.
    """
    reader = _Reader(cone)
    return reader.read(), reader.names.buffers


class _Reader:
    def __init__(self, cone: Cone) -> None:
        self.cone = cone
        self.names = Names()
        mixed = [n for n, f in enumerate(cone.leaves) if isinstance(f, Fold) and f.monoid in ONLINE]
        roots = [r for r in cone.roots if not used(r.cell).isdisjoint(mixed)]
        if len(roots) != 1 or len(mixed) != 1:
            wrong = f"stores {len(roots)} results of {len(mixed)} structured reductions"
            raise cone.refuse(wrong, "one result of one")
        (self.root,), (self.mixed,) = roots, mixed
        fold = cone.leaves[self.mixed]
        assert isinstance(fold, Fold)
        self.fold = fold
        if len(fold.dims) != 1 or not isinstance(fold.cell, Apply) or len(fold.cell.args) != 2:
            raise cone.refuse("reduces several dims by a structured monoid", "one")
        (self.stream,) = fold.dims
        self.score, value = fold.cell.args
        leaf = cone.leaves[value.index] if isinstance(value, Operand) else None
        if not isinstance(leaf, Load):
            raise cone.refuse(f"computes what it mixes in the kernel ({value})", "values in memory")
        self.value = leaf
        self.pairs = {n: self._pair(n) for n in sorted(used(self.score)) if self._is_product(n)}
        self._split()

    def _is_product(self, n: int) -> bool:
        return isinstance(self.cone.leaves[n], Fold)

    def _pair(self, n: int) -> tuple[Load, Load, int]:
        """(left, right, reduced dim) of a product of the scores; the right one reaches the stream.

        Raises:
            DispatchError: it is no product of two tensors over one dim.
        """
        cone, fold = self.cone, self.cone.leaves[n]
        assert isinstance(fold, Fold)
        args = fold.cell.args if isinstance(fold.cell, Apply) else ()
        loads = [cone.leaves[a.index] for a in args if isinstance(a, Operand)]
        if not fold.product or len(args) != 2 or len(fold.dims) != 1 or len(loads) != 2:
            raise cone.refuse(f"computes scores by '{fold.cell}; {fold.monoid}'", "products")
        ends = [x for x in loads if isinstance(x, Load)]
        right = [x for x in ends if self._reaches(x, self.stream)]
        if len(ends) != 2 or len(right) != 1:
            raise cone.refuse("computes operands of scores in the kernel", "operands in memory")
        left = ends[1] if ends[0] is right[0] else ends[0]
        return left, right[0], fold.dims[0]

    @staticmethod
    def _reaches(leaf: Leaf, dim: int) -> bool:
        if isinstance(leaf, Load):
            return dim < len(leaf.strides) and leaf.strides[dim] != 0
        return isinstance(leaf, Position) and leaf.dim == dim

    # -- dims --

    def _split(self) -> None:
        """Which dims of the result are rows, columns and batches.

        The product's own reduced dim may be a dim of the result too; its operands do not read that.
        """
        cone = self.cone
        wide = [d for d in range(cone.rank) if cone.shape[d] > 1]
        scored = [
            {d for d in wide if self._reaches(x, d) and d != e}
            for a, b, e in self.pairs.values()
            for x in (a, b)
        ]
        others = [cone.leaves[n] for n in used(self.score) if n not in self.pairs]
        scored += [{d for d in wide if self._reaches(x, d)} for x in others]
        rights = [
            {d for d in wide if self._reaches(b, d) and d != e} for _, b, e in self.pairs.values()
        ]
        valued = {d for d in wide if self._reaches(self.value, d)}
        rows = set().union(*scored) - valued - set().union(*rights)
        cols = valued - set().union(*scored)
        self.m = max(rows, key=lambda d: (cone.shape[d], d), default=None)
        self.q = max(cols, key=lambda d: (cone.shape[d], d), default=None)
        self.batch = [d for d in wide if d not in (self.m, self.q)]

    def _extent(self, dim: int | None) -> int:
        return 1 if dim is None else self.cone.shape[dim]

    def _strides(self, strides: Sequence[int], dims: Sequence[int | None]) -> tuple[int, ...]:
        return tuple(
            strides[d] if d is not None and d < len(strides) else 0 for d in (*self.batch, *dims)
        )

    # -- tensors --

    def _tensor(self, leaf: Leaf, rows: int | None, cols: int | None) -> Tensor:
        """A leaf over (batch, rows, columns)."""
        if isinstance(leaf, Position):
            strides = tuple(int(d == leaf.dim) for d in (*self.batch, rows, cols))
            return Tensor(f"index_{leaf.dim}", "i32", strides, counts=True)
        assert isinstance(leaf, Load)
        if leaf.window:
            raise self.cone.refuse(f"reads {leaf.buffer} through a window", "whole tensors")
        name = self.names.fresh(leaf.buffer)
        return Tensor(name, leaf.dtype, self._strides(leaf.strides, (rows, cols)), leaf.offset)

    def _operands(self, cell: Cell, first: Sequence[int], cols: int | None) -> list[Tensor]:
        """Leaves of a cell beside those in `first`, over (batch, m, columns)."""
        rest = [n for n in sorted(used(cell)) if n not in first]
        for n in rest:
            if self._is_product(n):
                raise self.cone.refuse("uses another reduction beside the streamed one", "none")
        return [self._tensor(self.cone.leaves[n], self.m, cols) for n in rest]

    def _renumbered(self, cell: Cell, first: Sequence[int]) -> Cell:
        rest = [n for n in sorted(used(cell)) if n not in first]
        return renumber(cell, {n: i for i, n in enumerate([*first, *rest])})

    # -- results per row --

    def _of_rows(self, root: Root) -> RowResult:
        """A result that is a cell of the statistic of the scores and the sum of their weights.

        Raises:
            DispatchError: it is none.
        """
        cone, monoid = self.cone, ONLINE[self.fold.monoid]
        at_hand = {n: place for n in used(root.cell) if (place := self._at_hand(n)) is not None}
        if not used(root.cell) <= at_hand.keys():
            wrong = f"stores {root.cell} in {root.buffer} beside what it mixes"
            raise cone.refuse(wrong, f"a cell of the {monoid.statistic} and the sum of weights")
        if self.m is None or any(root.strides[d] for d in range(cone.rank) if d == self.q):
            raise cone.refuse("stores other results than one per row of scores", "rows of scores")
        strides = self._strides(root.strides, (self.m, None))
        out = Tensor(self.names.fresh(root.buffer), root.dtype, strides, root.offset)
        return RowResult(out, substituted(root.cell, {n: arg(p) for n, p in at_hand.items()}))

    def _at_hand(self, n: int) -> int | None:
        """0 for the statistic of all scores of a row, 1 for the sum of their weights."""
        fold, monoid = self.cone.leaves[n], ONLINE[self.fold.monoid]
        if not isinstance(fold, Fold) or fold.dims != self.fold.dims:
            return None
        if fold.monoid == monoid.statistic and fold.cell == self.score:
            return 0
        if fold.monoid != "+":
            return None
        weights = (monoid.weight, monoid.unguarded or monoid.weight)
        tops = [m for m in used(fold.cell) if self._at_hand(m) == 0]
        cells = [substituted(w, {0: self.score, 1: arg(m)}) for w in weights for m in tops]
        return 1 if fold.cell in cells else None

    # -- the whole --

    def read(self) -> Problem:
        cone, root = self.cone, self.root
        products, depths = [], []
        for left, right, e in self.pairs.values():
            products.append((self._tensor(left, self.m, e), self._tensor(right, self.stream, e)))
            depths.append(cone.shape[e])
        pairs = list(self.pairs)
        extras = self._operands(self.score, pairs, self.stream)
        values = self._tensor(self.value, self.q, self.stream)
        more = self._operands(root.cell, [self.mixed], self.q)
        strides = self._strides(root.strides, (self.m, self.q))
        out = Tensor(self.names.fresh(root.buffer), root.dtype, strides, root.offset)
        dtypes = {t.dtype for pair in products for t in pair} | {values.dtype}
        if not dtypes <= {"f16", "bf16"} or any(a.dtype != b.dtype for a, b in products):
            raise cone.refuse(f"multiplies {' '.join(sorted(dtypes))}", "f16 or bf16")
        problem = Problem(
            tuple(cone.shape[d] for d in self.batch),
            self._extent(self.m), cone.shape[self.stream], self._extent(self.q),
            tuple(products), tuple(depths), values, out, ONLINE[self.fold.monoid],
            self._renumbered(self.score, pairs), tuple(extras),
            self._renumbered(root.cell, [self.mixed]), tuple(more),
            tuple(self._of_rows(r) for r in cone.roots if r is not root),
        )  # fmt: skip
        return _merged(problem)


def _merged(problem: Problem) -> Problem:
    """Batch dims that are one run in every tensor as one: tensor maps have few dims.

    A run is a matter of strides, and not of where dims stand: a slow dim goes on where the fast one
    ends, and what does not reach one of them reaches neither.
    """
    tensors = [t for pair in problem.products for t in pair] + [problem.values, problem.out]
    tensors += [*problem.extras, *problem.more, *(r.out for r in problem.rows)]
    batch = list(problem.batch)
    for slow, fast in permutations(range(len(batch)), 2):
        if all(t.strides[slow] == t.strides[fast] * batch[fast] for t in tensors):
            batch[fast] *= batch[slow]
            rest = tuple(e for d, e in enumerate(batch) if d != slow)
            return _merged(_with(problem, rest, [_without(t, slow) for t in tensors]))
    return problem


def _without(t: Tensor, dim: int) -> Tensor:
    return replace(t, strides=t.strides[:dim] + t.strides[dim + 1 :])


def _with(problem: Problem, batch: tuple[int, ...], tensors: Sequence[Tensor]) -> Problem:
    """The problem over other batch dims, with its tensors in the order of `_merged`."""
    rest = list(tensors)
    products = tuple((rest.pop(0), rest.pop(0)) for _ in problem.products)
    values, out = rest.pop(0), rest.pop(0)
    extras = tuple(rest.pop(0) for _ in problem.extras)
    more = tuple(rest.pop(0) for _ in problem.more)
    rows = tuple(replace(r, out=out) for r, out in zip(problem.rows, rest, strict=True))
    return replace(
        problem, batch=batch, products=products, values=values, out=out, extras=extras, more=more,
        rows=rows,
    )  # fmt: skip


def taken(problem: Problem, tiling: Tiling, target: Target) -> Taken:
    """How units take tiles.

    Batches that are at hand together are as many as caches hold the streamed operands of.
    """
    size = DTYPES[problem.values.dtype].itemsize
    streamed = problem.s * (sum(problem.depths) + tiling.q) * size
    together = target.limits.get("l2_bytes", 0) // streamed
    return grid(problem, tiling).taken(target.n_units, together)
