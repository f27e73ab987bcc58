"""Functions and arrays named on the command line."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from inspect import signature
from pathlib import Path
from traceback import extract_tb
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from axe_eq.errors import ArgumentError, AxeError, ProgramError


def load_function(text: str) -> Any:
    """The function that ``FILE:FN`` names.

    Raises:
        ProgramError: no such file or function, or a file that does not load.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name:
        raise ProgramError(f"function {text!r}", "does not parse", "FILE.py:FUNCTION")
    if not Path(path).is_file():
        raise ProgramError(f"file {path!r}", "does not exist", "a Python file")
    module = _module(path)
    if not callable(getattr(module, name, None)):
        own = [n for n, v in vars(module).items() if _is_own(v, module)]
        known = f"one of {' '.join(own)}" if own else "a file that defines functions"
        raise ProgramError(f"file {path!r}", f"has no function {name!r}", known)
    found = getattr(module, name)
    return _rank_program(found, path) or _reporting(found, path)


def _rank_program(found: Any, path: str) -> Any:
    """A rank program, its function's mistakes told with their line; None for other things."""
    from axe_eq.mesh.ranks import RankProgram  # commands about layouts need no meshes

    if not isinstance(found, RankProgram):
        return None
    return replace(found, fn=_reporting(found.fn, path))


def taking(function: Any, specs: Sequence[Any]) -> Any:
    """The function, which takes an argument for every spec; a rank program says so itself.

    Raises:
        ArgumentError: it takes other arguments than ``--spec`` describes.
    """
    if not isinstance(function, FunctionType):
        return function
    try:
        signature(function).bind(*specs)
    except ValueError:
        return function  # a builtin one, which says nothing of its arguments
    except TypeError as error:
        times = "once" if len(specs) == 1 else f"{len(specs)} times"
        name = getattr(function, "__name__", type(function).__name__)
        wrong = f"is given {times} for function {name!r} ({error})"
        raise ArgumentError("--spec", wrong, "one per argument, as --spec 64x64:f16") from None
    return function


def _reporting(function: Callable[..., Any], path: str) -> Callable[..., Any]:
    """The function, its own mistakes told as one message with its line."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except AxeError:
            raise
        except (Exception, SystemExit) as error:  # an exit would be taken for the verdict
            file = Path(path).resolve()
            lines = [f for f in extract_tb(error.__traceback__) if Path(f.filename) == file]
            at = f"{path}:{lines[-1].lineno}: {lines[-1].line}" if lines else ""
            cause = f"raises {type(error).__name__}: {error}"
            name = getattr(function, "__name__", "")
            raise ProgramError(
                f"function {name!r}", cause, "a function that runs on arrays", at=at
            ) from error

    return call


def _is_own(value: object, module: ModuleType) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == module.__name__


def _module(path: str) -> ModuleType:
    # A name of its own: a user's json.py must hide nobody's json.
    spec = importlib.util.spec_from_file_location(f"axe_program_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise ProgramError(f"file {path!r}", "is no Python file", "FILE.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # as when Python runs the file, but behind what is installed
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        cause = f"{type(error).__name__}: {error}"
        raise ProgramError(
            f"file {path!r}", f"does not load ({cause})", "a file that imports"
        ) from error
    return module


def parse_dims(bindings: Sequence[str]) -> dict[str, int]:
    """``tokens=64`` pairs.

    Raises:
        ArgumentError: not NAME=NUMBER.
    """
    dims = {}
    for text in bindings:
        name, equals, number = text.partition("=")
        if not equals or not name or not number.isdigit() or int(number) < 1:
            raise ArgumentError(f"dim {text!r}", "does not parse", "NAME=NUMBER, such as tokens=64")
        dims[name] = int(number)
    return dims


def parse_extents(texts: Sequence[str]) -> dict[str, list[int]]:
    """``rows=3,8`` and ``rows=1:65`` pairs, the end of a range excluded.

    Raises:
        ArgumentError: not NAME=NUMBERS.
    """
    extents: dict[str, list[int]] = {}
    for text in texts:
        name, _, numbers = text.partition("=")
        listed = re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers)
        ends = re.fullmatch(r"(\d{1,9}):(\d{1,9})", numbers)
        if not name or not (listed or ends):
            expected = "NAME=NUMBERS, such as rows=3,8 or rows=1:65"
            raise ArgumentError(f"extents {text!r}", "do not parse", expected)
        of = range(int(ends[1]), int(ends[2])) if ends else map(int, numbers.split(","))
        extents.setdefault(name, []).extend(of)
    return extents


def load_arrays(paths: Sequence[str]) -> list[Any]:
    """Arrays from .npy files.

    Raises:
        ArgumentError: a file that does not load.
    """
    arrays = []
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                arrays.append(np.lib.format.read_array(file))
        except Exception as error:  # a torn head is no Python to numpy, in one way or another
            wrong = f"does not load ({error})"
            raise ArgumentError(f"file {path!r}", wrong, "an .npy file") from None
    return arrays
