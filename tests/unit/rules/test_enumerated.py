"""Values without inputs: known element by element, one term for all spellings, or not believed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq import nn
from axe_eq.program.meaning import evaluate_nodes, evaluate_sel
from axe_eq.program.selectors import array_text
from axe_eq.program.terms import decode, encode, op, sel, type_of
from axe_eq.program.types import DTYPES
from axe_eq.prove.certificates.checker import refusal
from axe_eq.prove.certificates.verdict import Proved, Refuted, Unknown
from axe_eq_rules.enumerated import _written, elements

TRI = np.tri(6, dtype=bool)
BELOW = np.where(TRI, 0, -np.inf).astype(np.float32)
Fn = Callable[..., Any]


def term(fn: Callable[[], Any]) -> Any:
    """The term of a program without inputs."""
    program = axe.trace(fn)
    return encode(program.outputs)[program.outputs[0]]


# -- texts of arrays -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
def test_the_text_of_an_array_is_that_array(name: str, rng: np.random.Generator) -> None:
    values = rng.choice([0, 1] if name == "bool" else [0, 1, 2, 3], (3, 4))
    array = values.astype(DTYPES[name].numpy)
    if DTYPES[name].kind == "f":
        array = np.where(array == 3, -0.0, array).astype(array.dtype)
    text = array_text(array)
    assert text is not None
    got = evaluate_sel(text, ())
    assert (got.dtype, got.tobytes()) == (array.dtype, array.tobytes())


def test_ends_of_integers_and_infinities_have_texts_and_nan_has_none() -> None:
    ends = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    assert np.array_equal(evaluate_sel(str(array_text(ends)), ()), ends)
    assert np.array_equal(evaluate_sel(str(array_text(BELOW)), ()), BELOW)
    assert array_text(np.array([0.0, np.nan])) is None


def test_an_array_of_many_runs_has_no_text() -> None:
    assert array_text(np.arange(1 << 13)) is not None
    assert array_text(np.arange((1 << 13) + 1)) is None
    assert array_text(np.zeros((1 << 10, 1 << 10))) is not None
    assert array_text(np.zeros((1 << 10, (1 << 10) + 1))) is None
    assert array_text(np.concatenate([np.zeros(1 << 15), np.arange(1, (1 << 13) + 1)])) is None


# -- one term --------------------------------------------------------------------------------------


def test_terms_of_arrays_are_equal_where_the_arrays_are() -> None:
    """All arrays of some shapes and values: each term means its array, and no two are alike."""
    known: dict[Any, tuple[Any, ...]] = {}
    for shape, values, kind in (
        ((2, 2), (False, True), bool), ((3,), (0.0, -0.0, 1.0), "f4"),
        ((1, 3), (0, 1, 2), "i1"), ((2, 1), (-np.inf, 0.0), "f2"),
    ):  # fmt: skip
        for chosen in itertools.product(values, repeat=int(np.prod(shape))):
            array = np.array(chosen, kind).reshape(shape)
            made = _written(array)
            assert made is not None
            node = decode(made)
            got = evaluate_nodes([node], {})[node]
            assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, shape, array.tobytes())
            assert known.setdefault(made, chosen) == chosen
            again = elements(made)
            if not any(np.signbit(v) and v == 0 for v in chosen):
                assert again is not None
                assert _written(again) is made


def test_a_mask_its_negation_and_its_copies_share_their_runs() -> None:
    (runs,) = {t for t in map(array_text, (TRI,)) if t}
    own, other = _written(TRI), _written(~TRI)
    assert own is sel(runs)
    assert other is op("a b -> a b", "not", sel(runs))
    assert _written(np.broadcast_to(TRI, (2, 6, 6))) is op("b c -> a b c [a=2]", "id", sel(runs))
    assert own is not None
    assert type_of.of(own) == "bool[6,6]"


# -- what is not believed --------------------------------------------------------------------------

DOUBTED: dict[str, Callable[[], Any]] = {
    "a sum that rounds": lambda: xp.full((2,), 0.1, dtype="f32") + xp.full((2,), 0.2, dtype="f32"),
    "a function": lambda: xp.exp(xp.arange(3.0)),
    "a cast that rounds": lambda: xp.astype(xp.full((2,), 1 + 2.0**-20, dtype="f32"), "f16"),
    "a large number as a half": lambda: xp.astype(xp.arange(2050), "f16"),
    "NaN": lambda: xp.full((2,), np.nan),
    "a pole": lambda: 1 / xp.arange(3.0),
    "an integer divided by zero": lambda: 4 // xp.arange(3),
    "zeros of both signs": lambda: xp.maximum(xp.full((2,), -0.0), xp.zeros((2,))),
    "a sum of floats": lambda: xp.sum(xp.astype(xp.arange(4), "f32")),
    "what is read where integers say": lambda: xp.take(xp.arange(3), xp.arange(4), axis=0),
    "more than are looked at": lambda: xp.ones((1 << 11, 1 << 10)) > 0,
}


@pytest.mark.parametrize("name", DOUBTED)
def test_what_machines_or_reals_may_differ_in_is_not_enumerated(name: str) -> None:
    assert elements(term(DOUBTED[name])) is None


def test_a_constant_that_its_type_rounds_is_not_enumerated() -> None:
    assert elements(sel("full () 0.1 f32")) is None
    assert elements(sel("full () 0.5 f32")) == 0.5
    assert elements(sel("iota 2050 f16")) is None


def test_what_wraps_around_is_not_enumerated_and_what_does_not_is() -> None:
    def over(k: int) -> Any:
        return term(lambda: xp.astype(xp.arange(4), "i8") * k)

    assert elements(over(100)) is None
    found = elements(over(30))
    assert found is not None
    assert found.tolist() == [0, 30, 60, 90]


# -- programs --------------------------------------------------------------------------------------


CAUSAL: dict[str, Callable[[Any], Any]] = {
    "captured": lambda s: xp.where(TRI, s, -xp.inf),
    "captured, negated": lambda s: xp.where(~TRI, -xp.inf, s),
    "arange": lambda s: xp.where(xp.arange(6)[:, None] >= xp.arange(6), s, -xp.inf),
    "tril of ones": lambda s: xp.where(xp.tril(xp.ones((6, 6), dtype=xp.bool)), s, -xp.inf),
    "added": lambda s: s + BELOW,
    "added, of a batch": lambda s: (s[None] + np.stack([BELOW, BELOW])[:1])[0],
}
EQUAL: dict[str, tuple[Fn, Fn, tuple[str, ...]]] = {
    **{
        f"causal: {name}": (CAUSAL["captured"], mask, ("6x6:f32",))
        for name, mask in CAUSAL.items() if name != "captured"
    },
    "attention": (
        lambda q, k, v: nn.softmax(CAUSAL["tril of ones"](q @ k.T * 0.25)) @ v,
        lambda q, k, v: nn.softmax(q @ (k.T * 0.25) + BELOW) @ v,
        ("6x16:f32", "6x16:f32", "6x16:f32"),
    ),
    "zeros by a product": (lambda s: s * TRI.astype("f4"), xp.tril, ("6x6:f32",)),
    "ones": (lambda s: s * np.ones(6, "f4"), lambda s: s, ("6:f32",)),
    "zeros": (lambda s: s + np.zeros(6, "f4"), lambda s: s, ("6:f32",)),
    "arange": (lambda s: s * np.arange(6), lambda s: s * xp.arange(6), ("6:i32",)),
    "eye": (lambda s: s @ np.eye(6, dtype="f4"), lambda s: xp.eye(4, dtype="f32") @ s,
            ("4x6:f32",)),
    "beyond what is looked at": (
        lambda s: xp.where(xp.tril(xp.ones((2048, 2048), dtype=xp.bool)), s, 0), xp.tril,
        ("2048x2048:f32",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_spellings_of_constants_are_proved(name: str) -> None:
    a, b, specs = EQUAL[name]
    found = axe.equivalent(a, b, *specs)
    assert isinstance(found, Proved), str(found)
    assert axe.check_certificate(found.certificate)


def test_masks_are_proved_bit_for_bit() -> None:
    a, b, specs = EQUAL["causal: arange"]
    found = axe.equivalent(a, b, *specs, numerics="exact")
    assert isinstance(found, Proved)
    assert found.how == "decided"
    assert axe.check_certificate(found.certificate)


def test_a_large_mask_is_proved_as_long_as_it_is_looked_at() -> None:
    mask = np.where(np.tri(1 << 10, dtype=bool), 0, -np.inf).astype(np.float32)
    found = axe.equivalent(
        lambda s: s + mask, lambda s: mask + s, "1024x1024:f32", numerics="exact"
    )
    assert isinstance(found, Proved)
    assert axe.check_certificate(found.certificate)
    assert len(found.certificate.steps()) < 4000
    large = np.where(np.tri((1 << 10) + 1, dtype=bool), 0, -np.inf).astype(np.float32)
    found = axe.equivalent(lambda s: s + large, lambda s: large + s, "1025x1025:f32")
    assert isinstance(found, Proved)
    assert axe.check_certificate(found.certificate)


def test_one_element_apart_is_not_proved() -> None:
    other = BELOW.copy()
    other[5, 0] = -np.inf
    assert isinstance(axe.equivalent(lambda s: s + other, CAUSAL["captured"], "6x6:f32"), Refuted)
    close = np.linspace(0, 1, 6, dtype=np.float32)
    found = axe.equivalent(lambda s: s * close, lambda s: s * xp.linspace(0, 1, 6, dtype="f32"),
                           "6:f32", budget=5)  # fmt: skip
    assert isinstance(found, Unknown)


# -- certificates ----------------------------------------------------------------------------------


@cache
def certificate() -> str:
    """A certificate that causal masks are equal."""
    found = axe.equivalent(lambda s: s + BELOW, CAUSAL["captured"], "6x6:f32")
    assert isinstance(found, Proved)
    return str(found.certificate)


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    """That certificate with a changed statement."""
    document = json.loads(certificate())
    assert len(document["statement"]["where"]) == 2
    change(document["statement"])
    return json.dumps(document)


def hold(text: str) -> Callable[[dict[str, Any]], None]:
    """What the captured mask, whose name says that it is finite, is said to hold."""

    def change(statement: dict[str, Any]) -> None:
        for pair in statement["where"]:
            if not pair[0].startswith("const_below_"):
                pair[1] = text

    return change


FORGED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "nothing": (lambda s: s.pop("where"), "does not make root 0"),
    "another mask": (hold(str(array_text(~TRI))), "does not make root 0"),
    "another type": (hold(str(array_text(BELOW))), "is another"),
    "no array": (hold("runs (6,6) bool (1,) True"), "is another"),
    "what its name denies": (
        lambda s: (s["inputs"].append(["const_x", "f32[6,6]"]),
                   s["where"].append(["const_x", str(array_text(BELOW))])), "is another"),
    "a strange input": (lambda s: s["where"].append(["y", "iota 3 i64"]), "inputs that it states"),
    "one twice": (lambda s: s["where"].append(s["where"][0]), "each once"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_statement_about_an_array_is_refused(name: str) -> None:
    change, why = FORGED[name]
    assert why in str(refusal(changed(change)))
    assert refusal(changed(lambda s: None)) is None
