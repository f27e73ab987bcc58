"""Gathers: selectors that read a dim of one operand where another operand says.

Text: ``lookup axis (d0,d1,..)``, of a source and integers. The value has the source's dims, but for
`axis`, which has the extent of the integers there; dim n of the integers is dim dn of the value:

    value[.., j, ..] = source[.., integers[those of the value's indices that d0, d1, .. name], ..]

An integer that is no index of the axis, a negative one too, has no element: there the value is
undefined. `misplaced` finds such integers; the move itself takes the nearest index for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from axe_eq.errors import OutOfRange, ProgramError
from axe_eq.program.node import INPUT, SEL, Node, topological
from axe_eq.program.ops import SELECTORS, Look, Pull, Selector, join_text, selector
from axe_eq.program.types import DTYPES, Array, ValueType, dtype

Params = tuple[Any, ...]
Types = Sequence[ValueType]


def gather_text(axis: int, dims: Sequence[int]) -> str:
    """The text of a gather along an axis, by integers whose dims are these of the value."""
    return join_text("lookup", axis, tuple(dims))


def _shape(params: Params, types: Types) -> ValueType:
    of, by = types
    thing = f"selector '{join_text('lookup', *params)}' of {of}, {by}"
    ok = len(params) == 2 and isinstance(params[0], int) and isinstance(params[1], tuple)
    ok = ok and all(isinstance(d, int) for d in params[1])
    if not ok:
        raise ProgramError(thing, "has unusable parameters", "'lookup axis (d0,d1,..)'")
    axis, dims = params
    if not 0 <= axis < of.rank:
        raise ProgramError(thing, f"axis {axis} is outside", f"0..{of.rank - 1}")
    increases = all(a < b for a, b in zip((-1, *dims), (*dims, of.rank), strict=True))
    if len(dims) != by.rank or not increases:
        wanted = f"{by.rank} increasing ones of 0..{of.rank - 1}"
        raise ProgramError(thing, f"puts the integers along dims {dims}", wanted)
    if DTYPES[by.dtype].kind != "i":
        raise ProgramError(thing, f"has indices of {by.dtype}", "an integer dtype")
    for d, extent in zip(dims, by.shape, strict=True):
        if d != axis and extent != of.shape[d]:
            wrong = f"dim {d} has extent {of.shape[d]}, and the integers have {extent}"
            raise ProgramError(thing, wrong, "equal extents")
    extent = by.shape[dims.index(axis)] if axis in dims else 1
    return ValueType(of.dtype, (*of.shape[:axis], extent, *of.shape[axis + 1 :]))


def _run(params: Params, arrays: Sequence[Array]) -> Array:
    (axis, dims), (source, by) = params, arrays
    shape = list(source.shape)
    shape[axis] = by.shape[dims.index(axis)] if axis in dims else 1
    at = by.reshape([by.shape[dims.index(d)] if d in dims else 1 for d in range(len(shape))])
    if at.size == max(at.shape, default=1) == at.shape[axis]:  # one index for whole slices
        return np.take(source, at.reshape(-1), axis=axis, mode="clip")
    last = source.shape[axis] - 1
    near = np.clip(at.astype(np.int64, copy=False), 0, last)
    return np.take_along_axis(source, np.broadcast_to(near, shape), axis=axis)


def _pull(params: Params, types: Types) -> list[list[Pull | None]]:
    axis, dims = params
    return [[None if d == axis else Pull(d) for d in range(types[0].rank)], [Pull(d) for d in dims]]


def _look(params: Params, types: Types) -> tuple[Look, ...]:
    return (Look(0, params[0], 1),)


def _placed(params: Params, places: Mapping[int, int], rank: int) -> Params:
    """Dims that are new are of the integers too."""
    axis, dims = params
    new = set(range(rank)) - set(places.values())
    return places[axis], tuple(sorted((*new, *(places[d] for d in dims))))


SELECTORS.add(Selector("lookup", 2, _shape, _run, _pull, look=_look, placed=_placed))


def looks(text: str, types: Types) -> tuple[Look, ...]:
    """Which dims of a selector's operands are read where another operand says."""
    return _looks(text, tuple(types))


@lru_cache(maxsize=4096)
def _looks(text: str, types: tuple[ValueType, ...]) -> tuple[Look, ...]:
    declared, params = selector(text)
    return declared.look(params, types) if declared.look is not None else ()


def misplaced(by: Array, extent: int) -> Array:
    """Which integers are no index of a dim of this extent."""
    return np.asarray((by < 0) | (by >= extent))


def check_indices(text: str, arrays: Sequence[Array]) -> None:
    """Refuse integers that a selector of these operands finds no element for.

    Args:
        text: of the selector.
        arrays: its operands.

    Raises:
        OutOfRange: naming the first such integer, where it stands, and the range.
    """
    declared, params = selector(text)
    if declared.look is None:
        return
    types = [ValueType(dtype(a.dtype).name, a.shape) for a in arrays]
    for look in declared.look(params, types):
        check_index("index", arrays[look.by], types[look.operand].shape[look.dim])


def check_index(thing: str, by: Array, extent: int) -> None:
    """Refuse integers that are no index of a dim of this extent.

    Raises:
        OutOfRange: naming the first such integer, where it stands, and the range.
    """
    if int(by.min()) >= 0 and int(by.max()) < extent:
        return
    place = tuple(int(at[0]) for at in np.nonzero(np.atleast_1d(misplaced(by, extent))))
    value = int(np.atleast_1d(by)[place])
    where = f" at {place if len(place) != 1 else place[0]}" if by.ndim else ""
    raise OutOfRange(thing, f"is {value}{where}, no index of a dim of {extent}", f"0..{extent - 1}")


def over_value(row: Sequence[Pull | None], array: Array, rank: int) -> Array:
    """An operand that a selector reads as it is, over the dims of the value: 1 where it has none.

    Args:
        row: its pulls, plain ones along increasing axes.
        array: the operand, or what is known of it.
        rank: of the value.
    """
    extents = {p.axis: e for p, e in zip(row, array.shape, strict=True) if p is not None}
    return array.reshape([extents.get(d, 1) for d in range(rank)])


def index_nodes(nodes: Iterable[Node]) -> Iterator[tuple[Node, int]]:
    """Every value that says where another one is read, with the extent of the dim."""
    for node in nodes:
        if node.kind == SEL:
            types = [a.type for a in node.args]
            for look in looks(node.text, types):
                yield node.args[look.by], types[look.operand].shape[look.dim]


def index_limits(roots: Iterable[Node]) -> dict[Node, int]:
    """Inputs of integers that say where values are read, and the least extent read so.

    Also those from which such integers are computed, which may say other places.
    """
    found: dict[Node, int] = {}
    for says, extent in index_nodes(topological(roots)):
        for node in topological([says]):
            if node.kind == INPUT and DTYPES[node.dtype].kind == "i":
                found[node] = min(extent, found.get(node, extent))
    return found
