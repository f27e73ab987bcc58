"""Functions and arrays named on the command line."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from axe_eq.errors import ArgumentError, ProgramError


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
    if not hasattr(module, name):
        known = " ".join(
            n for n, v in vars(module).items() if callable(v) and not n.startswith("_")
        )
        raise ProgramError(f"file {path!r}", f"has no function {name!r}", f"one of {known}")
    return getattr(module, name)


def _module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ProgramError(f"file {path!r}", "is no Python file", "FILE.py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
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


def load_arrays(paths: Sequence[str]) -> list[Any]:
    """Arrays from .npy files.

    Raises:
        ArgumentError: a file that does not load.
    """
    arrays = []
    for path in paths:
        try:
            arrays.append(np.load(path, allow_pickle=False))
        except (OSError, ValueError) as error:
            raise ArgumentError(
                f"file {path!r}", f"does not load ({error})", "an .npy file"
            ) from None
    return arrays
