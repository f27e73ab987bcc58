"""Alpa sharding specs: ``S0S1``, ``S01R``, ``RS0``, one symbol per tensor dim.

Source: Alpa (Zheng et al., 2022), sec. 4.1: the digits after S are mesh dims, the first slowest.
"""

from __future__ import annotations

from collections.abc import Sequence

from lark import Token

from axe_eq.layout.notation.blocks import Names
from axe_eq.layout.notation.jax import sharded, written
from axe_eq.layout.notation.sharding import known_mesh, needed_mesh, needed_shape
from axe_eq.layout.notation.text import Context, Reader, parse, refuse
from axe_eq.layout.value.layout import Layout


class _Symbols(Reader):
    def REPLICATED(self, _token: Token) -> tuple[int, ...]:
        return ()

    def SHARDED(self, token: Token) -> tuple[int, ...]:
        return tuple(map(int, token[1:]))


def read(text: str, context: Context) -> Layout:
    """Reads a spec; needs the mesh and the shape. Mesh dims that no symbol names replicate.

    Raises:
        NotationError: not one symbol per dim, or a mesh dim that does not exist or repeats.
    """
    shape, mesh = needed_shape(context), needed_mesh(context)
    symbols = parse("alpa", text, _Symbols())
    if len(symbols) != len(shape):
        refuse(f"{len(symbols)} symbols", f"one per dim of {shape}")
    names = list(mesh.shape)
    for digit in (digit for symbol in symbols for digit in symbol):
        if digit >= len(names):
            refuse(f"mesh dim {digit}", f"0 to {len(names) - 1} of {mesh}")
    dims = [tuple(names[digit] for digit in symbol) for symbol in symbols]
    return sharded(shape, mesh, dims)


def write(layout: Layout, context: Context) -> str:
    """Writes a layout as a spec; needs the mesh, of at most ten dims.

    Raises:
        NotationError: the layout is no sharding over whole mesh dims.
    """
    mesh = known_mesh(context)
    order = list(mesh.shape)

    def spec(names: Sequence[Names]) -> str:
        digits = [[order.index(name) for name in dim] for dim in names]
        if any(digit > 9 for dim in digits for digit in dim):
            refuse(f"{len(order)} mesh dims", "one digit per mesh dim")
        return "".join(f"S{''.join(map(str, dim))}" if dim else "R" for dim in digits)

    return written(layout, context, mesh, spec)
