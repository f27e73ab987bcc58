"""Write a tensor program once; axe_eq proves what is equal and emits the cheapest.

``import axe_eq as axe`` is cheap: each public name loads its module on first use, so that asking
about a layout never loads the e-graph, and running a saved program needs neither.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from axe_eq import array as array
    from axe_eq import mesh as mesh
    from axe_eq import nn as nn
    from axe_eq.debug import debug as debug
    from axe_eq.errors import ArgumentError as ArgumentError
    from axe_eq.errors import AxeError as AxeError
    from axe_eq.errors import DeviceError as DeviceError
    from axe_eq.errors import DispatchError as DispatchError
    from axe_eq.errors import EmitError as EmitError
    from axe_eq.errors import LayoutError as LayoutError
    from axe_eq.errors import NotationError as NotationError
    from axe_eq.errors import PackError as PackError
    from axe_eq.errors import ProgramError as ProgramError
    from axe_eq.errors import ScheduleError as ScheduleError
    from axe_eq.errors import SearchError as SearchError
    from axe_eq.layout import Layout as Layout
    from axe_eq.layout import Mesh as Mesh
    from axe_eq.layout import Swizzle as Swizzle
    from axe_eq.layout import common_refinement as common_refinement
    from axe_eq.layout.algebra.operations import complement as complement
    from axe_eq.layout.algebra.operations import compose as compose
    from axe_eq.layout.algebra.operations import direct_sum as direct_sum
    from axe_eq.layout.algebra.operations import direct_sum_left as direct_sum_left
    from axe_eq.layout.algebra.operations import direct_sum_right as direct_sum_right
    from axe_eq.layout.algebra.operations import left_inverse as left_inverse
    from axe_eq.layout.algebra.operations import right_inverse as right_inverse
    from axe_eq.layout.algebra.operations import tile as tile
    from axe_eq.layout.algebra.operations import tile_of as tile_of
    from axe_eq.layout.notation import read as read
    from axe_eq.layout.notation import write as write
    from axe_eq.layout.symbolic.expression import LayoutExpr as LayoutExpr
    from axe_eq.layout.symbolic.expression import any_layout as any_layout
    from axe_eq.layout.symbolic.expression import symbolic_layout as symbolic_layout
    from axe_eq.layout.symbolic.text import read_expression as read_expression
    from axe_eq.pack import Pack as Pack
    from axe_eq.pipeline import compile as compile
    from axe_eq.program.node import Program as Program
    from axe_eq.program.spec import Spec as Spec
    from axe_eq.program.spec import dim as dim
    from axe_eq.program.trace import run as run
    from axe_eq.program.trace import trace as trace
    from axe_eq.prove.certificates.checker import check_certificate as check_certificate
    from axe_eq.prove.certificates.verdict import Proved as Proved
    from axe_eq.prove.certificates.verdict import Refuted as Refuted
    from axe_eq.prove.certificates.verdict import Unknown as Unknown
    from axe_eq.prove.equivalent import equivalent as equivalent
    from axe_eq.prove.picture import draw as draw
    from axe_eq.run.store import load as load
    from axe_eq.target import Target as Target

# Module -> public names in it. A name added here is also imported above, for type checkers;
# tests/unit/test_public_names.py compares the two.
_NAMES = {
    "axe_eq.debug": "debug",
    "axe_eq.errors": (
        "ArgumentError AxeError DeviceError DispatchError EmitError LayoutError NotationError "
        "PackError ProgramError ScheduleError SearchError"
    ),
    "axe_eq.layout": "Layout Mesh Swizzle common_refinement",
    "axe_eq.layout.algebra.operations": (
        "complement compose direct_sum direct_sum_left direct_sum_right left_inverse "
        "right_inverse tile tile_of"
    ),
    "axe_eq.layout.notation": "read write",
    "axe_eq.layout.symbolic.expression": "LayoutExpr any_layout symbolic_layout",
    "axe_eq.layout.symbolic.text": "read_expression",
    "axe_eq.pack": "Pack",
    "axe_eq.pipeline": "compile",
    "axe_eq.program.node": "Program",
    "axe_eq.program.spec": "Spec dim",
    "axe_eq.program.trace": "run trace",
    "axe_eq.prove.certificates.checker": "check_certificate",
    "axe_eq.prove.certificates.verdict": "Proved Refuted Unknown",
    "axe_eq.prove.equivalent": "equivalent",
    "axe_eq.prove.picture": "draw",
    "axe_eq.run.store": "load",
    "axe_eq.target": "Target",
}
_NAMESPACES = ("array", "mesh", "nn")
_PUBLIC = {name: module for module, names in _NAMES.items() for name in names.split()}
_PUBLIC |= {name: f"axe_eq.{name}" for name in _NAMESPACES}


# Modules that documents named and that are elsewhere now: packs are written against names.
_MOVED = {
    "axe_eq.prove.lawcheck": "axe_eq.check.lawcheck",
    "axe_eq_backends.cuda.cones": "axe_eq.lower.read",
}


class _Moved:
    """Says where a module is now; asked after all else, so of modules that are nowhere."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in _MOVED:
            at = _MOVED[name]
            raise ModuleNotFoundError(f"no module {name!r}; it is {at} now", name=name)


class _Package(ModuleType):
    """Keeps a public name when a module of the same name loads (`debug`, `run`).

    Importing ``axe_eq.debug`` binds the module to the attribute ``debug`` of this package; the
    public function of that name is what users were promised.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _PUBLIC and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    """Load the public name `name` and keep it (PEP 562)."""
    if name == "__version__":
        from axe_eq.prove.certificates.certificate import own_version

        return own_version()
    if name not in _PUBLIC:
        raise AttributeError(f"module 'axe_eq' has no attribute {name!r}{_elsewhere(name)}")
    try:
        loaded = import_module(_PUBLIC[name])
    except ModuleNotFoundError as error:
        from axe_eq.errors import missing_package as missing_package

        raise missing_package(error, f"axe_eq.{name}") or error from None
    value = loaded if name in _NAMESPACES else getattr(loaded, name)
    globals()[name] = value
    return value


def _elsewhere(name: str) -> str:
    """Which namespace has a name that this one lacks, as the end of an error.

    ``from axe_eq import module`` asks for the attribute first: modules of ours load nothing here.
    """
    if name.startswith("_") or find_spec(f"axe_eq.{name}") is not None:
        return ""
    for namespace in ("array", "nn"):
        if hasattr(__getattr__(namespace), name):
            return f"; try axe_eq.{namespace}.{name}"
    return ""


def __dir__() -> list[str]:
    return sorted(_PUBLIC)


__all__ = sorted(_PUBLIC)

sys.modules[__name__].__class__ = _Package
sys.meta_path.append(_Moved)
