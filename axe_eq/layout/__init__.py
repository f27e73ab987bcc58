"""Layouts: the value, its algebra, the exact decision of equality, and the notations."""

from __future__ import annotations

from axe_eq.layout.mesh import Mesh
from axe_eq.layout.swizzle import Swizzle
from axe_eq.layout.value import Grouped, Layout

__all__ = ["Grouped", "Layout", "Mesh", "Swizzle"]
