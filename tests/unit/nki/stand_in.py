"""A stand-in for `nki`: our simulator behind the names that are used of it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

# A kernel of it: what it is called with, computed as the simulator does.
SIMULATED = """
import os
from pathlib import Path
from axe_eq_backends.nki.sim import simulate as run

def simulated(func, *arrays):
    text = Path(func.__code__.co_filename).read_text()
    return run(text, func.__name__, *arrays, target="trn2")[0]
"""


@contextmanager
def installed(
    folder: Path, files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Have files of FOLDER/nki be what `import nki` finds, `isa` and `language` of nothing too."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files change within a second
    others = {m: sys.modules.pop(m) for m in _loaded()}
    for name, text in {"isa.py": "", "language.py": "", **files}.items():
        write(folder, name, text)
    yield
    forget()
    sys.modules.update(others)


def write(folder: Path, name: str, text: str) -> None:
    """Put a file of the stand-in there, and have it imported anew."""
    path = folder / "nki" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    forget()


def forget() -> None:
    """Take what was imported of it out."""
    for module in _loaded():
        del sys.modules[module]
    importlib.invalidate_caches()


def _loaded() -> list[str]:
    return [m for m in sys.modules if m.partition(".")[0] == "nki"]
