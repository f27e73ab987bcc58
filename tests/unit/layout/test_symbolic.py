"""Polynomials, assumptions, texts of shapes, and terms that make sense."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from axe_eq.errors import LayoutError, NotationError, SearchError
from axe_eq.layout import Layout
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import Missing, check
from axe_eq.layout.symbolic.expression import LayoutExpr, any_layout, expression, symbolic_layout
from axe_eq.layout.symbolic.facts import facts
from axe_eq.layout.symbolic.meaning import Meaning
from axe_eq.layout.symbolic.polynomial import Polynomial, fraction, parse, poly
from axe_eq.layout.symbolic.shapes import read_perm, read_region, read_shape, read_spans
from axe_eq.layout.symbolic.show import show
from axe_eq.layout.symbolic.text import read_expression

NAMES = {"n": 5, "k": 7, "m": 11}


def random_polynomial(rng: random.Random) -> Polynomial:
    total = poly(0)
    for _ in range(rng.randint(0, 4)):
        term = poly(rng.randint(-4, 4))
        for _ in range(rng.randint(0, 3)):
            term *= parse(rng.choice("nkm"))
        total += term
    return total


# ---- polynomials ---------------------------------------------------------------------------------


def test_polynomials_compute_like_numbers() -> None:
    rng = random.Random(1)
    for _ in range(300):
        a, b = random_polynomial(rng), random_polynomial(rng)
        x, y = a.at(NAMES), b.at(NAMES)
        assert ((a + b).at(NAMES), (a - b).at(NAMES), (a * b).at(NAMES)) == (x + y, x - y, x * y)
        assert parse(str(a)) == a
        assert (a * b).divided(b) == (a if b.terms else None)
        quotient = a.divided(b) if b.terms else None
        if quotient is not None:
            assert quotient * b == a
        assert hash(a) == hash(parse(str(a)))


def test_one_number_has_one_text() -> None:
    assert str(parse("k*n")) == str(parse("n*k")) == "k*n"
    assert str(parse("(n+1)*(n-1)")) == "n**2-1"
    assert str(parse("-n**2")) == "-n**2"
    assert str(parse("2*n - n - n")) == "0"
    assert parse("8*n/4") == parse("2*n")
    assert parse("(n**2-1)/(n-1)") == parse("n+1")
    assert parse("4n - 2n**2 + 3n") == parse("7*n - 2*n**2")
    assert parse("n/2k") == parse("n/(2*k)")
    assert str(parse("(n+m)/8 + 1")) == "((m+n)/8)+1"
    assert fraction("((m+n)/8)") == (parse("m+n"), poly(8))


def test_zeros_in_front_of_a_number_do_not_count() -> None:
    largest = str(2**4096 - 1)
    assert parse("0" * 100 + "7n") == parse("7*n")
    assert str(parse("0" * 100 + largest)) == largest
    with pytest.raises(LayoutError, match="over 4096 bits"):
        parse(str(2**4096))


def test_bounds_are_never_claimed_wrongly() -> None:
    rng = random.Random(2)
    for _ in range(300):
        a = random_polynomial(rng)
        if a.at_least(0):
            grid = range(1, 5)
            assert all(
                a.at({"n": x, "k": y, "m": z}) >= 0 for x in grid for y in grid for z in grid
            )
    assert parse("n-1").at_least(0)
    assert parse("n*k-k").at_least(0)
    assert not parse("n-2").at_least(0)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("n n", "does not parse"), ("4 n", "does not parse"), ("1e5", "does not parse"),
        ("", "does not parse"), ("4/3", "is no integer"),
        ("n/0", "is no integer"), ("n/(k-k)", "is no integer"), ("n**40", "degree over 32"),
        ("9" * 3000, "a number over 4096 bits"), ("1" * 5000, "5000 characters"),
        ("+".join(f"n{i}" for i in range(300)), "257 terms"), ("n^k", "does not parse"),
    ],
)  # fmt: skip
def test_bad_numbers_are_one_clear_error(text: str, wrong: str) -> None:
    with pytest.raises(LayoutError, match=wrong):
        parse(text)


@pytest.mark.parametrize("form", ["A[{}]", "A[{}n]", "A[n**{}]", "sw({},2,3)@m . A[8]"])
def test_numbers_that_python_does_not_read_are_one_clear_error(form: str) -> None:
    with pytest.raises(NotationError, match="a number over 4096 bits"):
        read_expression(form.format("9" * 5000))
    assert read_expression(f"A[{'0' * 5000}8]") == read_expression("A[8]")


def test_a_million_characters_do_not_hang() -> None:
    with pytest.raises(LayoutError, match="1000000 characters"):
        parse("n" * 10**6)
    deep = "(" * 1500 + "n" + ")" * 1500
    assert parse(deep) == parse("n")


def test_a_quotient_has_a_value_only_where_it_is_exact() -> None:
    assert parse("n/5 + 1").at(NAMES) == 2
    with pytest.raises(LayoutError, match="quotient"):
        parse("n/3").at(NAMES)
    with pytest.raises(LayoutError, match="has no number"):
        parse("z").at(NAMES)


# ---- assumptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "number", "image"),
    [
        (["n % 8 == 0"], "n/8", "n_by_8"),
        (["n % 8 == 0", "n % 12 == 0"], "n/24", "n_by_24"),
        (["n >= 3"], "n", "n_from_3+2"),
        (["n > 2", "n >= 1"], "n-2", "n_from_3"),
        (["n % 4 == 0", "n >= 9"], "n", "4*n_by_4+8"),
        (["n % (4*k) == 0"], "n/k", "4*n_over"),
        (["n == 4*k"], "n/k", "4"),
        (["n == 4*k", "k % 2 == 0"], "n/8", "k_by_2"),
        (["n >= k"], "n-k", "n_more-1"),
        (["k == m + 1", "n == k"], "n", "m+1"),
    ],
)
def test_assumptions_are_substitutions(texts: list[str], number: str, image: str) -> None:
    known = facts(texts)
    assert str(known.apply(parse(number))) == image


def test_new_names_are_new() -> None:
    assert str(facts(["n % 8 == 0"], ["n_by_8"]).apply(parse("n"))) == "8*n_by_8_"


def test_every_choice_of_the_new_names_satisfies_the_assumptions() -> None:
    known = facts(["n % 6 == 0", "n >= 20", "k >= n", "m % k == 0"])
    atoms = sorted({atom for image in known.images.values() for atom in image.atoms})
    for values in itertools.product(range(1, 5), repeat=len(atoms)):
        own = known.numbers("nkm", dict(zip(atoms, values, strict=True)))
        assert own["n"] % 6 == 0
        assert own["n"] >= 20
        assert own["k"] >= own["n"]
        assert own["m"] % own["k"] == 0


# ---- texts of shapes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_shape, "2,n*k"), (read_shape, "2, 3"), (read_region, "0:2,1"),
        (read_region, "0:n*k"), (read_perm, "0,0"), (read_perm, "1"), (read_perm, "00,1"),
        (read_perm, "0,\N{SUPERSCRIPT ONE}"), (read_perm, f"0,{'9' * 5000}"),
        (read_spans, "m:2,m:3"), (read_spans, "n:2,m:3"), (read_spans, "m:1"),
    ],
)  # fmt: skip
def test_only_normal_forms_are_read(read: Any, text: str) -> None:
    with pytest.raises(LayoutError):
        read(text)


# ---- terms ---------------------------------------------------------------------------------------


def test_layouts_are_terms_and_back() -> None:
    for text in (
        "S[(2,3):(1@m,-4@lane)] + R[(2,2):(3@m,0@n)] + -1@lane + 2@m",
        "sw(1,1,2)@m . sw(1,0,1)@n . S[(4,2):(2,1)]",
        "box[(3,5) of (4,6)] in S[(2,2,3,2):(12,2,4,1)]",
        "S[():()]",
    ):
        layout = Layout.parse(text)
        assert t.decode(t.encode(layout)) == layout
        assert t.is_written(t.encode(layout))
        assert show(t.encode(layout)) == str(layout)


@pytest.mark.parametrize(
    "term",
    [
        t.AnyLayout("A", "4", ""),
        t.Map(t.SymIter("n", "1", "m", t.NoIter()), t.Here()),
        t.Map(t.NoIter(), t.Shift(1, "m", t.Shift(2, "m", t.Here()))),
        t.Map(t.NoIter(), t.Shift(0, "m", t.Here())),
        t.Map(t.Append(t.NoIter(), t.NoIter()), t.Here()),
        t.Swizzled("m", 1, 0, 1, t.Boxed(t.BoxEnd(), t.Map(t.NoIter(), t.Here()))),
    ],
)
def test_other_terms_are_no_layouts(term: Any) -> None:
    with pytest.raises(LayoutError, match="layout term"):
        t.decode(term)


def test_expressions_print_what_they_are_read_from() -> None:
    for text in (
        "tile(A[8], (2,4), S[(2,2):(2@m,1@m)], (2,2))",
        "compose(A[8], I[4 below 8])",
        "slice(A[8*n], (n,8), (0:n,2:4))",
        "inverse(A[4], (m,n))",
        "sw(1,1,2)@m . A[8]",
        "S[(4*n):((k+1)@m)] + R[(2):(-k@lane)] + (3*n-2)@m",
    ):
        found = read_expression(text)
        assert str(found) == text
        assert read_expression(str(found)) == found


def test_what_an_expression_speaks_of() -> None:
    found = read_expression("tile(A[n], (n), compose(B[8], I[k below 8]), (k))")
    assert (found.names, found.unknowns) == (("k", "n"), ("A", "B", "I"))
    assert found.kind.elements == parse("k*n")
    assert expression(Layout([(4, 1)])).kind.bound == 4
    with pytest.raises(LayoutError, match="needs n == 4"):
        LayoutExpr(t.Group(t.AnyLayout("A", "4", ""), "n")).kind  # noqa: B018


def test_symbolic_layouts_with_numbers_alone_are_layouts() -> None:
    found = symbolic_layout([("2*3", 1, "m")], offset={"m": "1-1"})
    assert found.term is t.encode(Layout([(6, 1)]))
    with pytest.raises(LayoutError, match="extent 0"):
        symbolic_layout([("n-n", 1, "m")])


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda: t.Group(t.AnyLayout("A", "n", ""), "4"), "4 == n"),
        (lambda: t.Slice(t.AnyLayout("A", "8", ""), "8", "0:n"), "-n+8 >= 0"),
        (lambda: t.AnyLayout("A", "n-1", ""), "n-1 >= 1"),
        (lambda: t.AnyLayout("A", "(n/2)", ""), "n % 2 == 0"),
        (lambda: t.TileOf(*(t.AnyLayout("A", "8", ""), "8", t.AnyLayout("B", "n", ""), "n")),
         "8 % n == 0"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(make: Any, fact: str) -> None:
    with pytest.raises(Missing) as caught:
        check(make())
    assert caught.value.fact == fact


def test_large_terms_are_not_enumerated() -> None:
    with pytest.raises(SearchError, match="at most"):
        Meaning({"n": 10**6}).of(symbolic_layout([("n", 1, "m")]).term)


def test_unknown_layouts_are_checked() -> None:
    with pytest.raises(LayoutError, match="not a name"):
        any_layout("2x", 4)
    with pytest.raises(LayoutError, match="extent"):
        any_layout("A", 0)
    with pytest.raises(LayoutError, match="is none"):
        any_layout("A", 4.0)  # type: ignore[arg-type]
