"""Index spaces cut where windows end: what cells tell apart by position becomes several results.

A concatenation, a rotation of halves, a padding: elements of a dim come from one place up to some
index, and from another one after it. In one kernel over the whole dim every element reads all of
them under a mask. Over one piece, with a result for each, what several pieces need is read once,
and nothing is masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from axe_eq.kernel.cells import (
    Apply,
    Cell,
    Constant,
    apply,
    arg,
    evaluate,
    renumber,
    result_dtype,
    substituted,
    used,
)
from axe_eq.kernel.cells import Operand as Numbered
from axe_eq_backends.cuda.leaves import Names
from axe_eq_backends.cuda.schedules.tensors import Operand

MOST_PIECES = 4
# Index comparisons with a constant -> what is added to it for the first index past which they turn.
_TURNS = {"lt": 0, "ge": 0, "le": 1, "gt": 1}
Output = tuple[Operand, Cell]


@dataclass(frozen=True)
class Pieces:
    """Cells over one piece of an index space, for all pieces.

    Attributes:
        shape: of a piece.
        operands: that some piece reads, each once.
        outputs: of all pieces, with their cells over the operands.
        count: pieces.
    """

    shape: tuple[int, ...]
    operands: list[Operand]
    outputs: list[Output]
    count: int


def in_pieces(
    shape: Sequence[int], operands: Sequence[Operand], outputs: Sequence[Output], names: Names
) -> Pieces | None:
    """The dim whose windows and index comparisons end at multiples of a part, in those parts.

    Args:
        shape: the index space.
        operands: tensors that are read.
        outputs: tensors that are written, with their cells.
        names: of all of them, which those of pieces are added to.

    Returns:
        None where there is no such dim, or its cells compute in other types on a piece.
    """
    if any(o.looks or o.end for o in operands):
        return None
    for dim, extent in enumerate(shape):
        ends = [end for o in operands for end in o.bound(dim) or ()]
        ends += [end for _, cell in outputs for end in _turns(cell, _counting(operands, dim))]
        size = gcd(extent, *ends)
        if size < extent <= MOST_PIECES * size and all(o.strides[dim] for o, _ in outputs):
            return _cut(shape, dim, size, operands, outputs, names)
    return None


def _counting(operands: Sequence[Operand], dim: int) -> set[int]:
    """Numbers of the operands that are positions along a dim."""
    return {n for n, o in enumerate(operands) if o.counts and o.strides[dim]}


def _compared(cell: Cell, counting: set[int]) -> int | None:
    """The first index at which a comparison of a position with a constant turns, if it is one."""
    if not isinstance(cell, Apply) or cell.cell not in _TURNS:
        return None
    a, b = cell.args
    if not (isinstance(a, Numbered) and a.index in counting and isinstance(b, Constant)):
        return None
    return int(b.value) + _TURNS[cell.cell] if float(b.value).is_integer() else None


def _turns(cell: Cell, counting: set[int]) -> Iterator[int]:
    """Indices at which comparisons of a cell turn."""
    if (found := _compared(cell, counting)) is not None:
        yield found
    elif isinstance(cell, Apply):
        for part in cell.args:
            yield from _turns(part, counting)


def _cut(
    shape: Sequence[int],
    dim: int,
    size: int,
    operands: Sequence[Operand],
    outputs: Sequence[Output],
    names: Names,
) -> Pieces | None:
    """The pieces of a dim; operands of several are one."""
    numbers: dict[Operand, int] = {}
    dtypes, counting = [o.dtype for o in operands], _counting(operands, dim)
    found: list[Output] = []
    for first in range(0, shape[dim], size):
        values = {
            n: _value(replace(o, name=names.buffers.get(o.name, o.name)), dim, first, numbers)
            for n, o in enumerate(operands)
        }
        for out, cell in outputs:
            own = _decided(cell, counting, first, dtypes)
            if result_dtype(own, dtypes) != result_dtype(cell, dtypes):
                return None
            name = names.fresh(names.buffers[out.name]) if first else out.name
            place = replace(out, name=name, offset=out.offset + first * out.strides[dim])
            found.append((place, substituted(own, values)))
    read = sorted(set().union(*(used(cell) for _, cell in found)))
    kept = {n: i for i, n in enumerate(read)}
    return Pieces(
        (*shape[:dim], size, *shape[dim + 1 :]),
        [o if o.counts else replace(o, name=names.fresh(o.name)) for o, n in numbers.items()
         if n in kept],
        [(o, renumber(cell, kept)) for o, cell in found],
        shape[dim] // size,
    )  # fmt: skip


def _value(o: Operand, dim: int, first: int, numbers: dict[Operand, int]) -> Cell:
    """An operand on the piece that begins at an index; what is new gets the next number."""
    low, high = o.bound(dim) or (first, first + 1)
    if not low <= first < high:
        return Constant(0, o.dtype)
    window = tuple(None if d == dim else w for d, w in enumerate(o.window))
    here = o if o.counts else replace(
        o, offset=o.offset + first * o.strides[dim], window=window if any(window) else ()
    )  # fmt: skip
    value = arg(numbers.setdefault(here, len(numbers)))
    return apply("add", value, first) if o.counts and o.strides[dim] and first else value


def _decided(cell: Cell, counting: set[int], first: int, dtypes: Sequence[str]) -> Cell:
    """A cell on the piece that begins at an index, without the comparisons that this decides."""
    if not isinstance(cell, Apply):
        return cell
    if _compared(cell, counting) is not None:
        return Constant(bool(evaluate(cell, [np.int32(first)] * len(dtypes))))
    made = Apply(cell.cell, tuple(_decided(a, counting, first, dtypes) for a in cell.args))
    if made.cell == "where" and isinstance(made.args[0], Constant):
        taken = made.args[1 if made.args[0].value else 2]
        if result_dtype(taken, dtypes) == result_dtype(made, dtypes):
            return taken
    return made
