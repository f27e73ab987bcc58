"""Certificates: a statement, a term table, and an unordered set of ground law instances.

A certificate is JSON text. Its statement holds both sides in full, so that whoever reads it knows
what is claimed; the instances are claims that a checker repeats by calling the laws. Nothing in it
is trusted: there are no digests, only ids that index its own tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from axe_eq.errors import AxeError
from axe_eq.layout import terms as layout_terms
from axe_eq.program import terms as program_terms
from axe_eq.rule.term import INT, STR, Ground, Symbol, Term, postorder

FORMAT, VERSION = "axe_eq certificate", 1
PROGRAMS, LAYOUTS = "programs", "layouts"
SYMBOLS: dict[str, dict[str, Symbol]] = {
    PROGRAMS: {
        s.name: s
        for s in (
            program_terms.In,
            program_terms.Op,
            program_terms.Sel,
            program_terms.Nil,
            program_terms.Cons,
        )
    },
    LAYOUTS: {s.name: s for s in layout_terms.SYMBOLS},
}
MAX_NODES = 2_000_000


def refuse(wrong: str, expected: str = "") -> AxeError:
    """The error of a certificate that is not accepted."""
    return AxeError("certificate", wrong, expected)


@dataclass(frozen=True)
class Statement:
    """What is claimed: the roots of both sides are equal, one by one.

    Attributes:
        kind: "programs" or "layouts".
        left, right: roots of the two sides.
        inputs: name and type of every input that the sides share, in order (programs only).
        packs: name -> version of the packs whose laws are believed.
        numerics: "real" or "exact".
        assume: pairs of terms that are taken to be equal.
    """

    kind: str
    left: tuple[Term, ...]
    right: tuple[Term, ...]
    inputs: tuple[tuple[str, str], ...] = ()
    packs: Mapping[str, str] = field(default_factory=dict)
    numerics: str = "real"
    assume: tuple[tuple[Term, Term], ...] = ()

    def __str__(self) -> str:
        names = " ".join(f"{name} {version}" for name, version in sorted(self.packs.items()))
        by = f" (packs: {names})" if names else ""
        if self.kind == LAYOUTS:
            left, right = (layout_terms.decode(t) for t in (*self.left, *self.right))
            return f"{left} = {right}{by}"
        how = "over the reals" if self.numerics == "real" else "bit for bit"
        given = f", assuming {len(self.assume)} equalities" if self.assume else ""
        inputs = ", ".join(f"{name}: {type}" for name, type in self.inputs)
        return f"two programs of ({inputs}) are equal {how}{given}{by}"


@dataclass(frozen=True)
class Firing:
    """One ground law instance: the law's key, its parameters, the results of its relations."""

    law: str
    values: tuple[Ground, ...]
    choices: tuple[tuple[Ground, ...], ...] = ()


@dataclass(frozen=True)
class Proof:
    """A certificate as values."""

    statement: Statement
    firings: tuple[Firing, ...]


class Certificate(str):
    """A certificate: JSON text that `check_certificate` judges and `steps` explains."""

    __slots__ = ()

    @property
    def proof(self) -> Proof:
        """The certificate as values.

        Raises:
            AxeError: the text is malformed.
        """
        return parse(self)

    def steps(self) -> str:
        """The statement and every law instance with both its sides, for people."""
        from axe_eq.prove.steps import steps

        return steps(self.proof)


# -- writing ---------------------------------------------------------------------------------------


class _Table:
    """Terms by number, children first."""

    def __init__(self) -> None:
        self.ids: dict[Term, int] = {}
        self.rows: list[dict[str, Any]] = []

    def id(self, term: Term) -> int:
        for sub in postorder(term, self.ids):
            args = [self.ids[a] if isinstance(a, Term) else a for a in sub.args]
            self.rows.append({"id": len(self.rows), "symbol": sub.symbol.name, "args": args})
            self.ids[sub] = len(self.ids)
        return self.ids[term]

    def ground(self, value: Ground) -> int | str | dict[str, int]:
        return {"term": self.id(value)} if isinstance(value, Term) else value


def write(proof: Proof) -> Certificate:
    """The JSON text of a proof."""
    table = _Table()
    firings = [
        {
            "law": f.law,
            "values": [table.ground(v) for v in f.values],
            **({"choices": [list(c) for c in f.choices]} if f.choices else {}),
        }
        for f in proof.firings
    ]
    document = {
        "format": FORMAT,
        "version": VERSION,
        "statement": _statement(proof.statement),
        "terms": table.rows,
        "instances": firings,
    }
    return Certificate(json.dumps(document, indent=1, ensure_ascii=False))


def _statement(statement: Statement) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": statement.kind,
        "numerics": statement.numerics,
        "packs": dict(sorted(statement.packs.items())),
        "left": _side(statement.left),
        "right": _side(statement.right),
    }
    if statement.kind == PROGRAMS:
        document["inputs"] = [list(pair) for pair in statement.inputs]
    if statement.assume:
        sides = zip(*statement.assume, strict=True)
        document["assume"] = dict(zip(("left", "right"), map(_side, sides), strict=True))
    return document


def _side(roots: Sequence[Term]) -> dict[str, Any]:
    table = _Table()
    ids = [table.id(root) for root in roots]
    return {"terms": table.rows, "roots": ids}


# -- reading ---------------------------------------------------------------------------------------


def parse(text: str | bytes) -> Proof:
    """A proof from its JSON text.

    Raises:
        AxeError: malformed in any way.
    """
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise refuse(f"is not JSON ({error})") from None
    names = ("format", "version", "statement", "terms", "instances")
    form, version, statement, terms, instances = _fields(document, names)
    if form != FORMAT or type(version) is not int or version != VERSION:
        raise refuse(f"has format {form!r} version {version!r}", f"{FORMAT!r} version {VERSION}")
    claimed = _read_statement(statement)
    table = _read_table(terms, SYMBOLS[claimed.kind])
    return Proof(claimed, tuple(_firing(item, table) for item in _list(instances, "instances")))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"constant {name}")


def _fields(value: Any, required: Sequence[str], optional: Sequence[str] = ()) -> list[Any]:
    """Values of an object's fields, in order; optional ones are None where absent."""
    if not isinstance(value, dict):
        raise refuse(f"has {value!r}", f"an object with {' '.join(required)}")
    missing = [n for n in required if n not in value]
    strange = [n for n in value if n not in required and n not in optional]
    if missing or strange:
        raise refuse(f"lacks {missing} and has {strange}", f"fields {' '.join(required)}")
    return [value.get(n) for n in (*required, *optional)]


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_NODES:
        raise refuse(f"has no usable list of {what}", "a JSON array")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise refuse(f"{what} is {value!r}", "a text")
    return value


def _read_statement(value: Any) -> Statement:
    required = ("kind", "numerics", "packs", "left", "right")
    kind, numerics, packs, left, right, inputs, assume = _fields(
        value, required, ("inputs", "assume")
    )
    if kind not in (PROGRAMS, LAYOUTS) or numerics not in ("real", "exact"):
        raise refuse(f"is about {kind!r}, {numerics!r}", "programs or layouts; real or exact")
    if not isinstance(packs, dict):
        raise refuse(f"has packs {packs!r}", "an object of names and versions")
    symbols = SYMBOLS[kind]
    return Statement(
        kind,
        _read_side(left, symbols),
        _read_side(right, symbols),
        _read_inputs(inputs) if kind == PROGRAMS else (),
        {_text(name, "pack"): _text(version, "version") for name, version in packs.items()},
        numerics,
        _read_assumptions(assume, symbols) if assume is not None else (),
    )


def _read_inputs(value: Any) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in _list(value, "inputs"):
        name, type = _list(pair, "name and type") if len(pair) == 2 else (None, None)
        found.append((_text(name, "input name"), _text(type, "input type")))
    return tuple(found)


def _read_side(value: Any, symbols: Mapping[str, Symbol]) -> tuple[Term, ...]:
    terms, roots = _fields(value, ("terms", "roots"))
    table = _read_table(terms, symbols)
    return tuple(_term(root, table) for root in _list(roots, "roots"))


def _read_assumptions(value: Any, symbols: Mapping[str, Symbol]) -> tuple[tuple[Term, Term], ...]:
    left, right = (_read_side(side, symbols) for side in _fields(value, ("left", "right")))
    if len(left) != len(right):
        raise refuse("assumes a different number of left and right sides")
    return tuple(zip(left, right, strict=True))


def _read_table(value: Any, symbols: Mapping[str, Symbol]) -> dict[int, Term]:
    """Terms by id; children stand before their parents, no id twice."""
    table: dict[int, Term] = {}
    for row in _list(value, "terms"):
        number, name, args = _fields(row, ("id", "symbol", "args"))
        if type(number) is not int or number in table:
            raise refuse(f"has the term id {number!r} twice or not as an integer", "unique ids")
        if not isinstance(name, str) or name not in symbols:
            raise refuse(f"term {number} has symbol {name!r}", f"one of {' '.join(symbols)}")
        symbol = symbols[name]
        if len(_list(args, "arguments")) != len(symbol.args):
            raise refuse(f"term {number} has {len(args)} arguments", f"{len(symbol.args)}")
        given = zip(args, symbol.args, strict=True)
        table[number] = Term(symbol, tuple(_argument(a, s, table) for a, s in given))
    return table


def _argument(value: Any, sort: Any, table: Mapping[int, Term]) -> Ground:
    if sort == INT:
        if type(value) is not int:
            raise refuse(f"has the argument {value!r}", "an integer")
        return value
    if sort == STR:
        return _text(value, "an argument")
    term = _term(value, table)
    if term.sort != sort:
        raise refuse(f"has an argument of sort {term.sort}", str(sort))
    return term


def _term(value: Any, table: Mapping[int, Term]) -> Term:
    if type(value) is not int or value not in table:
        raise refuse(f"refers to term {value!r}", "a term defined before")
    return table[value]


def _firing(value: Any, table: Mapping[int, Term]) -> Firing:
    law, values, choices = _fields(value, ("law", "values"), ("choices",))
    rows = [] if choices is None else _list(choices, "choices")
    return Firing(
        _text(law, "law"),
        tuple(_ground(v, table) for v in _list(values, "values")),
        tuple(tuple(_primitive(x) for x in _list(row, "choices")) for row in rows),
    )


def _ground(value: Any, table: Mapping[int, Term]) -> Ground:
    if isinstance(value, dict):
        return _term(_fields(value, ("term",))[0], table)
    return _primitive(value)


def _primitive(value: Any) -> int | str:
    if type(value) is int or type(value) is str:
        return value
    raise refuse(f"has the value {value!r}", "an integer, a text, or a term")
