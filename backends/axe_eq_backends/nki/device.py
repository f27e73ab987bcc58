"""Kernels on a Neuron device: `nki.jit` compiles and runs what is called with arrays of numpy.

Where AWS's package `nki` (0.3 and later) is and a device of the target's generation, programs run
there; everywhere else in the simulator. None of this has run on a device: nobody here has one.

Source: NKI's reference of `nki.jit`, and the Neuron Sysfs User Guide.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from axe_eq.program.types import Array

CORE = Path("/sys/devices/virtual/neuron_device/neuron0/neuron_core0/info/architecture/arch_type")
PLATFORM = "NEURON_PLATFORM_TARGET_OVERRIDE"  # what nki compiles for


def generation() -> int | None:
    """Of the first Neuron device here, 2 for NeuronCore-v2 and so on; None without it or `nki`."""
    try:
        found = re.search(r"v(\d+)", CORE.read_text(encoding="utf-8"))
    except OSError:
        return None
    return int(found[1]) if found and has_nki() else None


def has_nki() -> bool:
    """Whether this `nki` is of 0.3 or later: the package index has placeholders that raise."""
    try:
        return hasattr(importlib.import_module("nki"), "simulate")
    except ImportError:
        return False


def run(text: str, name: str, arrays: Sequence[Array], platform: str) -> Any:
    """What a kernel of a text returns, computed by a NeuronCore.

    Args:
        text: a module with the kernel.
        name: of the kernel.
        arrays: its arguments.
        platform: the machine, by name: "trn1", "trn2" or "trn3".
    """
    os.environ.setdefault(PLATFORM, platform)
    return _kernel(text, name)(*arrays)


@lru_cache(maxsize=1024)
def _kernel(text: str, name: str) -> Callable[..., Any]:
    """The function of a text, in a module with a file: `nki.jit` reads its lines there."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    file = _folder() / f"axe_eq_nki_{digest}.py"
    file.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel: Callable[..., Any] = getattr(module, name)
    return kernel


@cache
def _folder() -> Path:
    """Of this process's texts; it is gone with the process."""
    folder = tempfile.mkdtemp(prefix="axe-eq-nki-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
