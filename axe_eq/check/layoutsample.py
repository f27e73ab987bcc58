"""Samples of concrete layouts, as terms."""

from __future__ import annotations

from math import prod

from axe_eq.layout import Layout
from axe_eq.layout.symbolic.terms import encode
from axe_eq.layout.value.swizzle import Swizzle
from axe_eq.program.decisions import Draw
from axe_eq.rule.term import Term


def layout_term(draw: Draw, at: str) -> Term:
    """A small layout: some iters continue each other, some replicas overlap."""
    shard = _iters(draw, f"{at}.D", draw.integer(f"{at}.n", 0, 4))
    replica = _iters(draw, f"{at}.R", draw.weighted(f"{at}.m", {0: 3, 1: 2, 2: 2, 3: 1}))
    offset = {a: draw.integer(f"{at}.{a}", -2, 3) for a in "mn" if draw.chance(f"{at}.O{a}", 0.3)}
    box = None
    if draw.chance(f"{at}.boxed", 0.2):
        box = (draw.integer(f"{at}.box", 1, prod(e for e, _, _ in shard)),)
    swizzles = []
    if draw.chance(f"{at}.swizzled", 0.2):
        bits, base = draw.integer(f"{at}.bits", 1, 2), draw.integer(f"{at}.base", 0, 1)
        swizzles = [Swizzle("m", bits, base, 2)]
    return encode(Layout(shard, replica, offset, swizzles, box))


def _iters(draw: Draw, at: str, n: int) -> list[tuple[int, int, str]]:
    """Iters, fast to slow each often where the one before ends."""
    found: list[tuple[int, int, str]] = []
    for k in range(n):
        extent = draw.pick(f"{at}.e{k}", (2, 2, 3, 4, 1))
        axis = draw.pick(f"{at}.a{k}", "mmmn")
        stride = draw.integer(f"{at}.s{k}", -4, 8)
        if found and draw.chance(f"{at}.next{k}", 0.5):
            stride, axis = found[-1][0] * found[-1][1], found[-1][2]
        found.append((extent, stride, axis))
    return found[::-1]
