"""Texts of several cells at once: where they stand, what they cost, and how exact they are."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axe_eq.kernel.cells import Cell, apply, arg, flops
from axe_eq_backends.cuda import prelude
from axe_eq_backends.cuda.cells import JOINTS, function_body, spell
from axe_eq_backends.cuda.lane_price import operations

X = arg(0)
ERF, TANH = apply("erf", X), apply("tanh", X)


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        (apply("add", 1.0, ERF), "one_more_erf_f32(x)"),
        (apply("add", ERF, 1), "one_more_erf_f32(x)"),
        (apply("add", TANH, 1.0), "one_more_tanh_f32(x)"),
        (apply("pow", 2.0, X), "exp2_f32(x)"),
        (apply("pow", X, 2.0), "powf(x, 2.0f)"),
        (apply("add", 0.5, ERF), "(0.5f + erf_f32(x))"),
        (apply("add", 1.0, ERF, X), "((1.0f + erf_f32(x)) + x)"),
        (apply("sub", 1.0, ERF), "(1.0f - erf_f32(x))"),
        (apply("add", 1.0, apply("erf", apply("neg", X))), "one_more_erf_f32((-x))"),
    ],
    ids=str,
)
def test_cells_of_their_form_have_one_text(cell: Cell, wanted: str) -> None:
    assert spell(cell, ["x"], ["f16"]) == wanted


def test_other_kinds_of_numbers_have_their_own() -> None:
    assert spell(apply("add", 1.0, ERF), ["x"], ["f64"]) == "(1.0 + erf(x))"


def test_what_is_shared_is_computed_once() -> None:
    again = apply("mul", apply("add", 1.0, ERF), ERF)
    assert function_body(again, ["f32"]).count("erf_f32") == 1
    twice = apply("mul", apply("add", 1.0, ERF), apply("add", 1.0, ERF))
    assert function_body(twice, ["f32"]).count("one_more_erf_f32") == 1


def test_they_are_priced_as_they_are_written() -> None:
    for joint in JOINTS:
        assert operations([joint.cell]) == joint.flops <= flops(joint.cell)
        inside = apply("mul", 0.5, joint.cell)
        assert operations([inside]) == flops(inside) - joint.saved


MEANT: dict[str, tuple[Callable[[float], float], float]] = {
    "one_more_erf_f32": (lambda x: math.erfc(-x), 3e-7),
    "one_more_tanh_f32": (lambda x: 2 / (1 + math.exp(min(700.0, -2 * x))), 3e-7),
}
HOST = """#include <cstdio>
#include <cmath>
int main() { float x; while (fread(&x, 4, 1, stdin) == 1) { x = %s(x); fwrite(&x, 4, 1, stdout); } }
"""
_ASM = re.compile(r'asm\("(ex2|rcp)[^;]*;" : "\+f"\((\w)\)\);')


@pytest.mark.parametrize("name", MEANT)
def test_they_are_exact_enough_for_every_f16(tmp_path: Path, name: str) -> None:
    """As C++ of the host, whose exponentials and reciprocals round better by 2^-22."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler is here")
    texts = [prelude.FIXED[n].replace(prelude.DEVICE, "static") for n in ("exp2_f32", name)]
    by = {"ex2": "exp2f({0})", "rcp": "1 / {0}"}
    body = _ASM.sub(lambda m: f"{m[2]} = {by[m[1]].format(m[2])};", "\n".join(texts))
    head, main = HOST.split("int main")
    (tmp_path / "one.cpp").write_text(head + body + "\nint main" + main % name)
    subprocess.run([compiler, "-O2", "-o", tmp_path / "one", tmp_path / "one.cpp"], check=True)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    more = np.concatenate([halves, np.linspace(-9, 9, 30001, dtype=np.float32)])
    done = subprocess.run([tmp_path / "one"], input=more.tobytes(), capture_output=True, check=True)
    got: Any = np.frombuffer(done.stdout, np.float32).astype(np.float64)
    fn, most = MEANT[name]
    want = np.array([fn(float(x)) for x in more])
    assert np.array_equal(np.isnan(got), np.isnan(more))
    there = ~np.isnan(more)
    assert np.abs(got - want)[there].max() < most
    # Where f16 results of gelu are normal their last bit is right or next to it.
    shown = there & (more > -3)
    assert (np.abs(got - want)[shown] / want[shown]).max() < 2e-4
