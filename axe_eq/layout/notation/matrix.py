r"""The matrix form of the Axe paper: extents above ``stride@axis``, D in (), R in [].

Written on one line, ``(8 2 | 2@lane 1@reg) + [2 | 4@warp] + 5@warp``; rows may also be broken by
``;``, a new line, or LaTeX's ``\\`` with ``pmatrix`` and ``bmatrix`` around them.

Source: Axe, sec. 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lark import Token, v_args

from axe_eq.layout.notation.common import without_box, without_swizzle
from axe_eq.layout.notation.text import Context, Reader, build, fit, given, parse, refuse, zip_iters
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter
from axe_eq.layout.value.layout import Layout

Row = tuple[tuple[int, str | None], ...]


class _Part(NamedTuple):
    kind: str
    extents: Row
    strides: Row


@v_args(inline=True)
class _Parts(Reader):
    row = rows = staticmethod(given)

    def entry(self, number: int, axis: Token | None = None) -> tuple[int, str | None]:
        return number, None if axis is None else str(axis)

    def shard(self, rows: tuple[Row, Row]) -> _Part:
        return _Part("D", *rows)

    def replica(self, rows: tuple[Row, Row]) -> _Part:
        return _Part("R", *rows)

    def offset(self, entry: tuple[int, str | None]) -> _Part:
        return _Part("O", (), (entry,))


def read(text: str, context: Context) -> Layout:
    """Reads a matrix form; axes left out are ``m``.

    Raises:
        NotationError: bad grammar, rows of different lengths, more than one D, an axis on an
            extent, or an impossible layout.
    """
    parts = parse("matrix", text, _Parts())
    if sum(part.kind == "D" for part in parts) > 1:
        refuse("matrix", text, "two D matrices in ()", "one, then + [R] and + offsets")
    offset: dict[str, int] = {}
    for part in parts:
        if part.kind == "O":
            value, axis = part.strides[0]
            offset[axis or DEFAULT_AXIS] = offset.get(axis or DEFAULT_AXIS, 0) + value
    shard, replica = _iters(text, parts, "D"), _iters(text, parts, "R")
    layout = build("matrix", text, lambda: Layout(shard, replica, offset))
    return fit("matrix", text, layout, context.shape)


def _iters(text: str, parts: Sequence[_Part], kind: str) -> list[Iter]:
    found: list[Iter] = []
    for part in parts:
        if part.kind != kind:
            continue
        for extent, axis in part.extents:
            if axis is not None:
                refuse("matrix", text, f"{extent}@{axis} in the row of extents", f"{extent}")
        strides = [(stride, axis or DEFAULT_AXIS) for stride, axis in part.strides]
        found += zip_iters("matrix", text, [extent for extent, _ in part.extents], strides)
    return found


def write(layout: Layout, context: Context) -> str:
    """Writes a layout without swizzle and padding, which the paper's form does not have.

    Raises:
        NotationError: a swizzle or padding that matters.
    """
    layout = without_box("matrix", without_swizzle("matrix", layout))
    parts = [f"({_rows(layout.shard)})"]
    if layout.replica:
        parts.append(f"[{_rows(layout.replica)}]")
    parts += [f"{value}@{axis}" for axis, value in layout.offsets]
    return " + ".join(parts)


def _rows(iters: Sequence[Iter]) -> str:
    extents = " ".join(str(extent) for extent, _, _ in iters)
    return f"{extents} | {' '.join(f'{stride}@{axis}' for _, stride, axis in iters)}"
