"""What a persistent matrix product computes, and how: operands, epilogue, tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from axe_eq.kernel.cells import IDENTITY, Cell
from axe_eq.kernel.expr import Int
from axe_eq.kernel.placement import Placement, number


@dataclass(frozen=True)
class Matrix:
    """A matrix argument: logical (rows, k) operand or (rows, cols) tensor.

    Attributes:
        name: its name.
        dtype: element type.
        major: the contiguous dim: 1 (row-major) or 0.
        stride: elements between neighbours of the other dim; None where dense.
        place: where it lies, in place of `stride`: over the problem's outer dims, its parts (for
            operands), then the matrix's two dims; without iters along what it does not depend on.
    """

    name: str
    dtype: str = "f16"
    major: int = 1
    stride: Int | None = None
    place: Placement | None = None

    def run(self, tile: int) -> int:
        """Elements of a tile's contiguous dim that are one run in memory."""
        block = self.place.blocks[-1 if self.major else -2] if self.place else ()
        return min(tile, number(block[-1].extent)) if len(block) > 1 else tile


@dataclass(frozen=True)
class Extra:
    """An epilogue operand: "mn" (whole), "n" (a value per column), "m" (per row) or "" (one value).

    Attributes:
        name: its name.
        dims: as above.
        dtype: element type.
        place: where it is not dense: over the problem's outer dims, then its own.
        counts: it is no tensor: the i32 position along its dim, or along the outer dim of this
            number where it has none.
    """

    name: str
    dims: str
    dtype: str = "f16"
    place: Placement | None = None
    counts: int | None = None


@dataclass(frozen=True)
class Problem:
    """What to compute: products over (m, n, k), then a cell.

    Attributes:
        m, n, k: extents, known or run-time parameters.
        products: pairs of operands, a of (m, k) and b of (n, k).
        cell: over the accumulators in order, then the extras.
        extras: epilogue operands.
        out: the result, (m, n).
        outer: extents of dims that products run over one index at a time.
        parts: extents of reduced dims beside k, of which a step takes one index.
        end: number of the outer dim that counts parts of k, and what operands have along k.
        merges: the monoid by which memory merges the result with what it holds; "" to store it.
    """

    m: Int
    n: Int
    k: Int
    products: tuple[tuple[Matrix, Matrix], ...] = ((Matrix("A"), Matrix("B")),)
    cell: Cell = IDENTITY
    extras: tuple[Extra, ...] = ()
    out: Matrix = Matrix("C")
    outer: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()
    end: tuple[int, int] | None = None
    merges: str = ""


@dataclass(frozen=True)
class Tiling:
    """How to compute it.

    Attributes:
        m, n, k: tile of one CTA and step.
        stages: slots of the operand ring.
        consumers: consumer warpgroups; they divide the tile's rows and columns.
        across: how many of them lie side by side along columns.
        band: tile rows of a band, for reuse of operands in L2.
        forms: shared-memory form per operand name; by default the widest swizzle that fits.
        staging: result panels a consumer keeps in shared memory; 0 means all of its tile.
        cluster_rows, cluster_cols: CTAs of a cluster along rows, which share b, and along columns,
            which share a.
        split: CTAs of a cluster that take a part of the steps of one tile each.
        rest: whether they do with those tiles alone that fill no wave of the grid.
    """

    m: int = 128
    n: int = 256
    k: int = 64
    stages: int = 3
    consumers: int = 2
    band: int = 8
    forms: dict[str, str] = field(default_factory=dict)
    staging: int = 0
    cluster_rows: int = 1
    cluster_cols: int = 1
    split: int = 1
    rest: int = 0
    across: int = 1

    def __hash__(self) -> int:
        return hash((self.m, self.n, self.k, self.stages, self.consumers, self.band, self.staging))

    @classmethod
    def of(cls, parameters: Mapping[str, int]) -> Tiling:
        """The tiling of a candidate, by `PARAMETERS`; whoever writes its problem has turned it."""
        chosen: dict[str, Any] = {n: size for n, size in parameters.items() if n != "turned"}
        return cls(**chosen)

    @property
    def down(self) -> int:
        """Consumers below each other, along rows."""
        return self.consumers // self.across

    @property
    def cluster(self) -> int:
        """CTAs of a cluster that share operands."""
        return self.cluster_rows * self.cluster_cols

    @property
    def cluster_m(self) -> int:
        """Rows of a cluster's tile."""
        return self.m * self.cluster_rows

    @property
    def cluster_n(self) -> int:
        """Columns of a cluster's tile."""
        return self.n * self.cluster_cols


DEFAULT = Tiling()
# Of a candidate: fields of `Tiling`, tiles of a cluster along rows or along columns, and whether
# rows are columns of the result.
PARAMETERS = frozenset(
    {
        "m",
        "n",
        "k",
        "stages",
        "consumers",
        "across",
        "band",
        "staging",
        "cluster_rows",
        "cluster_cols",
        "split",
        "rest",
        "turned",
    }
)
