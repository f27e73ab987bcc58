"""Collectives: operators of a rank program that read the values of several ranks.

A rank program is written for one rank, over the named axes of a mesh, as under JAX's `shard_map`,
whose names and conventions these functions have. Ranks that differ along the named axes alone are a
group; with several names, the first one counts slowest.

A collective is declared by its whole meaning: an array function of one value with one more dim in
front, the ranks of a group. Simulation runs it on numpy, and proofs trace it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from axe_eq import array as xp
from axe_eq.errors import ProgramError
from axe_eq.layout import Mesh
from axe_eq.program.node import Node, Program
from axe_eq.program.ops import Table, join_text, split_text
from axe_eq.program.spec import Spec
from axe_eq.program.trace import trace
from axe_eq.program.traced import Traced, as_traced
from axe_eq.program.tracing import TRACING
from axe_eq.program.types import ValueType

COLLECTIVE = "collective"  # kind of a node
Group = tuple[tuple[str, int], ...]  # name and size of the axes, slow to fast
RANKS: ContextVar[Mesh | None] = ContextVar("ranks", default=None)


@dataclass(frozen=True)
class Collective:
    """An operator that reads the values of a group of ranks.

    Attributes:
        name: first word of its text; the group's axes and its parameters follow.
        whole: (value, number of ranks, parameters) -> value: array code. The given value has a
            first dim of ranks, and so has the result if `varies`.
        varies: whether ranks get values of their own; else all get the one that `whole` returns.
        arity: 1, or 0 where it reads nothing; then `whole` gets None.
    """

    name: str
    whole: Callable[..., Any]
    varies: bool
    arity: int = 1


COLLECTIVES: Table[Any] = Table(COLLECTIVE)


def group_of(node: Node) -> Group:
    """The axes of a collective node."""
    group: Group = split_text(node.text)[1][0]
    return group


def collective(node: Node) -> Collective:
    """What declares a collective node."""
    found: Collective = COLLECTIVES[split_text(node.text)[0]]
    return found


@cache
def whole_program(text: str, types: tuple[ValueType, ...]) -> Program:
    """What a collective does to the values of one group, as a program.

    Raises:
        ProgramError: the operand does not fit.
    """
    name, (group, *params) = split_text(text)
    found, n = COLLECTIVES[name], prod(size for _, size in group)
    specs = [Spec((n, *t.shape), t.dtype) for t in types]
    fn = (lambda value: found.whole(value, n, *params)) if specs else (
        lambda: found.whole(None, n, *params)
    )  # fmt: skip
    return trace(fn, *specs)


def _type(text: str, types: tuple[ValueType, ...]) -> ValueType:
    (root,) = whole_program(text, types).outputs
    varies = COLLECTIVES[split_text(text)[0]].varies
    return ValueType(root.dtype, root.shape[1:] if varies else root.shape)


# -- declarations ----------------------------------------------------------------------------------


def _total(value: Any, n: int) -> Any:
    return xp.sum(value, axis=0, dtype=value.dtype)


def _gathered(value: Any, n: int, axis: int, tiled: bool) -> Any:
    found = xp.moveaxis(value, 0, axis)
    return _joined(found, axis) if tiled else found


def _joined(value: Any, axis: int) -> Any:
    """Two dims as one."""
    shape = value.shape
    return xp.reshape(value, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def _apart(value: Any, n: int, axis: int, tiled: bool) -> Any:
    """The value with a dim of n parts of what is behind the ranks at `axis`, parts in front."""
    at, shape = axis + 1, value.shape
    if tiled:
        value = xp.reshape(value, (*shape[:at], n, shape[at] // n, *shape[at + 1 :]))
    return xp.moveaxis(value, at, 0)


def _scattered(value: Any, n: int, axis: int, tiled: bool) -> Any:
    return xp.sum(_apart(value, n, axis, tiled), axis=1, dtype=value.dtype)


def _exchanged(value: Any, n: int, split: int, concat: int, tiled: bool) -> Any:
    parts = xp.moveaxis(_apart(value, n, split, tiled), 1, concat + 1)
    return _joined(parts, concat + 1) if tiled else parts


def _permuted(value: Any, n: int, pairs: tuple[tuple[int, int], ...]) -> Any:
    source = {dst: src for src, dst in pairs}
    parts: list[Any] = []
    rank = 0
    while rank < n:
        first, length = source.get(rank), 1
        while rank + length < n and source.get(rank + length) == (
            None if first is None else first + length
        ):
            length += 1
        parts.append(
            xp.zeros((length, *value.shape[1:]), dtype=value.dtype)
            if first is None
            else value[first : first + length, ...]
        )
        rank += length
    return xp.concat(parts, axis=0) if len(parts) > 1 else parts[0]


for _declared in (
    Collective("psum", _total, varies=False),
    Collective("pmax", lambda value, n: xp.max(value, axis=0), varies=False),
    Collective("pmin", lambda value, n: xp.min(value, axis=0), varies=False),
    Collective("all_gather", _gathered, varies=False),
    Collective("psum_scatter", _scattered, varies=True),
    Collective("all_to_all", _exchanged, varies=True),
    Collective("ppermute", _permuted, varies=True),
    Collective("axis_index", lambda value, n: xp.arange(n, dtype="int32"), varies=True, arity=0),
):
    COLLECTIVES.add(_declared)


# -- what a rank program calls ---------------------------------------------------------------------


def _mesh(name: str) -> Mesh:
    mesh = RANKS.get()
    if mesh is None:
        wrong = "is called outside of a rank program"
        raise ProgramError(name, wrong, "a function that axe_eq.mesh.RankProgram traces")
    return mesh


def _group(name: str, axis_name: str | Sequence[str]) -> Group:
    mesh = _mesh(name)
    names = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
    for n in names:
        if n not in mesh.shape:
            wanted = f"one of {' '.join(mesh.shape)}"
            raise ProgramError(name, f"names axis {n!r}, which the mesh lacks", wanted)
    if not names or len(set(names)) < len(names):
        raise ProgramError(name, f"names axes {names}", "axes of the mesh, each once")
    return tuple((n, mesh.shape[n]) for n in names)


def collect(name: str, x: Any, axis_name: str | Sequence[str], *params: Any) -> Traced:
    """Apply a declared collective to a value of a rank program.

    Args:
        name: of the collective.
        x: the value; nothing for collectives that read none.
        axis_name: a mesh axis, or several, slow to fast.
        params: its own.

    Raises:
        ProgramError: no rank program is traced, the mesh has no such axis, or `x` does not fit.
    """
    group = _group(name, axis_name)
    given = [as_traced(v).node for v in ([] if x is None else [x])]
    text = join_text(name, group, *params)
    try:
        type_ = _type(text, tuple(g.type for g in given))
    except ProgramError as error:
        what = f"{name} of {' '.join(str(g.type) for g in given)} over {_said(group)}"
        raise ProgramError(what, error.wrong, error.expected) from None
    node = Node(COLLECTIVE, text, "", tuple(given), type_)
    if (tracing := TRACING.get()) is not None:
        tracing.note(node)
    return Traced(node)


def _said(group: Group) -> str:
    return " ".join(f"{name}={size}" for name, size in group)


def _dim(name: str, x: Any, axis: int, extra: int = 0) -> int:
    rank = len(x.shape) + extra
    if type(axis) is not int or not -rank <= axis < rank:
        raise ProgramError(name, f"names dim {axis!r} of {tuple(x.shape)}", f"{-rank}..{rank - 1}")
    return axis % rank


def _divided(name: str, x: Any, axis_name: Any, dim: int, tiled: bool) -> None:
    """Parts of a dim: as many as ranks, or one index each."""
    n = axis_size(axis_name)
    extent = x.shape[dim]
    if tiled and extent % n:
        raise ProgramError(name, f"cuts dim {dim} of {extent} into {n} parts", f"a multiple of {n}")
    if not tiled and extent != n:
        wanted = f"{n}, the number of ranks, or tiled=True"
        raise ProgramError(name, f"hands out dim {dim} of {extent}", wanted)


def psum(x: Any, axis_name: str | Sequence[str]) -> Any:
    """The sum of all ranks' values along mesh axes, on each of them (all-reduce)."""
    return collect("psum", x, axis_name)


def pmean(x: Any, axis_name: str | Sequence[str]) -> Any:
    """The mean of all ranks' values along mesh axes, on each of them."""
    return psum(x, axis_name) / axis_size(axis_name)


def pmax(x: Any, axis_name: str | Sequence[str]) -> Any:
    """The greatest of all ranks' values along mesh axes, element by element, on each of them."""
    return collect("pmax", x, axis_name)


def pmin(x: Any, axis_name: str | Sequence[str]) -> Any:
    """The least of all ranks' values along mesh axes, element by element, on each of them."""
    return collect("pmin", x, axis_name)


def all_gather(
    x: Any, axis_name: str | Sequence[str], *, axis: int = 0, tiled: bool = False
) -> Any:
    """All ranks' values along mesh axes, on each of them.

    Args:
        x: an array.
        axis_name: a mesh axis, or several, slow to fast.
        axis: where the values lie beside each other.
        tiled: they are joined along that dim; else it is a new one.
    """
    x = as_traced(x)
    return collect("all_gather", x, axis_name, _dim("all_gather", x, axis, not tiled), bool(tiled))


def psum_scatter(
    x: Any, axis_name: str | Sequence[str], *, scatter_dimension: int = 0, tiled: bool = False
) -> Any:
    """The sum of all ranks' values along mesh axes, a part of it on each (reduce-scatter).

    Args:
        x: an array.
        axis_name: a mesh axis, or several, slow to fast.
        scatter_dimension: the dim of which every rank gets a part.
        tiled: the part is of its extent over the number of ranks; else the extent is the number of
            ranks, and the part lacks that dim.
    """
    x, name = as_traced(x), "psum_scatter"
    dim = _dim(name, x, scatter_dimension)
    _divided(name, x, axis_name, dim, tiled)
    return collect(name, x, axis_name, dim, bool(tiled))


reduce_scatter = psum_scatter


def all_to_all(
    x: Any,
    axis_name: str | Sequence[str],
    split_axis: int,
    concat_axis: int,
    *,
    tiled: bool = False,
) -> Any:
    """Every rank's value is cut into parts, and rank n gets the n-th part of every one's.

    Args:
        x: an array.
        axis_name: a mesh axis, or several, slow to fast.
        split_axis: the dim that is cut.
        concat_axis: the dim along which parts lie that a rank gets, in the order of senders.
        tiled: dims stay; else `split_axis` has one index per rank and goes, and `concat_axis` is
            a new dim.
    """
    x, name = as_traced(x), "all_to_all"
    split, concat = _dim(name, x, split_axis), _dim(name, x, concat_axis)
    _divided(name, x, axis_name, split, tiled)
    return collect(name, x, axis_name, split, concat, bool(tiled))


def ppermute(x: Any, axis_name: str | Sequence[str], perm: Sequence[tuple[int, int]]) -> Any:
    """Every rank's value goes to another rank along mesh axes.

    Args:
        x: an array.
        axis_name: a mesh axis, or several, slow to fast.
        perm: (from, to), indices along the axes; a rank that gets nothing has zeros.
    """
    n = axis_size(axis_name)
    pairs = tuple(sorted((int(a), int(b)) for a, b in perm))
    for side in zip(*pairs, strict=True):
        if len(set(side)) < len(side) or not all(0 <= i < n for i in side):
            wrong = f"has pairs {list(pairs)}"
            raise ProgramError("ppermute", wrong, f"every rank of 0..{n - 1} at most once a side")
    return collect("ppermute", x, axis_name, pairs)


def axis_index(axis_name: str | Sequence[str]) -> Any:
    """This rank's index along mesh axes: an i32 without dims."""
    return collect("axis_index", None, axis_name)


def axis_size(axis_name: str | Sequence[str]) -> int:
    """The number of ranks along mesh axes."""
    return prod(size for _, size in _group("axis_size", axis_name))
