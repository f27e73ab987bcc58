"""Cones read as formulas: every value of a kernel as a cell over loads and sums of its index space.

The index space has one dim per dim of the roots, then one per reduced dim. A load is known by its
element strides along these dims, so operators that only move (broadcast, permute, slice) vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from axe_eq.errors import DispatchError, LayoutError
from axe_eq.kernel.cells import Apply, Cell, Constant, Operand, arg
from axe_eq.layout import Layout
from axe_eq.layout.iters import DEFAULT_AXIS
from axe_eq.program import ops
from axe_eq.program.signature import Affine, plain, signature
from axe_eq.program.types import ValueType, value_type
from axe_eq.schedule.graph import KernelStep, TileNode

STORED = ("f16", "bf16", "f32", "i32")
Coords = tuple[Affine, ...]


@dataclass(frozen=True)
class Load:
    """A tensor read over the index space: its buffer, dtype and element stride along every dim."""

    buffer: str
    dtype: str
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Fold:
    """A reduction: the monoid over one index dim of a cell of leaves.

    Attributes:
        monoid: its name.
        dim: the reduced dim of the index space.
        coords: where along the other dims each of its own dims lies.
        cell: what is reduced, over all leaves of the cone by number.
        product: a sum of products of two operands.
    """

    monoid: str
    dim: int
    coords: Coords
    cell: Cell
    product: bool


Leaf = Load | Fold


@dataclass(frozen=True)
class Root:
    """A stored value: buffer, dtype, extents, element strides, and its cell over the leaves."""

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    cell: Cell


@dataclass
class Cone:
    """A kernel as formulas.

    Attributes:
        name: of the step.
        shape: extents of the index space: the roots' dims, then the reduced ones.
        rank: number of the roots' dims.
        leaves: loads and reductions, numbered; operands of reductions before them.
        roots: what is stored.
    """

    name: str
    shape: list[int]
    rank: int
    leaves: list[Leaf] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)

    @property
    def folds(self) -> list[Fold]:
        """The reductions, in order."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Fold)]

    def refuse(self, wrong: str, expected: str) -> DispatchError:
        """An error about this cone."""
        return DispatchError(f"kernel {self.name}", wrong, expected)

    def load(self, number: int) -> Load:
        """Leaf `number`, which is a load."""
        leaf = self.leaves[number]
        assert isinstance(leaf, Load)
        return leaf


def read_cone(step: KernelStep) -> Cone:
    """The formulas of a kernel.

    Raises:
        DispatchError: roots of several shapes, a layout that strides do not describe, an element
            type that kernels do not store, windows, structured reductions, gathers.
    """
    return _Reader(step).read()


def element_strides(thing: str, layout: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Element stride of every dim of a value in a layout; 0 for dims of extent 1.

    Raises:
        DispatchError: the layout is no plain strided one.
    """
    parsed = Layout.parse(layout)
    if parsed.replica or parsed.swizzle or parsed.offset or set(parsed.axes) - {DEFAULT_AXIS}:
        raise DispatchError(thing, f"lies in {layout}", "plain strides")
    try:
        blocks = parsed.group(tuple(shape)).blocks
    except LayoutError as error:
        raise DispatchError(thing, f"lies in {layout} ({error})", "plain strides") from None
    found = []
    for block in blocks:
        wide = [i for i in block if i[0] != 1]
        if len(wide) > 1 or any(i[1] < 0 for i in wide):
            raise DispatchError(thing, f"has blocked dims in {layout}", "one stride per dim")
        found.append(wide[0][1] if wide else 0)
    return tuple(found)


class _Reader:
    def __init__(self, step: KernelStep) -> None:
        self.step = step
        shapes = {value_type(step.nodes[r].type).shape for r in step.roots}
        # A row value and whole rows may be stored together: the larger space holds both.
        self.shape = max(shapes, key=lambda s: (len(s), s))
        self.cone = Cone(step.name, list(self.shape), len(self.shape))
        self.known: dict[tuple[int, Coords], Cell] = {}

    def read(self) -> Cone:
        for root, access in zip(self.step.roots, self.step.writes, strict=True):
            type_ = value_type(self.step.nodes[root].type)
            coords = self._root_coords(type_)
            strides = element_strides(f"buffer {access.buffer}", access.layout, type_.shape)
            cell = self._stripped(self._cell(root, coords), type_)
            self._check_stored(type_.dtype, access.buffer)
            along = [0] * self.cone.rank
            for c, stride in zip(coords, strides, strict=True):
                for dim, factor in c.terms:
                    along[dim] += factor * stride
            self.cone.roots.append(
                Root(access.buffer, type_.dtype, type_.shape, tuple(along), cell)
            )
        return self.cone

    def _root_coords(self, type_: ValueType) -> Coords:
        fits = len(type_.shape) == len(self.shape) and all(
            e in (1, whole) for e, whole in zip(type_.shape, self.shape, strict=True)
        )
        leading = type_.shape == self.shape[: len(type_.shape)]
        if not fits and not leading:
            raise self.cone.refuse(
                f"stores shapes {type_.shape} and {self.shape}", "one index space for all roots"
            )
        return tuple(
            plain(d) if e == self.shape[d] and e > 1 else Affine(())
            for d, e in enumerate(type_.shape)
        )

    def _stripped(self, cell: Cell, type_: ValueType) -> Cell:
        """Without a last cast to the dtype that storing rounds to anyway."""
        while isinstance(cell, Apply) and cell.cell == f"cast {type_.dtype}":
            if type_.dtype not in ("f16", "bf16", "f32"):
                break
            cell = cell.args[0]
        return cell

    def _check_stored(self, dtype: str, buffer: str) -> None:
        if dtype not in STORED:
            raise self.cone.refuse(f"buffer {buffer} holds {dtype}", " ".join(STORED))

    # -- nodes --

    def _cell(self, number: int, coords: Coords) -> Cell:
        key = number, coords
        if key not in self.known:
            node = self.step.nodes[number]
            made = {"load": self._load, "cell": self._block, "gather": self._gather}[node.kind](
                number, node, coords
            )
            if self.step.rounds and node.kind == "cell":
                made = Apply(f"cast {value_type(node.type).dtype}", (made,))
            self.known[key] = made
        return self.known[key]

    def _leaf(self, leaf: Leaf) -> Cell:
        if leaf not in self.cone.leaves:
            self.cone.leaves.append(leaf)
        return arg(self.cone.leaves.index(leaf))

    def _load(self, number: int, node: TileNode, coords: Coords) -> Cell:
        access = self.step.reads[node.access]
        type_ = value_type(node.type)
        self._check_stored(type_.dtype, access.buffer)
        strides = element_strides(f"buffer {access.buffer}", access.layout, type_.shape)
        along = [0] * len(self.cone.shape)
        for c, stride in zip(coords, strides, strict=True):
            if c.offset * stride:
                raise self.cone.refuse(
                    f"reads {access.buffer} from index {c.offset} of a dim", "whole dims"
                )
            for dim, factor in c.terms:
                along[dim] += factor * stride
        if any(s < 0 for s in along):
            raise self.cone.refuse(f"reads {access.buffer} backwards", "positive strides")
        while along and len(along) > self.cone.rank and not along[-1]:
            along.pop()
        return self._leaf(Load(access.buffer, type_.dtype, tuple(along)))

    def _block(self, number: int, node: TileNode, coords: Coords) -> Cell:
        sig = signature(node.text)
        shapes = [value_type(self.step.nodes[o].type).shape for o in node.operands]
        images = dict(enumerate(coords))
        if not sig.n_reduced:
            return self._applied(node, [self._at(p, images) for p in sig.operands])
        if sig.n_reduced > 1 or ops.MONOIDS[sig.monoid].n_values > 1:
            what = f"reduces {sig.n_reduced} dims" if sig.n_reduced > 1 else "is structured"
            raise self.cone.refuse(f"'{node.cell}; {sig.monoid}' {what}", "one dim, a plain monoid")
        dim = self._reduced_dim(sig.extents(shapes)[sig.n_out], coords)
        images[sig.n_out] = plain(dim)
        cell = self._applied(node, [self._at(p, images) for p in sig.operands])
        product = ops.cell(node.cell)[0].product and len(node.operands) == 2 and sig.monoid == "+"
        return self._leaf(Fold(sig.monoid, dim, coords, cell, product))

    def _at(self, projections: Sequence[Affine], images: dict[int, Affine]) -> Coords:
        return tuple(p.substitute(images) for p in projections)

    def _applied(self, node: TileNode, at: list[Coords]) -> Cell:
        args = [self._cell(o, c) for o, c in zip(node.operands, at, strict=True)]
        return args[0] if node.cell == "id" else Apply(node.cell, tuple(args))

    def _reduced_dim(self, extent: int, coords: Coords) -> int:
        """A dim for a reduction: a last dim of the roots that it does not use, or one of its own.

        Rows that are reduced and stored again are one dim of the index space.
        """
        used = {d for c in coords for d, _ in c.terms}
        last = self.cone.rank - 1
        if last >= 0 and last not in used and self.cone.shape[last] == extent:
            return last
        for dim in range(self.cone.rank, len(self.cone.shape)):
            if self.cone.shape[dim] == extent and dim not in used:
                return dim
        self.cone.shape.append(extent)
        return len(self.cone.shape) - 1

    def _gather(self, number: int, node: TileNode, coords: Coords) -> Cell:
        declared, params = ops.selector(node.text)
        value = declared.fill(params) if declared.fill and not node.operands else None
        if value is not None:
            return Constant(float(value))
        types = [value_type(self.step.nodes[o].type) for o in node.operands]
        pulls = declared.pull(params, types) if declared.pull and len(types) == 1 else []
        if not pulls or declared.fill or any(p is None for p in pulls[0]):
            raise self.cone.refuse(f"gathers by '{node.text}'", "operators of strided reads")
        inner = []
        for p in pulls[0]:
            assert p is not None
            c = coords[p.axis]
            terms = tuple((d, f * p.scale) for d, f in c.terms if f * p.scale)
            inner.append(Affine(terms, c.offset * p.scale + p.offset))
        return self._cell(node.operands[0], tuple(inner))


__all__ = ["Cone", "Fold", "Load", "Operand", "Root", "element_strides", "read_cone"]
