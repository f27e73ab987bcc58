"""Equality of expressions: unknown layouts and symbolic numbers; proved, refuted, or what is
missing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest

import axe_eq as axe
from axe_eq.errors import ArgumentError, AxeError, LayoutError, NotationError
from axe_eq.layout import Layout
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.elements import same_elements
from axe_eq.layout.symbolic.expression import LayoutExpr, any_layout, symbolic_layout
from axe_eq.layout.symbolic.instances import choices, meanings
from axe_eq.layout.symbolic.text import read_expression, read_layout
from axe_eq.prove.certificates.verdict import LayoutCounterexample, Proved, Refuted, Unknown


def proved(a: Any, b: Any, *assume: Any) -> list[str]:
    """The laws of the certificate."""
    verdict = axe.equivalent(a, b, assume=assume)
    assert isinstance(verdict, Proved), str(verdict)
    assert axe.check_certificate(verdict.certificate)
    return [firing.law.partition("/")[2] for firing in verdict.certificate.proof.firings]


def refuted(a: Any, b: Any, *assume: Any) -> LayoutCounterexample:
    """The counterexample, which is one: the two layouts it speaks of differ there."""
    verdict = axe.equivalent(a, b, assume=assume)
    assert isinstance(verdict, Refuted), str(verdict)
    found = verdict.counterexample
    assert isinstance(found, LayoutCounterexample), str(verdict)
    assert found.image_a != found.image_b
    return found


def missing(a: Any, b: Any, *assume: Any) -> str:
    verdict = axe.equivalent(a, b, assume=assume)
    assert isinstance(verdict, Unknown), str(verdict)
    return str(verdict.missing)


# ---- unknown sub-layouts -------------------------------------------------------------------------

A, B, C = any_layout("A", 4), any_layout("B", 6), any_layout("C", 2)
I4 = any_layout("I", 4, below=8)


def test_tiles_associate() -> None:
    left = axe.tile(axe.tile(A, (2, 2), B, (2, 3)), (4, 6), C, (1, 2))
    right = axe.tile(A, (2, 2), axe.tile(B, (2, 3), C, (1, 2)), (2, 6))
    assert proved(left, right) == ["tile_associates"]


def test_direct_sums_associate_and_scaling_distributes() -> None:
    left = axe.direct_sum(axe.direct_sum(A, (4,), B, (6,)), (24,), C, (2,))
    right = axe.direct_sum(A, (4,), axe.direct_sum(B, (6,), C, (2,)), (12,))
    assert proved(left, right) == ["sum_associates"]


def test_associativity_from_the_laws_of_sums_and_spans_alone() -> None:
    """Tiles are scaled sums, and spans multiply: without the law itself it follows."""
    left = "tile(tile(A[4],(4),B[6],(6)),(24),C[2],(2))"
    right = "tile(A[4],(4),tile(B[6],(6),C[2],(2)),(12))"
    with axe.debug(without=("tile_associates",)):
        laws = proved(left, right)
    assert {"tile_is_scaled_sum", "sum_associates", "span_of_tile"} <= set(laws)


def test_a_part_that_is_known_may_be_spelled_in_any_way() -> None:
    assert proved("tile(A[4],(2,2),S[(2,2):(2,1)],(1,4))", "tile(A[4],(2,2),S[4:1],(1,4))")
    assert proved("tile(S[(2,2):(2,1)],(4),B[6],(6))", "tile(S[4:1],(4),B[6],(6))")


def test_what_is_known_is_computed_inside_what_is_not() -> None:
    tiled = "tile(A[4],(4),tile(S[2:1],(2),S[3:1],(3)),(6))"
    assert proved(tiled, "tile(tile(A[4],(4),S[2:1],(2)),(8),S[3:1],(3))")
    assert proved(tiled, "tile(A[4],(4),S[6:1],(6))")


def test_compositions_associate_and_indices_in_order_change_nothing() -> None:
    left = axe.compose(axe.compose(any_layout("A", 8), I4), any_layout("J", 2, below=4))
    right = axe.compose(any_layout("A", 8), axe.compose(I4, any_layout("J", 2, below=4)))
    assert proved(left, right) == ["compose_associates"]
    assert proved(axe.compose(A, "S[4:1]"), A) == ["compose_with_indices"]
    assert refuted(axe.compose(A, "S[(2,2):(1,2)]"), A).layouts


def test_permutations_and_slices_move_through_tiles() -> None:
    tiled = axe.tile(A, (2, 2), B, (2, 3))
    parts = axe.tile(A.permute((2, 2), (1, 0)), (2, 2), B.permute((2, 3), (1, 0)), (3, 2))
    assert proved(tiled.permute((4, 6), (1, 0)), parts)
    whole = any_layout("T", 24)
    assert proved(whole.permute((2, 3, 4), (2, 0, 1)).permute((4, 2, 3), (1, 2, 0)), whole)
    rows = axe.tile(A, (4,), B, (6,)).slice((24,), [(6, 18)])
    assert proved(rows, axe.tile(A.slice((4,), [(1, 3)]), (2,), B, (6,)))
    assert proved(whole.slice((4, 6), [(0, 4), (0, 6)]), whole)
    assert proved(
        whole.slice((4, 6), [(1, 3), (2, 6)]).slice((2, 4), [(1, 2), (0, 2)]),
        whole.slice((4, 6), [(2, 3), (2, 4)]),
    )


def test_factors_are_recovered() -> None:
    tiled = axe.tile(A, (4,), B, (6,))
    assert proved(axe.tile_of(tiled, (24,), B, (6,)), A) == ["tile_of_tile"]
    known = "S[(2):(5)]"
    assert proved(axe.direct_sum_left(axe.direct_sum(A, (4,), known, (2,)), (8,), known, (2,)), A)
    assert proved(axe.direct_sum_right(axe.direct_sum(known, (2,), A, (4,)), (8,), known, (2,)), A)


def test_a_factor_that_may_denote_nothing_is_no_evidence() -> None:
    """From tile(A, X) = tile(B, X), both nothing, nothing follows about A and B."""
    nothing = read_expression("tile_of(S[4:1],(4),S[2:3],(2))")  # there is none
    a, b = any_layout("A", 4), any_layout("B", 4)
    back = axe.tile_of(axe.tile(a, (4,), nothing, (2,)), (8,), nothing, (2,))
    assert not axe.equivalent(back, a)
    assert not axe.equivalent(back, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("tile(A[4],(4),B[6],(6))", "tile(B[6],(6),A[4],(4))"),
        ("tile(A[4],(2,2),B[4],(2,2))", "tile(A[4],(4,1),B[4],(2,2))"),
        ("direct_sum(A[2],(2),B[2],(2))", "tile(A[2],(2),B[2],(2))"),
        ("tile(A[4],(4),direct_sum(B[6],(6),C[2],(2)),(12))",
         "direct_sum(tile(A[4],(4),B[6],(6)),(24),C[2],(2))"),
        ("permute(A[6],(2,3),(1,0))", "A[6]"),
        ("slice(A[8],(8),(0:4))", "slice(A[8],(8),(4:8))"),
        ("compose(A[8],I[4 below 8])", "I[4 below 8]"),
        ("A[4]", "B[4]"),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_refuted_with_layouts(a: str, b: str) -> None:
    found = refuted(a, b)
    left, right = read_expression(a).term, read_expression(b).term
    meaning = next(m for m in choices((left, right)) if m.layouts == found.layouts)
    assert isinstance(found.x, int)
    assert (meaning.of(left)[found.x], meaning.of(right)[found.x]) == (found.image_a, found.image_b)
    assert all(str(layout) in str(found) for layout in found.layouts.values())


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("tile(A[n],(n),S[1:1],(1))", "A[n]"),
        ("tile(S[1:1],(1,1),A[12],(3,4))", "A[12]"),
        ("direct_sum(S[1:5],(1),A[n],(n))", "A[n]"),
        ("direct_sum(A[n],(n,1),B[k],(1,k))", "direct_sum(B[k],(1,k),A[n],(n,1))"),
    ],
)
def test_a_single_element_and_the_order_of_other_dims_change_nothing(a: str, b: str) -> None:
    assert proved(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("S[(2,3,5,7,11,13):(1,2,6,30,210,2310)]", "A[30030]"),
        ("tile(A[4096],(4096),B[4096],(4096))", "tile(B[4096],(4096),A[4096],(4096))"),
        ("slice(A[1048576],(1024,1024),(0:512,0:512))",
         "slice(A[1048576],(1024,1024),(0:512,1:513))"),
        ("I[1000003 below 1000003]", "J[1000003 below 1000003]"),
        ("A[9223372036854775807]", "B[9223372036854775807]"),
        ("S[(n,1000000):(1000000,1)]", "S[(n,1000000):(1000001,1)]"),
    ],
)  # fmt: skip
def test_what_nobody_can_enumerate_is_refuted_too(a: str, b: str) -> None:
    assert isinstance(refuted(a, b).x, int)


def test_many_copies_of_few_elements_are_refuted_too() -> None:
    """Elements times copies are too many to enumerate; what the sides rewrite to decides."""
    copies = "R[(400,40):(1,1000)]"
    verdict = axe.equivalent(f"permute(S[2:1]+{copies},(2),(0))", f"S[2:2]+{copies}")
    assert isinstance(verdict, Refuted)
    assert isinstance(verdict.counterexample, LayoutCounterexample)
    one, two = (Layout.parse(f"S[2:{step}]+{copies}") for step in (1, 2))
    found = verdict.counterexample
    assert (found.x, found.image_a, found.image_b) == (1, one(1), two(1))
    assert str(found) == (
        "at element 1: a gives 16000 places (only a: 1@m, 1001@m, 2001@m, 3001@m, ...), "
        "b gives 16000 places (only b: 401@m, 1401@m, 2401@m, 3401@m, ...)"
    )


def test_sizes_that_differ_are_said_at_any_size() -> None:
    verdict = axe.equivalent("S[(2,3,5,7,11,13):(1,2,6,30,210,2310)]", "A[8]")
    assert isinstance(verdict, Refuted)
    assert verdict.counterexample is None
    assert verdict.reason.startswith("sizes differ: 30030 and 8")


def test_sizes_that_differ_are_said() -> None:
    verdict = axe.equivalent("A[n]", "B[4]")
    assert isinstance(verdict, Refuted)
    assert "sizes differ" in verdict.reason
    assert "n = " in verdict.reason


def test_assumed_equalities_of_layouts() -> None:
    pair = ("A[4]", "B[4]")
    assert proved("tile(A[4],(4),C[2],(2))", "tile(B[4],(4),C[2],(2))", pair) == []
    assert "law that joins" in missing("C[4]", "D[4]", pair)


def test_what_no_law_joins_is_named() -> None:
    text = missing("inverse(S[(n,4):(-1,n)] + (n-1),(m))", "S[(4,n):(1,-4)] + (4*n-4)")
    assert "inverse(S[(n,4):(-1@m,n@m)] + (n-1)@m, (m))" in text


@pytest.mark.parametrize(
    "left", ["inverse(inverse(A[4],(m)),(m))", "compose(A[4],inverse(A[4],(m)))"]
)
def test_an_inverse_that_need_not_exist_is_named(left: str) -> None:
    right = "A[4]" if left.startswith("inverse") else "S[4:1]"
    assert missing(left, right) == (
        "that inverse(A[4], (m)) denotes a layout: A[4] is one to one onto the coordinates of m "
        "from 0 on, and lies on no other axis"
    )


def test_where_both_sides_need_the_inverse_to_exist_nothing_is_missing() -> None:
    twice = "inverse(inverse(A[4],(m)),(m))"
    assert proved(f"inverse({twice},(m))", "inverse(A[4],(m))") == ["inverse_of_inverse_of_inverse"]


REGROUPED = [
    ("compose(A[8],S[(2,4):(1,2)])", "permute(A[8],(4,2),(1,0))"),
    ("compose(A[8],S[4:1] + 4)", "slice(A[8],(8),(4:8))"),
    ("compose(tile(A[4],(4),B[6],(6)),S[6:1])", "slice(tile(A[4],(4),B[6],(6)),(24),(0:6))"),
    ("tile(A[4],(2,2),B[6],(1,6))", "tile(A[4],(4),B[6],(6))"),
    ("tile(A[4],(4,1),B[6],(1,6))", "tile(A[4],(4),B[6],(6))"),
    ("direct_sum(A[4],(4),B[6],(6))", "permute(direct_sum(B[6],(6),A[4],(4)),(6,4),(1,0))"),
    ("tile(A[4],(2,2),B[4],(2,2))", "permute(tile(A[4],(4),B[4],(4)),(2,2,2,2),(0,2,1,3))"),
    ("permute(permute(A[24],(2,12),(1,0)),(3,4,2),(2,0,1))", "A[24]"),
    ("permute(A[24],(2,3,4),(1,2,0))", "permute(A[24],(2,12),(1,0))"),
    ("slice(A[24],(4,6),(1:2,2:5))", "slice(A[24],(24),(8:11))"),
    ("slice(direct_sum(A[4],(4),B[6],(6)),(4,6),(1:2,0:6))",
     "direct_sum(slice(A[4],(4),(1:2)),(1),B[6],(6))"),
    ("slice(sw(1,0,1)@m . A[8],(2,4),(1:2,0:4))", "sw(1,0,1)@m . slice(A[8],(8),(4:8))"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), REGROUPED)
def test_the_same_elements_at_every_index_are_the_same_layout(a: str, b: str) -> None:
    assert proved(a, b)


DIFFERENT = [  # in the order of elements, in spans, in one element, in what is swizzled
    ("permute(A[8],(2,4),(1,0))", "permute(A[8],(4,2),(1,0))"),
    ("tile(A[2],(2),B[2],(2))", "direct_sum(A[2],(2),B[2],(2))"),
    ("direct_sum(A[2],(2),A[2],(2))", "direct_sum(A[2],(2),B[2],(2))"),
    ("sw(1,0,1)@m . direct_sum(A[2],(2),B[2],(2))",
     "direct_sum(sw(1,0,1)@m . A[2],(2),B[2],(2))"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_sums_of_elements_that_differ_are_told_apart(a: str, b: str) -> None:
    assert not same_elements(read_expression(a).term, read_expression(b).term)
    assert same_elements(read_expression(a).term, read_expression(a).term)
    assert refuted(a, b).layouts


IDENTITIES = [
    ("compose(S[4:1],I[4 below 4])", "I[4 below 4]"),
    ("compose(S[(n,4):(4,1)],S[4:n])", "S[4:n]"),
    ("compose(S[(2,4):(4@p,1@p)],S[(4,2):(1@p,4@p)])", "S[(4,2):(1@p,4@p)]"),
    ("slice(S[n:3],(n),(0:1))", "S[1:1]"),
    ("slice(S[(n,4):(5,1)],(n,4),(0:n,1:3))", "S[(n,2):(5,1)]+1"),
    ("slice(S[(n,2*k):(s,1)],(n,2*k),(0:n,k:2*k))", "S[(n,k):(s,1)]+k"),
    ("inverse(S[(n,4):(1,n)],(m))", "S[(4,n):(1,4)]"),
    ("inverse(S[(k,n,4):(1@p,4,1)],(m,p))", "S[(n,4,k):(4,1,4n)]"),
    ("I[8 below 1]", "S[8:0]"),
    ("I[n below 1]", "S[n:0]"),
]


@pytest.mark.parametrize(("a", "b"), IDENTITIES)
def test_identities_with_names(a: str, b: str) -> None:
    assert proved(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("compose(S[4:1@p],I[4 below 4])", "I[4 below 4]"),
        ("compose(S[(n,4):(4,1)],S[4:n])", "S[4:4]"),
        ("slice(S[n:3],(n),(0:1))", "S[1:1]+3"),
        ("slice(S[(n,4):(5,1)],(n,4),(0:n,1:3))", "S[(n,2):(5,1)]"),
        ("inverse(S[(n,4):(1,n)],(m))", "S[(4,n):(n,1)]"),
        ("inverse(S[(n,k):(1,n)],(m))", "S[(k,n):(1,n)]"),
        ("I[n below 2]", "S[n:0]"),
    ],
)
def test_what_looks_like_them_is_refuted(a: str, b: str) -> None:
    assert isinstance(refuted(a, b).x, int)


def test_unit_dims_runs_and_indices_with_names() -> None:
    assert proved("permute(A[n],(n,1),(1,0))", "A[n]") == ["permute_in_order"]
    assert proved("compose(A[n],S[(n):(1)])", "A[n]") == ["compose_with_indices"]
    assert proved("slice(A[4*n],(4,n),(1:2,0:n))", "slice(A[4*n],(4*n),(n:2*n))")
    assert proved("slice(A[n],(n/4,4),(0:1,0:4))", "slice(A[n],(n),(0:4))", "n % 4 == 0")
    assert refuted("slice(A[4*n],(4,n),(1:2,0:n))", "slice(A[4*n],(4*n),(0:n))").layouts


# ---- symbolic numbers ----------------------------------------------------------------------------


def test_a_symbolic_extent_fuses() -> None:
    assert proved("S[(n,4):(4,1)]", "S[(4*n):(1)]") == ["fuse_adjacent_symbolic"]
    assert proved("S[(n*k):(1)]", "S[(k*n):(1)]") == []
    assert proved("S[(n,1,m):(m*k,7,k)]", "S[(m*n):(k)]")
    made = symbolic_layout([("n", 4, "m"), (4, 1, "m")])
    assert proved(made, "S[(4*n):(1)]")


def test_numbers_that_break_it_are_given() -> None:
    found = refuted("S[(n,4):(k,1)]", "S[(4*n):(1)]")
    assert found.numbers["k"] != 4
    assert found.numbers["n"] > 1
    a, b = (
        Layout([(found.numbers["n"], found.numbers["k"]), (4, 1)]),
        Layout([(4 * found.numbers["n"], 1)]),
    )
    assert isinstance(found.x, int)
    assert (a(found.x), b(found.x)) == (found.image_a, found.image_b)
    far = refuted("S[(n,4):(s,1)]", "S[(4*n):(1)]", "s >= 100000", "n >= 5000")
    assert far.numbers["s"] >= 100000
    assert far.numbers["n"] >= 5000
    assert refuted("S[(n):(1)] + k@m", "S[(n):(1)] + 2*k@m").x == 0


def test_divisibility_is_assumed_or_missing() -> None:
    split, whole = "S[(n/8,8):(8,1)]", "S[(n):(1)]"
    assert missing(split, whole) == "the assumption n % 8 == 0, which quotient (n/8) needs"
    assert proved(split, whole, "n % 8 == 0")
    assert proved(split, whole, "n % 16 == 0", "n >= 100")
    assert proved(split, whole, "n == 24*k")
    assert proved("S[(n/k,k):(k,1)]", whole, "n % k == 0")
    assert "n % 8 == 0" in missing(split, whole, "n % 4 == 0")


def test_copies_need_to_know_what_reaches_what() -> None:
    two, one = "S[4:1] + R[(n,2):(1,k)]", "S[4:1] + R[(n+k):(1)]"
    assert refuted(two, one).numbers["k"] > refuted(two, one).numbers["n"]
    assert proved(two, one, "n >= k") == ["absorb_multiple_symbolic"]
    assert proved("S[4:1] + R[(2*n,2):(1,n)]", "S[4:1] + R[(3*n):(1)]")
    assert proved("S[4:1] + R[(n):(-k)]", "S[4:1] + R[(n):(k)] + -k*(n-1)@m")


def test_a_missing_bound_is_named_where_nothing_refutes() -> None:
    """No small numbers tell them apart, and no law joins them without the bound."""
    left = "slice(A[8],(8),(0:n))"
    assert missing(left, "B[n]") == "the assumption -n+8 >= 0, which region (0:n) of 8 needs"


def test_operations_on_symbolic_layouts() -> None:
    tiled = "tile(S[(n,4):(4,1)],(n,4),S[(2,2):(2,1)],(2,2))"
    assert proved(tiled, "S[(n,2,4,2):(16,2,4,1)]")
    assert proved("permute(S[(n,k):(k,1)],(n,k),(1,0))", "S[(k,n):(1,k)]")
    assert proved("permute(S[(n*k):(1)],(n,k),(1,0))", "S[(k,n):(1,k)]")
    assert proved("direct_sum(S[(n):(8)],(n),S[8:1],(8))", "S[(8*n):(1)]")
    assert (
        proved("tile(A[4],(4),S[4:1] + 3 + 2@n,(4))", "tile(A[4],(4),S[4:1] + 2@n + 3@m,(4))") == []
    )
    assert proved("tile(A[n],(n),S[(k,2):(2,1)],(2*k))", "tile(A[n],(n),S[(2*k):(1)],(2*k))")


def test_the_statement_says_what_it_is_about() -> None:
    verdict = axe.equivalent("S[(n/8,8):(8,1)]", "S[(n):(1)]", assume=["n % 8 == 0"])
    assert isinstance(verdict, Proved)
    said = str(verdict.statement)
    assert "for all positive integers n_by_8, where n = 8*n_by_8" in said
    both = axe.equivalent("tile(A[n],(n),B[2],(2))", "tile(A[n],(n),B[2],(2))")
    assert "for all layouts A, B, for all positive integers n" in str(both)


# ---- never wrong ---------------------------------------------------------------------------------


def random_symbolic(rng: random.Random) -> tuple[list[Any], list[Any]]:
    numbers = ("1", "2", "3", "n", "k", "2*n", "n*k", "n+1")
    shard = [
        (rng.choice(numbers), rng.choice((*numbers, "0", "-n")), rng.choice("mmn"))
        for _ in range(rng.randint(1, 3))
    ]
    replica = [
        (rng.choice(numbers[1:]), rng.choice(numbers), "m")
        for _ in range(rng.choice((0, 0, 0, 1, 2)))
    ]
    return shard, replica


def respelled(rng: random.Random, shard: Sequence[Any]) -> list[Any]:
    """Another list with the same map: iters split by a number, units put in."""
    found: list[Any] = []
    for extent, stride, axis in shard:
        factor = rng.choice(("2", "n", "k", "1"))
        found += [(f"({extent})*1", stride, axis)]
        if rng.random() < 0.4:
            found.append(("1", "5", "n"))
        if rng.random() < 0.3:  # (e*f, s) = (e, f*s)(f, s): both sides get the factor
            found[-1 if found[-1][0] != "1" else -2] = (extent, f"({factor})*({stride})", axis)
            found.append((factor, stride, axis))
    return found


def test_random_symbolic_layouts_are_never_judged_wrongly(full: bool) -> None:
    rng, counts = random.Random(2), {Proved: 0, Refuted: 0, Unknown: 0}
    for _ in range(2000 if full else 40):
        shard, replica = random_symbolic(rng)
        a = symbolic_layout(shard, replica)
        if rng.random() < 0.7:
            other = respelled(rng, shard)
            b = symbolic_layout(other, replica[::-1])
        else:
            b = symbolic_layout(*random_symbolic(rng))
        verdict = axe.equivalent(a, b)
        counts[type(verdict)] += 1
        differs = any(one != two for one, two in tried(a, b, 16))
        if isinstance(verdict, Proved):
            assert not differs, f"{a} = {b}"
            assert axe.check_certificate(verdict.certificate)
        elif isinstance(verdict, Unknown):
            assert replica, f"{a} = {b}: {verdict}"  # lists of iters are always decided
            assert not differs, f"{a} = {b}"
    assert min(counts[Proved], counts[Refuted]) > 0.2 * sum(counts.values())
    assert counts[Unknown] < 0.1 * sum(counts.values())


def tried(a: LayoutExpr, b: LayoutExpr, count: int) -> list[tuple[Any, Any]]:
    found = []
    for meaning in islice(choices((a.term, b.term)), count):
        try:
            found.append((meaning.of(a.term), meaning.of(b.term)))
        except AxeError:
            continue
    return found


def random_expression(rng: random.Random, depth: int) -> LayoutExpr:
    """An expression over unknown and known layouts."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.5:
            return any_layout(rng.choice("AB") + "4", 4)
        return LayoutExpr(t.encode(Layout([(2, rng.choice((1, 2)), "m"), (2, 1, "m")])))
    one, two = random_expression(rng, depth - 1), random_expression(rng, depth - 1)
    sizes = [int(str(x.kind.elements)) for x in (one, two)]
    shapes = [(size,) if rng.random() < 0.5 else (2, size // 2) for size in sizes]
    kind = rng.choice(("tile", "sum", "permute", "slice"))
    if kind == "permute":
        return one.permute((2, sizes[0] // 2), (1, 0))
    if kind == "slice" and sizes[0] > 4:
        return one.slice((4, sizes[0] // 4), [(0, 2), (0, sizes[0] // 4)])
    if prod_of(sizes) > 256:
        return one
    shapes = shapes if len(shapes[0]) == len(shapes[1]) else [(size,) for size in sizes]
    make = axe.direct_sum if kind == "sum" else axe.tile
    found = make(one, shapes[0], two, shapes[1])
    assert isinstance(found, LayoutExpr)
    return found


def prod_of(sizes: Sequence[int]) -> int:
    return sizes[0] * sizes[1]


def test_random_expressions_are_never_proved_wrongly(full: bool) -> None:
    rng, proofs = random.Random(4), 0
    made = [random_expression(rng, 2) for _ in range(300 if full else 40)]
    for a in made:
        for b in rng.sample(made, 3):
            if a.kind.elements != b.kind.elements or a == b:
                continue
            verdict = axe.equivalent(a, b, budget=3)
            if isinstance(verdict, Proved):
                proofs += 1
                assert all(one == two for one, two in meanings([a.term, b.term], 12))
    assert proofs > 0


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "wrong"),
    [
        ("tile(A[8],(2,2),B[2],(1,2))", "shape (2,2): has 4; expected 8"),
        ("tile(A[8],(8),B[2],(1,2))", "shapes: of ranks 1 and 2; expected equal ranks"),
        ("tile(A[8])", "tile(...): got other arguments; expected (layout, shape, layout, shape)"),
        ("turn(A[8])", "operation 'turn': is unknown"),
        ("permute(A[8],(2,4),(0,0))", "permutation '0,0': is not one"),
        ("slice(A[8],(8),(4:2))", "region (4:2) of 8: -2; expected at least 1"),
        ("slice(A[8],(8),(4,2))", "region: (4, 2); expected begin:end per dim"),
        ("A[0]", "extent: 0; expected at least 1"),
        ("S[(n,4):(1)]", "layout: 2 extents, 1 strides; expected as many"),
        ("tile(A[4],(4),A[2],(2))", "layout 'A': is of two kinds"),
        ("A[8", "ends too early, after column 3; expected '*', '+'"),
        ("S[(n):(1)", "ends too early, after column 9; expected ']'"),
        ("S[n n:1]", "unexpected 'n' at column 5"),
        ("S[1:1]+R[6:k]-3*k", "unexpected '-' at column 14; expected '+' or the end of the text"),
        ("S[(n+1)*2:1]", "unexpected '*' at column 8; expected ':'"),
        ("sw(n,1,1) . S[8:1]", "unexpected 'n' at column 4; expected an integer"),
        ("S[n:1]+S[4:1]", "layout: two S parts; expected one S"),
        ("A[n/0]", "quotient n/0: is no integer"),
    ],
)
def test_bad_expressions_are_one_clear_error(a: str, wrong: str) -> None:
    with pytest.raises(NotationError) as caught:
        axe.equivalent(a, "B[8]")
    assert wrong in str(caught.value)
    assert "\n" not in str(caught.value).strip()


@pytest.mark.parametrize(
    "text",
    ["S[n:{}]", "A[{}]", "A[n**{}]", "A[8 below {}]", "sw({},1,1) . A[8]", "sw(1,{},1) . A[8]",
     "sw(1,1,{}) . A[8]", "permute(A[8],(2,4),({},0))", "slice(A[8],(8),(0:{}))", "A[{}n]"],
)  # fmt: skip
@pytest.mark.parametrize("digits", [1500, 5000])
def test_absurd_numbers_are_one_clear_error(text: str, digits: int) -> None:
    """Python refuses to convert more than 4300 digits, with an error of its own."""
    with pytest.raises(NotationError, match="a number over 4096 bits; expected a smaller one"):
        axe.equivalent(text.format("9" * digits), "B[8]")


@pytest.mark.parametrize(
    ("bare", "bracketed"),
    [
        ("S[n+1:1]", "S[(n+1):(1)]"), ("S[4:n-1@p]", "S[(4):((n-1)@p)]"),
        ("S[n**2:0]", "S[(n**2):(0)]"), ("S[-k+n*(k+1):k/k]", "S[(n*k+n-k):(1)]"),
        ("R[n:1]", "S[():()] + R[(n):(1)]"), ("R[n:k]+S[2k:1]", "S[(2*k):(1)] + R[(n):(k)]"),
    ],
)  # fmt: skip
def test_a_single_number_needs_no_brackets(bare: str, bracketed: str) -> None:
    assert read_expression(bare) == read_expression(bracketed)


@pytest.mark.parametrize(
    "text",
    ["S[8", "S[8]", "cute:(4,8", "cute:(4,n", "S[(2):(1):(3)]", "S[8:1]-3", "box[(n)] in S[8:1]"],
)
def test_texts_that_are_no_expressions_keep_the_error_of_their_notation(text: str) -> None:
    with pytest.raises(NotationError) as caught:
        axe.equivalent(text, "S[8:1]")
    assert "expression" not in str(caught.value)


@pytest.mark.parametrize(
    ("assume", "wrong"),
    [
        (["2*n >= 3"], "is not one"),
        (["n % 0 == 0"], "divisor 0"),
        (["n == m", "m == n"], "no circle"),
        (["n == k - 5"], "may be below 1"),
        ([3], "is none"),
        ([("A[4]",)], "is none"),
    ],
)
def test_bad_assumptions_are_one_clear_error(assume: list[Any], wrong: str) -> None:
    with pytest.raises((LayoutError, ArgumentError), match=wrong):
        axe.equivalent("S[(n):(1)]", "S[(n,1):(1,1)]", assume=assume)


def test_assumptions_may_speak_of_layouts_without_names() -> None:
    assert proved("S[(2,4):(4,1)]", "S[8:1]", "n >= 2") == ["fuse_adjacent"]


def test_a_deep_expression_does_not_overflow() -> None:
    text = "A[2]"
    for _ in range(200):
        text = f"permute({text},(2),(0))"
    assert proved(text, "A[2]")
    assert isinstance(read_layout("S[8:1]"), Layout)
