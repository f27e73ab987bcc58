"""A certificate as text for people: what each law instance says, with shared values named."""

from __future__ import annotations

from collections.abc import Iterator

from axe_eq.errors import AxeError
from axe_eq.layout import terms as layout_terms
from axe_eq.pack import installed
from axe_eq.program.terms import VALUE, In, Op, operands
from axe_eq.prove.certificate import Firing, Proof, Statement
from axe_eq.prove.checker import believed, instantiate
from axe_eq.rule.term import Ground, Term, postorder


def steps(proof: Proof) -> str:
    """The statement and every law instance as text; each value is defined where it first occurs."""
    names: dict[Term, str] = {}
    lines = [str(proof.statement), ""]
    for side, roots in (("left", proof.statement.left), ("right", proof.statement.right)):
        for root in roots:
            lines += _define(root, names)
        lines += [f"{side}: {', '.join(names[root] for root in roots)}", ""]
    for number, firing in enumerate(proof.firings, 1):
        lines.append(f"{number}. {firing.law}")
        lines += [f"   {line}" for line in _step(firing, proof.statement, names)]
    if not proof.firings:
        lines.append("Both sides are the same term.")
    return "\n".join(lines)


def _step(firing: Firing, statement: Statement, names: dict[Term, str]) -> Iterator[str]:
    try:
        packs = believed(statement, installed())
        instance = instantiate(firing, packs, statement)
    except AxeError as error:
        yield f"refused: {error}"
        return
    name, _, law = firing.law.partition("/")
    yield packs[name].laws[law].statement
    for side in (instance.left, instance.right):
        yield from _define(side, names)
    yield f"so {names[instance.left]} = {names[instance.right]}"


def _define(value: Ground, names: dict[Term, str]) -> Iterator[str]:
    """Lines that define a value and what it is made of, where not defined before."""
    if not isinstance(value, Term):
        return
    for sub in postorder(value, names):
        if sub.symbol is In:
            names[sub] = sub.args[0]
        elif sub.sort == VALUE:
            names[sub] = f"%{sum(name.startswith('%') for name in names.values())}"
            given = ", ".join(names[a] for a in operands(sub))
            head = sub.args[1] if sub.symbol is Op else sub.args[0]
            sig = f"   [{sub.args[0]}]" if sub.symbol is Op else ""
            yield f"{names[sub]} = {head}({given}){sig}"
        elif sub.sort == layout_terms.LAYOUT:
            names[sub] = str(layout_terms.decode(sub))
        else:
            names[sub] = ""
