"""egglog's private bindings, without the package around them.

Its Python layer is used nowhere here, and to import it takes a sixth of a first compilation.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

_NAME = "egglog.bindings"


def _loaded() -> Any:
    """The bindings as `import egglog` finds them, later or before."""
    package = find_spec("egglog")
    spec = package and PathFinder.find_spec(_NAME, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("No module named 'egglog'", name="egglog")
    if _NAME not in sys.modules:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[_NAME] = module
    return sys.modules[_NAME]


if TYPE_CHECKING:
    from egglog import bindings as egg
else:
    egg = _loaded()

__all__ = ["egg"]
