"""The automatic test of laws: wrong laws are reported by name, right ones pass."""

from __future__ import annotations

import random
from typing import Any

import pytest

from axe_eq.errors import PackError
from axe_eq.pack import Pack
from axe_eq.program.decisions import Draw
from axe_eq.program.sigalg import identity
from axe_eq.program.signature import signature
from axe_eq.program.terms import Args, Cell, Cons, In, Op, Sig, Spec, Value, op, sel, type_of
from axe_eq.program.types import value_type
from axe_eq.prove.lawcheck import check_law, check_pack
from axe_eq.prove.lawsample import Sampler
from axe_eq.rule.law import Law, law
from axe_eq.rule.term import STR, Term, primitive

Sides = tuple[Any, ...]


def problems(tested: Law) -> str:
    return "\n".join(map(str, check_law(f"mine/{tested.name}", tested, 20, 5000).findings))


@primitive((STR,), (STR,))
def only_neg(f: str) -> str | None:
    return f if f == "neg" else None


@primitive((STR,), (STR,))
def never(f: str) -> str | None:
    return None


@primitive((STR,), (STR,), many=True)
def equal_cells(f: str) -> list[str]:
    return {"maximum": ["maximum", "maximum"], "neg": ["neg"]}.get(f, [])


@law(source="test")
def involution(s: Sig, x: Value) -> Sides:
    """s[not](x) = s[not](x), written through a condition on the cell."""
    return op(s, "not", x), op(s, "not", x)


@law(source="test")
def subtraction_commutes(s: Sig, x: Value, y: Value) -> Sides:
    """s[sub](x, y) = s[sub](y, x)."""
    return op(s, "sub", x, y), op(s, "sub", y, x)


@law(source="test")
def reassociates_bit_for_bit(x: Value, y: Value, z: Value) -> Sides:
    """(x + y) + z = x + (y + z)."""
    s = "a, a -> a"
    return op(s, "add", op(s, "add", x, y), z), op(s, "add", x, op(s, "add", y, z))


@law(source="test", exact=False)
def reassociates(x: Value, y: Value, z: Value) -> Sides:
    """(x + y) + z = x + (y + z)."""
    s = "a, a -> a"
    return op(s, "add", op(s, "add", x, y), z), op(s, "add", x, op(s, "add", y, z))


@law(source="test", exact=False)
def logarithm_of_product(x: Value, y: Value) -> Sides:
    """log(x * y) = log x + log y."""
    s = "a, a -> a"
    logs = op("a -> a", "log", x), op("a -> a", "log", y)
    return op("a -> a", "log", op(s, "mul", x, y)), op(s, "add", *logs)


@law(source="test")
def loses_the_dtype(s: Sig, x: Value) -> Sides:
    """s[abs](x) = s[cast f64](s[abs](x))."""
    return op(s, "abs", x), op(s, "cast f64", x)


@law(source="test")
def impossible(s: Sig, f: Cell, x: Value) -> Sides:
    """s[f](x) = s[f](x)   never."""
    return op(s, f, x), op(s, never(f), x)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (subtraction_commutes, "differ"),
        (reassociates_bit_for_bit, "differ bit for bit"),
        (logarithm_of_product, "not defined at the same places"),
        (loses_the_dtype, "types"),
        (impossible, "none of"),
    ],
    ids=lambda x: x.name if isinstance(x, Law) else "",
)
def test_a_wrong_law_is_reported_by_name_with_sides_and_values(wrong: Law, words: str) -> None:
    text = problems(wrong)
    assert f"law 'mine/{wrong.name}'" in text
    assert words in text
    if wrong is not impossible:
        assert wrong.statement in text
        assert "left:" in text
        assert "right:" in text
    if "differ" in words:
        assert "left is" in text


@pytest.mark.parametrize("right", [involution, reassociates], ids=lambda w: w.name)
def test_a_right_law_passes(right: Law) -> None:
    checked = check_law(f"mine/{right.name}", right, 20)
    assert not checked.findings
    assert checked.usable == 20


def test_a_law_that_does_not_fire_is_reported() -> None:
    @law(source="test")
    def hidden(s: Sig, x: Value) -> Sides:
        """s[abs](x) = s[abs](x) unless x is a variable."""
        if isinstance(x, Term):
            return op(s, "abs", x), op(s, "abs", op(same_rank(s), "abs", x))
        return op(s, "sign", x), op(s, "abs", x)

    @primitive((STR,), (STR,))
    def same_rank(s: str) -> str:
        return identity(len(signature(s).operands[0])).text

    # The two faces have no sample in common: what holds on values never fires as a rewrite.
    sampler = Sampler(hidden, random.Random(0))
    assert "does not fire" in problems(hidden)
    assert next(sampler.samples(1000)).instance.left.args[1] == "abs"


def test_laws_with_relations_operand_lists_and_selectors_are_sampled() -> None:
    @law(source="test")
    def same_cell(s: Sig, f: Cell, rest: Args, x: Value) -> Sides:
        """s[f](x, rest) = s[g](x, rest)   for g equal to f."""
        return Op(s, f, Cons(x, rest)), Op(s, equal_cells(f), Cons(x, rest))

    @law(source="test")
    def twice(k: Spec, x: Value) -> Sides:
        """k(x) = k(x)."""
        return sel(k, x), sel(k, x)

    for tested in (same_cell, twice):
        checked = check_law(f"mine/{tested.name}", tested, 20)
        assert not checked.findings
        assert checked.usable == 20


def test_a_sampler_of_the_law_replaces_sampling_by_types() -> None:
    seen = []

    def sampler(draw: Draw) -> tuple[Any, ...] | None:
        x = In("x", f"f32[{draw.integer('n', 1, 5)}]")
        seen.append(x)
        return ("a -> a", x)

    @law(source="test", sampler=sampler)
    def negated_twice(s: Sig, x: Value) -> Sides:
        """s[neg](s[neg](x)) = s[id](x)."""
        return op(s, "neg", op(s, "neg", x)), op(s, "id", x)

    checked = check_law("mine/negated_twice", negated_twice, 5)
    assert not checked.findings
    assert checked.usable == 5
    assert seen


def test_samples_are_well_typed_deterministic_and_learn_conditions() -> None:
    @law(source="test")
    def negation(s: Sig, f: Cell, x: Value, y: Value) -> Sides:
        """s[f](x, y) = s[add](x, y)   for add, on equal dtypes."""
        same = (
            value_type(type_of(x)).dtype == value_type(type_of(y)).dtype
            if isinstance(x, Term)
            else True
        )
        return op(s, f, x, y), op(s, "add", x, y), f == "add", same

    def run() -> list[Any]:
        sampler = Sampler(negation, random.Random(3))
        found = list(sampler.samples(600))
        assert sampler.usable > 0.1 * sampler.tried
        return [s.values for s in found]

    first = run()
    assert len(first) > 60
    assert first == run()
    assert len(set(first)) > 30


def test_check_pack_names_every_wrong_law() -> None:
    pack = Pack("wrong", exact=True)

    @pack.law(source="test")
    def one(s: Sig, x: Value, y: Value) -> Sides:
        """s[div](x, y) = s[div](y, x)."""
        return op(s, "div", x, y), op(s, "div", y, x)

    @pack.law(source="test")
    def two(s: Sig, x: Value) -> Sides:
        """s[neg](s[neg](x)) = x."""
        return op(s, "neg", op(s, "neg", x)), x

    @pack.law(source="test")
    def three(s: Sig, f: Cell, x: Value) -> Sides:
        """s[neg](x) = s[neg](x)."""
        return op(s, f, x), op(s, only_neg(f), x)

    found = check_pack(pack, 15)
    assert {f.law for f in found} == {"wrong/one", "wrong/two"}


def test_a_law_without_statement_or_source_is_refused_when_declared() -> None:
    with pytest.raises(PackError, match="states no equality"):

        @law(source="test")
        def silent(s: Sig, x: Value) -> Sides:
            """Nothing."""
            return op(s, "neg", x), x

    with pytest.raises(PackError, match="has no source"):

        @law(source="")
        def unsourced(s: Sig, x: Value) -> Sides:
            """A = b."""
            return op(s, "neg", x), x
