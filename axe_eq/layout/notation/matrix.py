r"""The matrix form of the Axe paper: extents above ``stride@axis``, D in (), R in [].

Written on one line, ``(8 2 | 2@lane 1@reg) + [2 | 4@warp] + 5@warp``; rows may also be broken by
``;``, a new line, or LaTeX's ``\\`` with ``pmatrix`` and ``bmatrix`` around them.

Source: Axe, sec. 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from lark import Token, v_args

from axe_eq.layout.notation.axe import Part, summed
from axe_eq.layout.notation.common import without_box, without_swizzle
from axe_eq.layout.notation.text import Context, Reader, fit, given, parse, refuse
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter
from axe_eq.layout.value.layout import Layout

Row = tuple[tuple[int, str | None], ...]


@v_args(inline=True)
class _Parts(Reader):
    row = rows = staticmethod(given)

    def entry(self, number: int, axis: Token | None = None) -> tuple[int, str | None]:
        return number, None if axis is None else str(axis)

    def shard(self, rows: tuple[Row, Row]) -> Part:
        return self._part("S", *rows)

    def replica(self, rows: tuple[Row, Row]) -> Part:
        return self._part("R", *rows)

    def offset(self, entry: tuple[int, str | None]) -> Part:
        return self._part("O", (), (entry,))

    def _part(self, kind: str, extents: Row, strides: Row) -> Part:
        for extent, axis in extents:
            if axis is not None:
                wrong = f"{extent}@{axis} in the row of extents"
                refuse(wrong, f"{extent}")
        steps = tuple((stride, axis or DEFAULT_AXIS) for stride, axis in strides)
        return Part(kind, [extent for extent, _ in extents], steps)


def read(text: str, context: Context) -> Layout:
    """Reads a matrix form; axes left out are ``m``.

    Raises:
        NotationError: bad grammar, rows of different lengths, more than one D, an axis on an
            extent, or an impossible layout.
    """
    parts = parse("matrix", text, _Parts())
    if sum(part.kind == "S" for part in parts) > 1:
        refuse("two D matrices in ()", "one, then + [R] and + offsets")
    shard, replica, offset = summed(parts)
    layout = Layout(shard, replica, offset)
    return fit(layout, context.shape)


def write(layout: Layout, context: Context) -> str:
    """Writes a layout without swizzle and padding, which the paper's form does not have.

    Raises:
        NotationError: a swizzle or padding that matters.
    """
    layout = without_box(without_swizzle(layout))
    parts = [f"({_rows(layout.shard)})"]
    if layout.replica:
        parts.append(f"[{_rows(layout.replica)}]")
    parts += [f"{value}@{axis}" for axis, value in layout.offsets]
    return " + ".join(parts)


def _rows(iters: Sequence[Iter]) -> str:
    extents = " ".join(str(extent) for extent, _, _ in iters)
    return f"{extents} | {' '.join(f'{stride}@{axis}' for _, stride, axis in iters)}"
