"""JAX ``PartitionSpec`` on a mesh: ``P('x', ('y', 'z'), None)``.

Source: JAX, ``jax.sharding.NamedSharding``: the first name of a tuple is the slowest; mesh dims
that are not named replicate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lark import Token, v_args

from axe_eq.layout.notation.blocks import Names, find_names
from axe_eq.layout.notation.sharding import (
    confirmed,
    known_mesh,
    mesh_tiles,
    needed_mesh,
    needed_shape,
    place,
    split,
    stated_mesh,
    tensor_shape,
    unused_replicas,
)
from axe_eq.layout.notation.text import Context, Reader, given, parse, refuse
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh


class _Keyword(NamedTuple):
    name: str
    value: Names


class _Said(NamedTuple):
    """The mesh dims of a NamedSharding, or None, and the entries of the spec."""

    mesh: tuple[tuple[str, int], ...] | None
    entries: list[Names | str | _Keyword]


@v_args(inline=True)
class _Entries(Reader):
    names = axis = mesh = staticmethod(given)

    def unconstrained(self) -> str:
        return "UNCONSTRAINED"

    def keyword(self, name: Token, names: Names | None) -> _Keyword:
        return _Keyword(str(name), names or ())

    def field(self, *_: Any) -> None:
        return None  # axis types and memory kinds say nothing of places

    def spec(self, *entries: Names | str | _Keyword | None) -> list[Names | str | _Keyword]:
        return [entry for entry in entries if entry is not None]

    def start(self, *items: Any) -> _Said:
        mesh = items[0] if isinstance(items[0], tuple) else None
        return _Said(mesh, next(item for item in items if isinstance(item, list)))


def read(text: str, context: Context) -> Layout:
    """Reads a PartitionSpec, or a NamedSharding as it prints itself; needs the shape.

    A PartitionSpec needs the mesh too. Where a NamedSharding is read with one, they must agree.

    Raises:
        NotationError: an unknown or repeated mesh dim, more entries than dims, an entry that
            leaves the choice to the compiler, or unreduced dims.
    """
    said: _Said = parse("jax", text, _Entries())
    shape = needed_shape(context)
    mesh = needed_mesh(context) if said.mesh is None else stated_mesh(said.mesh, context)
    dims: list[Names] = []
    for entry in said.entries:
        if isinstance(entry, _Keyword):
            _check_keyword(entry)
        elif isinstance(entry, str):
            refuse("UNCONSTRAINED leaves the choice to the compiler", "names or None")
        else:
            dims.append(entry)
    if len(dims) > len(shape):
        refuse(f"{len(dims)} entries", f"at most {len(shape)}, the dims of {shape}")
    dims += [()] * (len(shape) - len(dims))
    return sharded(shape, mesh, dims)


def _check_keyword(keyword: _Keyword) -> None:
    if keyword.name not in ("reduced", "unreduced"):
        refuse(f"unknown argument {keyword.name}", "entries, reduced= or unreduced=")
    if keyword.value:
        wrong = f"{keyword.name} over {', '.join(keyword.value)} is a pending sum"
        refuse(f"{wrong}, a value with one more dim", "placements only")


def sharded(shape: Sequence[int], mesh: Mesh, dims: Sequence[Names]) -> Layout:
    """The layout of a tensor whose dims are sharded over mesh dims, slowest first.

    Raises:
        NotationError: an unknown or repeated mesh dim.
    """
    used: set[str] = set()
    for name in (name for names in dims for name in names):
        if name not in mesh.shape:
            refuse(f"unknown mesh dim {name!r}", f"one of {', '.join(mesh.shape)}")
        if name in used:
            refuse(f"mesh dim {name!r} twice", "once")
        used.add(name)
    parts = [
        split(extent, mesh_tiles(mesh, names)) for extent, names in zip(shape, dims, strict=True)
    ]
    return place(parts, unused_replicas(mesh, used))


def write(layout: Layout, context: Context) -> str:
    """Writes a layout as a PartitionSpec; needs the mesh.

    Raises:
        NotationError: the layout is no sharding over whole mesh dims.
    """
    return written(layout, context, known_mesh(context), _spec)


def written(
    layout: Layout, context: Context, mesh: Mesh, text_of: Callable[[Sequence[Names]], str]
) -> str:
    """The text of the mesh dims of each tensor dim.

    Raises:
        NotationError: the layout is no sharding over whole mesh dims.
    """
    shape = tensor_shape(layout, context, mesh.axis)
    names = find_names(layout, shape, mesh)
    text = text_of(names)
    return confirmed(layout, sharded(shape, mesh, names), text)


def _spec(names: Sequence[Names]) -> str:
    return f"P({', '.join(map(_entry, names))})"


def _entry(names: Names) -> str:
    if len(names) == 1:
        return repr(names[0])
    return f"({', '.join(map(repr, names))})" if names else "None"
