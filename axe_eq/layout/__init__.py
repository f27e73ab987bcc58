"""Layouts: the value, its algebra, the exact decision of equality, and the notations."""

from __future__ import annotations

from axe_eq.layout.composition import compose
from axe_eq.layout.decide import Difference, same_map
from axe_eq.layout.mesh import Mesh
from axe_eq.layout.partial_inverse import complement, left_inverse, right_inverse
from axe_eq.layout.products import (
    common_refinement,
    direct_sum,
    direct_sum_left,
    direct_sum_right,
    tile,
    tile_of,
)
from axe_eq.layout.reports import Aliasing, Clash, Grouped
from axe_eq.layout.swizzle import Swizzle
from axe_eq.layout.tables import recover
from axe_eq.layout.value import Layout

__all__ = [
    "Aliasing",
    "Clash",
    "Difference",
    "Grouped",
    "Layout",
    "Mesh",
    "Swizzle",
    "common_refinement",
    "complement",
    "compose",
    "direct_sum",
    "direct_sum_left",
    "direct_sum_right",
    "left_inverse",
    "recover",
    "right_inverse",
    "same_map",
    "tile",
    "tile_of",
]
