"""Placements on threads: the axes ``warp``, ``lane`` and ``reg``, and ``tx`` over all threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from axe_eq.errors import LayoutError
from axe_eq.kernel.placement import Iter, Placement, merged, number, without_zeros
from axe_eq.kernel.placement import of_layout as any_layout
from axe_eq.layout import Layout

LANES = 32


def of_layout(layout: Layout, shape: Sequence[int], thing: str = "") -> Placement:
    """Group a layout by `shape`; thread axis ``tx`` is split into lanes and warps.

    Raises:
        LayoutError: as `axe_eq.kernel.placement.of_layout`; or an iter on ``tx`` has no such parts.
    """
    return any_layout(layout, shape, thing, on_threads)


def on_threads(i: Iter, thing: str) -> list[Iter]:
    """Split an iter on ``tx`` (thread of the CTA) into iters on warp and lane.

    Raises:
        LayoutError: it does not split into whole warps.
    """
    if i.axis != "tx":
        return [i]
    extent, stride = number(i.extent), number(i.stride)
    if stride % LANES == 0:
        return [Iter(extent, stride // LANES, "warp")]
    if extent * stride <= LANES:
        return [Iter(extent, stride, "lane")]
    per_warp = LANES // stride
    if LANES % stride or extent % per_warp:
        raise LayoutError(thing, f"iter {i} does not split into warps of {LANES}", "a power of two")
    return [Iter(extent // per_warp, 1, "warp"), Iter(per_warp, stride, "lane")]


def projected(p: Placement, kept: Iterable[int]) -> Placement:
    """The placement of an operand that depends on the `kept` dims only: others become replicas.

    Registers of the dropped dims vanish: a thread needs one copy.
    """
    keep = set(kept)
    dropped = [i for d, b in enumerate(p.blocks) if d not in keep for i in b if i.axis != "reg"]
    blocks = tuple(b if d in keep else () for d, b in enumerate(p.blocks))
    return packed(replace(p, blocks=blocks, replica=(*p.replica, *dropped)))


def packed(p: Placement) -> Placement:
    """Renumber registers densely, by stride: slices of register tiles have holes."""
    ranked = sorted({i for i in p.iters if i.axis == "reg"}, key=lambda i: number(i.stride))
    dense, size = dict[Iter, Iter](), 1
    for i in ranked:
        dense[i] = Iter(i.extent, size, "reg")
        size *= number(i.extent)
    blocks = tuple(tuple(dense.get(i, i) for i in block) for block in p.blocks)
    kept = tuple(i for i in p.replica if i.axis != "reg")
    elsewhere = {a: v for a, v in p.offset if a != "reg"}
    return replace(
        p, blocks=tuple(map(merged, blocks)), replica=kept, offset=without_zeros(elsewhere)
    )
