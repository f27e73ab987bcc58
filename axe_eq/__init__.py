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

# Public name -> "module:attribute", or "module" where the name is a whole namespace. A name added
# here is also imported above, for type checkers; tests/unit/test_public_names.py compares the two.
_PUBLIC = {
    "ArgumentError": "axe_eq.errors:ArgumentError",
    "AxeError": "axe_eq.errors:AxeError",
    "DeviceError": "axe_eq.errors:DeviceError",
    "DispatchError": "axe_eq.errors:DispatchError",
    "EmitError": "axe_eq.errors:EmitError",
    "Layout": "axe_eq.layout:Layout",
    "LayoutError": "axe_eq.errors:LayoutError",
    "LayoutExpr": "axe_eq.layout.symbolic.expression:LayoutExpr",
    "Mesh": "axe_eq.layout:Mesh",
    "NotationError": "axe_eq.errors:NotationError",
    "Pack": "axe_eq.pack:Pack",
    "PackError": "axe_eq.errors:PackError",
    "Program": "axe_eq.program.node:Program",
    "ProgramError": "axe_eq.errors:ProgramError",
    "Proved": "axe_eq.prove.certificates.verdict:Proved",
    "Refuted": "axe_eq.prove.certificates.verdict:Refuted",
    "ScheduleError": "axe_eq.errors:ScheduleError",
    "SearchError": "axe_eq.errors:SearchError",
    "Spec": "axe_eq.program.spec:Spec",
    "Swizzle": "axe_eq.layout:Swizzle",
    "Target": "axe_eq.target:Target",
    "Unknown": "axe_eq.prove.certificates.verdict:Unknown",
    "any_layout": "axe_eq.layout.symbolic.expression:any_layout",
    "array": "axe_eq.array",
    "check_certificate": "axe_eq.prove.certificates.checker:check_certificate",
    "common_refinement": "axe_eq.layout:common_refinement",
    "compile": "axe_eq.pipeline:compile",
    "complement": "axe_eq.layout.algebra.operations:complement",
    "compose": "axe_eq.layout.algebra.operations:compose",
    "debug": "axe_eq.debug:debug",
    "dim": "axe_eq.program.spec:dim",
    "direct_sum": "axe_eq.layout.algebra.operations:direct_sum",
    "direct_sum_left": "axe_eq.layout.algebra.operations:direct_sum_left",
    "direct_sum_right": "axe_eq.layout.algebra.operations:direct_sum_right",
    "draw": "axe_eq.prove.picture:draw",
    "equivalent": "axe_eq.prove.equivalent:equivalent",
    "left_inverse": "axe_eq.layout.algebra.operations:left_inverse",
    "load": "axe_eq.run.store:load",
    "mesh": "axe_eq.mesh",
    "nn": "axe_eq.nn",
    "read": "axe_eq.layout.notation:read",
    "read_expression": "axe_eq.layout.symbolic.text:read_expression",
    "right_inverse": "axe_eq.layout.algebra.operations:right_inverse",
    "run": "axe_eq.program.trace:run",
    "symbolic_layout": "axe_eq.layout.symbolic.expression:symbolic_layout",
    "tile": "axe_eq.layout.algebra.operations:tile",
    "tile_of": "axe_eq.layout.algebra.operations:tile_of",
    "trace": "axe_eq.program.trace:trace",
    "write": "axe_eq.layout.notation:write",
}


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
    module, _, attribute = _PUBLIC[name].partition(":")
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        from axe_eq.errors import missing_package as missing_package

        raise missing_package(error, f"axe_eq.{name}") or error from None
    value = getattr(loaded, attribute) if attribute else loaded
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
