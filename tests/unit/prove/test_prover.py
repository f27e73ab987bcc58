"""Proofs, frontiers and verdicts: what is equal is proved with a certificate, nothing else is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq.array as xp
from axe_eq.debug import debug
from axe_eq.errors import ArgumentError, AxeError, NotationError, ProgramError
from axe_eq.layout import Layout
from axe_eq.pack import Pack, installed
from axe_eq.program.array import nn
from axe_eq.program.meaning import evaluate
from axe_eq.program.spec import Spec
from axe_eq.program.terms import Sig, Value, op
from axe_eq.program.trace import trace
from axe_eq.prove.certificates.certificate import parse
from axe_eq.prove.certificates.checker import check_certificate
from axe_eq.prove.certificates.verdict import (
    LayoutCounterexample,
    ProgramCounterexample,
    Proved,
    Refuted,
    Unknown,
)
from axe_eq.prove.equivalent import equivalent
from axe_eq.prove.programs.frontier import Frontier
from axe_eq.prove.programs.prover import prove_programs
from axe_eq.prove.programs.search import Budget

Fn = Callable[..., Any]
X = Spec((3, 4), "f32")
W = Spec((4, 5), "f32")


def prove(a: Fn, b: Fn, *specs: Spec, numerics: str = "real", **more: Any) -> Proved | Frontier:
    packs = more.pop("packs", installed().values())
    found = prove_programs(trace(a, *specs), trace(b, *specs), packs, numerics, **more)
    if isinstance(found, Proved):
        assert check_certificate(found.certificate)
    return found


EQUAL: dict[str, tuple[Fn, Fn, tuple[Spec, ...]]] = {
    "sums commute": (lambda x, y: x + y, lambda x, y: y + x, (X, X)),
    "sums associate": (lambda x, y, z: (x + y) + z, lambda x, y, z: y + (z + x), (X, X, X)),
    "products distribute": (lambda x, y, w: (x + y) @ w, lambda x, y, w: x @ w + y @ w, (X, X, W)),
    "matrix products associate": (
        lambda x, w, y: (x @ w) @ y, lambda x, w, y: x @ (w @ y), (X, W, Spec((5, 3), "f32"))),
    "transposed products": (lambda x, w: (x @ w).T, lambda x, w: w.T @ x.T, (X, W)),
    "below a function": (
        lambda x, y, w: nn.relu((x + y) @ w), lambda x, y, w: nn.relu(y @ w + x @ w), (X, X, W)),
    "below two functions": (
        lambda x, w: xp.exp(xp.tanh(2.0 * x) @ w), lambda x, w: xp.exp(xp.tanh(x + x) @ w), (X, W)),
    "slices of products": (lambda x, w: (x @ w)[1:, :3], lambda x, w: x[1:] @ w[:, :3], (X, W)),
    "scaling": (lambda x, w: (x / 2.0) @ w, lambda x, w: (x @ w) * 0.5, (X, W)),
    "sums over sums": (
        lambda x, y: xp.sum(x - y, axis=0), lambda x, y: xp.sum(x, axis=0) - xp.sum(y, axis=0),
        (X, X)),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_equal_programs_are_proved_over_the_reals(name: str) -> None:
    a, b, specs = EQUAL[name]
    found = prove(a, b, *specs)
    assert isinstance(found, Proved), str(found)
    assert "over the reals" in str(found.statement)
    assert set(found.statement.packs) <= set(installed())


EXACT: dict[str, tuple[Fn, Fn]] = {
    "sums commute": (lambda x, y: x + y, lambda x, y: y + x),
    "views compose": (lambda x, y: (x.T).T + y, lambda x, y: x + y),
    "negation twice": (lambda x, y: xp.negative(xp.negative(x)) * y, lambda x, y: y * x),
    "slice of a join": (lambda x, y: xp.concat([x, y])[:3], lambda x, y: x),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_proofs_use_no_real_law(name: str) -> None:
    found = prove(*EXACT[name], X, X, numerics="exact")
    assert isinstance(found, Proved), str(found)
    assert all(installed()[pack].exact for pack in found.statement.packs)
    assert "bit for bit" in str(found.statement)


def test_reassociation_is_not_proved_bit_for_bit() -> None:
    a, b, specs = EQUAL["sums associate"]
    assert isinstance(prove(a, b, *specs, numerics="exact"), Frontier)
    assert isinstance(equivalent(a, b, *specs, numerics="exact"), Refuted | Unknown)


DIFFERENT: dict[str, tuple[Fn, Fn]] = {
    "another operand": (lambda x, y: x + y, lambda x, y: x + x),
    "another order": (lambda x, y: x - y, lambda x, y: y - x),
    "another axis": (lambda x, y: xp.sum(x, axis=0), lambda x, y: xp.sum(x[:, :], axis=0) + 1.0),
    "a forgotten residual": (lambda x, y: x + nn.relu(y), lambda x, y: nn.relu(y)),
    "a slice off by one": (lambda x, y: x[:, 1:3] * 2.0, lambda x, y: x[:, 0:2] * 2.0),
    "one activation more": (lambda x, y: x * y, lambda x, y: nn.relu(x * y)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_programs_are_refuted_with_a_counterexample(name: str) -> None:
    a, b = DIFFERENT[name]
    assert isinstance(prove(a, b, X, X), Frontier)
    verdict = equivalent(a, b, X, X)
    assert isinstance(verdict, Refuted)
    assert not verdict
    assert isinstance(verdict.counterexample, ProgramCounterexample)
    arrays = verdict.counterexample.inputs
    place = verdict.counterexample.index
    values = [evaluate(trace(f, X, X), arrays)[0][place] for f in (a, b)]
    assert values[0] != values[1]


def test_one_output_out_of_many_is_enough_to_fail() -> None:
    good = prove(lambda x, y: (x + y, x * y), lambda x, y: (y + x, y * x), X, X)
    bad = prove(lambda x, y: (x + y, x * y), lambda x, y: (y + x, y * y), X, X)
    assert isinstance(good, Proved)
    assert isinstance(bad, Frontier)
    assert len(good.statement.left) == 2


def test_constants_are_inputs_named_by_their_contents() -> None:
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    same = prove(lambda x: x + table, lambda x: table.copy() + x, X)
    other = prove(lambda x: x + table, lambda x: (table + 1) + x, X)
    assert isinstance(same, Proved)
    assert len(same.statement.inputs) == 2
    assert isinstance(other, Frontier)


def test_identical_programs_need_no_law() -> None:
    found = prove(lambda x, w: nn.softmax(x @ w), lambda a, b: nn.softmax(a @ b), X, W)
    assert isinstance(found, Proved)
    assert parse(found.certificate).firings == ()
    assert not found.statement.packs


def test_proofs_are_deterministic() -> None:
    a, b, specs = EQUAL["below two functions"]
    texts = {str(prove(a, b, *specs).certificate) for _ in range(3)}  # type: ignore[union-attr]
    assert len(texts) == 1


def test_certificates_are_minimal_even_after_a_long_search() -> None:
    found = prove(lambda x, y: (x.T + y.T).T, lambda x, y: y + x, X, X, numerics="exact")
    assert isinstance(found, Proved)
    assert len(parse(found.certificate).firings) <= 4


def test_the_frontier_names_the_smallest_difference_and_the_missing_law() -> None:
    found = prove(lambda x, w: xp.exp(x) @ w, lambda x, w: xp.tanh(x) @ w, X, W)
    assert isinstance(found, Frontier)
    assert found.stopped == "saturated"
    (pair,) = found.pairs
    assert str(pair) == (
        "exp[a b -> a b](x)  =?  tanh[a b -> a b](x)   "
        "(no law relates cell 'exp' to cell 'tanh' here)"
    )
    verdict = equivalent(lambda x: xp.sin(x + 0.0 * xp.cos(x)), lambda x: xp.sin(xp.sin(x)), X)
    assert isinstance(verdict, Refuted)


def test_what_cannot_be_decided_is_unknown_with_what_is_missing() -> None:
    # True over the reals, but no law says so and no counterexample exists.
    verdict = equivalent(
        lambda x: xp.sin(x) ** 2.0 + xp.cos(x) ** 2.0, lambda x: xp.ones_like(x), X, budget=5
    )
    assert isinstance(verdict, Unknown)
    assert not verdict
    assert isinstance(verdict.missing, Frontier)
    assert "stuck at" in str(verdict)


@pytest.mark.parametrize(
    ("budget", "stopped"),
    [(Budget(rows=40), "rows"), (Budget(seconds=1e-6), "time"), (Budget(rounds=0), "rounds")],
)
def test_limits_stop_the_search_and_are_reported(budget: Budget, stopped: str) -> None:
    found = prove(lambda x, y: xp.exp(x) + y, lambda x, y: y - xp.exp(x), X, X, budget=budget)
    assert isinstance(found, Frontier)
    assert found.stopped == stopped


def test_assumptions_prove_what_follows_from_them() -> None:
    double = (lambda x, y: x + x, lambda x, y: y)
    verdict = equivalent(
        lambda x, y: xp.exp(y), lambda x, y: xp.exp(2.0 * x), X, X, assume=[double]
    )
    assert isinstance(verdict, Proved)
    assert "assuming" in str(verdict.statement)
    assert check_certificate(verdict.certificate)
    assert not equivalent(lambda x, y: xp.exp(y), lambda x, y: xp.exp(x), X, X, assume=[double])


def test_a_pack_of_ones_own_takes_part() -> None:
    pack = Pack("folding", exact=False)

    @pack.law(source="test")
    def sine(s: Sig, x: Value) -> tuple[Any, ...]:
        """s[sin](s[neg](x)) = s[neg](s[sin](x))   for the s used here."""
        return op(s, "sin", op(s, "neg", x)), op(s, "neg", op(s, "sin", x)), s == "a b -> a b"

    a, b = (lambda x: xp.sin(-x)), (lambda x: -xp.sin(x))
    assert isinstance(prove(a, b, X), Frontier)
    known = {**installed(), "folding": pack}
    found = prove_programs(trace(a, X), trace(b, X), known.values())
    assert isinstance(found, Proved)
    assert check_certificate(found.certificate, packs=known)
    assert not check_certificate(found.certificate)  # nobody installed it here
    assert isinstance(
        prove_programs(trace(a, X), trace(b, X), known.values(), numerics="exact"), Frontier
    )


def test_searches_run_in_any_thread() -> None:
    results: list[bool] = []

    def work() -> None:
        results.append(bool(prove(lambda x, y: x + y, lambda x, y: y + x, X, X, numerics="exact")))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work()
    assert results == [True] * 3


def attention(x: Any, g: Any, wq: Any, wk: Any, wv: Any, w: Any) -> Any:
    h = nn.rmsnorm(x) * g
    q, k, v = h @ wq, h @ wk, h @ wv
    return nn.softmax(q @ k.T * 0.25) @ v @ w


def block(x: Any, *weights: Any) -> Any:
    return x + attention(x, *weights)


def block_by_hand(x: Any, g: Any, wq: Any, wk: Any, wv: Any, w: Any) -> Any:
    h = g * nn.rmsnorm(x)
    scores = (h @ (wq * 0.25)) @ (wk.T @ h.T)
    return (nn.softmax(scores) @ h) @ (wv @ w) + x


def test_two_forms_of_an_attention_block_are_one() -> None:
    d, rows = 16, 6
    specs = [Spec((rows, d), "f32"), Spec((d,), "f32"), *[Spec((d, d), "f32")] * 4]
    verdict = equivalent(block, block_by_hand, *specs)
    assert isinstance(verdict, Proved), str(verdict)
    assert check_certificate(verdict.certificate)
    forgotten = equivalent(attention, block_by_hand, *specs)
    assert isinstance(forgotten, Refuted)


# -- layouts ---------------------------------------------------------------------------------------


def test_layouts_are_proved_and_refuted() -> None:
    one = "xla:f32[1024,512]{1,0:T(8,128)}"
    verdict = equivalent(one, "cute:((128,4),(8,128)):((1,1024),(128,4096))")
    assert isinstance(verdict, Proved)
    assert check_certificate(verdict.certificate)
    fused = equivalent(Layout([(2, 4), (4, 1)]), "S[(8):(1)]")
    assert isinstance(fused, Proved)
    read = "read as S[(2,4):(4@m,1@m)] and S[(8):(1@m)]"
    said = f"S[(2,4):(4@m,1@m)] = S[(8):(1)], {read} (axe_eq 0.1.0; packs: layout 2)"
    assert str(fused.statement) == said
    plain = equivalent(Layout([(2, 4), (4, 1)]), Layout([(8, 1)]))
    assert isinstance(plain, Proved)
    said = "S[(2,4):(4@m,1@m)] = S[(8):(1@m)] (axe_eq 0.1.0; packs: layout 2)"
    assert str(plain.statement) == said
    assert check_certificate(fused.certificate)
    near = equivalent(one, "cute:((128,4),(8,128)):((1,1024),(128,4095))")
    assert isinstance(near, Refuted)
    found = near.counterexample
    assert isinstance(found, LayoutCounterexample)
    assert found.image_a != found.image_b
    sizes = equivalent("S[(8):(1)]", "S[(4):(1)]")
    assert isinstance(sizes, Refuted)
    assert "8" in sizes.reason


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("S[(8):(1)]", lambda x: x), {}, ArgumentError),
        (("S[(8):(1)]", "S[(8):(1)]", X), {}, ArgumentError),
        (("S[(8):(1)", "S[(8):(1)]"), {}, NotationError),
        ((3, lambda x: x, X), {}, ArgumentError),
        ((lambda x: x, lambda x: x, X), {"numerics": "fast"}, ArgumentError),
        ((lambda x: x, lambda x: x, X), {"budget": -1}, ArgumentError),
        ((lambda x: x, lambda x: x, X), {"budget": "long"}, ArgumentError),
        ((lambda x: x, lambda x, y: x, X), {}, ProgramError),
        ((lambda x: x @ x, lambda x: x, X), {}, ProgramError),
        ((lambda x: x, lambda x: x, X), {"packs": ["nobody"]}, AxeError),
        ((lambda x: x, lambda x: x, X), {"assume": [(lambda x: x, lambda x: x[0])]}, ProgramError),
    ],
)
def test_bad_input_raises_one_clear_error(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[AxeError]
) -> None:
    with pytest.raises(error):
        equivalent(*arguments, **options)


def test_programs_of_different_types_are_refuted_without_a_counterexample() -> None:
    verdict = equivalent(lambda x: x, lambda x: x.T, X)
    assert isinstance(verdict, Refuted)
    assert "types differ" in verdict.reason


def test_a_law_that_is_left_out_proves_nothing() -> None:
    sides = (lambda x, y: xp.exp(x + y)), (lambda x, y: xp.exp(x) * xp.exp(y))
    proved = equivalent(*sides, "4:f32", "4:f32")
    assert isinstance(proved, Proved)
    assert proved.laws == ("real/product_of_exponentials",)
    with debug(without=("product_of_exponentials",)):
        assert not equivalent(*sides, "4:f32", "4:f32")


def test_every_second_element_of_a_part_is_no_every_second_of_the_whole() -> None:
    """Types of values that are equal by laws are one: the part ends before the whole does."""
    part = equivalent(
        lambda x: xp.where((xp.arange(7) == 6)[2:5:2], x, 0.0), lambda x: x * 0, "2:f32", budget=5
    )
    assert not part
