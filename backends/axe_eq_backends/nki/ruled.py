"""Reads at places that positions say, as strides over parts of the index space.

A value in blocks that end inside them is read where quotients and remainders of positions say. Over
a part of the index space where none of them wraps around they are affine: strides and an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from axe_eq.kernel.cells import Apply, Cell, Constant, Operand
from axe_eq.lower.formulas import Looked
from axe_eq_backends.nki.space import Count, Space, Tensor, arranged, restricted, split

Line = tuple[dict[int, int], int]
"""Steps per dim of an index space, and the value at index 0."""


class _Bend(Exception):
    """A dim along which an integer is affine in rows of so many indices, or on both sides of one.

    Attributes:
        dim, unit, at: the dim, and indices of a row, or the index that begins the second part.
    """

    def __init__(self, dim: int, unit: int = 0, at: int = 0) -> None:
        super().__init__()
        self.dim, self.unit, self.at = dim, unit, at


def ruled(space: Space, most: int) -> list[Space]:
    """Parts of a space, in which tensors that positions place have strides; at most about so many.

    What other integers place, or positions along dims that are reduced in parts, stays as it is.
    """
    if not any(t.looks for t in space.tensors):
        return [space]
    done, left = list[Space](), [space]
    while left:
        part = left.pop()
        try:
            done.append(arranged(_strided(part, bends=len(done) + len(left) < most)))
        except _Bend as bend:
            if bend.unit:
                left.append(split(part, bend.dim, bend.unit))
            else:
                ends = (0, bend.at), (bend.at, part.shape[bend.dim])
                left += [restricted(part, bend.dim, *x) for x in reversed(ends)]
    return done


def _strided(space: Space, bends: bool) -> Space:
    """The space with strides in place of looks that are affine everywhere.

    Raises:
        _Bend: one is affine in parts alone.
    """
    return replace(space, parts=tuple(
        _placed(space, p, bends) if isinstance(p, Tensor) and p.looks else p for p in space.parts
    ))  # fmt: skip


def _placed(space: Space, t: Tensor, bends: bool) -> Tensor:
    strides, offset, looks = list(t.strides), t.offset, list[Looked]()
    for look in t.looks:
        try:
            line = _line(space, look.cell)
        except _Bend as bend:
            if bends and (bend.unit or bend.dim not in space.reduced):
                raise
            line = None
        if line is None:
            looks.append(look)
            continue
        for d, step in line[0].items():
            strides[d] += step * look.stride
        offset += line[1] * look.stride
    return replace(t, strides=tuple(strides), offset=offset, looks=tuple(looks))


def _line(space: Space, cell: Cell) -> Line | None:
    """An integer as a line over the indices; None where no positions say it.

    Raises:
        _Bend: it is one in parts.
    """
    if isinstance(cell, Constant):
        return {}, int(cell.value)
    if isinstance(cell, Operand):
        part = space.parts[cell.index]
        return ({part.dim: part.step}, part.begin) if isinstance(part, Count) else None
    assert isinstance(cell, Apply)
    found = [_line(space, a) for a in cell.args]
    if any(x is None for x in found) or not found:
        return None
    (steps, at), *rest = (x for x in found if x)
    if cell.cell.startswith("cast i"):
        return steps, at
    if cell.cell == "add":
        ((more, also),) = rest
        return {d: steps.get(d, 0) + more.get(d, 0) for d in {**steps, **more}}, at + also
    if not rest or rest[0][0]:
        return None
    by = rest[0][1]
    if cell.cell == "mul":
        return {d: s * by for d, s in steps.items()}, at * by
    if cell.cell in ("floor_divide", "remainder") and by > 0:
        return _divided(space, steps, at, by, cell.cell == "remainder")
    if cell.cell in ("minimum", "maximum"):
        return _clipped(space, steps, at, by, cell.cell == "minimum")
    return None


def _ends(space: Space, steps: dict[int, int], at: int) -> tuple[int, int]:
    reach = [s * (space.shape[d] - 1) for d, s in steps.items()]
    return at + sum(min(r, 0) for r in reach), at + sum(max(r, 0) for r in reach)


def _divided(space: Space, steps: dict[int, int], at: int, by: int, rest: bool) -> Line | None:
    whole = {d: s // by for d, s in steps.items() if s % by == 0}
    inside = {d: s for d, s in steps.items() if s % by}
    low, high = _ends(space, inside, at % by)
    if low // by == high // by:
        first = low // by
        return (inside, at % by - first * by) if rest else (whole, at // by + first)
    if len(inside) == 1:
        ((d, step),) = inside.items()
        if step > 0 and by % step == 0 and at % step == 0:
            unit, extent = by // step, space.shape[d]
            begin = (-at % by) // step
            if begin:
                raise _Bend(d, at=begin)
            if extent % unit:
                raise _Bend(d, at=extent // unit * unit)
            raise _Bend(d, unit)
    return None


def _clipped(space: Space, steps: dict[int, int], at: int, by: int, below: bool) -> Line | None:
    low, high = _ends(space, steps, at)
    if (high <= by) if below else (low >= by):
        return steps, at
    if (low >= by) if below else (high <= by):
        return {}, by
    if len(steps) == 1:
        ((d, step),) = steps.items()
        if step > 0:
            raise _Bend(d, at=-(-(by - at) // step) + (1 if (by - at) % step == 0 else 0))
    return None


__all__: Sequence[str] = ["ruled"]
