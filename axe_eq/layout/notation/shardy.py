"""Shardy's shardings: ``#sdy.sharding<@mesh, [{"x"}, {}]>``, as JAX and XLA print them.

Per tensor dim the mesh dims it is sharded over, the first one slowest; ``"x":(p)s`` is a part of a
mesh dim: of its digits, slow to fast, the one of extent s behind those that multiply to p. What no
tensor dim names replicates.

Source: Shardy, ``sdy/ir/attrs.td`` and its "Sharding representation".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

from lark import Token, v_args

from axe_eq.layout.notation.jax import sharded, written
from axe_eq.layout.notation.sharding import needed_mesh, needed_shape, stated_mesh
from axe_eq.layout.notation.spec_search import Names
from axe_eq.layout.notation.text import (
    Context,
    Reader,
    build,
    given,
    parse,
    refusal,
    refuse,
    spelling,
)
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh


class _Extents(NamedTuple):
    extents: tuple[tuple[str, int], ...]


class _Ids(NamedTuple):
    devices: tuple[int, ...]


class _Part(NamedTuple):
    """Digits of a mesh dim: extents `pre` in front of them, and `size`; None for all of it."""

    name: str
    pre: int | None
    size: int | None

    def __str__(self) -> str:
        return f'"{self.name}"' + ("" if self.size is None else f":({self.pre}){self.size}")

    def span(self, extent: int) -> tuple[int, int]:
        """The extents in front of the part, without and with it."""
        if self.pre is None or self.size is None:
            return 1, extent
        return self.pre, self.pre * self.size


class _Dim(NamedTuple):
    parts: tuple[_Part, ...]
    is_open: bool


@v_args(inline=True)
class _Texts(Reader):
    extent = staticmethod(given)
    part = _Part

    def extents(self, *items: tuple[str, int] | None) -> _Extents:
        return _Extents(tuple(item for item in items if item is not None))

    def ids(self, *items: int | None) -> _Ids:
        return _Ids(tuple(item for item in items if item is not None))

    def definition(self, name: Token, *said: Any) -> tuple[str, tuple[Any, ...]]:
        return str(name), said

    def dim(self, *items: _Part | Token | None) -> _Dim:
        parts = tuple(item for item in items if isinstance(item, _Part))
        return _Dim(parts, any(getattr(item, "type", "") == "OPEN" for item in items))

    def axes(self, kind: Token, *parts: _Part | None) -> tuple[Token, list[_Part]]:
        return kind, [part for part in parts if part is not None]


def read(text: str, context: Context) -> Layout:
    """Reads a sharding; needs the shape, and the mesh where the text names one it does not define.

    Raises:
        NotationError: an open dim, an unknown mesh dim, parts that overlap or do not divide it,
            unreduced dims, devices in another order than row-major, or not one entry per dim.
    """
    shape = needed_shape("shardy", text, context)
    items = parse("shardy", text, _Texts())
    mesh = _mesh(text, items, context)
    dims = [item for item in items if isinstance(item, _Dim)]
    if len(dims) != len(shape):
        _refuse(text, f"{len(dims)} entries", f"one per dim of {shape}")
    for number, dim in enumerate(dims):
        if dim.is_open:
            _refuse(text, f"dim {number} is open: the compiler may shard it further", "no '?'")
    others: list[_Part] = []
    for kind, parts in (item for item in items if type(item) is tuple and type(item[1]) is list):
        if kind not in ("replicated", "unreduced"):
            _refuse(text, f"unknown {kind}=", "replicated= or unreduced=")
        if kind == "unreduced" and parts:
            wrong = f"unreduced over {', '.join(map(str, parts))} is a pending sum, no place"
            _refuse(text, wrong, "a value with one more dim")
        others += parts
    pieces = _pieces(text, mesh, [*(part for dim in dims for part in dim.parts), *others])
    order = [name for dim in mesh.order for name, piece in pieces.items() if piece[0] == dim]
    extents = {name: extent for name, (_, _, extent) in pieces.items()}
    finer = Mesh(extents, mesh.axis, order=order)
    names = [
        tuple(name for part in dim.parts for name in _within(part, mesh, pieces)) for dim in dims
    ]
    return build("shardy", text, lambda: sharded("shardy", text, shape, finer, names))


def _refuse(text: str, wrong: str, expected: str) -> NoReturn:
    refuse("shardy", text, wrong, expected)


def _mesh(text: str, items: Sequence[Any], context: Context) -> Mesh:
    """The mesh that the text says, else the caller's; both must be the same."""
    defined = {name: said for name, said in (i for i in items if type(i) is tuple)
               if type(said) is tuple}  # fmt: skip
    said: Sequence[Any] = [item for item in items if isinstance(item, _Extents | _Ids)]
    symbol = next((str(i) for i in items if isinstance(i, Token) and i.type == "SYMBOL"), None)
    if symbol is not None and defined:
        if symbol not in defined:
            _refuse(text, f"mesh {symbol} is not defined", " or ".join(defined))
        said = [item for item in defined[symbol] if item is not None]
    if not said:
        return needed_mesh("shardy", text, context)
    found = stated_mesh("shardy", text, said[0].extents, context)
    if len(said) > 1 and said[1].devices != tuple(range(found.size)):
        _refuse(text, "device_ids in another order", "devices numbered row-major over the mesh")
    return found


_Pieces = dict[str, tuple[str, int, int]]  # name -> (mesh dim, extents in front, own extent)


def _pieces(text: str, mesh: Mesh, parts: Sequence[_Part]) -> _Pieces:
    """The mesh dims cut wherever a part begins or ends, slow to fast."""
    cuts = {name: {1, extent} for name, extent in mesh.shape.items()}
    seen: list[tuple[str, int, int]] = []
    for part in parts:
        extent = mesh.shape.get(part.name)
        if extent is None:
            known = ", ".join(f'"{name}"' for name in mesh.shape)
            _refuse(text, f'unknown mesh dim "{part.name}"', f"one of {known}")
        begin, end = part.span(extent)
        if begin < 1 or (part.size is not None and end <= begin) or extent % end or end % begin:
            _refuse(text, f"part {part} of a mesh dim of {extent}", "parts that divide it")
        own = [(start, stop) for name, start, stop in seen if name == part.name]
        if any((start < end and begin < stop) or (start, stop) == (begin, end)
               for start, stop in own):  # fmt: skip
            _refuse(text, f"mesh dim {part} twice", "once")
        seen.append((part.name, begin, end))
        cuts[part.name] |= {begin, end}
    found: _Pieces = {}
    for name, marks in cuts.items():
        for begin, end in pairwise(sorted(marks)):
            if end % begin:
                _refuse(text, f'parts of "{name}" cut at {begin} and {end}', "a chain of factors")
            found[f"piece{len(found)}"] = (name, begin, end // begin)
    return found


def _within(part: _Part, mesh: Mesh, pieces: _Pieces) -> list[str]:
    begin, end = part.span(mesh.shape[part.name])
    return [n for n, (dim, start, _) in pieces.items() if dim == part.name and begin <= start < end]


def write(layout: Layout, context: Context) -> str:
    """Writes a layout as a sharding over whole dims of ``@mesh``; needs the mesh.

    Raises:
        NotationError: the layout is no sharding over whole mesh dims.
    """
    if context.mesh is None:
        raise refusal("shardy", layout, "the devices are not known", spelling().mesh)
    return written("shardy", layout, context, context.mesh, _text)


def _text(names: Sequence[Names]) -> str:
    dims = ("{" + ", ".join(f'"{name}"' for name in dim) + "}" for dim in names)
    return f"#sdy.sharding<@mesh, [{', '.join(dims)}]>"
