"""Programs as terms: a constructor for block operators, selectors, scans; encode and decode.

Encoding applies no law: ``decode(encode(program))`` is the program, node for node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from axe_eq.program.node import (
    INPUT,
    OP,
    SCAN,
    SEL,
    Node,
    input_node,
    made_node,
    op_type,
    scan_type,
    sel_type,
    topological,
)
from axe_eq.program.types import value_type
from axe_eq.rule.term import INT, STR, Analysis, Primitive, Sort, Symbol, Term, postorder, primitive

VALUE = Sort("Value")
ARGS = Sort("Args")

Int = Annotated[Any, INT]
Text = Annotated[Any, STR]
Sig = Annotated[Any, STR]
Cell = Annotated[Any, STR]
Spec = Annotated[Any, STR]
Along = Annotated[Any, STR]
Type = Annotated[Any, STR]
Value = Annotated[Any, VALUE]
Args = Annotated[Any, ARGS]

In = Symbol("In", (STR, STR), VALUE)  # name, type
Op = Symbol("Op", (STR, STR, ARGS), VALUE)  # signature, cell, operands
Sel = Symbol("Sel", (STR, ARGS), VALUE)  # selector text, operands
Scan = Symbol("Scan", (STR, ARGS), VALUE)  # scan text, operands
Nil = Symbol("ANil", (), ARGS)
Cons = Symbol("ACons", (VALUE, ARGS), ARGS)


def args(*values: Any, rest: Any = None) -> Any:
    """The operand list of these values, ending in `rest` (an operand list) where given."""
    result = Nil() if rest is None else rest
    for value in reversed(values):
        result = Cons(value, result)
    return result


def op(sig: Any, cell: Any, *values: Any) -> Term:
    """A block operator on these operands."""
    return Op(sig, cell, args(*values))


def sel(spec: Any, *values: Any) -> Term:
    """A selector on these operands."""
    return Sel(spec, args(*values))


def scan(text: Any, *values: Any) -> Term:
    """A scan of these operands."""
    return Scan(text, args(*values))


def operands(term: Term) -> list[Term]:
    """Operands of an operator term, or the elements of an operand list."""
    rest = term if term.sort == ARGS else term.args[-1]
    found = []
    while rest.args:
        found.append(rest.args[0])
        rest = rest.args[1]
    return found


@primitive((STR, STR, STR), (STR,))
def type_of_op(sig: str, cell: str, types: str) -> str | None:
    """Type text of a block operator from its operands' type texts."""
    return _type(lambda ts: op_type(sig, cell, ts), types)


@primitive((STR, STR), (STR,))
def type_of_sel(spec: str, types: str) -> str | None:
    """Type text of a selector from its operands' type texts."""
    return _type(lambda ts: sel_type(spec, ts), types)


@primitive((STR, STR), (STR,))
def type_of_scan(text: str, types: str) -> str | None:
    """Type text of a scan from its operands' type texts."""
    return _type(lambda ts: scan_type(text, ts), types)


def _type(infer: Callable[[tuple[Any, ...]], Any], types: str) -> str | None:
    from axe_eq.errors import ProgramError

    try:
        return str(infer(tuple(value_type(t) for t in types.split(";")[:-1])))
    except ProgramError:
        return None


def _compute_types(term: Term, known: Callable[[Term], Any]) -> str | None:
    facts = [type_of.of(a) for a in operands(term)]
    return None if None in facts else "".join(f"{t};" for t in facts)


def _compute_type(term: Term, known: Callable[[Term], Any]) -> str | None:
    if term.symbol is In:
        return str(term.args[1])
    facts = [known(a) for a in operands(term)]
    if None in facts:
        return None
    types = "".join(f"{t};" for t in facts)
    infer = _INFER[term.symbol]
    rows = infer.rows((*term.args[:-1], types))
    return str(rows[0][0]) if rows else None


_INFER: dict[Symbol, Primitive] = {Op: type_of_op, Sel: type_of_sel, Scan: type_of_scan}
type_of = Analysis("type", VALUE, STR, _compute_type)
types_of = Analysis("types", ARGS, STR, _compute_types)


@type_of.rule
def _type_in(name: Text, type: Type) -> tuple[Term, Any]:
    return In(name, type), type


@type_of.rule
def _type_op(sig: Sig, cell: Cell, rest: Args) -> tuple[Term, Any]:
    return Op(sig, cell, rest), type_of_op(sig, cell, types_of(rest))


@type_of.rule
def _type_sel(spec: Spec, rest: Args) -> tuple[Term, Any]:
    return Sel(spec, rest), type_of_sel(spec, types_of(rest))


@type_of.rule
def _type_scan(text: Along, rest: Args) -> tuple[Term, Any]:
    return Scan(text, rest), type_of_scan(text, types_of(rest))


@types_of.rule
def _types_nil() -> tuple[Term, Any]:
    return Nil(), ""


@types_of.rule
def _types_cons(head: Value, rest: Args) -> tuple[Term, Any]:
    return Cons(head, rest), type_of(head) + ";" + types_of(rest)


def encode(roots: Sequence[Node]) -> dict[Node, Term]:
    """Terms of every node the roots reach, operands before users."""
    terms: dict[Node, Term] = {}
    for node in topological(roots):
        given = [terms[a] for a in node.args]
        if node.kind == INPUT:
            terms[node] = In(node.text, str(node.type))
        elif node.kind == OP:
            terms[node] = op(node.text, node.cell, *given)
        else:
            terms[node] = (scan if node.kind == SCAN else sel)(node.text, *given)
    return terms


def decode(term: Term) -> Node:
    """The node that a term denotes; inverse of `encode`."""
    nodes: dict[Term, Node] = {}
    for sub in postorder(term):
        if sub.sort == VALUE:
            nodes[sub] = _decode_one(sub, nodes)
    return nodes[term]


def _decode_one(term: Term, nodes: dict[Term, Node]) -> Node:
    if term.symbol is In:
        return input_node(term.args[0], value_type(term.args[1]))
    given = [nodes[a] for a in operands(term)]
    cell = term.args[1] if term.symbol is Op else ""
    return made_node(_KINDS[term.symbol], term.args[0], cell, given)


_KINDS = {Op: OP, Sel: SEL, Scan: SCAN}
OPERATORS = tuple(_KINDS)
