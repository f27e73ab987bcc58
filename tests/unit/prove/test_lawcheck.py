"""The automatic test of laws: wrong laws are reported by name, right ones pass."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from axe_eq.check.lawcheck import check_law, check_pack
from axe_eq.check.lawsample import Sampler
from axe_eq.errors import PackError
from axe_eq.pack import Pack
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import join_text, split_text
from axe_eq.program.sigalg import identity
from axe_eq.program.signature import signature
from axe_eq.program.terms import Args, Cell, Cons, In, Op, Sig, Spec, Value, op, sel, type_of
from axe_eq.program.types import DTYPES, value_type
from axe_eq.rule.law import Law, law
from axe_eq.rule.term import STR, Term, primitive

Sides = tuple[Any, ...]


def problems(tested: Law) -> str:
    return "\n".join(map(str, check_law(f"mine/{tested.name}", tested, 20, 2000).findings))


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


@law(source="test", exact=False)
def shifted_maximum(x: Value, y: Value, z: Value) -> Sides:
    """max(x + z, y + z) = max(x, y) + z, but for integers that wrap around."""
    s = "a, a -> a"
    left = op(s, "maximum", op(s, "add", x, z), op(s, "add", y, z))
    return left, op(s, "add", op(s, "maximum", x, y), z)


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
        (shifted_maximum, "differ"),
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


@primitive((STR,), (STR,))
def dtype_in(type_text: str) -> str:
    return value_type(type_text).dtype


def test_samples_are_well_typed_deterministic_and_learn_conditions() -> None:
    @law(source="test")
    def negation(s: Sig, f: Cell, x: Value, y: Value) -> Sides:
        """s[f](x, y) = s[add](x, y)   for add, on equal dtypes."""
        same = dtype_in(type_of(x)) == dtype_in(type_of(y))
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


def test_a_cell_that_nobody_declared_is_named() -> None:
    @law(source="test")
    def misspelt(s: Sig, x: Value, y: Value) -> Sides:
        """s[sub](x, y) = s[subb](x, y)."""
        return op(s, "sub", x, y), op(s, "subb", x, y)

    assert "it has cell 'subb', which is not declared" in problems(misspelt)


def test_a_law_without_a_source_is_one_clear_error() -> None:
    with pytest.raises(PackError, match="pack 'mine', law 'unsourced': has no source; expected a "):

        @Pack("mine").law()
        def unsourced(s: Sig, x: Value) -> Sides:
            """s[neg](x) = s[neg](x)."""
            return op(s, "neg", x), op(s, "neg", x)


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


def test_a_law_about_more_than_its_left_side_is_reported() -> None:
    @law(source="test")
    def out_of_nowhere(s: Sig, x: Value, y: Value) -> Sides:
        """s[neg](x) = s[neg](y)."""
        return op(s, "neg", x), op(s, "neg", y)

    assert "its left side does not have y" in problems(out_of_nowhere)


@pytest.mark.parametrize("name", ["", "my/pack", "my pack"])
def test_a_pack_s_name_stands_in_the_keys_of_its_laws(name: str) -> None:
    with pytest.raises(PackError, match="has no usable name"):
        Pack(name)
    with pytest.raises(PackError, match="has version 2; expected a text"):
        Pack("mine", version=2)  # type: ignore[arg-type]


# -- laws that claim to hold bit for bit -----------------------------------------------------------

PRODUCT = "a c, c b -> a b; + c"


@primitive((STR, STR), (STR,))
def rounded_sum(first: str, second: str) -> str | None:
    """The sum of two scalar constants as their type has it."""
    (name, one), (other, two) = split_text(first), split_text(second)
    if name != "full" or other != "full" or one[0] != () or one[2] != "f16" or two[2] != "f16":
        return None
    with np.errstate(invalid="ignore"):
        value = float(np.float16(one[1]) + np.float16(two[1]))
    return join_text("full", (), value, "f16") if np.isfinite(value) else None


@law(source="test")
def exp_of_a_sum(x: Value, y: Value) -> Sides:
    """exp(x + y) = exp x * exp y."""
    s, t = "a, a -> a", "a -> a"
    return op(t, "exp", op(s, "add", x, y)), op(s, "mul", op(t, "exp", x), op(t, "exp", y))


@law(source="test")
def logarithm_undoes_exp(x: Value) -> Sides:
    """log(exp x) = x."""
    return op("a -> a", "log", op("a -> a", "exp", x)), x


@law(source="test")
def products_reassociate(x: Value, y: Value, z: Value) -> Sides:
    """(x y) z = x (y z)."""
    inner = op(PRODUCT, "mul", x, y), op(PRODUCT, "mul", y, z)
    return op(PRODUCT, "mul", inner[0], z), op(PRODUCT, "mul", x, inner[1])


@primitive((STR, STR, STR), (STR,))
def floats(x: str, y: str, z: str) -> str | None:
    """Defined for floats: integers of two widths wrap around at two places."""
    return x if all(DTYPES[value_type(t).dtype].kind == "f" for t in (x, y, z)) else None


@law(source="test")
def products_of_floats_reassociate(x: Value, y: Value, z: Value) -> Sides:
    """(x y) z = x (y z)   for floats."""
    floats(type_of(x), type_of(y), type_of(z))
    inner = op(PRODUCT, "mul", x, y), op(PRODUCT, "mul", y, z)
    return op(PRODUCT, "mul", inner[0], z), op(PRODUCT, "mul", x, inner[1])


@law(source="test")
def sum_of_sums(x: Value) -> Sides:
    """The sum of the sums of rows = the sum."""
    rows = op("a b -> a; + b", "id", x)
    return op("a -> ; + a", "id", rows), op("a b -> ; + a b", "id", x)


@law(source="test")
def casts_twice(x: Value) -> Sides:
    """cast f16 x = cast f16 (cast f32 x)."""
    t = "a -> a"
    return op(t, "cast f16", x), op(t, "cast f16", op(t, "cast f32", x))


@law(source="test")
def folds_constants(k: Spec, j: Spec) -> Sides:
    """k + j = their sum, rounded."""
    return op(", ->", "add", sel(k), sel(j)), sel(rounded_sum(k, j))


@law(source="test")
def rounds_to_whole(x: Value) -> Sides:
    """round(cast f8e4m3 (16 x)) = cast f8e4m3 (16 x), for the type holds no halves there."""
    t = "a -> a"
    wide = op(t, "cast f8e4m3", op("a, -> a", "mul", x, sel("full () 16.0 f32")))
    return op(t, "round", wide), wide


@law(source="test")
def terms_in_another_order(x: Value, y: Value) -> Sides:
    """The sum of a concatenation = the sum of the turned one: one operator, any order."""
    whole, turned = sel("concat 0", x, y), sel("concat 0", y, x)
    return op("a b -> b; + a", "id", whole), op("a b -> b; + a", "id", turned)


@law(source="test")
def function_of_a_turned_value(x: Value) -> Sides:
    """exp(x)^T = exp(x^T): a function gives the same wherever its operand stands."""
    return op("a b -> b a", "exp", x), op("a b -> a b", "exp", op("a b -> b a", "id", x))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (exp_of_a_sum, "differ bit for bit"),
        (logarithm_undoes_exp, "differ bit for bit"),
        (products_reassociate, "differ bit for bit"),
        (sum_of_sums, "differ bit for bit"),
        (casts_twice, "differ bit for bit"),
        (folds_constants, "differ over the reals"),
        (rounds_to_whole, "differ over the reals"),
    ],
    ids=lambda x: x.name if isinstance(x, Law) else "",
)
def test_an_exact_law_must_hold_bit_for_bit_and_over_the_reals(wrong: Law, words: str) -> None:
    found = check_law(f"mine/{wrong.name}", wrong, 60, 8000)
    assert found.findings, f"{found.usable} samples"
    assert words in str(found.findings[0])


@pytest.mark.parametrize(
    "wrong", [logarithm_undoes_exp, products_of_floats_reassociate], ids=lambda w: w.name
)
def test_a_real_law_must_hold_where_values_are_infinite(wrong: Law) -> None:
    found = check_law(f"mine/{wrong.name}", replace(wrong, exact=False), 40)
    assert "const_any_" in str(found.findings[0])


@pytest.mark.parametrize("wrong", [exp_of_a_sum, sum_of_sums], ids=lambda w: w.name)
def test_what_holds_over_the_reals_passes_where_it_says_so(wrong: Law) -> None:
    real = replace(wrong, exact=False)
    checked = check_law(f"mine/{wrong.name}", real, 20)
    assert not checked.findings, str(checked.findings[0])


@pytest.mark.parametrize(
    "right", [terms_in_another_order, function_of_a_turned_value], ids=lambda w: w.name
)
def test_what_a_machine_is_free_to_choose_is_no_difference(right: Law) -> None:
    checked = check_law(f"mine/{right.name}", right, 30)
    assert not checked.findings, str(checked.findings[0])
    assert checked.usable == 30


def test_a_left_side_that_cannot_be_made_is_reported_with_the_reason() -> None:
    @law(source="test")
    def unknown_cell(x: Value) -> Sides:
        """cube x = x x x."""
        return op("a -> a", "cube", x), x

    (found,) = check_law("mine/unknown_cell", unknown_cell, 5, 200).findings
    assert "no sample of its left side could be made (cell 'cube': is not declared" in str(found)
