"""Contractions as schedules see them: sums of products of cells over one index space.

A contraction has index dims of five kinds: `outer` ones that operands share (batches), `rows` and
`cols` of the products, what every product sums over (its `depth`), and dims that one tensor alone
cuts are among these. Tensors have one stride per dim. A tile covers the fastest dims of a kind as
one; the slower ones are outer coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import Cell, used
from axe_eq.kernel.cells import Operand as Numbered
from axe_eq.kernel.expr import Int, minimum
from axe_eq.kernel.placement import Iter, Placement, merged
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.program.types import DTYPES, promote
from axe_eq_backends.cuda.schedules.tensors import MOST_INDICES, Operand

# Element types that a matrix unit's operand type holds exactly.
HOLDS = {"f16": ("f8e4m3", "f8e5m2", "f16"), "bf16": ("f8e4m3", "f8e5m2", "bf16")}


@dataclass(frozen=True)
class Product:
    """The sum over some dims of one cell times another.

    Attributes:
        a, b: factors over the operands; `a` does not depend on columns, `b` not on rows.
        dtypes: their element types in the program.
        depth: the reduced index dims, slow to fast.
    """

    a: Cell
    b: Cell
    dtypes: tuple[str, str]
    depth: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """The type that factors are multiplied in: it holds both."""
        return dtype_for(self.dtypes)


def dtype_for(operands: Collection[str]) -> str:
    """The type that a product multiplies operands of these types in: it holds them."""
    for wide, held in HOLDS.items():
        if set(operands) <= set(held):
            return wide
    return DTYPES[promote(*operands)].accumulate


def common_dtype(products: Collection[str]) -> str | None:
    """The type that products of these types are all multiplied in; None for different kinds."""
    if len(set(products)) == 1:
        return next(iter(products))
    if len({DTYPES[d].kind for d in products}) > 1:
        return None
    return DTYPES[promote(*products)].accumulate


@dataclass(frozen=True)
class Contraction:
    """What to compute.

    Attributes:
        shape: extents of the index dims.
        outer, rows, cols: the dims of the results by kind, slow to fast.
        operands: tensors and positions that are read, over all index dims.
        products: what is summed.
        outputs: what is stored: cells over the operands, then the products.
    """

    shape: tuple[int, ...]
    outer: tuple[int, ...]
    rows: tuple[int, ...]
    cols: tuple[int, ...]
    operands: tuple[Operand, ...]
    products: tuple[Product, ...]
    outputs: tuple[tuple[Operand, Cell], ...]

    @property
    def depths(self) -> list[tuple[int, ...]]:
        """The different spaces that products sum over."""
        return list(dict.fromkeys(p.depth for p in self.products))

    @property
    def dtype(self) -> str:
        """The type that all factors are multiplied in.

        Raises:
            ScheduleError: whole numbers beside others.
        """
        names = sorted({p.dtype for p in self.products})
        found = common_dtype(names)
        if found is None:
            raise ScheduleError("products", f"of {' and '.join(names)}", "one kind")
        return found

    @property
    def extras(self) -> list[int]:
        """Numbers of the operands that the outputs read beside the products."""
        read = set().union(*(used(cell) for _, cell in self.outputs))
        return sorted(n for n in read if n < len(self.operands))

    def extent(self, dims: Sequence[int]) -> int:
        """Elements of some dims together."""
        return prod(self.shape[d] for d in dims)

    def turned(self) -> Contraction:
        """The same with columns for rows."""
        products = tuple(
            replace(p, a=p.b, b=p.a, dtypes=(p.dtypes[1], p.dtypes[0])) for p in self.products
        )
        return replace(self, rows=self.cols, cols=self.rows, products=products)

    def plain(self, factor: Cell) -> Operand | None:
        """The tensor that a factor is, None where the factor is computed."""
        if not isinstance(factor, Numbered):
            return None
        operand = self.operands[factor.index]
        return None if operand.counts else operand

    def alone(self, dim: int) -> bool:
        """Whether something depends on a dim by its number: tiles run over it by itself."""
        return any(
            o.bound(dim) or (o.counts and o.strides[dim]) or dim in (o.end or ())[:2]
            for o in self.operands
        )

    def fused(self) -> Contraction:
        """The same contraction with dims fused that every tensor runs through as one."""
        kinds = [self.outer, self.rows, self.cols, *self.depths]
        joined: dict[int, int] = {}  # slower dim -> the faster dim that it becomes one with
        shape = list(self.shape)
        for dims in kinds:
            for slow, fast in pairwise(dims):
                if self._continues(slow, fast) and shape[slow] * shape[fast] <= MOST_INDICES:
                    joined[slow] = fast
                    shape[fast] *= shape[slow]
        kept = [d for d in range(len(shape)) if d not in joined and shape[d] > 1]
        numbers = {d: n for n, d in enumerate(kept)}

        def still(dims: Sequence[int]) -> tuple[int, ...]:
            return tuple(numbers[d] for d in dims if d in numbers)

        return Contraction(
            tuple(shape[d] for d in kept),
            still(self.outer),
            still(self.rows),
            still(self.cols),
            tuple(o.over(kept) for o in self.operands),
            tuple(replace(p, depth=still(p.depth)) for p in self.products),
            tuple((o.over(kept), cell) for o, cell in self.outputs),
        )

    def _continues(self, slow: int, fast: int) -> bool:
        if self.alone(slow) or self.alone(fast):
            return False
        tensors = (*self.operands, *(o for o, _ in self.outputs))
        return all(o.strides[slow] == o.strides[fast] * self.shape[fast] for o in tensors)


@dataclass(frozen=True)
class Span:
    """A tile's dim: the index dims that it covers as one, slow to fast."""

    dims: tuple[int, ...]
    extent: int
    tile: int

    @property
    def count(self) -> int:
        """Tiles along it."""
        return -(-self.extent // self.tile)


def spanned(
    c: Contraction,
    dims: Sequence[int],
    tile: int,
    fits: Callable[[Mapping[int, int]], bool] = lambda covered: True,
    cluster: int = 1,
) -> tuple[tuple[int, ...], Span]:
    """Split the dims of a kind: outer ones, and those that tiles of this size run over as one.

    A tile runs over several dims where its ends are ends of whole parts of each, and where the
    elements that it covers of each one `fits`; of all ways the one with the fewest tiles is taken,
    the fastest dims first. Tiles of a cluster are along one such dim: clusters are counted whole.
    """
    ways: list[tuple[int, ...]] = [(d,) for d in reversed(dims)]
    for n in range(len(dims) - 2, -1, -1):
        together = tuple(dims[n:])
        few = c.extent(together) <= MOST_INDICES
        extents = [c.shape[d] for d in together]
        covered = dict(zip(together, _covered(extents, tile), strict=True))
        if few and not any(map(c.alone, together)) and _cuts(extents, tile) and fits(covered):
            ways.append(together)
    spans = [Span(way, c.extent(way), tile) for way in ways] or [Span((), 1, tile)]

    def tiles(span: Span) -> int:
        return (
            -(-span.count // cluster) * cluster * c.extent([d for d in dims if d not in span.dims])
        )

    best = min(spans, key=tiles)
    return tuple(d for d in dims if d not in best.dims), best


def _covered(extents: Sequence[int], tile: int) -> list[int]:
    """Elements of each dim, slow to fast, that a tile covers; its ends are ends of parts."""
    covered = list[int]()
    for extent in reversed(extents):
        covered.insert(0, min(extent, tile))
        tile = max(1, tile // extent)
    return covered


def _cuts(extents: Sequence[int], tile: int) -> bool:
    """Whether tiles of dims, slow to fast, are products of parts of each dim."""
    for extent in reversed(extents[1:]):
        if tile % extent:
            return extent % tile == 0
        tile //= extent
    return True


@dataclass(frozen=True)
class Tensor:
    """A declared tensor.

    Attributes:
        operand: what it is.
        buffer: the kernel's tensor.
        tags: per dim of the buffer its coordinate, an outer index dim or the name of a span, and
            the first index that lies in the buffer.
    """

    operand: Operand
    buffer: ir.Buffer
    tags: tuple[tuple[int | str, int], ...]

    def has(self, tag: int | str) -> bool:
        """Whether it depends on a coordinate."""
        return any(tag == t for t, _ in self.tags)

    def view(self, at: Mapping[int | str, Int | ir.span]) -> ir.View:
        """The part at these coordinates."""
        if not self.tags:
            return self.buffer[0:1]
        index: list[ir.span] = []
        for tag, low in self.tags:
            where = at[tag]
            begin, extent = (
                (where.begin, where.extent) if isinstance(where, ir.span) else (where, 0)
            )
            index.append(ir.span(begin - low, extent))
        if not any(i.extent for i in index):
            index[-1] = ir.span(index[-1].begin, 1)  # one value for the whole tile is a run of one
        return self.buffer[tuple(i if i.extent else i.begin for i in index)]


def declare(
    k: ThreadBuilder,
    operand: Operand,
    shape: Sequence[int],
    outer: Sequence[int],
    spans: Mapping[str, Span],
    *,
    output: bool = False,
) -> Tensor:
    """Declare a tensor over outer dims and spans; those that it does not reach are left out.

    A result has all spans, of extent 1 where they have no index dims.
    """
    tags: list[tuple[int | str, int]] = []
    blocks: list[tuple[Iter, ...]] = []
    extents: list[int] = []
    offset = operand.offset
    ways: list[tuple[int | str, tuple[int, ...], bool]] = [(d, (d,), False) for d in outer]
    ways += [(name, span.dims, output) for name, span in spans.items()]
    for tag, dims, needed in ways:
        if not (needed or any(operand.strides[d] for d in dims)):
            continue
        bound = operand.bound(dims[0]) if len(dims) == 1 else None
        low, high = bound or (0, prod(shape[d] for d in dims))
        iters = [Iter(shape[d], operand.strides[d], "m") for d in dims]
        if bound:
            iters = [Iter(high - low, operand.strides[dims[0]], "m")]
            offset += low * operand.strides[dims[0]]
        tags.append((tag, low))
        blocks.append(merged(iters) or (Iter(1, 1, "m"),))
        extents.append(high - low)
    place = Placement(tuple(blocks) or ((),), offset=(("m", offset),) if offset else ())
    buffer = k.tensor(operand.name, operand.dtype, extents or [1], layout=place, output=output)
    return Tensor(operand, buffer, tuple(tags))


def digits(k: ThreadBuilder, number: Int, extents: Sequence[int], name: str) -> tuple[Int, ...]:
    """The coordinates of a number, the last one fastest."""
    out: list[Int] = []
    for position, extent in reversed(list(enumerate(extents))):
        out.insert(0, k.let(f"{name}{position}", number % extent if position else number))
        number = number // extent
    return tuple(out)


def banded(k: ThreadBuilder, tile: Int, counts: tuple[Int, Int], raster: int) -> tuple[Int, Int]:
    """Row and column of a tile, in bands of `raster` tile rows that share operands in L2."""
    rows, cols = counts
    band_size = cols * raster
    band = k.let("band", tile // band_size)
    inside = k.let("inside", tile % band_size)
    height = k.let("height", minimum(rows - band * raster, raster), low=1)  # tiles are in bands
    return band * raster + inside % height, inside // height
