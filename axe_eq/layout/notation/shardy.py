"""Shardy's shardings: ``#sdy.sharding<@mesh, [{"x"}, {}]>``, as JAX and XLA print them.

Per tensor dim the mesh dims it is sharded over, the first one slowest, or parts of them
(`mesh_parts`).

Source: Shardy, ``sdy/ir/attrs.td`` and its "Sharding representation".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lark import Token, v_args

from axe_eq.layout.notation.blocks import Names
from axe_eq.layout.notation.jax import sharded, written
from axe_eq.layout.notation.mesh_parts import Dim, Part, PartReader, pieces_of
from axe_eq.layout.notation.sharding import known_mesh, needed_mesh, needed_shape, stated_mesh
from axe_eq.layout.notation.text import Context, given, parse, refuse
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh


class _Extents(NamedTuple):
    extents: tuple[tuple[str, int], ...]


class _Ids(NamedTuple):
    devices: tuple[int, ...]


@v_args(inline=True)
class _Texts(PartReader):
    extent = staticmethod(given)

    def extents(self, *items: tuple[str, int] | None) -> _Extents:
        return _Extents(tuple(item for item in items if item is not None))

    def ids(self, *items: int | None) -> _Ids:
        return _Ids(tuple(item for item in items if item is not None))

    def definition(self, name: Token, *said: Any) -> tuple[str, tuple[Any, ...]]:
        return str(name), said

    def axes(self, kind: Token, *parts: Part | None) -> tuple[Token, list[Part]]:
        return kind, [part for part in parts if part is not None]


def read(text: str, context: Context) -> Layout:
    """Reads a sharding; needs the shape, and the mesh where the text names one it does not define.

    Raises:
        NotationError: an open dim, an unknown mesh dim, parts that overlap or do not divide it,
            unreduced dims, devices in another order than row-major, or not one entry per dim.
    """
    shape = needed_shape(context)
    items = parse("shardy", text, _Texts())
    mesh = _mesh(items, context)
    dims = [item for item in items if isinstance(item, Dim)]
    if len(dims) != len(shape):
        refuse(f"{len(dims)} entries", f"one per dim of {shape}")
    others: list[Part] = []
    for kind, parts in (item for item in items if type(item) is tuple and type(item[1]) is list):
        if kind not in ("replicated", "unreduced"):
            refuse(f"unknown {kind}=", "replicated= or unreduced=")
        if kind == "unreduced" and parts:
            named = ", ".join(part.shown('"') for part in parts)
            wrong = f"unreduced over {named} is a pending sum, no place"
            refuse(wrong, "a value with one more dim")
        others += parts
    pieces, own = pieces_of(mesh.shape, dims, others, '"')
    called = {piece: f"piece{n}" for n, piece in enumerate(pieces)}
    order = [called[piece] for dim in mesh.order for piece in pieces if piece.name == dim]
    finer = Mesh({called[p]: p.extent for p in pieces}, mesh.axis, order=order)
    names = [tuple(called[piece] for piece in mine) for mine in own]
    return sharded(shape, finer, names)


def _mesh(items: Sequence[Any], context: Context) -> Mesh:
    """The mesh that the text says, else the caller's; both must be the same."""
    defined = {name: said for name, said in (i for i in items if type(i) is tuple)
               if type(said) is tuple}  # fmt: skip
    said: Sequence[Any] = [item for item in items if isinstance(item, _Extents | _Ids)]
    symbol = next((str(i) for i in items if isinstance(i, Token) and i.type == "SYMBOL"), None)
    if symbol is not None and defined:
        if symbol not in defined:
            refuse(f"mesh {symbol} is not defined", " or ".join(defined))
        said = [item for item in defined[symbol] if item is not None]
    if not said:
        return needed_mesh(context)
    found = stated_mesh(said[0].extents, context)
    if len(said) > 1 and said[1].devices != tuple(range(found.size)):
        refuse("device_ids in another order", "devices numbered row-major over the mesh")
    return found


def write(layout: Layout, context: Context) -> str:
    """Writes a layout as a sharding over whole dims of ``@mesh``; needs the mesh.

    Raises:
        NotationError: the layout is no sharding over whole mesh dims.
    """
    return written(layout, context, known_mesh(context), _text)


def _text(names: Sequence[Names]) -> str:
    dims = ("{" + ", ".join(f'"{name}"' for name in dim) + "}" for dim in names)
    return f"#sdy.sharding<@mesh, [{', '.join(dims)}]>"
