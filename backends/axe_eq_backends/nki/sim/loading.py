"""Kernels from texts and files, with the simulator's modules as their `nki`.

A text of ours is executed with an `__import__` of its own in its builtins: `sys.modules` never
changes. Foreign files import packages of theirs, so a finder is appended to `sys.meta_path`: it is
asked last, and a real `nki` wins.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any

from axe_eq.errors import cause
from axe_eq_backends.nki.sim import lint
from axe_eq_backends.nki.sim.errors import Finding, NkiError, parsing, remember, shown
from axe_eq_backends.nki.sim.facade import absent, modules
from axe_eq_backends.nki.sim.language import BARE

# Where files are that hold no kernels: the simulator, the standard library, installed packages, and
# functions that `dataclass` makes.
_NO_KERNELS = (str(Path(__file__).parent), *sysconfig.get_paths().values(), "<string>", "<frozen")


def prelude(dialect: str) -> dict[str, Any]:
    """nki, nisa, nl, np and math, for files that leave their imports to who runs them."""
    ours = modules(dialect)
    return {
        "nki": ours["nki"], "nisa": ours["nki.isa"], "nl": ours["nki.language"],
        "np": importlib.import_module("numpy"), "math": importlib.import_module("math"),
    }  # fmt: skip


def execute(
    text: str, file: str, dialect: str, names: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The names that a text defines, its `import nki` served by the simulator.

    Raises:
        NkiError: it is no Python, or fails while it is executed.
    """
    ours = modules(dialect)

    def import_(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        if level or name.partition(".")[0] != "nki":
            return builtins.__import__(name, globals, locals, fromlist, level)
        if name not in ours:
            raise absent(*name.rpartition(".")[::2], dialect)
        for wanted in fromlist or ():
            if wanted != "*":
                getattr(ours[name], wanted)
        return ours[name] if fromlist else ours["nki"]

    held = vars(builtins) | {"__import__": import_} | (BARE if dialect == "0.2" else {})
    space: dict[str, Any] = {"__name__": Path(file).stem, "__file__": file, "__builtins__": held}
    space |= names or {}
    remember(text, file)
    with parsing(file):
        code = compile(text, file, "exec")
    try:
        exec(code, space)
    except NkiError:
        raise
    except Exception as error:
        raise NkiError(f"file {file}", f"fails while it is loaded ({cause(error)})", "a kernel",
                       at=raised_in(error, file)) from error  # fmt: skip
    return space


def raised_in(error: BaseException, file: str = "") -> str:
    """The last line of a kernel (or of `file`) that an error came through."""
    here, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == file if file else not name.startswith(_NO_KERNELS):
            here = shown((name, trace.tb_lineno))
        trace = trace.tb_next
    return here


# -- foreign files ---------------------------------------------------------------------------------


def real_nki() -> str:
    """Where a real `nki` is installed; "" if none is."""
    try:
        return f"{distribution('nki').metadata['Name']} {distribution('nki').version}"
    except PackageNotFoundError:
        pass
    for finder in sys.meta_path:
        if isinstance(finder, Finder):
            continue
        find = getattr(finder, "find_spec", None)
        spec = find("nki", None) if find else None
        if spec is not None:
            return str(spec.origin or next(iter(spec.submodule_search_locations or [""])))
    return ""


class Finder(MetaPathFinder, Loader):
    """Finds the simulator's `nki` where no other finder found one."""

    def __init__(self, dialect: str) -> None:
        self.modules = modules(dialect)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """A spec for nki and its modules."""
        if name in self.modules:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        """The module, as it is."""
        return self.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to execute."""


@contextmanager
def findable(dialect: str, paths: Sequence[str] = ()) -> Iterator[None]:
    """Let `import nki` find the simulator, and imports what is under `paths`, for a while.

    Raises:
        NkiError: a real `nki` is there, which would be found first.
    """
    real = real_nki()
    if real:
        raise NkiError("nki", f"is installed ({real}) and comes before the simulator",
                       "an environment without it, or the real nki.simulate")  # fmt: skip
    finder, before, bare = Finder(dialect), list(sys.path), set(sys.modules)
    sys.meta_path.append(finder)
    sys.path[:0] = [str(p) for p in paths]
    words = BARE if dialect == "0.2" else {}
    for word, region in words.items():
        setattr(builtins, word, region)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path[:] = before
        for word in words:
            delattr(builtins, word)
        for name in set(sys.modules) - bare:  # what was imported holds this dialect's modules
            if name.partition(".")[0] == "nki" or _under(sys.modules[name], paths):
                del sys.modules[name]


def _under(module: ModuleType, paths: Sequence[str]) -> bool:
    file = getattr(module, "__file__", None) or ""
    return any(file.startswith(str(Path(p).resolve())) for p in paths)


def load_file(
    path: str, dialect: str, module: str = "", names: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The names of a file, or of a module that is importable (`findable` has to be in force).

    Raises:
        NkiError: it cannot be read or loaded.
    """
    if module:
        try:
            return vars(importlib.import_module(module))
        except Exception as error:
            raise NkiError(
                f"module {module}",
                f"fails while it is loaded ({cause(error)})",
                "kernels",
                at=raised_in(error),
            ) from error
    return execute(read(path), str(path), dialect, names)


def lint_file(
    path: str, dialect: str, names: Mapping[str, Any] | None = None, kernel: str = ""
) -> list[Finding]:
    """What `lint.check` finds in a file."""
    return lint.check(read(path), path, dialect, names, kernel)


def read(path: str) -> str:
    """The text of a file.

    Raises:
        NkiError: it cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        wrong = getattr(error, "strerror", None) or str(error)
        raise NkiError(f"file {path}", f"cannot be read ({wrong})", "a file of kernels") from None
