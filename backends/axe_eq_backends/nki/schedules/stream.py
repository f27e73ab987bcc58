"""Values mixed by weights of scores, in one kernel: attention without its matrix of scores.

The scores of 128 rows and a chunk of the streamed dim are sums in PSUM, up to half of its banks.
Their weights go to SBUF, are turned by the tensor engine, and multiply the chunk's values, beside
which stands a column of ones: the last column of the product is the sum of the weights. Where all
of the streamed dim is one chunk, that is the result but for the quotient. Else the statistic of the
scores moves on with every chunk, and what was summed before is rescaled (online softmax).

Weights of the next block, or chunk, are computed while those of the last one are multiplied: a turn
of the loop holds both halves, and weights have two places by turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import Apply, Cell, Constant, Operand, apply, arg, substituted, used
from axe_eq.kernel.expr import Int
from axe_eq.kernel.ir import span
from axe_eq.kernel.structured import Online
from axe_eq.program.ops import MONOIDS
from axe_eq.program.types import DTYPES
from axe_eq.target import Target
from axe_eq_backends.nki.build import rows_of
from axe_eq_backends.nki.monoids import ONLINE
from axe_eq_backends.nki.schedules.contraction import Contraction, factor_of, longest
from axe_eq_backends.nki.schedules.gemm import TURNED, Gemm, Held
from axe_eq_backends.nki.schedules.region import Names, Region, pieces
from axe_eq_backends.nki.space import Count, Part, Space, Sum, Tensor
from axe_eq_backends.nki.tile import Tile
from axe_eq_backends.nki.tiles import Cells


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
    if len(shared) > 1:
        raise DispatchError("stream", "reduces dims that results have in blocks", "one dim")
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


def stream(x: Mixture, names: Names, target: Target, parameters: Mapping[str, int]) -> None:
    """Write a mixture.

    Args:
        x: what to compute.
        names: of the kernel that it is written in.
        target: the machine.
        parameters: "chunk", indices of the streamed dim at a time; "kept", whether the operands
            that all rows share stay in SBUF; "turned", whether weights are turned by DMA.

    Raises:
        DispatchError: something that no instruction computes, or more than PSUM holds.
    """
    _Stream(x, names, target, parameters).write()


# How many chunks' weights are computed before one's are multiplied, by whether DMA turns them: a
# transfer takes longer from its begin to its end.
AHEAD = (1, 2)
GROUP = 4  # parts of a chunk that are turned into one bank, and copied from there at once
At = tuple[Int, int]  # begin and extent
Scores = tuple[Int, Tile]  # from where on in a chunk
Half = Callable[[Int], None]  # of a tile


class _Stream:
    """Writes one mixture."""

    def __init__(
        self, x: Mixture, names: Names, target: Target, parameters: Mapping[str, int]
    ) -> None:
        self.x, self.length, self.width = (
            x,
            x.scores.extent(x.scores.n),
            x.values.extent(x.values.n),
        )
        chunk, kept, turned = (parameters[n] for n in ("chunk", "kept", "turned"))
        self.chunk, self.kept = min(chunk, self.length), bool(kept)
        self.by_dma, self.ahead = bool(turned), AHEAD[turned]
        sizes = {"rows": 128, "cols": chunk, "deep": 0}
        self.k, self.names = names.k, names
        self.of_scores, self.of_values = (
            Gemm(c, names, target, sizes) for c in (x.scores, x.values)
        )
        self.of_values.begin = self.begin = self.of_scores.begin
        self.bank, self.part = self.of_scores.bank, self.of_scores.part
        dtype = self.of_values.c.products[0][1].dtype
        if self.width >= self.bank or (self.by_dma and DTYPES[dtype].itemsize != 2):
            wrong = f"mixes {self.width} columns of {dtype}, turned by {('tensor', 'DMA')[turned]}"
            raise DispatchError("stream", wrong, f"less than {self.bank}, by DMA of 16 bits")
        if (
            kept
            and self.chunk < self.length
            and (self.chunk % self.part or self.length % self.chunk)
        ):
            wrong = f"keeps {self.length} indices and takes {self.chunk} at a time"
            raise DispatchError("stream", wrong, f"multiples of {self.part} that divide them")
        unit = MONOIDS[x.online.statistic].unit
        assert unit is not None
        self.unit = unit
        self.scale, self.score = self._scaled()

    def _scaled(self) -> tuple[float, Cell]:
        """A positive factor of all scores, which the weights' function takes, and the rest."""
        match self.x.score:
            case Apply("mul", (Operand() as s, Constant(float(c)))) | Apply(
                "mul", (Constant(float(c)), Operand() as s)
            ) if c > 0 and self.x.online.scales:
                return c, s
        return 1.0, self.x.score

    def write(self) -> None:
        self._outer(list(self.x.scores.outer))

    def _outer(self, dims: Sequence[int]) -> None:
        if dims:
            d, *rest = dims
            with self.k.range(self.x.scores.extent(d), name=f"b{d}") as at:
                self.begin[d] = at
                self._outer(rest)
            return
        if self.kept:
            every = 0, self.length
            self.rights, self.values = self._rights(every), self._values(every)
            self.lefts = self._left((0, self.x.scores.extent(self.x.scores.m)))
        extent = self.x.scores.extent(self.x.scores.m)
        write = self._swept if self.chunk < self.length else self._whole
        whole, left = divmod(extent, self.part)
        for begin, count, rows in ((0, whole, self.part), (whole * self.part, 1, left)):
            if count and rows:
                write(begin, count, rows)

    def _whole(self, begin: int, count: int, rows: int) -> None:
        """Blocks of rows, each with all of the streamed dim at once."""
        places = min(self.ahead, count) + 1
        weights = self._weights(places, rows)

        def first(i: Int) -> None:
            of_rows = begin + i * rows, rows
            scores, best = self._scores(
                None if self.kept else self._left(of_rows), of_rows, (0, self.length)
            )
            self._weigh(scores, best, self._part(weights, i % places, rows, self.length))

        def second(i: Int) -> None:
            held = self._part(weights, i % places, rows, self.length)
            self._finish(self._mixed(held, (0, self.length)).all, (begin + i * rows, rows))

        self._overlapped(count, "mb", first, second)

    def _overlapped(self, count: int, name: str, first: Half, second: Half) -> None:
        """Both halves of so many tiles, each first one beside the second one of a tile before."""
        ahead = min(self.ahead, count)
        for i in range(ahead):
            first(i)
        self._turns(count - ahead, name, second, lambda i: first(i + ahead))
        for i in range(count - ahead, count):
            second(i)

    def _turns(self, count: int, name: str, *halves: Half) -> None:
        """A loop, or the one turn of it."""
        if count == 1:
            for half in halves:
                half(0)
        elif count > 1:
            with self.k.range(count, name=name) as i:
                for half in halves:
                    half(i)

    def _swept(self, begin: int, count: int, rows: int) -> None:
        """Blocks of rows, whose chunks are taken one after another.

        The first chunks of a block are weighed while the last ones of the block before are summed.
        """
        k, (whole, rest) = self.k, divmod(self.length, self.chunk)
        (_, factor, _), chunks = self.x.scores.products[0], whole + bool(rest)
        ahead = min(self.ahead, chunks)
        left = None if self.kept else self.of_scores.held("left", factor, self.x.scores.m, rows)
        top, mixed = self._tile("top", m=rows), self._tile("mixed", m=rows, q=self.width + 1)
        weights = self._weights(ahead + 1, rows)
        changes = self._places("change", "f32", ahead + 1, m=rows)

        def size(c: Int) -> int:
            return rest if rest and isinstance(c, int) and c == whole else self.chunk

        def first(r: Int, c: Int) -> None:
            n, place, of_rows = size(c), (r * chunks + c) % (ahead + 1), (begin + r * rows, rows)
            if isinstance(c, int) and c == 0:
                if left:
                    self.of_scores.fill(left, factor, self.x.scores.m, *of_rows)
                k.fill(top.view, self.unit)
            scores, here = self._scores(left, of_rows, (c * self.chunk, n))
            new = self._tile("new", m=rows)
            k.map(apply(self.x.online.merge, arg(0), arg(1)), new.view, top.view, here.view)
            known = self._weigh(scores, new, self._part(weights, place, rows, n))
            change = self._times(self.x.online.rescale)
            to = {change: self._part(changes, place, rows, 1)}
            cells = Cells(k, self.x.scores.m, lambda i: (top, new)[i], into=to)
            cells.known |= known
            cells.tile(change)
            k.copy(top.view, new.view)

        def second(r: Int, c: Int) -> None:
            n, place = size(c), (r * chunks + c) % (ahead + 1)
            acc = self._mixed(self._part(weights, place, rows, n), (c * self.chunk, n))
            change = self._part(changes, place, rows, 1)
            cell = apply("add", apply("mul", arg(0), arg(1)), arg(2))
            k.map(cell, mixed.view, mixed.view, change, acc.all)

        def block(r: Int, last: bool = False) -> None:
            k.fill(mixed.view, 0.0)
            self._turns(whole - ahead, "tb", lambda c: second(r, c), lambda c: first(r, c + ahead))
            if rest and whole >= ahead:
                second(r, whole - ahead)
                first(r, whole)
            for c in range(ahead):
                second(r, chunks - ahead + c)
                if not last:
                    first(r + 1, c)
            self._finish(mixed.view, (begin + r * rows, rows))

        for c in range(ahead):
            first(0, c)
        self._turns(count - 1, "mb", block)
        block(count - 1, last=True)

    # -- tiles --

    def _shape(self, **extents: int) -> list[int]:
        """Extents of a tile over rows (m) and what else is named: t, q."""
        s, v = self.x.scores, self.x.values
        shape = [1] * len(self.x.space.shape)
        for letter, extent in extents.items():
            shape[{"m": s.m, "t": s.n, "q": v.n}[letter]] = extent
        return shape

    def _tile(self, name: str, **extents: int) -> Tile:
        """A fresh f32 tile."""
        shape = self._shape(**extents)
        return Tile(self.k.sbuf(name, "f32", shape, rows_of(shape, self.x.scores.m)).all, "f32")

    def _places(self, name: str, dtype: str, count: int, **extents: int) -> ir.Buffer:
        """A tile with places for what so many turns use."""
        shape = [count, *self._shape(**extents)]
        return self.k.sbuf(name, dtype, shape, rows_of(shape, 1 + self.x.scores.m))

    def _weights(self, places: int, rows: int) -> ir.Buffer:
        dtype = self.x.values.products[0][1].dtype
        return self._places("weights", dtype, places, m=rows, t=self.chunk)

    def _part(self, buffer: ir.Buffer, place: Int, rows: int, n: int) -> ir.View:
        """One of the places: some rows, and indices of the streamed dim."""
        s = self.x.scores
        extent = {s.m: rows, s.n: n}
        spans = [span(0, extent.get(d, 1)) for d in self.x.space.dims]
        return buffer[(place, *spans)]

    def _along(self, view: ir.View, dim: int, begin: Int, n: int) -> ir.View:
        """A part of a view along one dim."""
        return view[tuple(span(begin, n) if d == dim else span(0, e)
                          for d, e in enumerate(view.shape))]  # fmt: skip

    def _left(self, of_rows: At) -> list[Held]:
        (_, left, _), (row, rows) = self.x.scores.products[0], of_rows
        return self.of_scores.fetch("left", left, self.x.scores.m, row, rows)

    def _rights(self, chunk: At) -> list[Held]:
        (_, _, right) = self.x.scores.products[0]
        return self.of_scores.fetch("right", right, self.x.scores.n, *chunk)

    def _values(self, chunk: At) -> list[Held]:
        """Values of a chunk with its indices on partitions, beside them a column of ones."""
        v = self.x.values
        (_, factor, _) = v.products[0]
        found = self.of_values.fetch("values", factor, v.n, 0, self.width, *chunk, beside=1)
        for h in found:
            self.k.fill(h.buffer[self.of_values.index(h.buffer, {v.n: span(self.width, 1)})], 1.0)
        return found

    # -- scores --

    def _scores(self, left: list[Held] | None, of_rows: At, chunk: At) -> tuple[list[Scores], Tile]:
        """Scores of a chunk but for their factor, in SBUF, and their statistic.

        A bank of them at a time is a sum in PSUM. The pass that copies it takes the statistic too.
        """
        s, (row, rows), (at, n) = self.x.scores, of_rows, chunk
        lefts, here = (self.lefts, row) if left is None else (left, 0)
        rights, there = (self.rights, at) if self.kept else (self._rights(chunk), 0)
        (product, _, _), statistic = s.products[0], self.x.online.statistic
        plain = self.score == arg(product)
        whole, rest = divmod(n, self.bank)
        best = self._tile("here", m=rows)
        each = self._tile("each", m=rows, t=whole + bool(rest)) if n > self.bank else best
        found: list[Scores] = []

        def bank(tile: Tile | None, first: int, b: Int, size: int) -> None:
            begin = first + b * self.bank
            (acc,) = self.of_scores.sums([lefts], [rights], (here, rows), (there + begin, size))
            to = self._along(each.view, s.n, first // self.bank + b, 1)
            if plain:
                assert tile is not None
                part = self._along(tile.view, s.n, b * self.bank, size)
                self.k.copy_reduce(statistic, part, to, acc.all, [s.n])
                return
            given = {product: Tile(acc.all, "f32")}
            score = self._region(of_rows, {s.n: size}, {s.n: at + begin}, given).tile(self.score)
            self.k.reduce(statistic, to, score.view, [s.n])
            found.append((begin, score))

        for first, count, size in ((0, whole, self.bank), (whole * self.bank, 1, rest)):
            if not count or not size:
                continue
            if plain:
                found.append((first, self._tile("scores", m=rows, t=count * size)))
                tile = found[-1][1]
                pieces(self.k, count, 1, "sb",
                       lambda b, _, t=tile, f=first, z=size: bank(t, f, b, z))  # type: ignore[misc]  # fmt: skip
            else:
                for b in range(count):
                    bank(None, first, b, size)
        if each is not best:
            self.k.reduce(statistic, best.view, each.view, [s.n])
        return found, best

    def _times(self, cell: Cell) -> Cell:
        """A cell of scores or statistics that stand without their factor."""
        if self.scale == 1.0:
            return cell
        both = {n: apply("mul", arg(n), self.scale) for n in (0, 1)}
        return substituted(cell, both)

    def _weigh(self, scores: Sequence[Scores], top: Tile, to: ir.View) -> dict[Cell, Tile]:
        """Weights of a chunk's scores; what was computed of the statistic alone."""
        s, weight = self.x.scores, self._times(self.x.online.weight)
        known: dict[Cell, Tile] = {}
        for at, score in scores:
            n = score.shape[s.n]
            cells = Cells(self.k, s.m, lambda i, ts=(score, top): ts[i],  # type: ignore[misc]
                          into={weight: self._along(to, s.n, at, n)})  # fmt: skip
            cells.known |= known
            cells.tile(weight)
            known = {c: t for c, t in cells.known.items() if 0 not in used(c)}
        return known

    # -- sums --

    def _mixed(self, weights: ir.View, chunk: At) -> ir.Buffer:
        """Values of a chunk by its weights, which are turned so that the chunk is on partitions."""
        k, s, v, (at, n) = self.k, self.x.scores, self.x.values, chunk
        rows, dtype = weights.shape[s.m], weights.buffer.dtype
        values, begin = (self.values, at) if self.kept else (self._values(chunk), 0)
        shape = self._shape(m=rows, q=self.width + 1)
        acc = k.psum("mix", "f32", shape, rows_of(shape, s.m))
        out = self.of_values.matrix(acc, (s.m, v.n), {})
        for number, h in enumerate(values):
            parts = n // h.part if self.kept and self.chunk < self.length else h.chunks

            def group(first: Int, some: int, number: int = number, h: Held = h) -> None:
                turned, place = self.of_values.side(s.m, rows, h.part, some)
                flipped = k.sbuf("flipped", dtype, turned, place)
                begins = h.begin + first * h.part
                self._turn(flipped, self._along(weights, s.n, begins, some * h.part), h.part)
                of_chunk = {s.n: span(begin + first * h.part, some * h.part)}
                started: Int = 1 if number else first if isinstance(first, int) else first > 0
                k.gemm(
                    out, self.of_values.matrix(flipped, (s.m, s.n), {}),
                    self.of_values.matrix(h.buffer, (v.n, s.n), of_chunk),
                    accumulate=min(started, 1) if isinstance(started, int) else started,
                )  # fmt: skip

            pieces(k, parts, GROUP, "kg", group)
        return acc

    def _turn(self, to: ir.Buffer, weights: ir.View, part: int) -> None:
        """Weights with so many of the chunk on partitions, by DMA or by way of PSUM."""
        k, n = self.k, self.x.scores.n
        if self.by_dma:
            k.copy(to.all, weights)
            return
        bank = k.psum("turned", to.dtype, weights.shape, to.place)

        def tile(i: Int, _: int) -> None:
            k.copy(self._along(bank.all, n, i * part, part),
                   self._along(weights, n, i * part, part))  # fmt: skip

        pieces(k, weights.shape[n] // part, 1, "ko", tile)
        k.copy(to.all, bank.all)

    def _finish(self, mixed: ir.View, of_rows: At) -> None:
        """The quotient of both sums, the cells on it, and their stores."""
        n, width = self.x.values.n, self.width
        sums = [Tile(self._along(mixed, n, at, e), "f32") for at, e in ((0, width), (width, 1))]
        ((result, cell), *more), finish = self.x.space.results, self.x.online.finish
        into = {}
        if not more and cell == arg(self.x.leaf) and DTYPES[result.dtype].kind == "f":
            shape = sums[0].shape
            into = {finish: self.k.sbuf(result.buffer, result.dtype, shape,
                                        rows_of(shape, self.x.scores.m)).all}  # fmt: skip
        value = Cells(self.k, self.x.scores.m, lambda i: sums[i], into=into).tile(finish)
        region = self._region(of_rows, {n: width}, {}, {self.x.leaf: value})
        for t, cell in self.x.space.results:
            region.store(t, cell)

    def _region(
        self, of_rows: At, extents: Mapping[int, int], begins: Mapping[int, Int],
        given: Mapping[int, Tile],
    ) -> Region:  # fmt: skip
        begin: list[Int] = [self.begin.get(d, 0) for d in self.x.space.dims]
        extent = [1] * len(begin)
        begin[self.x.scores.m], extent[self.x.scores.m] = of_rows
        for d, e in extents.items():
            extent[d], begin[d] = e, begins.get(d, 0)
        return Region(self.names, self.x.space, self.x.scores.m, begin, extent, None, given)


__all__ = ["Mixture", "mixture", "stream"]
