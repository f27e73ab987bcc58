"""The formulas of a kernel: cells over loads, positions, sums and scans of its index space.

`read` reads them from the tile nodes of a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from axe_eq.errors import DispatchError
from axe_eq.kernel.cells import Cell
from axe_eq.program.places import Coords, Range


@dataclass(frozen=True)
class Looked:
    """A dim of a tensor that is read where integers of the cone say.

    Attributes:
        cell: the integer over the leaves, loads and positions alone; inside the tensor.
        dtype: i32 or i64, which hold it.
        stride: elements between neighbours of the dim.
        extent: how many there are.
    """

    cell: Cell
    dtype: str
    stride: int
    extent: int


@dataclass(frozen=True)
class Load:
    """A tensor read over the index space.

    Attributes:
        buffer, dtype: what is read.
        strides: elements between neighbours along every dim.
        offset: element at index 0; may lie outside the buffer where a window says so.
        window: per dim the range [low, high) of indices that lie in the buffer, or None for all;
            outside nothing is read and the value means nothing.
        looks: what else says where it is read.
        end: (slow dim, fast dim, extent) of two dims that are one of the tensor, which has so many
            elements along it; past them the value is 0.
    """

    buffer: str
    dtype: str
    strides: tuple[int, ...]
    offset: int = 0
    window: tuple[Range | None, ...] = ()
    looks: tuple[Looked, ...] = ()
    end: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Position:
    """The index along one dim of the index space, as an i32 value."""

    dim: int


@dataclass(frozen=True)
class Fold:
    """A reduction: the monoid over some index dims of a cell of leaves.

    Attributes:
        monoid: its name.
        dims: the reduced dims of the index space, slow to fast as the operator has them.
        coords: where along the other dims each of its own dims lies.
        cell: what is reduced, over all leaves of the cone by number; for a structured monoid the
            cell of its values ("pair").
        product: a sum of products of two operands.
        dtypes: of what is reduced: the operands' element types.
    """

    monoid: str
    dims: tuple[int, ...]
    coords: Coords
    cell: Cell
    product: bool
    dtypes: tuple[str, ...] = ()

    @property
    def dim(self) -> int:
        """The reduced dim where there is one."""
        (dim,) = self.dims
        return dim


@dataclass(frozen=True)
class Prefix:
    """A scan: the monoid of every prefix along an index dim of cells of leaves.

    Attributes:
        monoid: its name.
        dim: the scanned dim of the index space.
        coords: where along the other dims each of its own dims lies.
        cells: what is scanned, one per operand, over all leaves of the cone by number.
    """

    monoid: str
    dim: int
    coords: Coords
    cells: tuple[Cell, ...]


Leaf = Load | Position | Fold | Prefix


@dataclass(frozen=True)
class Root:
    """A stored value: buffer, dtype, element strides and offset, and its cell over the leaves."""

    buffer: str
    dtype: str
    strides: tuple[int, ...]
    cell: Cell
    offset: int = 0


@dataclass
class Cone:
    """A kernel as formulas.

    Attributes:
        name: of the step.
        shape: extents of the index space: the roots' dims, then the reduced ones.
        rank: number of the roots' dims.
        leaves: loads, positions and reductions, numbered; operands of reductions before them.
        roots: what is stored.
        rounds: every operator rounds to its own dtype (exact numerics).
    """

    name: str
    shape: list[int]
    rank: int
    leaves: list[Leaf] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)
    rounds: bool = False

    @property
    def folds(self) -> list[Fold]:
        """The reductions, in order."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Fold)]

    @property
    def prefixes(self) -> list[Prefix]:
        """The scans, in order."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Prefix)]

    def refuse(self, wrong: str, expected: str) -> DispatchError:
        """An error about this cone."""
        return DispatchError(f"kernel {self.name}", wrong, expected)

    def load(self, number: int) -> Load:
        """Leaf `number`, which is a load."""
        leaf = self.leaves[number]
        assert isinstance(leaf, Load)
        return leaf
