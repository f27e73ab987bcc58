"""Cones as kernels on tiles see them: operands, reductions and results over one index space.

What a cone says is read once; here it is cut, fused and restricted, which changes no value: dims
that every tensor runs through as one become one, a dim is split into rows, and parts of the index
space where a tensor lies or does not lie are spaces of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from math import prod

import numpy as np

from axe_eq.kernel.cells import Apply, Cell, Constant, apply, arg, evaluate, replaced, used
from axe_eq.kernel.values import Values, anything, possible
from axe_eq.lower.formulas import Cone, Fold, Load, Looked, Position
from axe_eq.program.types import DTYPES, dtype
from axe_eq_backends.nki.monoids import plain

Window = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True)
class Tensor:
    """A tensor that is read or written over the index space.

    Attributes:
        buffer, dtype: what it is.
        strides: elements between neighbours along every dim; 0 where it does not vary.
        offset: its element at index 0.
        window: per dim where it lies in its buffer, None for all; elsewhere it means nothing.
        looks: dims beside those of the index space, which are read where integers say.
    """

    buffer: str
    dtype: str
    strides: tuple[int, ...]
    offset: int = 0
    window: Window = ()
    looks: tuple[Looked, ...] = ()

    def bound(self, dim: int) -> tuple[int, int] | None:
        """The window along a dim."""
        return self.window[dim] if self.window else None


@dataclass(frozen=True)
class Count:
    """The index along a dim, from `begin` in steps of `step`."""

    dim: int
    begin: int = 0
    step: int = 1


@dataclass(frozen=True)
class Sum:
    """A reduction of a cell over some dims.

    Attributes:
        monoid, dims, cell: as of `Fold`, over the leaves by number.
        product: a sum of products of two operands.
        dtypes: of what is reduced.
    """

    monoid: str
    dims: tuple[int, ...]
    cell: Cell
    product: bool = False
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scan:
    """Every prefix of a reduction along a dim."""

    monoid: str
    dim: int
    cell: Cell


Part = Tensor | Count | Sum | Scan


@dataclass(frozen=True)
class Space:
    """What a kernel computes.

    Attributes:
        shape: extents of the index dims.
        parts: leaves by number; what a reduction reads stands before it.
        results: what is stored, with its cell over the leaves.
    """

    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    results: tuple[tuple[Tensor, Cell], ...]

    @property
    def dims(self) -> range:
        """All index dims."""
        return range(len(self.shape))

    @property
    def tensors(self) -> list[Tensor]:
        """What is read, and what is written."""
        return [p for p in self.parts if isinstance(p, Tensor)] + [t for t, _ in self.results]

    def varies(self, cell: Cell) -> frozenset[int]:
        """The dims that a cell's value depends on."""
        found = frozenset[int]()
        for n in used(cell):
            found |= self.reach(n)
        return found

    def reach(self, n: int) -> frozenset[int]:
        """The dims that a leaf depends on."""
        part = self.parts[n]
        if isinstance(part, Tensor):
            here = frozenset(d for d, s in enumerate(part.strides) if s)
            return here.union(*(self.varies(x.cell) for x in part.looks))
        if isinstance(part, Count):
            return frozenset((part.dim,))
        if isinstance(part, Scan):
            return self.varies(part.cell) | {part.dim}
        return self.varies(part.cell) - frozenset(part.dims)

    def needed(self, cells: Collection[Cell]) -> set[int]:
        """Numbers of the leaves that cells depend on, those of reductions included."""
        found, fresh = set[int](), set[int]().union(*map(used, cells))
        while fresh:
            found |= fresh
            more = set[int]()
            for n in fresh:
                part = self.parts[n]
                cells_of = [part.cell] if isinstance(part, Sum | Scan) else []
                cells_of += [x.cell for x in part.looks] if isinstance(part, Tensor) else []
                more = more.union(*map(used, cells_of))
            fresh = more - found
        return found

    @property
    def reduced(self) -> frozenset[int]:
        """Dims over which something is reduced or scanned, or which not all results have."""
        found = {d for p in self.parts if isinstance(p, Sum) for d in p.dims}
        found |= {p.dim for p in self.parts if isinstance(p, Scan)}
        has = [{d for d in self.dims if t.strides[d]} for t, _ in self.results]
        some = set[int]().union(*has)
        return frozenset(
            found | {d for d in self.dims if d in some and not all(d in h for h in has)}
        )


def space_of(cone: Cone, structured: bool = False) -> Space:
    """A cone as a space, with dims fused.

    Args:
        cone: what to compute.
        structured: structured reductions stay what they are; else they are plain ones.

    Raises:
        DispatchError: a reduction or a scan that no kernel on tiles computes.
    """
    cone = cone if structured else plain(cone)
    n_dims = len(cone.shape)

    def full(strides: Sequence[int]) -> tuple[int, ...]:
        held = (*strides, *(0 for _ in range(n_dims - len(strides))))
        return tuple(s if e > 1 else 0 for s, e in zip(held, cone.shape, strict=True))

    parts: list[Part] = []
    for leaf in cone.leaves:
        if isinstance(leaf, Load):
            window = (*leaf.window, *(None for _ in range(n_dims - len(leaf.window))))
            held = window if any(leaf.window) else ()
            parts.append(
                Tensor(leaf.buffer, leaf.dtype, full(leaf.strides), leaf.offset, held, leaf.looks)
            )
        elif isinstance(leaf, Position):
            parts.append(Count(leaf.dim))
        elif isinstance(leaf, Fold):
            parts.append(Sum(leaf.monoid, leaf.dims, leaf.cell, leaf.product, leaf.dtypes))
        else:
            if len(leaf.cells) > 1:
                raise cone.refuse(f"scans {len(leaf.cells)} operands", "one")
            parts.append(Scan(leaf.monoid, leaf.dim, leaf.cells[0]))
    results = tuple(
        (Tensor(r.buffer, r.dtype, full(r.strides), r.offset), r.cell) for r in cone.roots
    )
    return arranged(settled(dropped(Space(tuple(cone.shape), tuple(parts), results))))


def arranged(space: Space) -> Space:
    """With dims fused, and slow to fast as the largest tensor lies in memory: tiles are like it."""
    space = fused(space)
    most = sorted(space.tensors, key=lambda t: -sum(map(bool, t.strides)))

    def stride(d: int) -> tuple[int, ...]:
        return tuple(-abs(t.strides[d]) for t in most if t.strides[d])

    dims = sorted(space.dims, key=stride)
    return over(space, dims, [space.shape[d] for d in dims])


def settled(space: Space) -> Space:
    """With cells of constants as constants."""
    return with_cells(space, constant)


# Truths beside which it does not matter what else is joined.
DECIDES = {"and": Constant(value=False, dtype="bool"), "or": Constant(value=True, dtype="bool")}


def constant(cell: Cell, known: dict[Cell, Cell] | None = None) -> Cell:
    """The cell with every part that depends on no operand worked out.

    >>> print(constant(apply("mul", arg(0), apply("div", 1.0, 4.0))))
    mul(x0, 0.25)
    """
    if not isinstance(cell, Apply):
        return cell
    known = {} if known is None else known
    if cell not in known:  # what is used twice is looked at once
        args = tuple(constant(a, known) for a in cell.args)
        same = all(a is b for a, b in zip(args, cell.args, strict=True))
        made = cell if same else replace(cell, args=args)
        if (decides := DECIDES.get(cell.cell)) in args:
            known[cell] = decides
        elif all(isinstance(a, Constant) for a in args):
            value = evaluate(made, [])
            known[cell] = Constant(value.item(), dtype(value.dtype).name)
        else:
            known[cell] = made
    return known[cell]


def over(space: Space, dims: Sequence[int], shape: Sequence[int]) -> Space:
    """The space over a choice of its dims, with these extents."""
    numbers = {d: n for n, d in enumerate(dims)}

    def moved(t: Tensor) -> Tensor:
        window = tuple(t.window[d] for d in dims) if t.window else ()
        return replace(t, strides=tuple(t.strides[d] for d in dims),
                       window=window if any(window) else ())  # fmt: skip

    parts: list[Part] = []
    for p in space.parts:
        if isinstance(p, Tensor):
            parts.append(moved(p))
        elif isinstance(p, Count):
            # A dim of one index that was dropped is counted by a number, see `dropped`.
            parts.append(replace(p, dim=numbers.get(p.dim, 0)))
        elif isinstance(p, Scan):
            parts.append(replace(p, dim=numbers.get(p.dim, 0)))
        else:
            parts.append(replace(p, dims=tuple(numbers[d] for d in p.dims if d in numbers)))
    results = tuple((moved(t), c) for t, c in space.results)
    return Space(tuple(shape), tuple(parts), results)


def over_dims(p: Sum | Scan) -> tuple[int, ...]:
    """The dims that a reduction or a scan runs over."""
    return p.dims if isinstance(p, Sum) else (p.dim,)


def dropped(space: Space) -> Space:
    """Without dims of one index: a position along one is a number, a reduction its operand."""
    known: dict[Cell, Cell] = {}
    for n, p in enumerate(space.parts):
        if isinstance(p, Count) and space.shape[p.dim] == 1:
            known[arg(n)] = Constant(p.begin, "i32")
        elif isinstance(p, Sum | Scan) and all(space.shape[d] == 1 for d in over_dims(p)):
            known[arg(n)] = replaced(p.cell, known)
    space = substituted(space, known)
    kept = [d for d in space.dims if space.shape[d] > 1]
    return over(space, kept, [space.shape[d] for d in kept])


def substituted(space: Space, known: Mapping[Cell, Cell]) -> Space:
    """The space with leaves replaced by cells."""
    return with_cells(space, lambda cell: replaced(cell, known)) if known else space


def with_cells(space: Space, of: Callable[[Cell], Cell]) -> Space:
    """The space with every cell of its parts and results as another one."""
    parts: list[Part] = []
    for p in space.parts:
        if isinstance(p, Sum | Scan):
            parts.append(replace(p, cell=of(p.cell)))
        elif isinstance(p, Tensor):
            parts.append(replace(p, looks=tuple(replace(x, cell=of(x.cell)) for x in p.looks)))
        else:
            parts.append(p)
    return Space(space.shape, tuple(parts), tuple((t, of(c)) for t, c in space.results))


def fused(space: Space) -> Space:
    """With dims as one that every tensor runs through as one."""
    needed = space.needed([c for _, c in space.results])
    for slow, fast in permutations(space.dims, 2):
        if _continues(space, slow, fast, needed):
            shape = list(space.shape)
            shape[fast] *= shape[slow]
            kept = [d for d in space.dims if d != slow]
            return fused(over(space, kept, [shape[d] for d in kept]))
    return space


def _continues(space: Space, slow: int, fast: int, needed: Collection[int]) -> bool:
    for t in space.tensors:
        if t.strides[slow] != t.strides[fast] * space.shape[fast] or t.bound(slow) or t.bound(fast):
            return False
    parts = [space.parts[n] for n in needed]
    for p in parts:
        if isinstance(p, Count) and p.dim in (slow, fast):
            return False
        if isinstance(p, Sum) and (slow in p.dims) != (fast in p.dims):
            return False
        if isinstance(p, Scan) and p.dim in (slow, fast):
            return False
    return all((slow in reach) == (fast in reach) for reach in (space.reach(n) for n in needed))


def restricted(space: Space, dim: int, low: int, high: int) -> Space:
    """The part of a space with the indices [low, high) of a dim.

    A tensor that does not lie there is a number; conditions on positions that hold everywhere or
    nowhere there are gone.
    """
    known: dict[Cell, Cell] = {}

    def part_of(t: Tensor) -> Tensor | None:
        window = list(t.window) or [None] * len(space.shape)
        bound = window[dim]
        if bound is not None:
            if bound[0] >= high or bound[1] <= low:
                return None
            inside = max(bound[0], low) - low, min(bound[1], high) - low
            window[dim] = None if inside == (0, high - low) else inside
        return replace(t, offset=t.offset + low * t.strides[dim],
                       window=tuple(window) if any(window) else ())  # fmt: skip

    parts: list[Part] = []
    for n, p in enumerate(space.parts):
        if isinstance(p, Tensor):
            found = part_of(p)
            if found is None:
                known[arg(n)] = Constant(np.zeros((), DTYPES[p.dtype].numpy).item(), p.dtype)
            parts.append(found or replace(p, window=()))
        elif isinstance(p, Count) and p.dim == dim:
            parts.append(replace(p, begin=p.begin + low * p.step))
        else:
            parts.append(p)
    results = []
    for t, c in space.results:
        stored = part_of(t)
        assert stored is not None
        results.append((stored, c))
    shape = tuple(high - low if d == dim else e for d, e in enumerate(space.shape))
    return settled(simplified(substituted(Space(shape, tuple(parts), tuple(results)), known)))


def split(space: Space, dim: int, unit: int) -> Space:
    """A dim as rows of `unit` indices: the number of the row, then the place in it."""
    rows = space.shape[dim] // unit
    shape = (*space.shape[:dim], rows, unit, *space.shape[dim + 1 :])

    def moved(t: Tensor) -> Tensor:
        s = t.strides
        strides = (*s[:dim], s[dim] * unit, s[dim], *s[dim + 1 :])
        window = (*t.window[:dim], None, None, *t.window[dim + 1 :]) if t.window else ()
        return replace(t, strides=strides, window=window)

    def new(d: int) -> int:
        return d if d < dim else d + 1

    parts: list[Part] = []
    known: dict[Cell, Cell] = {}
    more: list[Part] = []
    for n, p in enumerate(space.parts):
        if isinstance(p, Tensor):
            parts.append(moved(p))
        elif isinstance(p, Count) and p.dim == dim:
            parts.append(Count(dim + 1, p.begin, p.step))
            more.append(Count(dim, 0, 1))
            row = arg(len(space.parts) + len(more) - 1)
            known[arg(n)] = apply("add", arg(n), apply("mul", row, unit * p.step))
        elif isinstance(p, Count | Scan):
            parts.append(replace(p, dim=new(p.dim)))
        else:
            dims = [x for d in p.dims for x in ((dim, dim + 1) if d == dim else (new(d),))]
            parts.append(replace(p, dims=tuple(dims)))
    results = tuple((moved(t), c) for t, c in space.results)
    made = substituted(Space(shape, tuple(parts), results), known)
    return replace(made, parts=(*made.parts, *more))


def simplified(space: Space) -> Space:
    """Without choices that positions decide."""
    ranges = [_range(space, p) for p in space.parts]
    dtypes = [p.dtype if isinstance(p, Tensor) else "i32" if isinstance(p, Count) else "f32"
              for p in space.parts]  # fmt: skip

    def of(cell: Cell) -> Cell:
        if not isinstance(cell, Apply):
            return cell
        if cell.cell == "where" and _counts_only(space, cell.args[0]):
            asked = possible(cell.args[0], ranges, dtypes)
            if bool(asked.only(1.0)):
                return of(cell.args[1])
            if bool(asked.only(0.0)):
                return of(cell.args[2])
        return Apply(cell.cell, tuple(of(a) for a in cell.args))

    parts = tuple(replace(p, cell=of(p.cell)) if isinstance(p, Sum | Scan) else p
                  for p in space.parts)  # fmt: skip
    return Space(space.shape, parts, tuple((t, of(c)) for t, c in space.results))


def _counts_only(space: Space, cell: Cell) -> bool:
    return all(isinstance(space.parts[n], Count) for n in used(cell))


def _range(space: Space, p: Part) -> Values:
    if isinstance(p, Count):
        ends = sorted((p.begin, p.begin + (space.shape[p.dim] - 1) * p.step))
        return Values(np.asarray(float(ends[0])), np.asarray(float(ends[1])), np.asarray(False))
    return anything(p.dtype if isinstance(p, Tensor) else "f32")


def cut(space: Space, dims: Collection[int]) -> list[Space]:
    """Parts of a space in which no tensor ends, along some dims: disjoint, in order."""
    for d in sorted(dims):
        ends = {e for t in space.tensors for e in t.bound(d) or ()} - {0, space.shape[d]}
        if ends:
            bounds = [0, *sorted(ends), space.shape[d]]
            pieces = [restricted(space, d, a, b) for a, b in pairwise(bounds)]
            return [x for piece in pieces for x in cut(piece, dims)]
    return [space]


def size(space: Space, dims: Collection[int]) -> int:
    """Indices of some dims together."""
    return prod(space.shape[d] for d in dims)


__all__ = ["Count", "Scan", "Space", "Sum", "Tensor", "cut", "fused", "restricted",
           "space_of", "split"]  # fmt: skip
