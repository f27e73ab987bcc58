"""Cells have one meaning: that of the program, of the interpreter, and of the emitted text."""

from __future__ import annotations

import itertools
import math
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import EmitError
from axe_eq.kernel.cells import Apply, Cell, Constant, Operand, apply, arg, evaluate, result_dtype
from axe_eq.kernel.threads import ir
from axe_eq.program import ops
from axe_eq.program.meaning import cell_values
from axe_eq.program.types import DTYPES, dtype
from axe_eq_backends.cuda import prelude
from axe_eq_backends.cuda.cells import C_TYPE, number, spell
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import interpreted, sample

xp = axe.array
BIG = 2**53 + 1  # no f64
Fn = Callable[..., Any]


def of(dtype: str, *shape: int) -> axe.Spec:
    return axe.Spec(shape or (37,), dtype)


# Constants and positions of element types that are not those beside them.
PROGRAMS: dict[str, tuple[Fn, tuple[axe.Spec, ...]]] = {
    "a choice of constants": (lambda x: xp.where(x > 0, 0.0, -1e9) + x, (of("f32"),)),
    "a mask that is added": (
        lambda x: x + xp.astype(xp.where(xp.arange(37) >= 9, 0.0, -1e4), xp.float32), (of("f32"),)
    ),
    "a choice of integers": (lambda b: xp.where(b, 3, 5), (of("bool"),)),
    "a slope": (lambda x: x * xp.where(x > 0, 1.0, 0.01), (of("f16"),)),
    "a sum of choices": (lambda b: xp.sum(xp.where(b, 7, 0.1)), (of("bool"),)),
    "half of integers": (lambda x: x * 0.5, (of("i32"),)),
    "half of wide integers": (lambda x: x * 0.5, (of("i64"),)),
    "integers above a fraction": (lambda x: x > -0.5, (of("i32"),)),
    "integers and a fraction": (lambda x: xp.maximum(x, 0.5), (of("i32"),)),
    "a remainder": (lambda x: x % 2.5, (of("i32"),)),
    "scaled bools": (lambda b: b * -1e9, (of("bool"),)),
    "one less a bool": (lambda b, x: (1.0 - b) * x, (of("bool"), of("f32"))),
    "a comparison that is counted": (lambda x, y: (x == y) + 1, (of("i32"), of("i32"))),
    "half of positions": (lambda x: x + xp.arange(37) * 0.5, (of("f32"),)),
    "squares of positions": (
        lambda x: x + xp.arange(70000) * xp.arange(70000), (of("i64", 70000),)
    ),
    "negative fractions in unsigned bytes": (
        lambda x: xp.astype(xp.astype(x * 50, "u8"), "i16"), (of("f32"),)
    ),
    "the largest square": (lambda: xp.max(xp.arange(70000) ** 2), ()),
    "shifted positions": (lambda x: x + (xp.arange(37) << 40), (of("i64"),)),
    "the least of a row": (lambda x: xp.min(x, axis=1), (of("i64", 3, 33),)),
    "the place of the least": (lambda x: xp.argmin(x, axis=1), (of("i64", 3, 33),)),
    "the place in rows of one": (lambda x: xp.argmax(x, axis=1), (of("f32", 3, 1),)),
    "a wide constant": (lambda x: x + BIG, (of("i64"),)),
    "a wide factor": (lambda x: x * 6364136223846793005, (of("i64"),)),
    "equal to a wide constant": (lambda x: x == BIG, (of("i64"),)),
    "constants that are folded": (
        lambda x: x + (xp.full((), 0.1, dtype="f64") + xp.full((), 0.2, dtype="f64")), (of("f64"),)
    ),
    "a quotient of constants": (
        lambda x: x + xp.full((), 1, dtype="f64") / xp.full((), 3, dtype="f64"), (of("f64"),)
    ),
    "constants that wrap around": (
        lambda x: x + (xp.full((), 2**31 - 1, dtype="i32") + xp.full((), 1, dtype="i32")),
        (of("i32"),),
    ),
    "the largest beside floats": (lambda x: xp.minimum(x, 3.4e38), (of("f32"),)),
    "zeros with signs": (
        lambda x: xp.where(x > 0, xp.copysign(x, -0.0), xp.copysign(x, 0.0)), (of("f32"),)
    ),
}  # fmt: skip


def parts(cell: Cell) -> Iterator[Cell]:
    yield cell
    for a in cell.args if isinstance(cell, Apply) else ():
        yield from parts(a)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("numerics", ["real", "exact"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_constants_and_positions_have_types(name: str, numerics: str) -> None:
    fn, specs = PROGRAMS[name]
    exe = axe.compile(fn, *specs, target="h200", numerics=numerics)
    rng = np.random.default_rng(3)
    inputs = [sample(rng, s.type) for s in specs]
    (got,) = interpreted(exe.schedule.graph, inputs)
    want = np.asarray(axe.run(fn, *inputs))
    assert got.dtype == want.dtype
    digits = {"f16": 2e-3, "f32": 2e-6, "f64": 1e-14}.get(dtype(want.dtype).name, 0)
    np.testing.assert_allclose(got, want, rtol=digits, atol=0)
    for step in exe.kernels:
        kernel = lower(step, exe.schedule.graph, h200).kernel
        for s, _ in ir.walk(kernel):
            if isinstance(s, ir.Map):
                dtypes = [v.buffer.dtype for v in s.ins]
                values = [np.ones(1, DTYPES[DTYPES[d].accumulate].numpy) for d in dtypes]
                for part in parts(s.cell):
                    found = np.asarray(evaluate(part, values)).dtype
                    assert dtype(found).name == result_dtype(part, dtypes), part


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_their_text_compiles_without_a_warning(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    fn, specs = PROGRAMS[name]
    for text in axe.compile(fn, *specs, target="h200").source.values():
        assert "warning" not in compile_text(text, 90, "typed").log


def test_cells_compute_in_what_programs_compute_in() -> None:
    """Every cell on every mix of element types, against the meaning of programs."""
    seen = 0
    for name in ops.CELLS:
        declared = ops.CELLS[name]
        if declared.arity is None or declared.n_values > 1 or declared.n_params:
            continue
        for held in itertools.product(DTYPES, repeat=declared.arity):
            views = [np.ones(2, DTYPES[d].numpy) for d in held]
            given = [
                v.astype(DTYPES[DTYPES[d].accumulate].numpy)
                for v, d in zip(views, held, strict=True)
            ]
            cell = Apply(name, tuple(map(arg, range(declared.arity))))
            try:
                with np.errstate(all="ignore"):
                    (want,) = cell_values(name, views)
                computed = DTYPES[dtype(want.dtype).name].accumulate
            except Exception:
                continue
            if declared.result == "last" and held[0] != "bool":
                continue
            found = evaluate(cell, given)
            assert dtype(found.dtype).name == computed, cell
            np.testing.assert_array_equal(found, want.astype(found.dtype))
            seen += 1
    assert seen > 1500


@pytest.mark.parametrize("held", ["f32", "f64", "i32", "i64", "bool"])
def test_the_text_of_every_cell_compiles(held: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    functions: list[str] = []
    for name in ops.CELLS:
        declared = ops.CELLS[name]
        if declared.n_values > 1 or declared.n_params:
            continue
        cell = Apply(name, tuple(map(arg, range(declared.arity or 2))))
        dtypes = ["bool"] * ops.cell(cell.cell)[0].n_conditions + [held] * 3
        try:
            text = spell(cell, ["x0", "x1", "x2"], dtypes)
        except EmitError:
            continue
        given = ", ".join(f"{C_TYPE[d]} x{n}" for n, d in enumerate(dtypes[:3]))
        result = C_TYPE[result_dtype(cell, dtypes)]
        functions.append(f"__device__ {result} cell_of_{name}({given}) {{ return {text}; }}")
    body = "\n".join(functions)
    used: dict[str, Callable[[], str]] = {
        w: str for w in re.findall(r"\w+", body) if w in prelude.FIXED
    }
    compile_text(prelude.collect(used) + body, 90, held)
    assert len(functions) > 10


# -- the text as a program --

NAMES = (
    "add", "sub", "mul", "maximum", "minimum", "where", "lt", "le", "eq", "neg", "abs", "cast",
)  # fmt: skip
HEAD = """#include <cstdio>
#include <cmath>
#include <algorithm>
#define INFINITY_F32 (float)INFINITY
#define NAN_F32 (float)NAN
using std::max; using std::min;
float max_f32(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
float min_f32(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }
double max_f64(double a, double b) { return a != a ? a : b != b ? b : a > b ? a : b; }
double min_f64(double a, double b) { return a != a ? a : b != b ? b : a < b ? a : b; }
void show(double x) { printf("%a\\n", x); }
void show(long long x) { printf("%lld\\n", x); }
"""
KINDS = ("f32", "f64", "i32", "i64", "bool")
VALUES: dict[str, tuple[float, ...]] = {
    "f32": (0.1, -2.5, 3.0), "f64": (0.1, 1e-300, -7.25), "i32": (0, -3, 2**31 - 1),
    "i64": (BIG, -1, -(2**63)),
    "bool": (False, True),
}  # fmt: skip


def random_cell(source: random.Random, dtypes: list[str], depth: int, kind: str = "") -> Cell:
    """A cell of numbers, or of a kind."""
    pick = source.random()
    fitting = [n for n, d in enumerate(dtypes) if kind in ("", d)]
    if fitting and (depth == 0 or pick < 0.15):
        return Operand(source.choice(fitting))
    if depth == 0 or pick < 0.35:
        held = kind or source.choice(KINDS)
        value = source.choice(VALUES[held])
        exact = np.asarray(value, DTYPES[held].numpy).item()
        return Constant(exact, held if kind or source.random() < 0.7 else "")
    if kind == "bool":
        name = source.choice(("lt", "le", "eq"))
        return Apply(name, tuple(random_cell(source, dtypes, depth - 1) for _ in range(2)))
    if kind:
        return Apply(f"cast {kind}", (random_cell(source, dtypes, depth - 1),))
    name = source.choice(NAMES)
    if name == "cast":
        return random_cell(source, dtypes, depth, source.choice(("f32", "f64", "bool")))
    if name == "where":
        values = [random_cell(source, dtypes, depth - 1) for _ in range(2)]
        return Apply(name, (random_cell(source, dtypes, depth - 1, "bool"), *values))
    arity = ops.CELLS[name].arity or 2
    return Apply(name, tuple(random_cell(source, dtypes, depth - 1) for _ in range(arity)))


def test_the_text_computes_what_the_cell_means(tmp_path: Path) -> None:
    """Random cells as C++ of the host, to the last bit."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler is here")
    source = random.Random(11)
    wanted: list[Any] = []
    body: list[str] = []
    while len(wanted) < 400:
        dtypes = [source.choice(KINDS) for _ in range(3)]
        cell = random_cell(source, dtypes, 4)
        values = [np.asarray(source.choice(VALUES[d]), DTYPES[d].numpy) for d in dtypes]
        held = result_dtype(cell, dtypes)
        try:
            text = spell(cell, ["x0", "x1", "x2"], dtypes)
        except (EmitError, TypeError):  # sums of bools, and what is minus a bool
            continue
        given = ", ".join(
            f"{C_TYPE[d]} x{n} = {number(v.item(), d)}"
            for n, (d, v) in enumerate(zip(dtypes, values, strict=True))
        ).replace(", ", "; ")
        shown = "double" if held in ("f32", "f64") else "long long"
        body.append(f"  {{ {given}; {C_TYPE[held]} r = {text}; show(({shown})r); }} // {cell}")
        wanted.append(np.asarray(evaluate(cell, values)))
    program = tmp_path / "cells.cpp"
    fixed = [f for n, f in prelude.FIXED.items() if re.fullmatch(r"(add|sub|mul|neg|abs)_i\d\d", n)]
    functions = "\n".join(fixed).replace(prelude.DEVICE, "static")
    program.write_text(HEAD + functions + "\nint main() {\n" + "\n".join(body) + "\n}\n")
    flags = ["-O2", "-w", "-ffp-contract=off", "-o", str(tmp_path / "cells")]
    subprocess.run([compiler, *flags, str(program)], check=True)
    done = subprocess.run([tmp_path / "cells"], capture_output=True, text=True, check=True)
    for line, want, shown_body in zip(done.stdout.split(), wanted, body, strict=True):
        if want.dtype.kind == "f":
            got = float.fromhex(line) if "n" not in line else float(line)
            assert got == want or (math.isnan(got) and np.isnan(want)), shown_body
        else:
            assert int(line) == int(want), shown_body


# -- constants --


def test_constants_are_told_apart() -> None:
    several = [0.0, -0.0, 0, False, 1, 1.0, True, float("nan")]
    assert len({Constant(v) for v in several}) == len(several)
    assert len({Constant(1, "i32"), Constant(1, "i64"), Constant(1)}) == 3
    assert Constant(float("nan")) == Constant(float("nan"))


def test_constants_without_a_type_take_that_of_their_partners() -> None:
    def kind(cell: Cell, *dtypes: str) -> str:
        return result_dtype(cell, dtypes)

    assert kind(apply("add", arg(0), 2), "f16") == "f32"
    assert kind(apply("add", arg(0), 2), "i64") == "i64"
    assert kind(apply("add", arg(0), 2.0), "i32") == "i32"
    assert kind(apply("add", arg(0), 0.5), "i32") == "f32"
    assert kind(apply("add", arg(0), 2**40), "i32") == "i64"
    assert kind(apply("where", arg(0), 1.5, 2), "bool") == "f32"
    assert kind(apply("where", arg(0), 1, 2), "bool") == "i32"
    assert kind(apply("where", arg(0), True, False), "bool") == "bool"


@pytest.mark.parametrize(
    ("value", "held"), [(0.5, "i32"), (2**31, "i32"), (2.0**63, "i64"), (math.inf, "i64")]
)
def test_numbers_that_an_integer_type_lacks_are_refused(value: float, held: str) -> None:
    with pytest.raises(EmitError, match=f"as {held}; expected an integer from"):
        number(value, held)
