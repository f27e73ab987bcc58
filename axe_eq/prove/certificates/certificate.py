"""Certificates: a statement, a term table, and an unordered set of ground law instances.

A certificate is JSON text. Its statement holds both sides in full, so that whoever reads it knows
what is claimed, and who claims it: the versions of axe_eq, which gives operators their meaning, and
of the packs whose laws are believed. The laws that instances use are listed with what they state.
The instances are claims that a checker repeats by calling the laws. Nothing in it is trusted: there
are no digests, only ids that index its own tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from textwrap import shorten
from typing import Any

from axe_eq.errors import AxeError
from axe_eq.layout import Mesh
from axe_eq.layout.notation import NO_CONTEXT, Context, checked
from axe_eq.layout.symbolic import terms as layout_terms
from axe_eq.layout.symbolic.check import unknowns
from axe_eq.layout.symbolic.instances import names_in
from axe_eq.layout.symbolic.show import show
from axe_eq.program import terms as program_terms
from axe_eq.program.facts import facts_of_input
from axe_eq.program.known import FINITE
from axe_eq.rule.term import INT, STR, Ground, Symbol, Term, postorder

FORMAT, VERSION = "axe_eq certificate", 3
READABLE = (2, VERSION)  # 2 has no context of texts
PROGRAMS, LAYOUTS = "programs", "layouts"
SYMBOLS: dict[str, dict[str, Symbol]] = {
    PROGRAMS: {
        s.name: s
        for s in (program_terms.In, *program_terms.OPERATORS, program_terms.Nil, program_terms.Cons)
    },
    LAYOUTS: {s.name: s for s in layout_terms.SYMBOLS},
}
MAX_NODES = 2_000_000


@cache
def own_version() -> str:
    """The version of axe_eq that is running; "unknown" where it is not installed."""
    try:
        return version("axe-eq")
    except PackageNotFoundError:
        return "unknown"


def refuse(wrong: str, expected: str = "") -> AxeError:
    """The error of a certificate that is not accepted."""
    return AxeError("certificate", wrong, expected)


@dataclass(frozen=True)
class Statement:
    """What is claimed: the roots of both sides are equal, one by one.

    Attributes:
        kind: "programs" or "layouts".
        left, right: roots of the two sides.
        inputs: name and type of every input that the sides share, in order (programs only). Over
            the reals they stand for all finite values, but for captured arrays that are not
            finite: their names say so (`axe_eq.program.facts`).
        packs: name -> version of the packs whose laws are believed.
        numerics: "real" or "exact".
        assume: pairs of terms that are taken to be equal.
        axe_eq: version of axe_eq: what operators and layouts mean.
        where: name -> what it stands for: of names in layouts of which something is assumed, and
            of inputs that are captured arrays whose elements matter, the text of a selector.
        texts: what the two layouts were read from, where they were given so; the checker reads them
            again.
        context: what the texts leave out, with which they were read.
    """

    kind: str
    left: tuple[Term, ...]
    right: tuple[Term, ...]
    inputs: tuple[tuple[str, str], ...] = ()
    packs: Mapping[str, str] = field(default_factory=dict)
    numerics: str = "real"
    assume: tuple[tuple[Term, Term], ...] = ()
    axe_eq: str = field(default_factory=own_version)
    where: tuple[tuple[str, str], ...] = ()
    texts: tuple[str, ...] = ()
    context: Context = NO_CONTEXT

    @property
    def given(self) -> tuple[tuple[Term, Term], ...]:
        """Pairs of terms that are equal by the statement: captured arrays, then assumptions."""
        if self.kind == LAYOUTS:
            return self.assume
        types = dict(self.inputs)
        held = ((program_terms.In(n, types[n]), program_terms.sel(k)) for n, k in self.where)
        return (*held, *self.assume)

    def __str__(self) -> str:
        names = " ".join(f"{name} {version}" for name, version in sorted(self.packs.items()))
        by = f" (axe_eq {self.axe_eq}{f'; packs: {names}' if names else ''})"
        if self.kind == LAYOUTS:
            return f"{_layouts(self)}{by}"
        how = "over the reals" if self.numerics == "real" else "bit for bit"
        held = dict(self.where)
        wild = [
            name
            for name, type in self.inputs
            if name not in held and facts_of_input(name, type) & FINITE != FINITE
        ]
        if wild and self.numerics == "real":
            how += f", whatever infinities and NaN {' and '.join(wild)} may hold"
        if self.where:
            how += ", where " + ", ".join(f"{n} = {shorten(k, 60)}" for n, k in self.where)
        given = f", assuming {len(self.assume)} equalities" if self.assume else ""
        inputs = ", ".join(f"{name}: {type}" for name, type in self.inputs)
        return f"two programs of ({inputs}) are equal at these extents, {how}{given}{by}"


def _layouts(statement: Statement) -> str:
    """A statement about layouts, with what it is about."""
    (left,), (right,) = statement.left, statement.right
    unknown, names = sorted(unknowns((left, right))), sorted(names_in((left, right)))
    text = f"{show(left)} = {show(right)}"
    if statement.texts:
        read = f"read as {show(left)} and {show(right)}"
        same = f"both read as {show(left)}"
        claim = " = ".join(statement.texts) + _context_text(statement.context)
        text = f"{claim}, {same if left is right else read}"
    if unknown:
        text += f", for all layouts {', '.join(unknown)}"
    if names:
        text += f", for all positive integers {', '.join(names)}"
    if statement.where:
        text += ", where " + ", ".join(f"{name} = {value}" for name, value in statement.where)
    if statement.assume:
        given = (f"{show(a)} = {show(b)}" for a, b in statement.assume)
        text += f", assuming {' and '.join(given)}"
    return text


def _context_text(context: Context) -> str:
    """What texts were read with, in the words of the command line."""
    shape, mesh, itemsize = context
    said = [] if shape is None else [f"shape {'x'.join(map(str, shape)) or '()'}"]
    if mesh is not None:
        dims = ",".join(f"{name}={extent}" for name, extent in mesh.shape.items())
        order = "" if mesh.order == tuple(mesh.shape) else f", {' '.join(mesh.order)} slow to fast"
        said.append(f"mesh {dims or '()'} on {mesh.axis}{order}")
    said += [] if itemsize is None else [f"itemsize {itemsize}"]
    return f" with {', '.join(said)}" if said else ""


@dataclass(frozen=True)
class Firing:
    """One ground law instance: the law's key, its parameters, the results of its relations."""

    law: str
    values: tuple[Ground, ...]
    choices: tuple[tuple[Ground, ...], ...] = ()


@dataclass(frozen=True)
class Proof:
    """A certificate as values.

    Attributes:
        statement: what is claimed.
        firings: the instances that prove it.
        laws: key -> what the law states, of every law that an instance uses.
    """

    statement: Statement
    firings: tuple[Firing, ...]
    laws: Mapping[str, str] = field(default_factory=dict)


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


def written(proof: Proof) -> str:
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
        "laws": dict(sorted(proof.laws.items())),
        "terms": table.rows,
        "instances": firings,
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def _statement(statement: Statement) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": statement.kind,
        "numerics": statement.numerics,
        "axe_eq": statement.axe_eq,
        "packs": dict(sorted(statement.packs.items())),
        "left": _side_data(statement.left),
        "right": _side_data(statement.right),
    }
    if statement.kind == PROGRAMS:
        document["inputs"] = [list(pair) for pair in statement.inputs]
    if statement.texts:
        document["texts"] = list(statement.texts)
    if statement.context != NO_CONTEXT:
        document["context"] = _context_data(statement.context)
    if statement.where:
        document["where"] = [list(pair) for pair in statement.where]
    if statement.assume:
        sides = zip(*statement.assume, strict=True)
        document["assume"] = dict(zip(("left", "right"), map(_side_data, sides), strict=True))
    return document


def _context_data(context: Context) -> dict[str, Any]:
    shape, mesh, itemsize = context
    document: dict[str, Any] = {} if shape is None else {"shape": list(shape)}
    if mesh is not None:
        dims = [list(pair) for pair in mesh.shape.items()]
        order = {} if mesh.order == tuple(mesh.shape) else {"order": list(mesh.order)}
        document["mesh"] = {"dims": dims, "axis": mesh.axis, **order}
    return document if itemsize is None else {**document, "itemsize": itemsize}


def _side_data(roots: Sequence[Term]) -> dict[str, Any]:
    """Terms as a table of their own and their numbers in it; `_read_side` reads it."""
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
    _check_unicode(text)
    if not isinstance(document, dict):
        raise refuse(f"is a {type(document).__name__}", "a JSON object")
    form, number = document.get("format"), document.get("version")
    if form != FORMAT or type(number) is not int or number not in READABLE:
        versions = " or ".join(map(str, READABLE))
        raise refuse(f"has format {form!r} version {number!r}", f"{FORMAT!r} version {versions}")
    names = ("format", "version", "statement", "laws", "terms", "instances")
    _, _, statement, laws, terms, instances = _fields(document, names)
    claimed = _read_statement(statement)
    if claimed.context != NO_CONTEXT and number < VERSION:
        raise refuse(f"has a context in version {number}", f"version {VERSION}")
    table = _read_table(terms, SYMBOLS[claimed.kind])
    firings = tuple(_firing(item, table) for item in _list(instances, "instances"))
    return Proof(claimed, firings, _read_texts(laws, "law", "statement"))


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def _check_unicode(text: str | bytes) -> None:
    """Refuse texts with half a character, which no file and no terminal can show."""
    given = text if isinstance(text, str) else text.decode("utf-8", "replace")
    if _SURROGATE.search(given):
        try:
            json.dumps(json.loads(given), ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"U+{ord(error.object[error.start]):04X}"
            raise refuse(f"holds a text with {half}, half a character", "Unicode text") from None


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
    required = ("kind", "numerics", "axe_eq", "packs", "left", "right")
    kind, numerics, own, packs, left, right, inputs, assume, where, texts, context = _fields(
        value, required, ("inputs", "assume", "where", "texts", "context")
    )
    if kind not in (PROGRAMS, LAYOUTS) or numerics not in ("real", "exact"):
        raise refuse(f"is about {kind!r}, {numerics!r}", "programs or layouts; real or exact")
    symbols = SYMBOLS[kind]
    return Statement(
        kind,
        _read_side(left, symbols),
        _read_side(right, symbols),
        _read_inputs(inputs) if kind == PROGRAMS else (),
        _read_texts(packs, "pack", "version"),
        numerics,
        _read_assumptions(assume, symbols) if assume is not None else (),
        _text(own, "the version of axe_eq"),
        () if where is None else _read_inputs(where),
        () if texts is None else tuple(_text(t, "a layout") for t in _list(texts, "texts")),
        NO_CONTEXT if context is None else _read_context(context),
    )


def _read_context(value: Any) -> Context:
    shape, mesh, itemsize = _fields(value, (), ("shape", "mesh", "itemsize"))
    devices = None
    if mesh is not None:
        dims, axis, order = _fields(mesh, ("dims", "axis"), ("order",))
        pairs = [_list(pair, "mesh dims") for pair in _list(dims, "mesh dims")]
        if not all(len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
            raise refuse(f"has the mesh dims {dims!r}", "pairs of a name and an extent")
        if len({name for name, _ in pairs}) < len(pairs):
            raise refuse("names a mesh dim twice", "one extent per name")
        names = None if order is None else [_text(n, "mesh order") for n in _list(order, "order")]
        devices = Mesh(dict(pairs), _text(axis, "the axis of the mesh"), order=names)
    return checked(None if shape is None else _list(shape, "extents"), devices, itemsize)


def _read_texts(value: Any, key: str, what: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise refuse(f"has {value!r} as its {key}s", f"an object of names and {what}s")
    return {_text(name, key): _text(text, what) for name, text in value.items()}


def _read_inputs(value: Any) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in _list(value, "inputs"):
        name, type = _list(pair, "name and type") if len(pair) == 2 else (None, None)
        found.append((_text(name, "input name"), _text(type, "input type")))
    return tuple(found)


def _read_side(value: Any, symbols: Mapping[str, Symbol]) -> tuple[Term, ...]:
    """The terms that `_side_data` wrote.

    Raises:
        AxeError: malformed in any way.
    """
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
