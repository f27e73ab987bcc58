"""What a space of products is: its sides, and which of its dims are rows, columns and depth."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from axe_eq.errors import DispatchError
from axe_eq.kernel.cells import Apply, Cell, Operand
from axe_eq_backends.nki.instrs import WIDENED
from axe_eq_backends.nki.space import Count, Space, Sum, Tensor

NARROW = ("f8e4m3", "f8e5m2", "f16", "bf16")


@dataclass(frozen=True)
class Factor:
    """One side of a product.

    Attributes:
        cell: over the leaves.
        dtype: that it is multiplied in.
        tensor: what it is, where it is a tensor of that type as it lies.
    """

    cell: Cell
    dtype: str
    tensor: Tensor | None


@dataclass(frozen=True)
class Contraction:
    """A space of products, by the kinds of its dims.

    Attributes:
        space: of which dims of one index were appended where a side has none.
        outer: dims of every block's own, slow to fast.
        m, n, k: the dims of rows, of columns, and on partitions.
        depth: the other reduced dims.
        products: (leaf, factor of the rows, factor of the columns).
    """

    space: Space
    outer: tuple[int, ...]
    m: int
    n: int
    k: int
    depth: tuple[int, ...]
    products: tuple[tuple[int, Factor, Factor], ...]

    def extent(self, dim: int) -> int:
        """Indices of a dim."""
        return self.space.shape[dim]


def contraction(space: Space) -> Contraction:
    """The contraction that a space is.

    Raises:
        DispatchError: it has other reductions, or products that no side of a block can be.
    """

    def refuse(wrong: str, expected: str) -> DispatchError:
        return DispatchError("product", wrong, expected)

    needed = space.needed([c for _, c in space.results])
    sums = [
        (n, p)
        for n, p in enumerate(space.parts)
        if n in needed and not isinstance(p, Tensor | Count)
    ]
    if not sums or any(not isinstance(p, Sum) or not p.product for _, p in sums):
        raise refuse("has reductions that are no sums of products", "sums of products")
    products: list[tuple[int, Cell, Cell]] = []
    depths: set[frozenset[int]] = set()
    rows, cols = set[int](), set[int]()
    for n, p in sums:
        assert isinstance(p, Sum)
        if not isinstance(p.cell, Apply) or len(p.cell.args) != 2:
            raise refuse(f"sums {p.cell}", "a product of two factors")
        if any(not isinstance(space.parts[i], Tensor | Count) for i in space.needed([p.cell])):
            raise refuse("multiplies what another reduction gives", "factors of tensors")
        depths.add(frozenset(p.dims))
        a, b = p.cell.args
        left, right = (space.varies(x) - set(p.dims) for x in (a, b))
        if (
            rows & (right - left)
            or cols & (left - right)
            or (not rows | cols and _faster(space, left - right, right - left))
        ):
            a, b, left, right = b, a, right, left
        rows, cols = rows | (left - right), cols | (right - left)
        products.append((n, a, b))
    if len(depths) > 1 or rows & cols:
        raise refuse("sums over several spaces", "one")
    if any(space.varies(a) & cols or space.varies(b) & rows for _, a, b in products):
        raise refuse("has factors of rows and columns", "rows or columns")
    over = set(next(iter(depths)))
    for t in space.tensors:
        for d in space.dims:
            if t.bound(d) and d not in over:
                raise refuse(f"reads a window of {t.buffer}", "whole tensors")
    space, m = longest(space, rows)
    space, n = longest(space, cols)
    k = max(over, key=lambda d: (space.shape[d], -d))
    depth = tuple(sorted(over - {k}))
    kept = [d for d in space.dims if d not in (m, n, k, *depth)]
    factors = tuple(
        (i, factor_of(space, a, dtypes), factor_of(space, b, dtypes))
        for i, a, b in products
        for dtypes in [sums_dtypes(space, i)]
    )
    return Contraction(space, tuple(d for d in kept if space.shape[d] > 1), m, n, k, depth, factors)


def sums_dtypes(space: Space, n: int) -> tuple[str, ...]:
    """Element types of the factors of a product."""
    p = space.parts[n]
    assert isinstance(p, Sum)
    return p.dtypes


def _faster(space: Space, left: frozenset[int], right: frozenset[int]) -> bool:
    """Whether the results run faster along a dim of the left factor."""
    out, _ = space.results[0]

    def fastest(dims: frozenset[int]) -> float:
        steps = [abs(out.strides[d]) for d in dims if out.strides[d]]
        return min(steps, default=float("inf"))

    return fastest(left) < fastest(right)


def longest(space: Space, dims: Collection[int]) -> tuple[Space, int]:
    """The longest of some dims; one of one index, appended, where there is none."""
    if dims:
        return space, max(dims, key=lambda d: (space.shape[d], d))
    wide = (*space.shape, 1)

    def longer(t: Tensor) -> Tensor:
        window = (*t.window, None) if t.window else ()
        return replace(t, strides=(*t.strides, 0), window=window)

    parts = tuple(longer(p) if isinstance(p, Tensor) else p for p in space.parts)
    results = tuple((longer(t), c) for t, c in space.results)
    return Space(wide, parts, results), len(space.shape)


def factor_of(space: Space, cell: Cell, dtypes: Sequence[str]) -> Factor:
    """A side, in the type that both are multiplied in."""
    if any(d not in (*NARROW, "f32") for d in dtypes):
        raise DispatchError(
            "product", f"multiplies {' '.join(dtypes)}", "floats of at most 32 bits"
        )
    narrow = [d for d in dtypes if d in NARROW]
    dtype = "f32"
    if len(narrow) == len(dtypes):
        own = _dtype(space, cell)
        dtype = own if own in NARROW else "bf16" if "bf16" in dtypes else "f16"
        dtype = WIDENED.get(dtype, dtype)
        if own == "f32" and set(dtypes) & {"f8e4m3", "f8e5m2"}:
            dtype = "f16"
    tensor = space.parts[cell.index] if isinstance(cell, Operand) else None
    plain = (
        isinstance(tensor, Tensor)
        and tensor.dtype == dtype
        and not tensor.window
        and not tensor.looks
    )
    return Factor(cell, dtype, tensor if plain else None)  # type: ignore[arg-type]


def _dtype(space: Space, cell: Cell) -> str:
    """The element type that a factor is in, where it is a tensor or a cast; else f32."""
    if isinstance(cell, Operand):
        part = space.parts[cell.index]
        return part.dtype if isinstance(part, Tensor) else "f32"
    if isinstance(cell, Apply) and cell.cell.startswith("cast "):
        return cell.cell.removeprefix("cast ")
    return "f32"
