"""`import axe_eq` is cheap, and its lazy names are those that type checkers see."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import axe_eq


def _python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def _checked_names() -> dict[str, str | None]:
    """Public name -> module, from the `if TYPE_CHECKING:` block."""
    tree = ast.parse(Path(axe_eq.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.name: f"axe_eq.{alias.name}" if node.module == "axe_eq" else node.module
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_type_checkers_and_users_see_the_same_names() -> None:
    assert _checked_names() == axe_eq._PUBLIC


@pytest.mark.parametrize("name", axe_eq.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(axe_eq, name) is not None
    assert name in dir(axe_eq)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'compil'$"):
        axe_eq.compil  # noqa: B018


def test_a_name_of_another_namespace_is_found() -> None:
    for name, found in {"mean": "array.mean", "where": "array.where", "silu": "nn.silu"}.items():
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; try axe_eq.{found}$"):
            getattr(axe_eq, name)


def test_importing_a_module_loads_no_namespace() -> None:
    code = "import sys; from axe_eq import errors; print('axe_eq.array' in sys.modules)"
    assert _python(code) == "False"


def test_importing_the_package_imports_nothing_else() -> None:
    loaded = _python(
        "import sys; before = set(sys.modules); import axe_eq; new = set(sys.modules) - before; "
        "print(*sorted(name for name in new if name.startswith(('axe', 'egg', 'numpy'))))"
    )
    assert loaded == "axe_eq"


@pytest.mark.parametrize(("old", "new"), axe_eq._MOVED.items())
def test_a_module_that_moved_is_named_where_it_is(old: str, new: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"{old}'; it is {new} now"):
        import_module(old)
    assert import_module(new).__name__ == new
    assert find_spec(f"{old}s") is None


def test_a_loaded_module_does_not_hide_the_public_name() -> None:
    for name, module in axe_eq._PUBLIC.items():
        if module == f"axe_eq.{name}" and name not in axe_eq._NAMESPACES:
            assert not isinstance(getattr(axe_eq, name), ModuleType)
    assert _python("import axe_eq.debug, axe_eq; print(axe_eq.debug.__name__)") == "debug"


def test_only_the_e_graph_loads_egglog() -> None:
    modules = [
        module
        for module in axe_eq._PUBLIC.values()
        if module.startswith(("axe_eq.layout", "axe_eq.errors", "axe_eq.debug", "axe_eq.program"))
    ]
    code = f"import sys, importlib; [importlib.import_module(m) for m in {modules}]; "
    assert _python(code + "print('egglog' in sys.modules)") == "False"


def test_the_version_is_that_of_the_distribution() -> None:
    assert axe_eq.__version__ == version("axe-eq")
