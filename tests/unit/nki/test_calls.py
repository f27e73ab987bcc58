"""Compiled programs: called, interpreted, saved and loaded; all of it says "simulated"."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import ArgumentError
from axe_eq.program.spec import parse_spec
from axe_eq_backends.nki.run import FORMAT, load
from axe_eq_backends.nki.sim import simulate

xp = axe.array


def layer(x: Any, w: Any, b: Any) -> Any:
    return nn.silu(x @ w) + b


@pytest.fixture(scope="module")
def compiled() -> Any:
    return axe.compile(layer, "130x64:bf16", "64x70:bf16", "70:bf16", target="trn2")


def arrays() -> tuple[Any, ...]:
    draw = np.random.default_rng(3)
    shapes = (130, 64), (64, 70), (70,)
    return tuple(draw.standard_normal(s).astype(ml_dtypes.bfloat16) for s in shapes)


def meaning(x: Any, w: Any, b: Any) -> Any:
    y = x.astype(np.float64) @ w.astype(np.float64)
    return y / (1 + np.exp(-y)) + b.astype(np.float64)


def test_a_call_runs_the_simulator_and_says_so(compiled: Any) -> None:
    given = arrays()
    found = compiled(*given)
    assert np.abs(found.astype(np.float64) - meaning(*given)).max() < 0.2
    assert (found == compiled.interpret(*given)).all()
    assert "simulated" in repr(compiled)
    assert not compiled.schedule.runners["nki"].present(compiled.target)


def test_a_saved_program_runs_without_the_compiler(compiled: Any, tmp_path: Path) -> None:
    path, given = tmp_path / "layer.axe", arrays()
    compiled.save(path)
    np.savez(tmp_path / "given.npz", *(a.view(np.uint16) for a in given))
    script = f"""
import sys, numpy as np, ml_dtypes, axe_eq as axe
run = axe.load({str(path)!r})
held = np.load({str(tmp_path / "given.npz")!r})
found = run(*(held[n].view(ml_dtypes.bfloat16) for n in held.files))
np.save({str(tmp_path / "found.npy")!r}, found.view(np.uint16))
print(sorted(m for m in sys.modules if m in ("egglog", "axe_eq.pipeline", "axe_eq.extract")))
"""
    made = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip() == "[]"
    assert (np.load(tmp_path / "found.npy").view(ml_dtypes.bfloat16) == compiled(*given)).all()


def test_code_of_another_version_is_refused() -> None:
    with pytest.raises(ArgumentError, match=f"have format 99; expected {FORMAT}"):
        load(b'{"format": 99}')


@pytest.mark.parametrize(
    ("fn", "specs"),
    [
        (lambda x: nn.softmax(x), ("33x300:f16",)),
        (lambda a, b: a.T @ b.T, ("65x40:f32", "30x65:f32")),
        (lambda x: xp.sum(x), ("40x50:f32",)),
        (lambda x: xp.sum(x, axis=1), ("200x300x7:f32",)),  # terms lie apart in their tile
        (lambda x: xp.sum(x, axis=1), ("11x32x8:f32",)),  # in steps of a tile
        (lambda x: xp.pad(xp.flip(x, axis=1), ((1, 2), (0, 3))), ("9x12:f32",)),
        (lambda x: x[::-1, ::-3] * 2, ("7x15:f32",)),
        (lambda x: x**3.0 + 2.0**x, ("7x15:f32",)),
        (lambda x, w: nn.sigmoid(xp.concat([x, x], axis=1)) @ w, ("9x131:f32", "262x20:f32")),
        (lambda x, i: xp.take(x, i, axis=0), ("20x30:f32", "7:i32")),
        (lambda x, w: nn.conv2d(x, w), ("2x5x9x9:f32", "7x5x3x3:f32")),
        (lambda x, y: (x > y) | (x == 0), ("13x14:f32", "14:f32")),
        (lambda x: xp.cumulative_sum(x, axis=0), ("20x30:f32",)),
        (lambda x: nn.softmax(xp.reshape(x.mT, (4, 24))), ("4x6x4:f32",)),  # reads a view
    ],
)
def test_text_and_plans_of_programs_agree_bit_for_bit(fn: Any, specs: tuple[str, ...]) -> None:
    exe = axe.compile(fn, *specs, target="trn2")
    draw = np.random.default_rng(5)
    given = [
        draw.integers(0, 20, s.shape).astype(np.int32) if s.dtype == "i32"
        else draw.standard_normal(s.shape).astype({"f32": np.float32, "f16": np.float16}[s.dtype])
        for s in map(parse_spec, specs)
    ]  # fmt: skip
    found, plans, want = exe(*given), exe.interpret(*given), exe.meaning(*given)
    assert np.asarray(found).tobytes() == np.asarray(plans).tobytes()
    assert np.abs(np.asarray(found, np.float64) - np.asarray(want, np.float64)).max() < 5e-3


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: (b * 2, a - b),  # b is read first
        lambda a, b: (a @ b, nn.softmax(nn.silu(b @ a) @ b)),  # stages of one call
    ],
)
def test_a_text_is_called_with_the_functions_arguments_in_their_order(fn: Any) -> None:
    exe = axe.compile(fn, "16x16:f32", "16x16:f32", target="trn2")
    ((name, text),) = exe.source.items()
    given = np.random.default_rng(1).standard_normal((2, 16, 16)).astype("f4")
    found, _ = simulate(text, name, *given, target="trn2")
    assert [(f == w).all() for f, w in zip(found, exe(*given), strict=True)] == [True, True]
    assert "    a: f32[16,16]\n    b: f32[16,16]\n    returns t2: f32[16,16]\n" in text


@pytest.mark.parametrize("target", ["trn1", "trn3"])
def test_other_generations(target: str) -> None:
    exe = axe.compile(lambda a, b: nn.relu(a @ b), "40x33:bf16", "33x50:bf16", target=target)
    draw = np.random.default_rng(5)
    a, b = (draw.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((40, 33), (33, 50)))
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0)
    assert np.abs(exe(a, b).astype(np.float64) - want).max() < 0.1


def test_a_weight_lies_as_is_cheapest_for_what_reads_it() -> None:
    x, w = axe.Spec((128, 256), "f32"), axe.Spec((512, 256), "f32", layout="any")
    exe = axe.compile(lambda x, w: x @ w.T, x, w, target="trn2")
    dense = axe.compile(lambda x, w: x @ w.T, "128x256:f32", "512x256:f32", target="trn2")
    assert str(exe.layouts["w"]) == "S[(512,256):(1@m,512@m)]"  # the summed dim on partitions
    assert exe.cost["time_s"] < dense.cost["time_s"]
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(s).astype("f4") for s in ((128, 256), (512, 256)))
    assert (exe(a, exe.pack("w", b)) == dense(a, b)).all()


def test_no_product_stores_a_result_once_for_every_column_that_it_lacks() -> None:
    def gates(x: Any, g: Any, w: Any) -> Any:
        both = x @ g, nn.einsum("td,edf->tef", x, w)
        return nn.einsum("te,tef->tf", *both), both[0]

    draw = np.random.default_rng(0)
    x, g, w = (draw.integers(-8, 9, s).astype("f2") / 16 for s in ((17, 8), (8, 17), (17, 8, 3)))
    exe = axe.compile(gates, x, g, w, target="trn2")
    for found, want in zip(exe.interpret(x, g, w), axe.run(gates, x, g, w), strict=True):
        np.testing.assert_allclose(found, want, atol=5e-3)
