"""Layouts: the value, its algebra, the exact decision of equality, and the notations."""

from __future__ import annotations

from axe_eq.layout.algebra import aliasing, boxed, inverse
from axe_eq.layout.algebra.composition import compose
from axe_eq.layout.algebra.partial_inverse import complement, left_inverse, right_inverse
from axe_eq.layout.algebra.products import (
    direct_sum,
    direct_sum_left,
    direct_sum_right,
    tile,
    tile_of,
)
from axe_eq.layout.normal import swizzled
from axe_eq.layout.normal.decide import Difference, same_map
from axe_eq.layout.normal.tables import recover
from axe_eq.layout.value import upper
from axe_eq.layout.value.indexing import common_refinement
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh
from axe_eq.layout.value.reports import Aliasing, Clash, Grouped
from axe_eq.layout.value.swizzle import Swizzle


def _read(text: str) -> Layout:
    from axe_eq.layout import notation

    return notation.read("axe", text)


def _svg(layout: Layout) -> str:
    from axe_eq.layout.picture.single import layout_svg

    return layout_svg(layout)


upper.answers = upper.Upper(
    read=_read,
    svg=_svg,
    normal_form=swizzled.normalise,
    normal_boxed=boxed.normalise,
    group_boxed=boxed.group_inner,
    slice_boxed=boxed.slice_boxed,
    permute_boxed=boxed.permute_boxed,
    range_boxed=boxed.range_boxed,
    inverse=inverse.inverse_of,
    clash=aliasing.first_clash,
)

__all__ = [
    "Aliasing", "Clash", "Difference", "Grouped", "Layout", "Mesh", "Swizzle", "common_refinement",
    "complement", "compose", "direct_sum", "direct_sum_left", "direct_sum_right", "left_inverse",
    "recover", "right_inverse", "same_map", "tile", "tile_of",
]  # fmt: skip
