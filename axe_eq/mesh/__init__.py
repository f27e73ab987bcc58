"""Meshes of devices: redistribution between layouts, plans of programs, and running them.

Names load on first use: a rank that runs a plan needs no planner of redistributions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from axe_eq.mesh.plan import MeshPlan as MeshPlan
    from axe_eq.mesh.plan import plan_from_json as plan_from_json
    from axe_eq.mesh.redistribution import Redistribution as Redistribution
    from axe_eq.mesh.redistribution import redistribute as redistribute
    from axe_eq.mesh.windows import Window as Window

_PUBLIC = {
    "MeshPlan": "plan",
    "Redistribution": "redistribution",
    "Window": "windows",
    "plan_from_json": "plan",
    "redistribute": "redistribution",
}


def __getattr__(name: str) -> Any:
    """Load the public name `name` and keep it (PEP 562)."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'axe_eq.mesh' has no attribute {name!r}")
    value = getattr(import_module(f"axe_eq.mesh.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_PUBLIC)


__all__ = sorted(_PUBLIC)
