"""Normal forms of tensor expressions: they mean the same, are fixed points, and join equal ones."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from axe_eq.program.meaning import evaluate_nodes
from axe_eq.program.ops import join_text
from axe_eq.program.sigalg import transpose
from axe_eq.program.terms import In, Op, Sel, decode, op, operands, sel, type_of
from axe_eq.program.types import value_type
from axe_eq.rule.term import Term, postorder
from axe_eq_rules.real_normal import distribute_form, product_form, sum_form

N = 3  # every matrix is N x N, so that any two expressions can be combined
SHAPE = f"i64[{N},{N}]"
INPUTS = [In(name, SHAPE) for name in "xyz"] + [In("v", f"i64[{N}]")]
MATMUL, SAME, LAST = "a c, c b -> a b; + c", "a b, a b -> a b", "a b, b -> a b"
KINDS = (
    "add", "add", "sub", "neg", "mul", "mul", "matmul", "matmul", "matmul", "sum", "transpose",
    "diagonal", "flip", "slice", "scale", "rows",
)  # fmt: skip
LAWS = {"sum": sum_form, "product": product_form, "both": distribute_form}


def matrix(rng: random.Random, depth: int) -> Term:
    """A random expression of integers, exact in any order of operations."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(INPUTS[:3])
    kind = rng.choice(KINDS)
    a = matrix(rng, depth - 1)
    if kind in ("add", "sub", "mul"):
        return op(SAME, kind, a, matrix(rng, depth - 1))
    if kind == "matmul":
        return op(MATMUL, "mul", a, matrix(rng, depth - 1))
    if kind == "sum":
        return op("a c, b c -> a b; + c", rng.choice(("mul", "add")), a, matrix(rng, depth - 1))
    if kind == "transpose":
        return op(transpose((1, 0)).text, "id", a)
    if kind == "diagonal":
        return op("a a, a b -> a b", "mul", a, matrix(rng, depth - 1))
    if kind == "flip":
        return sel("flip (1,)", a)
    if kind == "slice":
        return sel("slice ((0,1,3),(1,2,3))", sel("concat 1", a, a, INPUTS[0]))
    if kind == "scale":
        return op(
            ", a b -> a b", "mul", sel(join_text("full", (), rng.choice((-1, 2, 3)), "i64")), a
        )
    if kind == "rows":
        return op(LAST, "mul", a, op("a b -> a; + b", "id", matrix(rng, depth - 1)))
    return op(SAME.split(",")[0] + "-> a b", "neg", a)


def value(term: Term) -> np.ndarray:
    rng = np.random.default_rng(1)
    inputs = {t.args[0]: rng.integers(-9, 9, value_type(t.args[1]).shape) for t in INPUTS}
    node = decode(term)
    return evaluate_nodes([node], inputs)[node]


def normal(law_name: str, term: Term) -> Term:
    instance = LAWS[law_name].instance((term,))
    return term if instance is None else instance.right


@pytest.mark.parametrize("name", LAWS)
def test_normal_forms_mean_the_same_and_are_fixed_points(name: str, full: bool) -> None:
    rng, kinds, changed = random.Random(5), Counter[str](), 0
    for _ in range(3000 if full else 150):
        term = matrix(rng, rng.randint(1, 4))
        kinds.update(s.args[1] for s in postorder(term) if s.symbol is Op)
        result = normal(name, term)
        changed += result is not term
        assert type_of.of(result) == type_of.of(term)
        assert np.array_equal(value(result), value(term)), term
        assert normal(name, result) is result, term
    assert changed > 30
    assert min(kinds[k] for k in ("add", "sub", "neg", "mul", "id")) > 20


def shuffled(rng: random.Random, term: Term) -> Term:
    """The same polynomial, written differently."""
    if term.symbol not in (Op, Sel) or term.args[0].startswith("concat"):
        return term
    args = [shuffled(rng, a) for a in operands(term)]
    if term.symbol is Sel:
        return sel(term.args[0], *args)
    sig, cell = term.args[:2]
    if rng.random() < 0.3 and value_type(type_of(args[0])).rank == 2:
        args[0] = op(transpose((1, 0)).text, "id", op(transpose((1, 0)).text, "id", args[0]))
    if sig == SAME and cell in ("add", "mul") and rng.random() < 0.5:
        args.reverse()
    if sig == MATMUL and rng.random() < 0.5:
        both = (op(transpose((1, 0)).text, "id", a) for a in reversed(args))
        return op(transpose((1, 0)).text, "id", op(MATMUL, "mul", *both))
    if sig == MATMUL and args[1].symbol is Op and args[1].args[:2] == (MATMUL, "mul"):
        b, c = operands(args[1])
        return op(MATMUL, "mul", op(MATMUL, "mul", args[0], b), c)
    if sig == MATMUL and args[1].symbol is Op and args[1].args[:2] == (SAME, "add"):
        return op(SAME, "add", *(op(MATMUL, "mul", args[0], b) for b in operands(args[1])))
    if cell == "sub" and rng.random() < 0.5:
        return op(sig, "add", args[0], op("a b -> a b", "neg", args[1]))
    return op(sig, cell, *args)


def test_equal_polynomials_have_one_normal_form(full: bool) -> None:
    rng, different = random.Random(6), 0
    for _ in range(2000 if full else 120):
        term = matrix(rng, rng.randint(2, 4))
        other = shuffled(rng, shuffled(rng, term))
        different += other is not term
        assert normal("both", other) is normal("both", term), (term, other)
    assert different > 60


X, Y = In("x", "f32[2,3]"), In("y", "f32[2,3]")


def cell(name: str, *terms: Term) -> Term:
    return op(", ".join(["a b"] * len(terms)) + " -> a b", name, *terms)


def test_cancelling_keeps_places_where_a_value_is_undefined() -> None:
    difference = cell("sub", X, X)
    zero = op("-> a b [a=2 b=3]", "id", sel("full () 0.0 f32"))
    assert normal("both", difference) is zero
    quotient = cell("div", Y, X)
    kept = normal("both", cell("sub", quotient, quotient))
    assert any(s.symbol is Op and s.args[1] == "div" for s in postorder(kept))
    logs = cell("sub", cell("log", X), cell("log", X))
    assert any(s.symbol is Op and s.args[1] == "log" for s in postorder(normal("both", logs)))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (cell("div", cell("mul", X, Y), X), Y),
        (cell("div", X, X), sel("full (2,3) 1.0 f32")),
        (cell("sub", cell("add", X, Y), Y), Y),
        (cell("mul", X, X), X),
        (cell("add", X, X), X),
        (op("a b -> a; + b", "id", cell("mul", X, Y)),
         op("a, a -> a", "mul", *(op("a b -> a; + b", "id", t) for t in (X, Y)))),
        (op("a b -> a; max b", "id", cell("add", X, Y)),
         op("a, a -> a", "add", *(op("a b -> a; max b", "id", t) for t in (X, Y)))),
    ],
)  # fmt: skip
def test_different_values_keep_different_normal_forms(left: Term, right: Term) -> None:
    assert normal("both", left) is not normal("both", right)


def test_reductions_over_absent_dims_count_them() -> None:
    repeated = op("a -> a b [b=3]", "id", In("u", "f64[4]"))
    total = normal("both", op("a b -> a; + b", "id", repeated))
    assert total is op(", a -> a", "mul", sel("full () 3.0 f64"), In("u", "f64[4]"))


def test_a_product_of_many_sums_stays_a_product() -> None:
    sums = [cell("add", In(f"p{n}", "f32[2,3]"), In(f"q{n}", "f32[2,3]")) for n in range(9)]
    product = sums[0]
    for term in sums[1:]:
        product = cell("mul", product, term)
    result = normal("both", product)
    assert len(list(postorder(result))) < 400


def test_casts_between_floats_vanish_over_the_reals() -> None:
    half = In("h", "f16[2,3]")
    wide = cell("cast f32", cell("add", half, half))
    narrow = cell("add", cell("cast f32", half), cell("cast f32", half))
    assert normal("both", wide) is normal("both", narrow)
    assert normal("both", cell("cast i32", X)) is cell("cast i32", X)
