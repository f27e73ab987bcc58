"""The whole way through on one small program; read this first, run this first."""

from __future__ import annotations

from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq import nn


def gated(x: Any, w: Any, v: Any) -> Any:
    return nn.silu(x @ w) * (x @ v)


def gated_by_hand(x: Any, w: Any, v: Any) -> Any:
    y = x @ w
    return (x @ v) * (y / (1 + axe.array.exp(-y)))


def ungated(x: Any, w: Any, v: Any) -> Any:
    return (x @ w) * (x @ v)


SPECS = ["8x16:f32", "16x12:f32", "16x12:f32"]


def test_the_whole_way_through(rng: np.random.Generator) -> None:
    program = axe.trace(gated, *SPECS)
    assert [i.name for i in program.inputs] == ["x", "w", "v"]
    assert str(program.outputs[0].type) == "f32[8,12]"

    for target in ("cpu", "h200"):
        exe = axe.compile(program, target=target)
        assert len(exe.kernels) == 1
        assert exe.cost["time_s"] > 0
        assert f"schedule for {target}" in exe.explain()

    exe = axe.compile(program, target="cpu")
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((8, 16), (16, 12), (16, 12))]
    x, w, v = arrays
    wanted = (x @ w) / (1 + np.exp(-(x @ w))) * (x @ v)
    np.testing.assert_allclose(exe(*arrays), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(axe.run(gated, *arrays), wanted, rtol=1e-5, atol=1e-5)

    same = axe.equivalent(gated, gated_by_hand, *SPECS)
    assert isinstance(same, axe.Proved)
    assert axe.check_certificate(same.certificate)

    other = axe.equivalent(gated, ungated, *SPECS)
    assert isinstance(other, axe.Refuted)
    clash: Any = other.counterexample
    given, at = list(clash.inputs), clash.index
    assert axe.run(gated, *given)[at] != axe.run(ungated, *given)[at]

    layouts = axe.equivalent("cute:(4,8):(8,1)", "S[(8,4):(1@m,8@m)]")
    assert isinstance(layouts, axe.Proved)
    assert axe.check_certificate(layouts.certificate)
