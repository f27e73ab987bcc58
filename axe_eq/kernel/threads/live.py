"""Which register tiles live at once: written before, read later.

Tiles are taken whole: one that is written in parts lives from its first part on, and until the last
part is read.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from axe_eq.kernel.placement import number
from axe_eq.kernel.threads import ir

Tiles = frozenset[ir.Buffer]
Note = Callable[[ir.Primitive, Tiles], None]


def words(tiles: Tiles | set[ir.Buffer]) -> int:
    """Registers of 32 bits that tiles take in every thread."""
    return sum(-(-b.n_elements * b.itemsize // 4) for b in tiles)


def most_words(kernel: ir.Kernel) -> int:
    """The most registers of a thread that tiles take at once, in a kernel without roles."""
    found = [0]
    live(kernel.body, frozenset(), lambda _, tiles: found.append(words(tiles)))
    return max(found)


def live(body: ir.Body, after: Tiles, note: Note) -> Tiles:
    """Tiles that live before a body, given those that live after it.

    Args:
        body: statements of one role.
        after: tiles that are read later.
        note: told of every primitive with what lives when it is done.
    """
    for s in reversed(body):
        after = _before(s, after, note)
    return after


def _before(s: ir.Statement, after: Tiles, note: Note) -> Tiles:
    if isinstance(s, ir.Primitive):
        return _of_primitive(s, after, note)
    if isinstance(s, ir.For):
        around = after
        while not (start := live(s.body, around, note)) <= around:
            around |= start
        return around
    for body in ir.children(s):
        inside = live(body, after, note)
        after = inside if isinstance(s, ir.Scope) else after | inside
    return after


def _of_primitive(s: ir.Primitive, after: Tiles, note: Note) -> Tiles:
    out, *ins = s.views()
    if isinstance(s, ir.Gemm) and s.accumulate != 0:
        ins.append(out)
    read = {v.buffer for v in ins if v.buffer.is_private}
    written = {out.buffer} if out.buffer.is_private else set()
    note(s, after | written)
    whole = out.size == prod(map(number, out.buffer.shape)) if written else False
    return (after - written if whole else after) | read
