"""Values mixed by weights of scores, in one kernel: attention without its matrix of scores.

A block of 128 rows keeps its operand, the running statistic of its scores, the sum of their weights
and the weighted sum of values in SBUF, while chunks of the streamed dim pass: their scores are one
accumulation in PSUM, their weights are turned by the tensor engine and multiply the chunk's values.
Where the statistic changes, both sums are rescaled (online softmax).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import Apply, Cell, Operand, apply, arg, used
from axe_eq.kernel.expr import Int
from axe_eq.kernel.ir import span
from axe_eq.kernel.structured import ONLINE, Online
from axe_eq.program.ops import MONOIDS
from axe_eq.target import Target
from axe_eq_backends.nki.build import rows_of
from axe_eq_backends.nki.schedules.gemm import TURNED, Contraction, Factor, Gemm, factor_of, longest
from axe_eq_backends.nki.schedules.region import Names, Region, pieces
from axe_eq_backends.nki.space import Count, Part, Space, Sum, Tensor
from axe_eq_backends.nki.tiles import Cells, Tile


@dataclass(frozen=True)
class Mixture:
    """A space of one mixture, by the kinds of its dims.

    Attributes:
        space: what is computed.
        online: how chunks of scores merge.
        leaf, score: the mixture, and the cell of its scores.
        scores: the product that scores are made of: its leaf in `products`, rows m, columns n (the
            streamed dim), depth k.
        values: the product of weights and values: rows m, columns n, depth k (the streamed dim).
    """

    space: Space
    online: Online
    leaf: int
    score: Cell
    scores: Contraction
    values: Contraction


def mixture(space: Space) -> Mixture:
    """The mixture that a space is.

    Raises:
        DispatchError: it has other reductions, or values and operands of scores are no tensors.
    """

    def refuse(wrong: str, expected: str) -> DispatchError:
        return DispatchError("stream", wrong, expected)

    needed = space.needed([c for _, c in space.results])
    sums = {n: p for n, p in enumerate(space.parts) if n in needed and isinstance(p, Sum)}
    others = [p for n, p in enumerate(space.parts) if n in needed and n not in sums]
    mixed = [n for n, p in sums.items() if p.monoid in ONLINE]
    products = [n for n, p in sums.items() if p.product and p.monoid == "+"]
    if len(mixed) != 1 or len(products) != 1 or len(sums) != 2:
        raise refuse("has other reductions than scores and their mixture", "one of each")
    if any(not isinstance(p, Tensor | Count) for p in others):
        raise refuse("scans", "no scan")
    (leaf,), (product,) = mixed, products
    space = apart(space, product)
    sums = {n: p for n, p in enumerate(space.parts) if n in needed and isinstance(p, Sum)}
    (t, *more), (e, *deep) = sums[leaf].dims, sums[product].dims
    pair, cell = sums[leaf].cell, sums[product].cell
    assert isinstance(pair, Apply)
    assert isinstance(cell, Apply)
    if more or deep:
        raise refuse("reduces several dims", "one for scores and one for their mixture")
    score, value = pair.args
    kinds = sums[product].dtypes
    left, right = (factor_of(space, x, kinds) for x in cell.args)
    if t in space.varies(left.cell):
        left, right = right, left
    held = factor_of(space, value, (_dtype(space, value),) * 2)
    if left.tensor is None or right.tensor is None or held.tensor is None:
        raise refuse("computes operands in the kernel", "tensors")
    if held.dtype not in TURNED:
        raise refuse(f"mixes {held.dtype}", " ".join(TURNED))
    if any(x.window or x.looks for x in (left.tensor, right.tensor, held.tensor)):
        raise refuse("reads windows", "whole tensors")
    of_left, of_right, of_values = (space.varies(x.cell) for x in (left, right, held))
    rows = of_left - of_right - of_values - {e}
    cols = of_values - space.varies(score) - {t}
    if t in of_left or t not in of_right or t not in of_values or e in of_values:
        raise refuse("has operands of other dims", "scores of rows and the streamed dim")
    space, m = longest(space, rows)
    space, q = longest(space, cols)
    left, right = (factor_of(space, x.cell, kinds) for x in (left, right))  # over all dims
    held = factor_of(space, value, (held.dtype,) * 2)
    if any(d in (e, t) for tensor, _ in space.results for d in space.dims if tensor.strides[d]):
        raise refuse("stores what is reduced", "rows and columns of values")
    outer = tuple(d for d in space.dims if d not in (m, q, e, t) and space.shape[d] > 1)
    scores = Contraction(space, outer, m, t, e, (), ((product, left, right),))
    values = Contraction(space, outer, m, q, t, (), ((leaf, held, held),))
    return Mixture(space, ONLINE[sums[leaf].monoid], leaf, score, scores, values)


def apart(space: Space, n: int) -> Space:
    """The space with a reduced dim of its own for reduction `n`, where results have it too.

    A cone shares dims of equal extent that no value sees both of. Tensors of the reduction alone
    are moved to the new dim.
    """
    p = space.parts[n]
    assert isinstance(p, Sum)
    inside = space.needed([p.cell])
    rest = [q.cell for m, q in enumerate(space.parts) if m != n and isinstance(q, Sum)]
    shared = [d for d in p.dims if any(t.strides[d] for t, _ in space.results)]
    if not shared:
        return space
    outside = set[int]().union(*(used(c) for c in (*rest, *(c for _, c in space.results))))
    if inside & outside:
        raise DispatchError("stream", "reads a tensor inside and outside of a sum", "one of them")
    (dim,) = shared

    def moved(t: Tensor, own: bool) -> Tensor:
        strides = [*t.strides, t.strides[dim] if own else 0]
        strides[dim] = 0 if own else t.strides[dim]
        window = list(t.window) or [None] * len(t.strides)
        window.append(window[dim] if own else None)
        window[dim] = None if own else window[dim]
        return replace(t, strides=tuple(strides), window=tuple(window) if any(window) else ())

    parts: list[Part] = []
    for m, q in enumerate(space.parts):
        if isinstance(q, Tensor):
            parts.append(moved(q, m in inside))
        elif isinstance(q, Count) and q.dim == dim and m in inside:
            parts.append(replace(q, dim=len(space.shape)))
        elif m == n:
            dims = tuple(len(space.shape) if d == dim else d for d in p.dims)
            parts.append(replace(p, dims=dims))
        else:
            parts.append(q)
    results = tuple((moved(t, False), c) for t, c in space.results)
    return Space((*space.shape, space.shape[dim]), tuple(parts), results)


def _dtype(space: Space, value: Cell) -> str:
    part = space.parts[value.index] if isinstance(value, Operand) else None
    return part.dtype if isinstance(part, Tensor) else "f32"


def stream(
    x: Mixture, name: str, target: Target, parameters: Mapping[str, int]
) -> tuple[ir.Kernel, dict[str, str]]:
    """The kernel of a mixture, and the buffers behind its tensors.

    Args:
        x: what to compute.
        name: of the kernel.
        target: the machine.
        parameters: "chunk", indices of the streamed dim at a time.

    Raises:
        DispatchError: something that no instruction computes, or more columns than a bank holds.
    """
    return _Stream(x, name, target, parameters["chunk"]).write()


class _Stream:
    """Writes one mixture."""

    def __init__(self, x: Mixture, name: str, target: Target, chunk: int) -> None:
        self.x, self.chunk = x, chunk
        sizes = {"rows": 128, "cols": chunk, "deep": 0}
        self.of_scores = Gemm(x.scores, name, target, sizes)
        self.k, self.names = self.of_scores.k, self.of_scores.names
        self.of_values = Gemm(x.values, name, target, sizes)
        self.of_values.k, self.of_values.names = self.k, self.names
        self.of_values.begin = self.begin = self.of_scores.begin
        self.bank = self.of_scores.bank
        if x.values.extent(x.values.n) > self.bank or chunk > self.bank:
            wrong = f"mixes {x.values.extent(x.values.n)} columns, {chunk} indices at a time"
            raise DispatchError("stream", wrong, f"at most {self.bank} of each")

    def write(self) -> tuple[ir.Kernel, dict[str, str]]:
        self._outer(list(self.x.scores.outer))
        return self.k.finish(), self.names.buffers

    def _outer(self, dims: Sequence[int]) -> None:
        if dims:
            d, *rest = dims
            with self.k.range(self.x.scores.extent(d), name=f"b{d}") as at:
                self.begin[d] = at
                self._outer(rest)
            return
        c = self.x.scores
        pieces(self.k, c.extent(c.m), self.of_scores.part, "mb", self._rows)

    def _tile(self, name: str, **extents: int) -> Tile:
        """A fresh f32 tile over rows (m) and what else is named: t, q."""
        s, v = self.x.scores, self.x.values
        shape = [1] * len(self.x.space.shape)
        for letter, extent in extents.items():
            shape[{"m": s.m, "t": s.n, "q": v.n}[letter]] = extent
        return Tile(self.k.sbuf(name, "f32", shape, rows_of(shape, s.m)).all, "f32")

    def _rows(self, row: Int, rows: int) -> None:
        k, s, v = self.k, self.x.scores, self.x.values
        (_, left, right) = s.products[0]
        held = self.of_scores.fetch("left", left, s.m, row, rows)
        top, total = self._tile("top", m=rows), self._tile("total", m=rows)
        mixed = self._tile("mixed", m=rows, q=v.extent(v.n))
        unit = MONOIDS[self.x.online.statistic].unit
        assert unit is not None
        k.fill(top.view, unit)
        k.fill(total.view, 0.0)
        k.fill(mixed.view, 0.0)

        def chunk(at: Int, n: int) -> None:
            weights, change = self._weighed(held, right, top, (row, rows), (at, n))
            part = self._tile("part", m=rows)
            k.reduce("+", part.view, weights.view, [s.n])
            k.map(apply("mul", arg(0), arg(1)), total.view, total.view, change.view)
            k.map(apply("add", arg(0), arg(1)), total.view, total.view, part.view)
            acc = self._mixed(weights, rows, (at, n))
            if v.extent(v.n) > 1:
                cell = apply("add", apply("mul", arg(0), arg(1)), arg(2))
                k.map(cell, mixed.view, mixed.view, change.view, acc)
                return
            k.map(apply("mul", arg(0), arg(1)), mixed.view, mixed.view, change.view)
            k.map(apply("add", arg(0), arg(1)), mixed.view, mixed.view, acc)

        pieces(k, s.extent(s.n), self.chunk, "tb", chunk)
        cells = Cells(k, s.m, lambda n: (mixed, total)[n])
        value = cells.tile(self.x.online.finish)
        region = self._region((row, rows), {v.n: v.extent(v.n)}, {}, {self.x.leaf: value})
        for t, cell in self.x.space.results:
            region.store(t, cell)

    def _region(
        self, of_rows: tuple[Int, int], extents: Mapping[int, int], begins: Mapping[int, Int],
        given: Mapping[int, Tile],
    ) -> Region:  # fmt: skip
        begin: list[Int] = [self.begin.get(d, 0) for d in self.x.space.dims]
        extent = [1] * len(begin)
        begin[self.x.scores.m], extent[self.x.scores.m] = of_rows
        for d, e in extents.items():
            extent[d], begin[d] = e, begins.get(d, 0)
        names: Names = self.names
        return Region(names, self.x.space, self.x.scores.m, begin, extent, None, given)

    def _weighed(
        self, held: Sequence[object], right: Factor, top: Tile, of_rows: tuple[Int, int],
        of_chunk: tuple[Int, int],
    ) -> tuple[Tile, Tile]:  # fmt: skip
        """(weights of a chunk, the factor of the sums before it); the statistic moves on."""
        k, s, (at, n), online = self.k, self.x.scores, of_chunk, self.x.online
        rights = self.of_scores.fetch("right", right, s.n, at, n)
        (acc,) = self.of_scores.sums([held], [rights], (0, of_rows[1]), (0, n))  # type: ignore[list-item]
        (product, _, _) = s.products[0]
        region = self._region(of_rows, {s.n: n}, {s.n: at}, {product: Tile(acc.all, "f32")})
        score = region.tile(self.x.score)
        here, new = self._tile("here", m=of_rows[1]), self._tile("new", m=of_rows[1])
        k.reduce(online.statistic, here.view, score.view, [s.n])
        k.map(apply(online.merge, arg(0), arg(1)), new.view, top.view, here.view)
        weights = Cells(k, s.m, lambda i: (score, new)[i]).tile(online.weight)
        change = Cells(k, s.m, lambda i: (top, new)[i]).tile(online.rescale)
        k.copy(top.view, new.view)
        return weights, change

    def _mixed(self, weights: Tile, rows: int, of_chunk: tuple[Int, int]) -> ir.View:
        """Values of a chunk by its weights, which are turned so that the chunk is on partitions."""
        k, s, v, (at, n) = self.k, self.x.scores, self.x.values, of_chunk
        (_, factor, _) = v.products[0]
        values = self.of_values.fetch("values", factor, v.n, 0, v.extent(v.n), at, n)
        narrow = weights.view
        if weights.dtype != factor.dtype:
            place = rows_of(weights.shape, s.m)
            narrow = k.sbuf("narrow", factor.dtype, weights.shape, place).all
            k.map(arg(0), narrow, weights.view)
        shape = [1] * len(self.x.space.shape)
        shape[s.m], shape[v.n] = rows, v.extent(v.n)
        acc = k.psum("mix", "f32", shape, rows_of(shape, s.m))
        out = self.of_values.matrix(acc, (s.m, v.n), {})
        for number, part in enumerate(values):
            turned, place = self.of_values.side(s.m, rows, part.part, part.chunks)
            flipped = k.sbuf("flipped", factor.dtype, turned, place)

            def flip(ko: Int, part: object = part, flipped: ir.Buffer = flipped) -> None:
                width, begin = part.part, part.begin  # type: ignore[attr-defined]
                once = [1] * len(self.x.space.shape)
                once[s.m], once[s.n] = rows, width
                bank = k.psum("turned", factor.dtype, once, rows_of(once, s.n))
                spans = [span(0, e) for e in narrow.shape]
                spans[s.n] = span(begin + ko * width, width)
                k.copy(bank.all, narrow[tuple(spans)])
                index = self.of_values.index(flipped, {s.n: span(ko * width, width)})
                k.copy(flipped[index], bank.all)

            if part.chunks == 1:
                flip(0)
            else:
                with k.range(part.chunks, name="ko") as ko:
                    flip(ko)
            k.gemm(
                out, self.of_values.matrix(flipped, (s.m, s.n), {}),
                self.of_values.matrix(part.buffer, (v.n, s.n), {}), accumulate=int(number > 0),
            )  # fmt: skip
        return acc.all


__all__ = ["Mixture", "mixture", "stream"]
