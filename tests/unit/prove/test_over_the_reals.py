"""What "equal over the reals" means at the edges: undefined, infinite and rounded values."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq import nn
from axe_eq.pack import packs
from axe_eq.program.node import Program
from axe_eq.prove.certificates.checker import refusal
from axe_eq.prove.certificates.verdict import Proved
from axe_eq.prove.programs.prover import prove_programs
from axe_eq.prove.programs.search import Budget

F = np.float32
MASK = np.where(np.tri(3), 0, -np.inf).astype(F)
HOLE = np.array([np.nan, 1, 2], F)
Fn = Callable[..., Any]


def proof(f: Fn, g: Fn, *specs: str, rounds: int = 2) -> Any:
    """What a search of a few turns finds."""
    a, b = axe.trace(f, *specs), axe.trace(g, *specs)
    return prove_programs(a, b, packs(), budget=Budget(rounds=rounds))


def weights(z: Any) -> Any:
    return xp.exp(z) / xp.sum(xp.exp(z), axis=1, keepdims=True)


# Numpy gives NaN or an infinity on one side only: each was proved once.
UNEQUAL: dict[str, tuple[Any, ...]] = {
    "zeros over what may be 0": (
        lambda x, y: xp.sum(xp.pad(x, ((1, 0),)) / y), lambda x, y: xp.sum(x / y[1:]),
        "3:f32", "4:f32"),
    "zeros times a logarithm": (
        lambda x, y: xp.pad(x, ((0, 0), (1, 0))) @ xp.log(y), lambda x, y: x @ xp.log(y[1:]),
        "1x3:f32", "4x1:f32"),
    "padding of a quotient": (
        lambda x, s: xp.pad(x / s, ((1, 0),)), lambda x, s: xp.pad(x, ((1, 0),)) / s,
        "3:f32", ":f32"),
    "captured -inf": (lambda x: (x + MASK) - MASK, lambda x: x, "3x3:f32"),
    "captured nan": (lambda x: (x + HOLE) - HOLE, lambda x: x, "3:f32"),
    "captured -inf counted": (
        lambda x: (x + MASK) + MASK - MASK, lambda x: x + MASK, "3x3:f32"),
    "captured -inf times a sum": (
        lambda x, y: MASK * (x + y), lambda x, y: MASK * x + MASK * y, "3x3:f32", "3x3:f32"),
    "infinite padding times 0": (
        lambda x: xp.pad(x, ((1, 0),), constant_values=-xp.inf) * 0,
        lambda x: xp.zeros((4,), dtype="f32"), "3:f32"),
    "1e5 in f16": (lambda x: (x + 1e5) - 1e5, lambda x: x, "3:f16"),
    "500 in f8e4m3": (lambda x: (x + 500.0) - 500.0, lambda x: x, "3:f8e4m3"),
    "2049 in f16": (lambda x: x * 2049.0 - x * 2048.0, lambda x: x, "3:f16"),
    "undefined offset of a softmax": (
        lambda z, s, v: weights(z - xp.log(s)) @ v, lambda z, s, v: weights(z) @ v,
        "2x3:f32", ":f32", "3x1:f32"),
    "undefined condition": (
        lambda x, y: xp.where(xp.log(x) > 0, y, y), lambda x, y: y, "3:f32", "3:f32"),
    "logarithm of a masked weight": (
        lambda x: xp.log(xp.exp(x + MASK)), lambda x: x + MASK, "3x3:f32"),
    "masked matrix in a chain": (
        lambda a, b: (MASK @ a) @ b, lambda a, b: MASK @ (a @ b), "3x3:f32", "3x3:f32"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNEQUAL)
def test_sides_that_are_undefined_at_other_inputs_are_not_proved(name: str) -> None:
    f, g, *specs = UNEQUAL[name]
    assert not isinstance(proof(f, g, *specs), Proved)


def causal(s: Any) -> Any:
    return xp.where(xp.arange(3)[:, None] >= xp.arange(3)[None, :], s, -xp.inf)


EQUAL: dict[str, tuple[Any, ...]] = {
    "padded factor": (
        lambda x, y: xp.pad(x, ((0, 0), (1, 0))) @ y, lambda x, y: x @ y[1:], "1x3:f32", "4x1:f32"),
    "padded beside an exponential": (
        lambda x, y: xp.pad(x, ((0, 0), (1, 0))) @ xp.exp(y), lambda x, y: x @ xp.exp(y[1:]),
        "1x3:f32", "4x1:f32"),
    "softmax of a mask": (
        lambda x: nn.softmax(x + MASK), lambda x: weights(x + MASK), "3x3:f32"),
    "attention with a mask": (
        lambda q, k, v: nn.softmax(causal(q @ k.T)) @ v,
        lambda q, k, v: (xp.exp(s := causal(q @ k.T)) @ v)
        / xp.sum(xp.exp(s), axis=1, keepdims=True),
        "3x3:f32", "3x3:f32", "3x3:f32"),
    "captured -inf": (lambda x: (x + MASK) * 2, lambda x: 2 * (MASK + x), "3x3:f32"),
    "coefficient that f16 does not hold": (
        lambda x: x * 2048.0 + x, lambda x: x + x * 2048.0, "3:f16"),
    "undefined alike": (
        lambda x: xp.log(x) - xp.log(x), lambda x: xp.log(x) * 0, "3:f32"),
    "choice of the larger": (
        lambda x: xp.where(xp.log(x) > 0, xp.log(x), 0.0), lambda x: xp.maximum(xp.log(x), 0.0),
        "1:f32"),
    "defined condition": (lambda x, y: xp.where(x > 0, y, y), lambda x, y: y, "3:f32", "3:f32"),
}  # fmt: skip


@pytest.mark.sampled(5, slow=("attention with a mask",))
@pytest.mark.parametrize("name", EQUAL)
def test_sides_that_are_undefined_alike_are_proved(name: str) -> None:
    f, g, *specs = EQUAL[name]
    found = proof(f, g, *specs, rounds=6)
    assert isinstance(found, Proved), str(found)
    assert axe.check_certificate(found.certificate)


def test_a_program_that_is_undefined_everywhere_is_not_proved_equal_to_itself() -> None:
    verdict = axe.equivalent(lambda x: x + 1e5 - 1e5, lambda x: x + 1e5 - 1e5, "3:f16")
    assert "an input at which they are defined" in str(verdict)
    assert axe.equivalent(lambda x: xp.log(x), lambda x: xp.log(x), "3:f32")


def test_constants_are_what_their_type_holds() -> None:
    program = axe.trace(lambda x: xp.pad(x - 1e9, ((1, 0),), constant_values=2049.0), "3:f16")
    assert "full () -inf f16" not in str(program)  # 1e9 is subtracted
    assert "full () inf f16" in str(program)
    assert "2048.0" in str(program)
    again = axe.trace(lambda x: xp.pad(x - np.inf, ((1, 0),), constant_values=2048.0), "3:f16")
    assert equal_nodes(program, again)


def equal_nodes(a: Program, b: Program) -> bool:
    return a.outputs == b.outputs


def certificate() -> str:
    found = axe.equivalent(lambda x: x + x, lambda x: 2 * x, "3:f32")
    assert isinstance(found, Proved)
    return str.__str__(found.certificate)


@pytest.mark.parametrize("extent", ["0", "-3"])
def test_statements_about_nothing_are_refused(extent: str) -> None:
    text = certificate().replace("f32[3]", f"f32[{extent}]")
    assert "extents of at least 1" in str(refusal(text))


def test_constants_that_no_type_holds_are_refused() -> None:
    text = certificate().replace("full () 2.0 f32", "full () 0.1 f32")
    assert "states that f32[3] equals None" in str(refusal(text))


def test_half_a_character_in_a_certificate_is_refused() -> None:
    text = json.dumps(json.loads(certificate())).replace('"x"', '"\\ud800"')
    assert "half a character" in str(refusal(text))
    assert refusal(certificate()) is None


def test_a_statement_names_captured_arrays_that_are_not_finite() -> None:
    unlike = np.where(MASK == 0, np.nan, MASK)  # what holds NaN has no text
    found = proof(lambda x: (x + unlike) * 2, lambda x: 2 * (unlike + x), "3x3:f32")
    assert "const_any_" in str(found)
    assert "infinities" in str(found)


def test_a_statement_says_what_captured_arrays_hold_if_that_matters() -> None:
    found = axe.equivalent(
        lambda x: x + MASK, lambda x: xp.where(np.tri(3, dtype=bool), x, -np.inf), "3x3:f32"
    )
    assert isinstance(found, Proved)
    assert axe.check_certificate(found.certificate)
    assert "const_below_" in str(found)
    assert "= runs (3,3) f32 (1,2,2,1,3) 0.0 -inf 0.0 -inf 0.0" in str(found)
    assert "infinities" not in str(found)


def test_a_verdict_says_whether_it_was_decided_or_rewritten() -> None:
    same = axe.equivalent("S[(8,2):(2,1)]", "S[(8,2):(2,1)]")
    laws = axe.equivalent("S[(8,2):(2,1)]", "S[(16):(1)]")
    decided = axe.equivalent(lambda x: x + x, lambda x: 2 * x, "3:f32")
    assert isinstance(same, Proved)
    assert isinstance(laws, Proved)
    assert isinstance(decided, Proved)
    assert (same.how, laws.how, decided.how) == ("identical", "rewritten", "decided")
    assert laws.laws == ("layout/fuse_adjacent",)
    assert "layout/fuse_adjacent" in laws.reason
    copies = axe.equivalent("S[(4):(1)] + R[(2):(1)] + R[(2):(2)]", "S[(4):(1)] + R[(4):(1)]")
    assert isinstance(copies, Proved), copies


def test_partial_sums_of_floats_are_not_exact() -> None:
    mesh = axe.Mesh({"x": 4})

    def layout(text: str, shape: tuple[int, int]) -> axe.Layout:
        return axe.read("jax", text, shape=shape, mesh=mesh)

    def sums_parts(dtype: str, numerics: str) -> bool:
        """Whether every device computes a product of its own columns and rows."""
        a = axe.Spec((8, 64), dtype, layout=layout("P(None,'x')", (8, 64)))
        b = axe.Spec((64, 8), dtype, layout=layout("P('x',None)", (64, 8)))
        found = axe.compile(lambda a, b: a @ b, a, b, target="h200", mesh=mesh, numerics=numerics)
        return f"{dtype}[4,8,8]" in str(found.plan)

    assert sums_parts("f32", "real")
    assert not sums_parts("f32", "exact")
    assert sums_parts("i32", "exact")
