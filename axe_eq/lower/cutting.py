"""Index spaces cut where blocks of tensors end, so that every tensor has one stride per dim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from math import prod

from axe_eq.errors import DispatchError
from axe_eq.kernel.cells import Cell, apply, arg, replaced
from axe_eq.lower.formulas import Cone, Fold, Leaf, Load, Looked, Position, Prefix, Root
from axe_eq.program.places import Blocks, Range, Window
from axe_eq.program.signature import Affine


@dataclass(frozen=True)
class Raw:
    """A load or root before the index space is cut: iters per dim in place of strides."""

    buffer: str
    dtype: str
    blocks: Blocks
    offset: int
    window: Window
    looks: tuple[Looked, ...] = ()
    end: tuple[int, int, int] | None = None


def cut(
    cone: Cone, leaves: Sequence[Raw | Position | Fold | Prefix], roots: list[tuple[Raw, Cell]]
) -> Cone:
    """The cone with its index dims cut where a tensor's blocks end: one stride per dim and tensor.

    Raises:
        DispatchError: blocks of two tensors that overlap without one dividing the other.
    """
    sizes: list[set[int]] = [{1} for _ in cone.shape]
    for raw in [*(x for x in leaves if isinstance(x, Raw)), *(r for r, _ in roots)]:
        for cuts, block in zip(sizes, raw.blocks, strict=False):
            cuts |= {prod(e for e, _ in block[n:]) for n in range(1, len(block))}
    parts: list[list[int]] = []
    for extent, cuts in zip(cone.shape, sizes, strict=True):
        ends = [*sorted(cuts), extent]
        if any(b % a for a, b in pairwise(ends)):
            raise cone.refuse(f"has blocks of {ends[1:-1]} in a dim of {extent}", "nested blocks")
        parts.append([b // a for a, b in pairwise(ends)][::-1])
    first = [sum(map(len, parts[:d])) for d in range(len(parts))]

    def coordinate(d: int) -> Affine:
        """Old index dim d over the new ones."""
        numbers = range(first[d], first[d] + len(parts[d]))
        return Affine.of({n: prod(parts[d][i + 1 :]) for i, n in enumerate(numbers)})

    images = {d: coordinate(d) for d in range(len(parts))}
    done: list[Leaf] = []
    known: dict[Cell, Cell] = {}  # leaves by their numbers before

    def numbered(leaf: Leaf) -> Cell:
        done.append(leaf)
        return arg(len(done) - 1)

    for n, leaf in enumerate(leaves):
        if isinstance(leaf, Raw):
            looks = tuple(replace(x, cell=replaced(x.cell, known)) for x in leaf.looks)
            known[arg(n)] = numbered(replace(_load(leaf, parts), looks=looks))
        elif isinstance(leaf, Position):
            steps = [(numbered(Position(d)), step) for d, step in images[leaf.dim].terms]
            counted = [p if step == 1 else apply("mul", p, step) for p, step in steps]
            known[arg(n)] = reduce(lambda a, b: apply("add", a, b), counted)
        elif isinstance(leaf, Prefix):
            if len(parts[leaf.dim]) > 1:
                wrong = f"scans a dim in blocks of {parts[leaf.dim][1:]}"
                raise cone.refuse(wrong, "a dim of one stride")
            coords = tuple(c.substitute(images) for c in leaf.coords)
            cells = tuple(replaced(c, known) for c in leaf.cells)
            known[arg(n)] = numbered(Prefix(leaf.monoid, first[leaf.dim], coords, cells))
        else:
            dims = tuple(n for d in leaf.dims for n, _ in images[d].terms)
            coords = tuple(c.substitute(images) for c in leaf.coords)
            cell = replaced(leaf.cell, known)
            known[arg(n)] = numbered(replace(leaf, dims=dims, coords=coords, cell=cell))
    stored = []
    for raw, cell in roots:
        load = _load(raw, parts)
        cell = replaced(cell, known)
        stored.append(Root(raw.buffer, raw.dtype, load.strides, cell, load.offset))
    rank = sum(map(len, parts[: cone.rank]))
    shape = [e for p in parts for e in p]
    return Cone(cone.name, shape, rank, done, stored, cone.rounds)


def _load(raw: Raw, parts: Sequence[Sequence[int]]) -> Load:
    """A tensor with one stride per dim of the cut index space."""
    strides: list[int] = []
    window: list[Range | None] = []
    for d, part in enumerate(parts):
        block = raw.blocks[d] if d < len(raw.blocks) else ()
        bound = raw.window[d] if d < len(raw.window) else None
        if bound and len(part) > 1:
            wrong = f"is read from {bound[0]} to {bound[1]} of a dim that another tensor blocks"
            raise DispatchError(f"buffer {raw.buffer}", wrong, "whole dims")
        strides += [_stride(block, prod(part[n + 1 :])) for n in range(len(part))]
        window += [bound] * len(part)
    held = tuple(window) if any(window) else ()
    return Load(raw.buffer, raw.dtype, tuple(strides), raw.offset, held, end=_end(raw, parts))


def _end(raw: Raw, parts: Sequence[Sequence[int]]) -> tuple[int, int, int] | None:
    """Where a tensor ends along two dims, of the cut index space."""
    if raw.end is None:
        return None
    slow, fast, extent = raw.end
    if len(parts[slow]) > 1 or len(parts[fast]) > 1:
        raise DispatchError(f"buffer {raw.buffer}", "is read in parts of a blocked dim", "whole")
    first = [sum(map(len, parts[:d])) for d in (slow, fast)]
    return first[0], first[1], extent


def _stride(block: Sequence[tuple[int, int]], step: int) -> int:
    """Elements that a step of a dim moves by; the step lies inside one iter."""
    for extent, stride in reversed(block):
        if step < extent:
            return step * stride
        step //= extent
    return 0
