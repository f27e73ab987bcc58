"""Write a tensor program once; axe_eq proves what is equal and emits the cheapest.

``import axe_eq as axe`` is cheap: each public name loads its module on first use, so that asking
about a layout never loads the e-graph, and running a saved program needs neither.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from axe_eq import array as array
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
    from axe_eq.layout.notation import read as read
    from axe_eq.layout.notation import write as write
    from axe_eq.pack import Pack as Pack
    from axe_eq.pipeline import compile as compile
    from axe_eq.program.node import Program as Program
    from axe_eq.program.spec import Spec as Spec
    from axe_eq.program.spec import dim as dim
    from axe_eq.program.trace import run as run
    from axe_eq.program.trace import trace as trace
    from axe_eq.prove.checker import check_certificate as check_certificate
    from axe_eq.prove.equivalent import equivalent as equivalent
    from axe_eq.prove.verdict import Proved as Proved
    from axe_eq.prove.verdict import Refuted as Refuted
    from axe_eq.prove.verdict import Unknown as Unknown
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
    "Mesh": "axe_eq.layout:Mesh",
    "NotationError": "axe_eq.errors:NotationError",
    "Pack": "axe_eq.pack:Pack",
    "PackError": "axe_eq.errors:PackError",
    "Program": "axe_eq.program.node:Program",
    "ProgramError": "axe_eq.errors:ProgramError",
    "Proved": "axe_eq.prove.verdict:Proved",
    "Refuted": "axe_eq.prove.verdict:Refuted",
    "ScheduleError": "axe_eq.errors:ScheduleError",
    "SearchError": "axe_eq.errors:SearchError",
    "Spec": "axe_eq.program.spec:Spec",
    "Swizzle": "axe_eq.layout:Swizzle",
    "Target": "axe_eq.target:Target",
    "Unknown": "axe_eq.prove.verdict:Unknown",
    "array": "axe_eq.array",
    "check_certificate": "axe_eq.prove.checker:check_certificate",
    "compile": "axe_eq.pipeline:compile",
    "debug": "axe_eq.debug:debug",
    "dim": "axe_eq.program.spec:dim",
    "equivalent": "axe_eq.prove.equivalent:equivalent",
    "load": "axe_eq.run.store:load",
    "nn": "axe_eq.nn",
    "read": "axe_eq.layout.notation:read",
    "run": "axe_eq.program.trace:run",
    "trace": "axe_eq.program.trace:trace",
    "write": "axe_eq.layout.notation:write",
}


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
    if name not in _PUBLIC:
        raise AttributeError(f"module 'axe_eq' has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    loaded = import_module(module)
    value = getattr(loaded, attribute) if attribute else loaded
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_PUBLIC)


__all__ = sorted(_PUBLIC)

sys.modules[__name__].__class__ = _Package
