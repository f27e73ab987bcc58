"""Certificates as text: they round-trip, and nothing malformed parses."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from axe_eq.errors import AxeError
from axe_eq.program.terms import In, op
from axe_eq.prove.certificates.certificate import Firing, Proof, Statement, own_version, parse
from axe_eq.prove.certificates.proof import Certificate, write

X, Y = In("x", "f32[2,3]"), In("y", "f32[2,3]")
SUM = op("a b, a b -> a b", "add", X, Y)
MUS = op("a b, a b -> a b", "add", Y, X)
STATEMENT = Statement(
    "programs",
    (SUM, X),
    (MUS, X),
    (("x", "f32[2,3]"), ("y", "f32[2,3]")),
    {"real_normal": "2"},
    "real",
    ((X, op("a b -> a b", "neg", Y)),),
)
PROOF = Proof(
    STATEMENT,
    (Firing("real_normal/sum_form", (SUM,)), Firing("a/b", (3, "k", MUS), ((1, "c"),))),
    {"real_normal/sum_form": "x = its sum form.", "a/b": "a = b."},
)


def test_a_proof_survives_its_text() -> None:
    text = write(PROOF)
    assert parse(text) == PROOF
    assert text.proof == PROOF
    assert write(parse(text)) == text
    assert isinstance(text, Certificate)
    assert json.loads(text)["statement"]["kind"] == "programs"


def test_terms_are_shared_in_the_table() -> None:
    deep = X
    for _ in range(60):
        deep = op("a b, a b -> a b", "add", deep, deep)
    text = write(Proof(STATEMENT, (Firing("real_normal/sum_form", (deep,)),)))
    assert len(json.loads(text)["terms"]) < 200
    assert parse(text).firings[0].values == (deep,)


def test_the_statement_reads_as_a_sentence() -> None:
    assert str(STATEMENT) == (
        "two programs of (x: f32[2,3], y: f32[2,3]) are equal at these extents, over the reals, "
        f"assuming 1 equalities (axe_eq {own_version()}; packs: real_normal 2)"
    )


def test_steps_define_values_and_say_what_each_law_makes_equal() -> None:
    proof = Proof(
        Statement("programs", (SUM,), (MUS,), STATEMENT.inputs, {"real_normal": "2"}),
        (Firing("real_normal/sum_form", (SUM,)), Firing("real_normal/sum_form", (X,))),
    )
    text = write(proof).steps()
    assert "%0 = add(x, y)   [a b, a b -> a b]" in text
    assert "1. real_normal/sum_form" in text
    assert "2. real_normal/sum_form\n   refused: " in text
    assert "so " in text


Document = dict[str, Any]


def set_at(*path: Any) -> Callable[[Any], Callable[[Document], None]]:
    def with_value(value: Any) -> Callable[[Document], None]:
        def change(document: Document) -> None:
            place = document
            for step in path[:-1]:
                place = place[step]
            if value is KeyError:
                del place[path[-1]]
            else:
                place[path[-1]] = value

        return change

    return with_value


BAD: dict[str, Callable[[Document], None]] = {
    "format": set_at("format")("other"),
    "version": set_at("version")(1),
    "version is a bool": set_at("version")(True),
    "no version": set_at("version")(KeyError),
    "extra field": set_at("digest")("00"),
    "statement missing": set_at("statement")(KeyError),
    "statement is a list": set_at("statement")([]),
    "kind": set_at("statement", "kind")("kernels"),
    "numerics": set_at("statement", "numerics")("approximate"),
    "packs is a list": set_at("statement", "packs")(["real_normal"]),
    "pack version is a number": set_at("statement", "packs", "real_normal")(1),
    "no version of axe_eq": set_at("statement", "axe_eq")(KeyError),
    "version of axe_eq is a number": set_at("statement", "axe_eq")(1),
    "no laws": set_at("laws")(KeyError),
    "laws is a list": set_at("laws")(["a/b"]),
    "a law states a number": set_at("laws", "a/b")(3),
    "no inputs": set_at("statement", "inputs")(KeyError),
    "input without type": set_at("statement", "inputs", 0)(["x"]),
    "input name is a number": set_at("statement", "inputs", 0)([1, "f32[2,3]"]),
    "root is no term": set_at("statement", "left", "roots", 0)(99),
    "root is a bool": set_at("statement", "left", "roots", 0)(True),
    "roots missing": set_at("statement", "left", "roots")(KeyError),
    "terms is an object": set_at("terms")({}),
    "duplicate id": set_at("terms", 1, "id")(0),
    "id is a text": set_at("terms", 1, "id")("1"),
    "id is a bool": set_at("terms", 1, "id")(True),
    "unknown symbol": set_at("terms", 0, "symbol")("Kernel"),
    "symbol of another kind": set_at("terms", 0, "symbol")("Map"),
    "symbol is a number": set_at("terms", 0, "symbol")(3),
    "term with an extra field": set_at("terms", 0, "type")("f32[2,3]"),
    "too few arguments": set_at("terms", 0, "args")(["x"]),
    "argument of the wrong kind": set_at("terms", 0, "args")(["x", 3]),
    "child of the wrong sort": set_at("terms", 3, "args")([0, 0]),
    "child not defined yet": set_at("terms", 3, "args")([30, 2]),
    "instances missing": set_at("instances")(KeyError),
    "law is a number": set_at("instances", 0, "law")(1),
    "value is a float": set_at("instances", 1, "values", 0)(3.0),
    "value is a bool": set_at("instances", 1, "values", 0)(True),
    "value is null": set_at("instances", 1, "values", 0)(None),
    "value is a list": set_at("instances", 1, "values", 0)([1]),
    "value is an unknown term": set_at("instances", 0, "values", 0)({"term": 99}),
    "value with two fields": set_at("instances", 0, "values", 0)({"term": 0, "sort": "Value"}),
    "choice is a term": set_at("instances", 1, "choices", 0, 0)({"term": 0}),
    "choices is a number": set_at("instances", 1, "choices")(1),
    "assumptions of different numbers": set_at("statement", "assume", "left", "roots")([]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_malformed_documents_are_refused(name: str) -> None:
    document = json.loads(write(PROOF))
    parse(json.dumps(document))
    changed = copy.deepcopy(document)
    BAD[name](changed)
    assert json.dumps(changed) != json.dumps(document)
    with pytest.raises(AxeError, match=r"^certificate: "):
        parse(json.dumps(changed))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '"certificate"',
        "[" * 100_000,
        '{"format": NaN}',
        b"\xff\xfe",
        write(PROOF).replace('"kind": "programs"', '"kind": "programs", "kind": "layouts"'),
        write(PROOF).replace('"id": 0', '"id": 0, "id": 7', 1),
    ],
    ids=range(11),
)
def test_texts_that_are_no_documents_are_refused(text: str | bytes) -> None:
    with pytest.raises(AxeError, match=r"^certificate: "):
        parse(text)
