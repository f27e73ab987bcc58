"""Measuring on a device: seconds that are some, tuned programs that compute the same."""

from __future__ import annotations

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.run.corrections import MEASURED

pytestmark = pytest.mark.gpu


def test_longer_work_takes_longer() -> None:
    def seconds(rows: int) -> float:
        exe = axe.compile(nn.softmax, f"{rows}x4096:f16", target="h200")
        runner = exe.schedule.runners["cuda"]
        found: list[float] = runner.timed(exe.schedule.graph, exe.target, 0.05)
        return sorted(found)[len(found) // 2]

    short, long = seconds(1024), seconds(32768)
    assert 1e-6 < short < long
    # No more than main memory gives: 2 x 256 MiB.
    assert long > 2 * 32768 * 4096 * 2 / 5.5e12


def test_a_tuned_program_is_right() -> None:
    def block(x, w, v):  # type: ignore[no-untyped-def]
        return nn.rmsnorm(nn.silu(x @ w) * (x @ v))

    specs = ("256x512:f16", "512x768:f16", "512x768:f16")
    with axe.debug(cache=0):
        exe = axe.compile(block, *specs, target="h200", tune=20.0)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype("f2") for s in ((256, 512), (512, 768), (512, 768))]
    assert np.allclose(exe(*arrays), exe.meaning(*arrays), atol=2e-2, rtol=2e-2)
    assert all(k.costs[MEASURED] > 0 for k in exe.kernels)
