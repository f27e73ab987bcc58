"""The checker accepts proofs and nothing else; it never imports the e-graph."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from axe_eq.errors import ArgumentError
from axe_eq.layout import Layout
from axe_eq.layout.symbolic.terms import Iter, LayoutTerm, NoIter, encode
from axe_eq.pack import Pack
from axe_eq.program.terms import Cell, In, Op, Sig, Text, Value, args, op
from axe_eq.prove.certificates.certificate import Firing, Proof, Statement, own_version
from axe_eq.prove.certificates.checker import check_certificate, law_statements, refusal
from axe_eq.prove.certificates.proof import write
from axe_eq.rule.term import STR, Term, primitive

X, Y, Z = (In(name, "f32[2,3]") for name in "xyz")
S = "a b, a b -> a b"
INPUTS = tuple((name, "f32[2,3]") for name in "xyz")

EXACT = Pack("here", version="7", exact=True)
REAL = Pack("reals", version="2", exact=False)
PACKS = {p.name: p for p in (EXACT, REAL)}


@primitive((STR,), (STR,), many=True)
def either(f: str) -> list[str]:
    return ["maximum", "minimum"] if f == "add" else []


@EXACT.law(source="test")
def commute(s: Sig, f: Cell, x: Value, y: Value) -> tuple[Any, ...]:
    """s[add](x, y) = s[add](y, x)   for symmetric s."""
    return op(s, f, x, y), op(s, f, y, x), f == "add", s == S


@EXACT.law(source="test")
def chosen(f: Cell, x: Value, y: Value) -> tuple[Any, ...]:
    """max(x, y) = either(x, y), a law that is wrong on purpose for one of its choices."""
    return op(S, "maximum", x, y), op(S, either(f), x, y)


@EXACT.law(source="test")
def fails(x: Value) -> tuple[Any, ...]:
    """x = 1 / 0."""
    return x, 1 // 0


@EXACT.law(source="test")
def ill_typed(x: Value) -> tuple[Any, ...]:
    """x = x with another rank."""
    return x, op("a -> a", "id", x)


@EXACT.law(source="test")
def other_type(x: Value) -> tuple[Any, ...]:
    """x = x in another dtype."""
    return x, op("a b -> a b", "cast f64", x)


@EXACT.law(source="test")
def new_input(x: Value, n: Text) -> tuple[Any, ...]:
    """x = an input nobody stated."""
    return x, In(n, "f32[2,3]")


@EXACT.law(source="test", demand=True)
def demanded(x: Value, y: Value) -> tuple[Any, ...]:
    """x = y, as answers to requests."""
    return x, y


@REAL.law(source="test")
def associate(x: Value, y: Value, z: Value) -> tuple[Any, ...]:
    """(x + y) + z = x + (y + z)."""
    return op(S, "add", op(S, "add", x, y), z), op(S, "add", x, op(S, "add", y, z))


def stated(left: Term, right: Term, **parts: Any) -> Statement:
    packs = {"here": "7", "reals": "2"} if parts.get("numerics") != "exact" else {"here": "7"}
    whole = {"kind": "programs", "inputs": INPUTS, "packs": packs, **parts}
    return Statement(left=(left,), right=(right,), **whole)


def why(statement: Statement, *firings: Firing) -> str | None:
    text = write(Proof(statement, firings, law_statements(firings, PACKS)))
    reason = refusal(text, packs=PACKS)
    assert check_certificate(text, packs=PACKS) == (reason is None)
    return reason


XY, YX = op(S, "add", X, Y), op(S, "add", Y, X)
COMMUTE = Firing("here/commute", (S, "add", X, Y))


def test_proofs_are_accepted() -> None:
    assert why(stated(XY, YX), COMMUTE) is None
    assert why(stated(XY, YX, numerics="exact"), COMMUTE) is None
    outer = op("a b -> a b", "exp", XY), op("a b -> a b", "exp", YX)
    assert why(stated(*outer), COMMUTE) is None
    three = op(S, "add", XY, Z), op(S, "add", Z, YX)
    assert why(stated(*three), COMMUTE, Firing("here/commute", (S, "add", XY, Z))) is None
    assert why(stated(op(S, "add", XY, Z), op(S, "add", X, op(S, "add", Y, Z))),
               Firing("reals/associate", (X, Y, Z))) is None  # fmt: skip


def test_the_empty_certificate_is_valid_for_identical_sides_only() -> None:
    assert why(stated(XY, XY)) is None
    assert why(stated(XY, YX)) is not None
    assert why(stated(XY, op(S, "add", X, X))) is not None


def test_instances_may_come_in_any_order() -> None:
    statement = stated(op(S, "add", XY, Z), op(S, "add", op(S, "add", Y, Z), X))
    steps = (
        Firing("reals/associate", (X, Y, Z)),
        Firing("here/commute", (S, "add", X, op(S, "add", Y, Z))),
    )
    assert why(statement, *steps) is None
    assert why(statement, *reversed(steps)) is None
    assert all(why(statement, step) is not None for step in steps)


def test_assumptions_are_part_of_the_statement() -> None:
    assert why(stated(X, Y, assume=((X, Y),))) is None
    assert why(stated(op(S, "mul", X, Z), op(S, "mul", Y, Z), assume=((Y, X),))) is None
    assert why(stated(X, Z, assume=((X, Y),))) is not None


def test_choices_of_relations_must_hold() -> None:
    maximum, minimum = op(S, "maximum", X, Y), op(S, "minimum", X, Y)
    claim = stated(maximum, minimum)
    assert why(claim, Firing("here/chosen", ("add", X, Y), (("minimum",),))) is None
    for choices in ((("maximum",),), (("mul",),), ((),), ((3,),), ()):
        assert why(claim, Firing("here/chosen", ("add", X, Y), choices)) is not None
    product = stated(maximum, op(S, "mul", X, Y))
    assert why(product, Firing("here/chosen", ("add", X, Y), (("mul",),))) is not None


REFUSED: dict[str, tuple[Statement, tuple[Firing, ...], str]] = {
    "no such pack": (stated(XY, YX, packs={"there": "7"}), (COMMUTE,), "pack 'there'"),
    "another version": (stated(XY, YX, packs={"here": "8"}), (COMMUTE,), "version '8'"),
    "pack not stated": (stated(XY, YX, packs={}), (COMMUTE,), "uses law"),
    "no such law": (stated(XY, YX), (Firing("here/swap", (S, "add", X, Y)),), "uses law"),
    "real pack bit for bit": (
        stated(XY, XY, numerics="exact", packs={"reals": "2"}), (), "bit for bit"),
    "demand law": (stated(X, Y), (Firing("here/demanded", (X, Y)),), "does not support"),
    "condition fails": (
        stated(op(S, "sub", X, Y), op(S, "sub", Y, X)),
        (Firing("here/commute", (S, "sub", X, Y)),), "does not hold"),
    "law fails": (stated(X, Y), (Firing("here/fails", (X,)),), "ZeroDivisionError"),
    "ill-typed side": (stated(X, X), (Firing("here/ill_typed", (X,)),), "ill-typed"),
    "side of another type": (stated(X, X), (Firing("here/other_type", (X,)),), "f64"),
    "input of a side not stated": (
        stated(X, X), (Firing("here/new_input", (X, "q")),), "input 'q'"),
    "too few values": (stated(XY, YX), (Firing("here/commute", (S, "add", X)),), "3 values"),
    "value of another sort": (
        stated(XY, YX), (Firing("here/commute", (S, "add", X, 3)),), "parameter"),
    "text for a term": (stated(XY, YX), (Firing("here/commute", (S, "add", X, "y")),), "parameter"),
    "operand list for a value": (
        stated(XY, YX), (Firing("here/commute", (S, "add", X, args(Y))),), "parameter"),
    "ill-typed value": (
        stated(XY, YX), (Firing("here/commute", (S, "add", X, op("a -> a", "id", Y))),),
        "ill-typed"),
    "input of another type": (
        stated(XY, YX), (Firing("here/commute", (S, "add", X, In("y", "f32[3,2]"))),), "input 'y'"),
    "no roots": (replace(stated(XY, YX), left=(), right=()), (), "roots"),
    "different numbers of roots": (replace(stated(XY, YX), left=(XY, X)), (COMMUTE,), "roots"),
    "roots of different types": (
        stated(X, op("a b -> b a", "id", X)), (), "equals"),
    "ill-typed root": (stated(op("a -> a", "id", X), op("a -> a", "id", X)), (), "ill-typed"),
    "unknown cell": (stated(Op(S, "plus", args(X, Y)), Op(S, "plus", args(X, Y))), (), "ill-typed"),
    "root of another sort": (stated(args(X), args(X)), (), "equals"),
    "input not stated": (stated(In("q", "f32[2,3]"), In("q", "f32[2,3]")), (), "input 'q'"),
    "input named twice": (stated(X, X, inputs=(*INPUTS, INPUTS[0])), (), "twice"),
    "input type in another spelling": (
        stated(X, X, inputs=(("x", "float32[2,3]"),)), (), "type"),
    "input type that is none": (stated(X, X, inputs=(("x", "f32[2,a]"),)), (), "cannot be checked"),
    "a program stated as a layout": (
        Statement("layouts", (X,), (X,)), (), "symbol"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_prove_its_statement_is_refused(name: str) -> None:
    statement, firings, words = REFUSED[name]
    reason = why(statement, *firings)
    assert reason is not None
    assert words in reason


def test_another_version_or_law_is_refused_by_name() -> None:
    good = Proof(stated(XY, YX), (COMMUTE,), law_statements([COMMUTE], PACKS))

    def reason(**parts: Any) -> str:
        return str(refusal(write(replace(good, **parts)), packs=PACKS))

    older = replace(good.statement, axe_eq="0.0.1")
    assert reason(statement=older) == (
        f"certificate: was made by axe_eq 0.0.1; expected {own_version()}, which is here: "
        "prove it again"
    )
    assert "pack 'here' version '6'; expected what is here: version 7" in reason(
        statement=replace(good.statement, packs={"here": "6"})
    )
    assert "law 'here/commute' states 'x - y = y - x.'; expected what it states here" in reason(
        laws={"here/commute": "x - y = y - x."}
    )
    assert "law 'here/commute' states nothing" in reason(laws={})
    more = {**good.laws, "reals/associate": "(x + y) + z = x + (y + z)."}
    assert "lists reals/associate; expected only laws that its instances use" in reason(laws=more)


def test_what_is_no_text_is_an_error_and_not_a_refusal() -> None:
    text = write(Proof(stated(XY, YX), (COMMUTE,), law_statements([COMMUTE], PACKS)))
    assert check_certificate(text.encode(), packs=PACKS)
    others: list[Any] = [None, 3, {}, [], Proof(stated(XY, XY), ())]
    for thing in others:
        with pytest.raises(
            ArgumentError, match=f"of type {type(thing).__name__}; expected its JSON"
        ):
            check_certificate(thing, packs=PACKS)


def test_layouts_are_statements_too() -> None:
    one = encode(Layout([(2, 4), (4, 1)]))
    other = encode(Layout([(8, 1)]))
    pack = Pack("fusing")

    @pack.law(source="test", normal=True)
    def fused(t: LayoutTerm) -> tuple[Any, ...]:
        """Layout t = its fused form, for the only pair this test needs."""
        return t, other, t is one

    known = {"fusing": pack}
    claim = Statement("layouts", (one,), (other,), packs={"fusing": "1"}, numerics="exact")

    def accepted(*firings: Firing) -> bool:
        proof = Proof(claim, firings, law_statements(firings, known))
        return check_certificate(write(proof), packs=known)

    assert accepted(Firing("fusing/fused", (one,)))
    assert not accepted()
    assert not accepted(Firing("fusing/fused", (other,)))
    empty = Term(one.symbol, (Iter(0, 1, "m", NoIter()), *one.args[1:]))
    impossible = replace(claim, left=(empty,), right=(empty,))
    assert not check_certificate(write(Proof(impossible, ())), packs=known)


def test_the_checker_does_not_import_the_e_graph() -> None:
    code = (
        "import sys, axe_eq.prove.certificates.checker as c; c.check_certificate('{}');"
        "sys.exit(any(m.split('.')[0] == 'egglog' for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
