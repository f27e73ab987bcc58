"""Generated kernels under AWS's own `nki`, where it is installed: its simulator beside plans."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.nki.levels import numpy_of, run, written
from tests.unit.nki.test_texts import KERNELS

pytestmark = pytest.mark.nki


@pytest.mark.parametrize("name", KERNELS)
def test_generated_kernels_run_under_nki(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from axe_eq_backends.nki.planning import plan
    from axe_eq_backends.nki.target import trn2

    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    monkeypatch.syspath_prepend(tmp_path)
    kernel, buffers, shapes = KERNELS[name]()
    draw = np.random.default_rng(0)
    kinds = {b: kernel.tensor(t).dtype for t, b in buffers.items()}
    arrays = {b: draw.integers(0, 5, s).astype(numpy_of(kinds[b])) for b, s in shapes.items()}
    text = written(plan(kernel, trn2), buffers, arrays)
    (tmp_path / f"of_{name}.py").write_text(text.text, encoding="utf-8")
    simulate: Callable[..., Any] = importlib.import_module("nki").simulate
    function = getattr(importlib.import_module(f"of_{name}"), text.name)
    found = simulate(function)(*(arrays[p.buffer] for p in text.inputs))
    sys.modules.pop(f"of_{name}")
    made = found if isinstance(found, tuple | list) else (found,)
    levels = run(kernel, buffers, arrays)
    for port, array in zip(text.outputs, made, strict=True):
        _, plans, _ = levels[port.buffer]
        want, got = (np.asarray(x).astype(np.float64) for x in (plans, array))
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)
