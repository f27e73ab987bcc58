"""How values are cut over a mesh, and what devices need for a cut of an operator's index space.

A cut is a parameter of an operator: mesh axes cut letters of its index space, as block sizes do.
The same projections that say which box of an operand a block reads say which part a device reads.
Where a dim is read through a window, parts overlap (a halo). Where axes do not divide a dim, the
last parts are shorter: they are padded, computed as if they were whole, and left out when read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from axe_eq.errors import ProgramError
from axe_eq.program.node import Node, sel_node, sel_type
from axe_eq.program.ops import Pull, Selector, join_text, selector
from axe_eq.program.signature import Affine
from axe_eq.program.types import ValueType, value_type
from axe_eq.schedule import shard
from axe_eq.schedule.graph import TileNode


@dataclass(frozen=True)
class Part:
    """How one dim is cut: part n has `length` indices from ``n * step + begin`` on.

    Attributes:
        axes: the mesh axes that number parts, major first; none where the dim is whole.
    """

    axes: tuple[str, ...]
    step: int
    length: int
    begin: int = 0

    @property
    def overlaps(self) -> bool:
        """Whether it is a window: parts are no partition of the dim."""
        return bool(self.axes) and (self.step != self.length or self.begin != 0)


Cut = tuple[Part, ...]
"""How every dim of a value is cut."""


def whole(shape: Iterable[int]) -> Cut:
    """The cut of a value that every device has."""
    return tuple(Part((), n, n) for n in shape)


def cut_dim(axes: Sequence[str], extent: int, mesh: str) -> Part:
    """A dim cut into equal parts, of which the last ones may reach beyond its end."""
    length = -(-extent // shard.ways(axes, mesh))
    return Part(tuple(axes), length, length)


def cut_of(box: str, shape: Sequence[int], mesh: str) -> Cut:
    """The cut that a mesh box is."""
    several = [[a for a in axes if shard.ways([a], mesh) > 1] for axes in shard.entries(box)]
    return tuple(cut_dim(axes, n, mesh) for axes, n in zip(several, shape, strict=True))


def axes_of(cut: Cut) -> list[str]:
    """The mesh axes that cut some dim, each as often as it does."""
    return [a for part in cut for a in part.axes]


def is_even(cut: Cut, shape: Sequence[int], mesh: str) -> bool:
    """Whether parts are a partition into equal ones: then the cut is a layout of the value."""
    return all(
        not p.overlaps and p.length * shard.ways(p.axes, mesh) == n
        for p, n in zip(cut, shape, strict=True)
    )


def local_type(type: ValueType, cut: Cut) -> ValueType:
    """The part that one device computes with."""
    return ValueType(type.dtype, tuple(p.length for p in cut))


# -- buffers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """A buffer that holds a value in a cut.

    Attributes:
        type: of the buffer: the value's, padded, with a dim more for every window.
        layout: of the buffer over the mesh.
        cut: of the value; None where only the layout is known.
    """

    type: ValueType
    layout: str
    cut: Cut | None = None


@lru_cache(maxsize=1 << 14)
def form(type: ValueType, cut: Cut, mesh: str) -> Form:
    """The buffer of a value in a cut."""
    shape: list[int] = []
    box: list[tuple[str, ...]] = []
    for part in cut:
        shape += [shard.ways(part.axes, mesh)] if part.overlaps else []
        shape.append(part.length if part.overlaps else part.length * shard.ways(part.axes, mesh))
        box += [part.axes, ()] if part.overlaps else [part.axes]
    of = ValueType(type.dtype, tuple(shape))
    return Form(of, shard.layout_text(str(of), shard.show(box), mesh), cut)


def from_buffer(node: Node, cut: Cut) -> Node:
    """A device's part of a value, of its part of the buffer."""
    for dim, part in enumerate(cut):
        if part.overlaps:
            node = sel_node(join_text("merge", dim, 2), [node])
    return node


class Path:
    """Tile nodes of an exchange, operands before users: loads, and selectors above them."""

    def __init__(self, nodes: Iterable[TileNode] = ()) -> None:
        self.nodes = list(nodes)

    def select(self, text: str, type: ValueType, operands: Sequence[int]) -> int:
        """One more selector; its number."""
        self.nodes.append(TileNode("gather", text, "", "", str(type), tuple(operands)))
        return len(self.nodes) - 1

    def load(self, access: int, held: Form, type: ValueType) -> int:
        """A value of this type as a buffer holds it; the number of its node."""
        self.nodes.append(TileNode("load", "", "", "", str(held.type), (), access))
        if held.type.shape == type.shape or held.cut is None:
            return len(self.nodes) - 1
        rows = [None if a == b else (0, 1, b)
                for a, b in zip(held.type.shape, type.shape, strict=True)]  # fmt: skip
        return self.select(join_text("slice", tuple(rows)), type, [len(self.nodes) - 1])

    def into(self, at: int, cut: Cut, mesh: str) -> int:
        """A value as the buffer of a cut wants it: as far as parts reach, once for every window."""
        of = value_type(self.nodes[at].type)
        ends = [p.begin + (shard.ways(p.axes, mesh) - 1) * p.step + p.length for p in cut]
        wide = tuple(max(e, n) for e, n in zip(ends, of.shape, strict=True))
        if wide != of.shape:
            high = tuple((0, w - n) for w, n in zip(wide, of.shape, strict=True))
            of = ValueType(of.dtype, wide)
            zero = join_text("pad", high, 0.0 if of.dtype.startswith(("f", "bf")) else 0)
            at = self.select(zero, of, [at])
        covered = tuple(
            n if p.overlaps or not p.axes else e for p, e, n in zip(cut, ends, wide, strict=True)
        )
        if covered != of.shape:
            rows = tuple(None if a == b else (0, 1, a)
                         for a, b in zip(covered, of.shape, strict=True))  # fmt: skip
            of = ValueType(of.dtype, covered)
            at = self.select(join_text("slice", rows), of, [at])
        for dim in reversed(range(len(cut))):
            if cut[dim].overlaps:
                at = self._windows(at, dim, cut[dim], shard.ways(cut[dim].axes, mesh))
        return at

    def _windows(self, at: int, dim: int, part: Part, n: int) -> int:
        of = value_type(self.nodes[at].type)

        def shaped(*extents: int) -> ValueType:
            return ValueType(of.dtype, (*of.shape[:dim], *extents, *of.shape[dim + 1 :]))

        found = []
        for number in range(n):
            rows: list[tuple[int, int, int] | None] = [None] * of.rank
            rows[dim] = part.begin + number * part.step, 1, part.length
            one = self.select(join_text("slice", tuple(rows)), shaped(part.length), [at])
            split = join_text("split", dim, (-1, part.length))
            found.append(self.select(split, shaped(1, part.length), [one]))
        return self.select(join_text("concat", dim), shaped(n, part.length), found)


# -- what operators need ---------------------------------------------------------------------------


def read_part(
    projection: Affine, extent: int, cuts: Sequence[Part], extents: Sequence[int]
) -> Part | None:
    """How an operand dim is read where letters are cut so; None where no part says it."""
    if projection.plain is not None:
        return cuts[projection.plain]
    mine = [(d, c) for d, c in projection.terms if cuts[d].axes]
    if not mine:
        return Part((), extent, extent)
    if len(mine) > 1 or any(c < 0 for _, c in projection.terms):
        return None
    ((dim, scale),) = mine
    reach = sum(c * ((cuts[d].length if d == dim else extents[d]) - 1) for d, c in projection.terms)
    return Part(cuts[dim].axes, scale * cuts[dim].step, reach + 1, projection.offset)


def _reshaped(
    declared: Selector, row: Sequence[Pull | None], of: ValueType, out: ValueType, cut: Cut
) -> tuple[int, dict[int, Part]]:
    """Where dims are reshaped in order, the first one of them that is cut, and the operand's.

    Parts of the first of some dims are parts of the first of those that they are reshaped to.
    """
    mixed = [d for d, p in enumerate(row) if p is None]
    made = sorted(set(range(out.rank)) - {p.axis for p in row if p is not None})
    if declared.inverse is None or not mixed or not made or not cut[made[0]].axes:
        return -1, {}
    part, extents = cut[made[0]], (of.shape[mixed[0]], out.shape[made[0]])
    rows = part.length * prod(out.shape[d] for d in made[1:])
    length, left = divmod(rows, prod(of.shape[d] for d in mixed[1:]))
    if part.overlaps or left or extents[0] * part.length != extents[1] * length:
        return -1, {}
    return made[0], {mixed[0]: Part(part.axes, length, length)}


@lru_cache(maxsize=1 << 14)
def selector_needs(text: str, given: tuple[ValueType, ...], cut: Cut) -> tuple[Cut, ...] | None:
    """Cuts of operands where every device applies a selector to its own parts alone.

    A cut dim is read as it is, or not at all but through integers that are cut alike: then the same
    text on parts is the part of the whole. None where a device needs more, or the text says
    extents of what is cut.
    """
    declared, params = selector(text)
    if not given:
        return () if not axes_of(cut) else None
    if declared.pull is None:
        return None
    out = sel_type(text, given)
    pulls = declared.pull(params, given)
    found = []
    for (plainly, whole), row, type_ in zip(shard.readings(text, given), pulls, given, strict=True):
        first = _reshaped(declared, row, type_, out, cut)
        if any(p.axes and d in whole and d != first[0] for d, p in enumerate(cut)):
            return None
        own = {d: cut[axis] for axis, d in plainly.items()} | first[1]
        found.append(tuple(own.get(d, Part((), n, n)) for d, n in enumerate(type_.shape)))
    local = tuple(local_type(t, c) for t, c in zip(given, found, strict=True))
    try:
        alike = sel_type(text, local) == local_type(out, cut)
    except ProgramError:
        return None
    return tuple(found) if alike and declared.pull(params, local) == pulls else None
