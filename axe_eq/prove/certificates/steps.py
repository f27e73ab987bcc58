"""A certificate as steps for people: what each law instance says, with shared values named."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from textwrap import shorten
from typing import NamedTuple

from axe_eq.errors import AxeError
from axe_eq.layout.symbolic.show import show_part
from axe_eq.pack import Pack, installed
from axe_eq.program.terms import VALUE, In, Op, Scan, operands
from axe_eq.prove.certificates.certificate import LAYOUTS, Firing, Proof, Statement
from axe_eq.prove.certificates.checker import believed, instantiate
from axe_eq.rule.law import Instance
from axe_eq.rule.term import Ground, Term, mapped, postorder

_LONGEST = 160  # letters of an operator's text
MOST_SEEN = 2000  # terms that the search for a chain looks at


class Step(NamedTuple):
    """One law instance.

    Attributes:
        law: its key, ``pack/law``.
        says: the law's statement; why it is refused where it does not hold.
        defined: lines that define what it speaks of and nothing before did.
        left, right: the two sides it makes equal; None where it is refused.
    """

    law: str
    says: str
    defined: tuple[str, ...]
    left: str | None
    right: str | None


class Link(NamedTuple):
    """A piece of a chain of equal things: the number of the step that leads to it, its text."""

    step: int | None
    text: str


class Account(NamedTuple):
    """A certificate told in order.

    Attributes:
        statement: what is claimed.
        left, right: per side the lines that define its roots, and their names.
        steps: the law instances.
        chain: from the left root to the right one, an instance at a time; empty where no such way
            was found, or there are several roots.
    """

    statement: str
    left: tuple[tuple[str, ...], tuple[str, ...]]
    right: tuple[tuple[str, ...], tuple[str, ...]]
    steps: tuple[Step, ...]
    chain: tuple[Link, ...]


def account(
    proof: Proof, packs: Mapping[str, Pack] | None = None, *, chained: bool = True
) -> Account:
    """Tell a certificate; every value is defined where it first occurs.

    Args:
        proof: a certificate as values.
        packs: where to look up its laws; the installed ones by default.
        chained: look for a chain from one side to the other; a certificate that is refused need not
            have one, and to find none takes seconds.
    """
    known = installed() if packs is None else packs
    names: dict[Term, str] = {}
    sides = []
    for roots in (proof.statement.left, proof.statement.right):
        lines = tuple(line for root in roots for line in _define(root, names))
        sides.append((lines, tuple(names[root] for root in roots)))
    instances = [_instance(firing, proof.statement, known) for firing in proof.firings]
    pairs = zip(proof.firings, instances, strict=True)
    told = tuple(_step(firing, found, known, names) for firing, found in pairs)
    chain = _chain(proof.statement, instances, names) if chained else ()
    return Account(str(proof.statement), sides[0], sides[1], told, chain)


def steps(proof: Proof) -> str:
    """The statement and every law instance as text."""
    told = account(proof)
    lines = [told.statement, ""]
    for side, (defined, roots) in (("left", told.left), ("right", told.right)):
        lines += [*defined, f"{side}: {', '.join(roots)}", ""]
    for number, step in enumerate(told.steps, 1):
        lines += [f"{number}. {step.law}", f"   {step.says}"]
        lines += [f"   {line}" for line in step.defined]
        if step.left is not None:
            lines.append(f"   so {step.left} = {step.right}")
    if not told.steps:
        lines.append("Both sides are the same term.")
    return "\n".join(lines)


def _instance(firing: Firing, statement: Statement, known: Mapping[str, Pack]) -> Instance | str:
    """The law instance, or why it is refused."""
    try:
        return instantiate(firing, believed(statement, known), statement)
    except AxeError as error:
        return str(error)


def _step(
    firing: Firing, found: Instance | str, known: Mapping[str, Pack], names: dict[Term, str]
) -> Step:
    if isinstance(found, str):
        return Step(firing.law, f"refused: {found}", (), None, None)
    name, _, law = firing.law.partition("/")
    says = known[name].laws[law].statement
    defined = tuple(line for side in (found.left, found.right) for line in _define(side, names))
    return Step(firing.law, says, defined, _name(found.left, names), _name(found.right, names))


def _chain(
    statement: Statement, instances: Sequence[Instance | str], names: dict[Term, str]
) -> tuple[Link, ...]:
    """The shortest way from the left root to the right one, an instance at a time.

    Between programs instances are about whole sides; inside a layout they may be about a part.
    """
    if len(statement.left) != 1:
        return ()
    (start,), (goal,) = statement.left, statement.right
    path = _meeting(start, goal, instances) if statement.kind == LAYOUTS else None
    if path is None:
        path = _shortest(start, goal, instances, statement.kind == LAYOUTS)
    return tuple(Link(number, _told(term, names)) for number, term in path)


_Path = list[tuple[int | None, Term]]  # the instance that leads to a term, and the term


def _meeting(start: Term, goal: Term, instances: Sequence[Instance | str]) -> _Path | None:
    """Both sides rewritten from left to right until they meet, as laws of normal forms do it."""
    down, up = _reduced(start, instances), _reduced(goal, instances)
    met = {term: place for place, (_, term) in enumerate(up)}
    for place, (_, term) in enumerate(down):
        if term in met:
            back = up[: met[term] + 1]
            numbers = [number for number, _ in back[:0:-1]]
            return down[: place + 1] + list(
                zip(numbers, [term for _, term in back[-2::-1]], strict=True)
            )
    return None


def _reduced(term: Term, instances: Sequence[Instance | str]) -> _Path:
    """A term and what it is rewritten to, an instance at a time, until none leads to a new one."""
    path: _Path = [(None, term)]
    seen = {term}
    while len(path) < MOST_SEEN:
        parts = set(postorder(path[-1][1]))
        step = next(
            (
                (number, made)
                for number, found in enumerate(instances)
                if not isinstance(found, str) and found.left in parts
                if (made := _replaced(path[-1][1], found.left, found.right)) not in seen
            ),
            None,
        )
        if step is None:
            break
        seen.add(step[1])
        path.append(step)
    return path


def _shortest(start: Term, goal: Term, instances: Sequence[Instance | str], inside: bool) -> _Path:
    """The shortest way between two terms, in either direction of the instances; empty if none."""
    came: dict[Term, tuple[int | None, Term]] = {start: (None, start)}
    todo = deque([start])
    while todo and goal not in came and len(came) < MOST_SEEN:
        here = todo.popleft()
        for number, other in _neighbours(here, instances, inside):
            if other not in came:
                came[other] = number, here
                todo.append(other)
    if goal not in came:
        return []
    path: _Path = [(came[goal][0], goal)]
    while path[0][0] is not None:
        before = came[path[0][1]][1]
        path.insert(0, (came[before][0], before))
    return path


def _neighbours(
    term: Term, instances: Sequence[Instance | str], inside: bool
) -> Iterator[tuple[int, Term]]:
    """The terms that one instance leads to, in either direction."""
    parts = set(postorder(term)) if inside else {term}
    for number, found in enumerate(instances):
        if isinstance(found, str):
            continue
        for one, other in ((found.left, found.right), (found.right, found.left)):
            if one in parts:
                yield number, _replaced(term, one, other)


def _replaced(term: Term, one: Term, other: Term) -> Term:
    """The term with one part, wherever it occurs, replaced by another."""
    return mapped(term, known={one: other})


def _told(term: Term, names: dict[Term, str]) -> str:
    for _ in _define(term, names):
        pass  # a chain of programs visits only sides that steps have defined
    return names[term]


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
            head = sub.args[1] if sub.symbol is Op else shorten(sub.args[0], _LONGEST)
            head = f"scan {head}" if sub.symbol is Scan else head
            sig = f"   [{sub.args[0]}]" if sub.symbol is Op else ""
            yield f"{names[sub]} = {head}({given}){sig}"
        else:
            names[sub] = show_part(sub, names)


def _name(value: Ground, names: dict[Term, str]) -> str:
    return names[value] if isinstance(value, Term) else str(value)
