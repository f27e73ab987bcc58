"""Meshes of devices: redistribution between layouts, plans of programs, and running them."""

from __future__ import annotations

from axe_eq.mesh.redistribution import Redistribution, redistribute
from axe_eq.mesh.windows import Window

__all__ = ["Redistribution", "Window", "redistribute"]
