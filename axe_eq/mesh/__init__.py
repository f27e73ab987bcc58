"""Meshes of devices: redistribution, plans of programs and running them, and rank programs.

Rank programs are a user's own: what every rank does, with collectives.

Names load on first use: a rank that runs a plan needs no planner of redistributions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from axe_eq.mesh.collectives import all_gather as all_gather
    from axe_eq.mesh.collectives import all_to_all as all_to_all
    from axe_eq.mesh.collectives import axis_index as axis_index
    from axe_eq.mesh.collectives import axis_size as axis_size
    from axe_eq.mesh.collectives import pmax as pmax
    from axe_eq.mesh.collectives import pmean as pmean
    from axe_eq.mesh.collectives import pmin as pmin
    from axe_eq.mesh.collectives import ppermute as ppermute
    from axe_eq.mesh.collectives import psum as psum
    from axe_eq.mesh.collectives import psum_scatter as psum_scatter
    from axe_eq.mesh.collectives import reduce_scatter as reduce_scatter
    from axe_eq.mesh.plan import MeshPlan as MeshPlan
    from axe_eq.mesh.plan import plan_from_json as plan_from_json
    from axe_eq.mesh.ranks import RankProgram as RankProgram
    from axe_eq.mesh.redistribution import Redistribution as Redistribution
    from axe_eq.mesh.redistribution import redistribute as redistribute
    from axe_eq.mesh.windows import Window as Window

_PUBLIC = {
    "MeshPlan": "plan",
    "RankProgram": "ranks",
    "Redistribution": "redistribution",
    "Window": "windows",
    "all_gather": "collectives",
    "all_to_all": "collectives",
    "axis_index": "collectives",
    "axis_size": "collectives",
    "plan_from_json": "plan",
    "pmax": "collectives",
    "pmean": "collectives",
    "pmin": "collectives",
    "ppermute": "collectives",
    "psum": "collectives",
    "psum_scatter": "collectives",
    "reduce_scatter": "collectives",
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
