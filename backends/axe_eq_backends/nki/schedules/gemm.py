"""Sums of products on the tensor engine, with cells before and after.

The reduced dim lies on partitions of both operands: what lies so in HBM is copied, what is
contiguous along it is turned through PSUM by the tensor engine, what is computed is computed there.
A block of rows keeps its operand in SBUF while blocks of columns stream; a sum of 128 rows by a
bank of columns is one accumulation in PSUM. With a block of the depth, sums over depth blocks are
added up in SBUF, so that neither operand is read again for every block of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from axe_eq.kernel import ir
from axe_eq.kernel.cells import Apply, Cell, arg
from axe_eq.kernel.expr import Int
from axe_eq.kernel.ir import span
from axe_eq.kernel.placement import Block, Iter, Placement, number
from axe_eq.program.types import DTYPES
from axe_eq.target import Target
from axe_eq_backends.nki.build import FREE, PARTITION, rows_of
from axe_eq_backends.nki.schedules.contraction import Contraction, Factor
from axe_eq_backends.nki.schedules.region import Names, Region, lies_across, pieces
from axe_eq_backends.nki.space import Tensor
from axe_eq_backends.nki.tile import Tile

TURNED = ("f16", "bf16", "f32")  # what the tensor engine transposes


def gemm(c: Contraction, names: Names, target: Target, parameters: Mapping[str, int]) -> None:
    """Write a contraction.

    Args:
        c: what to compute.
        names: of the kernel that it is written in.
        target: the machine.
        parameters: "rows" and "cols" of a block, and "deep", its depth; 0 for all of it; "held",
            whether sums over parts of the depth stay in PSUM.

    Raises:
        DispatchError: something that no instruction computes.
    """
    Gemm(c, names, target, parameters).write()


@dataclass(frozen=True)
class Held:
    """A side's tile: part of the depth on partitions, in chunks."""

    buffer: ir.Buffer
    begin: int
    part: int
    chunks: int


class Gemm:
    """Writes one contraction."""

    def __init__(
        self, c: Contraction, names: Names, target: Target, parameters: Mapping[str, int]
    ) -> None:
        self.c, self.target = c, target
        self.k, self.names = names.k, names
        psum = target.memory("psum")
        self.part = psum.extents[0]
        self.bank = psum.bank_bytes // DTYPES["f32"].itemsize
        self.rows = min(parameters["rows"], -(-c.extent(c.m) // self.part) * self.part)
        self.cols = parameters["cols"]
        self.deep, self.held_sums = parameters["deep"], bool(parameters.get("held"))
        self.begin: dict[int, Int] = {}

    def write(self) -> None:
        self._outer(list(self.c.outer))

    def _outer(self, dims: Sequence[int]) -> None:
        if dims:
            d, *rest = dims
            with self.k.range(self.c.extent(d), name=f"b{d}") as at:
                self.begin[d] = at
                self._outer(rest)
            return
        c = self.c
        if self.deep and self.deep < c.extent(c.k):
            pieces(self.k, c.extent(c.n), self.cols, "nb", lambda col, cols: pieces(
                self.k, c.extent(c.m), self.rows, "mb",
                lambda row, rows: self._blocked((row, rows), (col, cols))))  # fmt: skip
            return
        pieces(self.k, c.extent(c.m), self.rows, "mb", self._rows)

    # -- places --

    def _shape(self, **extents: int) -> list[int]:
        """Extents of a tile: those named m, n, k, the other reduced dims if asked, 1 elsewhere."""
        c, shape = self.c, [1] * len(self.c.space.shape)
        for name, e in extents.items():
            shape[getattr(c, name)] = e
        return shape

    def side(self, dim: int, size: int, part: int, chunks: int) -> tuple[list[int], Placement]:
        """A side with its depth on partitions; chunks and other reduced dims are free."""
        c = self.c
        shape = [1] * len(c.space.shape)
        blocks: list[Block] = [() for _ in shape]
        stride = 1
        if size > 1:
            blocks[dim], shape[dim], stride = (Iter(size, 1, FREE),), size, size
        depth: list[Iter] = []
        if chunks > 1:
            depth.append(Iter(chunks, stride, FREE))
            stride *= chunks
        if part > 1:
            depth.append(Iter(part, 1, PARTITION))
        shape[c.k], blocks[c.k] = chunks * part, tuple(depth)
        for d in reversed(c.depth):
            if c.extent(d) > 1:
                shape[d], blocks[d] = c.extent(d), (Iter(c.extent(d), stride, FREE),)
                stride *= c.extent(d)
        return shape, Placement(tuple(blocks))

    def index(self, buffer: ir.Buffer, spans: Mapping[int, span | int]) -> tuple[span | int, ...]:
        """An index of a tile: spans of some dims, all of the others."""
        return tuple(spans.get(d, span(0, number(e))) for d, e in enumerate(buffer.shape))

    def matrix(
        self, buffer: ir.Buffer, dims: tuple[int, int], spans: Mapping[int, span | int]
    ) -> ir.View:
        """A tile as a matrix over two of its dims, in this order."""
        index = [
            spans.get(d, span(0, number(e)) if d in dims else 0) for d, e in enumerate(buffer.shape)
        ]
        view = buffer[tuple(index)]
        return view if dims[0] < dims[1] else view.T

    # -- sides --

    def fetch(self, name: str, f: Factor, dim: int, first: Int, size: int, start: Int = 0,
               length: int = 0, beside: int = 0) -> list[Held]:  # fmt: skip
        """A side's part with its depth on partitions: whole chunks, then the rest.

        `beside` more indices of `dim` have places in the tiles, which nothing fills here.
        """
        near = None if beside else self._near(f, dim, first, size, start, length)
        if near is not None:
            return near
        found = self.held(name, f, dim, size + beside, length)
        self.fill(found, f, dim, first, size, start)
        return found

    def _near(
        self, f: Factor, dim: int, first: Int, size: int, start: Int, length: int
    ) -> list[Held] | None:
        """A side's part where it stays in SBUF and its depth lies on partitions there."""
        c, found = self.c, list[Held]()
        if f.tensor is None or f.tensor.buffer not in self.names.kept:
            return None
        for at, chunks, part in self._chunks(length):
            shape, place = self.side(dim, size, part, chunks)
            view = self._source(f.tensor, dim, first, start + at, shape)
            across = (i for i in view.place.blocks[c.k] if i.axis == PARTITION)
            rows = [i for i in place.blocks[c.k] if i.axis == PARTITION]
            free = all(i.axis != PARTITION for d, b in enumerate(view.place.blocks)
                       for i in b if d != c.k)  # fmt: skip
            if [*across] != rows or not free:
                return None
            found.append(Held(view.buffer, at, part, chunks))
        return found

    def _chunks(self, length: int) -> list[tuple[int, int, int]]:
        """(begin, chunks, indices of one) of a part of the depth: whole chunks, then the rest."""
        whole, rest = divmod(length or self.c.extent(self.c.k), self.part)
        parts = (0, whole, self.part), (whole * self.part, 1, rest)
        return [(at, chunks, part) for at, chunks, part in parts if chunks and part]

    def held(self, name: str, f: Factor, dim: int, size: int, length: int = 0) -> list[Held]:
        """Fresh tiles for a side's part."""
        found = []
        for at, chunks, part in self._chunks(length):
            shape, place = self.side(dim, size, part, chunks)
            found.append(Held(self.k.sbuf(name, f.dtype, shape, place), at, part, chunks))
        return found

    def fill(self, held: Sequence[Held], f: Factor, dim: int, first: Int, size: int,
             start: Int = 0) -> None:  # fmt: skip
        """Bring a side's part into its tiles."""
        for h in held:
            self._fill(h, f, dim, first, size, start + h.begin)

    def _fill(self, h: Held, f: Factor, dim: int, first: Int, size: int, start: Int) -> None:
        t = f.tensor
        if t is None:
            self._computed(h, f, dim, first, size, start)
        elif f.dtype in TURNED and size > 1 and self._lies_turned(h, t, dim, first, start):
            self._turned(h, f, t, dim, first, size, start)
        else:
            to = h.buffer[self.index(h.buffer, {dim: span(0, size)})]
            self.k.copy(to, self._source(t, dim, first, start, to.shape))

    def _lies_turned(self, h: Held, t: Tensor, dim: int, first: Int, start: Int) -> bool:
        """Whether rows, and not the depth, are what lies on partitions, or contiguous in HBM."""
        if t.buffer not in self.names.kept:
            return t.strides[self.c.k] == 1 and t.strides[dim] != 1
        shape = [number(e) for e in h.buffer.shape]
        shape[dim] = min(shape[dim], self.part)
        return lies_across(self._source(t, dim, first, start, shape), dim)

    def _source(self, t: Tensor, dim: int, first: Int, start: Int, shape: Sequence[int]) -> ir.View:
        """The part of a side's tensor that a tile of these extents holds."""
        c = self.c
        dims = (dim, c.k, *c.depth)
        whole = [e if t.strides[d] or d in dims else 1 for d, e in enumerate(c.space.shape)]
        begin = {dim: first, c.k: start}
        index = []
        for d, e in enumerate(shape):
            at: Int = begin.get(d, 0)
            if d in self.begin and whole[d] != 1:
                at = self.begin[d]
            index.append(span(at, e))
        return self.names.source(t, whole, t.offset, index)

    def _turned(
        self, h: Held, f: Factor, t: Tensor, dim: int, first: Int, size: int, start: Int
    ) -> None:
        """Rows as they lie, on partitions; every chunk turned through PSUM."""
        c, k = self.c, self.k

        def turn(at: Int, rows: int) -> None:
            shape = [number(e) for e in h.buffer.shape]
            shape[dim] = rows
            source = self._source(t, dim, first + at, start, shape)
            lying = source.buffer
            if not lies_across(source, dim):
                lying = k.sbuf("lying", f.dtype, shape, rows_of(shape, dim))
                k.copy(lying.all, source)

            def chunk(ko: Int, more: Mapping[int, Int]) -> None:
                once = [1 if d in c.depth else e for d, e in enumerate(shape)]
                once[c.k] = h.part
                turned = k.psum("turned", f.dtype, once, rows_of(once, c.k))
                spans: dict[int, span | int] = {c.k: span(ko * h.part, h.part)}
                spans |= {d: span(v, 1) for d, v in more.items()}
                k.copy(turned.all, lying[self.index(lying, spans)])
                spans[dim] = span(at, rows)
                k.copy(h.buffer[self.index(h.buffer, spans)], turned.all)

            def deeper(dims: Sequence[int], more: Mapping[int, Int]) -> None:
                if not dims:
                    if h.chunks == 1:
                        chunk(0, more)
                        return
                    with k.range(h.chunks, name="ko") as ko:
                        chunk(ko, more)
                    return
                d, *rest = dims
                with k.range(c.extent(d), name=f"d{d}") as v:
                    deeper(rest, {**more, d: v})

            deeper([d for d in c.depth if c.extent(d) > 1], {})

        pieces(k, size, self.part, "turn", turn)

    def _computed(self, h: Held, f: Factor, dim: int, first: Int, size: int, start: Int) -> None:
        """A factor that is a cell, computed with the depth on partitions."""
        c, k = self.c, self.k

        def chunk(ko: Int) -> None:
            begin: list[Int] = [self.begin.get(d, 0) for d in c.space.dims]
            extent = [1] * len(begin)
            begin[dim], extent[dim] = first, size
            begin[c.k], extent[c.k] = start + ko * h.part, h.part
            for d in c.depth:
                extent[d] = c.extent(d)
            region = Region(self.names, c.space, c.k, begin, extent)
            found = region.tile(f.cell)
            to = h.buffer[self.index(h.buffer, {c.k: span(ko * h.part, h.part)})]
            through: Cell = (
                arg(0) if DTYPES[found.dtype].kind == "f" else Apply(f"cast {f.dtype}", (arg(0),))
            )
            k.map(through, to, found.view)

        if h.chunks == 1:
            chunk(0)
            return
        windows = any(p.bound(c.k) for p in c.space.tensors)
        if windows:
            for n in range(h.chunks):
                chunk(n)
            return
        with k.range(h.chunks, name="ko") as ko:
            chunk(ko)

    # -- blocks --

    def _rows(self, row: Int, rows: int) -> None:
        c = self.c
        lefts = self._sides("a", 1, c.m, row, rows)
        pieces(self.k, c.extent(c.n), self.cols, "nb",
               lambda col, cols: self._columns(lefts, (row, rows), (col, cols)))  # fmt: skip

    def _sides(self, name: str, which: int, dim: int, first: Int, size: int, start: Int = 0,
               length: int = 0) -> list[list[Held]]:  # fmt: skip
        """A side of every product; equal factors are held once."""
        known: dict[Factor, list[Held]] = {}
        for p in self.c.products:
            f = p[which]
            assert isinstance(f, Factor)
            if f not in known:
                known[f] = self.fetch(name, f, dim, first, size, start, length)
        return [known[p[which]] for p in self.c.products]  # type: ignore[index]

    def _columns(self, lefts: Sequence[list[Held]], of_rows: tuple[Int, int],
                 of_cols: tuple[Int, int]) -> None:  # fmt: skip
        c, (row, rows), (col, cols) = self.c, of_rows, of_cols
        rights = self._sides("b", 2, c.n, col, cols)

        def block(at: Int, some: int) -> None:
            pieces(self.k, cols, self.bank, "ni",
                   lambda there, n: self._block(
                       lefts, rights, (row, at, some), (col, there, n)))  # fmt: skip

        pieces(self.k, rows, self.part, "mi", block)

    def _block(self, lefts: Sequence[list[Held]], rights: Sequence[list[Held]],
               of_rows: tuple[Int, Int, int], of_cols: tuple[Int, Int, int]) -> None:  # fmt: skip
        """One accumulation per product: 128 rows by a bank of columns."""
        (row, at, rows), (col, there, cols) = of_rows, of_cols
        sums = self.sums(lefts, rights, (at, rows), (there, cols))
        given = {
            n: Tile(acc.all, "f32") for (n, _, _), acc in zip(self.c.products, sums, strict=True)
        }
        self._finish(given, (row + at, rows), (col + there, cols))

    def sums(self, lefts: Sequence[list[Held]], rights: Sequence[list[Held]],
              of_rows: tuple[Int, int], of_cols: tuple[Int, int]) -> list[ir.Buffer]:  # fmt: skip
        c, shape = self.c, self._shape(m=of_rows[1], n=of_cols[1])
        found = []
        for left, right in zip(lefts, rights, strict=True):
            acc = self.k.psum("acc", "f32", shape, rows_of(shape, c.m))
            self._summed(left, right, acc.all, of_rows, of_cols, 0)
            found.append(acc)
        return found

    def _summed(
        self, left: Sequence[Held], right: Sequence[Held], acc: ir.View,
        of_rows: tuple[Int, int], of_cols: tuple[Int, int], start: Int,
    ) -> None:  # fmt: skip
        """Products over a part of the depth that begins so far in, into sums."""
        c = self.c
        out = ir.View(acc.buffer, acc.begin, acc.extent, (c.m, c.n))
        before: Int = min(start, 1) if isinstance(start, int) else start
        self._accumulate(
            [d for d in c.depth if c.extent(d) > 1], {}, before,
            lambda more, started: self._gemms(
                left, right, out, {**more, c.m: span(*of_rows)}, {**more, c.n: span(*of_cols)},
                started),
        )  # fmt: skip

    def _accumulate(self, dims: Sequence[int], more: Mapping[int, Int], started: Int,
                    body: Callable[[Mapping[int, Int], Int], None]) -> None:  # fmt: skip
        """The other reduced dims as loops; `started` is 0 in the first turn of all."""
        if not dims:
            body(more, started)
            return
        d, *rest = dims
        with self.k.range(self.c.extent(d), name=f"d{d}") as v:
            self._accumulate(rest, {**more, d: v}, started + v, body)

    def _gemms(self, left: Sequence[Held], right: Sequence[Held], out: ir.View,
               of_left: Mapping[int, Int | span], of_right: Mapping[int, Int | span],
               started: Int) -> None:  # fmt: skip
        c = self.c
        for n, (a, b) in enumerate(zip(left, right, strict=True)):
            first: Int = 1 if n else (started if isinstance(started, int) else started > 0)
            self.k.gemm(
                out, self.matrix(a.buffer, (c.m, c.k), of_left),  # type: ignore[arg-type]
                self.matrix(b.buffer, (c.n, c.k), of_right), accumulate=first,  # type: ignore[arg-type]
            )  # fmt: skip

    def _finish(self, given: Mapping[int, Tile], of_rows: tuple[Int, int],
                of_cols: tuple[Int, int]) -> None:  # fmt: skip
        """The cells on sums of products, and their stores."""
        c, (row, rows), (col, cols) = self.c, of_rows, of_cols
        begin: list[Int] = [self.begin.get(d, 0) for d in c.space.dims]
        begin[c.m], begin[c.n] = row, col
        region = Region(self.names, c.space, c.m, begin, self._shape(m=rows, n=cols), None, given)
        for t, cell in c.space.results:
            region.store(t, cell)

    def _blocked(self, of_rows: tuple[Int, int], of_cols: tuple[Int, int]) -> None:
        """A block whose sums over parts of the depth stay in PSUM, or are added up in SBUF."""
        c, k, (row, rows), (col, cols) = self.c, self.k, of_rows, of_cols
        totals = self._totals(rows, cols)

        def part_of(total: ir.Buffer, at: Int, some: int, there: Int, n: int) -> ir.View:
            return total[self.index(total, {c.m: span(at, some), c.n: span(there, n)})]

        def deeper(start: Int, length: int) -> None:
            lefts = self._sides("a", 1, c.m, row, rows, start, length)
            rights = self._sides("b", 2, c.n, col, cols, start, length)

            def bank(at: Int, some: int, there: Int, n: int) -> None:
                parts = [part_of(total, at, some, there, n) for total in totals]
                if self.held_sums:
                    for left, right, part in zip(lefts, rights, parts, strict=True):
                        self._summed(left, right, part, (at, some), (there, n), start)
                    return
                for part, acc in zip(
                    parts, self.sums(lefts, rights, (at, some), (there, n)), strict=True
                ):
                    k.map(Apply("add", (arg(0), arg(1))), part, part, acc.all)

            pieces(k, rows, self.part, "mi", lambda at, some: pieces(
                k, cols, self.bank, "ni", lambda there, n: bank(at, some, there, n)))  # fmt: skip

        pieces(k, c.extent(c.k), self.deep, "kb", deeper)

        def finish(at: Int, some: int, there: Int, n: int) -> None:
            given = {
                i: Tile(part_of(total, at, some, there, n), "f32")
                for (i, _, _), total in zip(c.products, totals, strict=True)
            }
            self._finish(given, (row + at, some), (col + there, n))

        wide = self.bank if self.held_sums else cols
        pieces(k, rows, self.part, "mi", lambda at, some: pieces(
            k, cols, wide, "ni", lambda there, n: finish(at, some, there, n)))  # fmt: skip

    def _totals(self, rows: int, cols: int) -> list[ir.Buffer]:
        """A block of sums for every product: of zeros in SBUF, or in banks of PSUM."""
        c, parts = self.c, -(-rows // self.part)
        tall = self.part if parts > 1 else rows
        wide = -(-cols // self.bank) * self.bank if self.held_sums else cols
        shape = self._shape(m=parts * tall, n=wide)
        blocks: list[Block] = [() for _ in shape]
        if cols > 1:
            blocks[c.n] = (Iter(wide, 1, FREE),)
        high = [Iter(parts, wide, FREE)] if parts > 1 else []
        blocks[c.m] = (*high, Iter(tall, 1, PARTITION)) if tall > 1 else tuple(high)
        memory = "psum" if self.held_sums else "sbuf"
        totals = [
            self.k.tile(memory, "total", "f32", shape, Placement(tuple(blocks))) for _ in c.products
        ]
        for total in () if self.held_sums else totals:
            self.k.fill(total.all, 0.0)
        return totals


def banks(rows: int, cols: int, c: Contraction, target: Target) -> int:
    """Banks of PSUM that the sums of a block of every product take."""
    psum = target.memory("psum")
    wide = psum.bank_bytes // DTYPES["f32"].itemsize
    return len(c.products) * -(-rows // psum.extents[0]) * -(-cols // wide)


def sizes(c: Contraction, target: Target) -> list[dict[str, int]]:
    """Blocks to choose among: those that read the operands least, as figures say it, first.

    Sums of a block whose depth is read in parts stay in PSUM where they fit into its banks. Where
    they take more than half of them, the next block's wait for them: sums in SBUF are offered too.
    Where no block leaves room for the next one's columns, those that hold least come first: their
    places decide, and say what does not fit.
    """
    m, n, k = (c.extent(d) for d in (c.m, c.n, c.k))
    most, size = target.memory("sbuf").place_bytes, 2
    part = target.memory("psum").extents[0]
    most_banks = target.memory("psum").place_bytes // target.memory("psum").bank_bytes
    deeper = prod(c.extent(d) for d in c.depth)
    found: list[tuple[int, int, dict[str, int]]] = []
    for rows in target.sizes("block_rows"):
        for cols in target.sizes("block_cols"):
            for deep in target.sizes("block_depth"):
                if rows >= 2 * max(m, part) or cols >= 2 * max(n, 512) or (deep and deep >= k):
                    continue
                chunks = -(-(deep or k) // part) * deeper
                held = (min(rows, m) * (2 if deep else 1) + 2 * min(cols, n)) * chunks * size
                held += -(-min(rows, m) // part) * min(cols, n) * 4 if deep else 0
                again = m * k * (-(-n // cols) if deep else 1) + n * k * -(-m // rows)
                taken = banks(min(rows, m), min(cols, n), c, target)
                ways = (0,) if not deep or taken > most_banks else (1, 0)
                found += [
                    (held, again, {"rows": rows, "cols": cols, "deep": deep, "held": way})
                    for way in (ways if 2 * taken > most_banks else ways[:1])
                ]
    fit = sorted((x for x in found if x[0] <= most), key=lambda x: x[1])
    return [p for *_, p in fit or sorted(found, key=lambda x: x[0])]


__all__ = ["gemm", "sizes"]
