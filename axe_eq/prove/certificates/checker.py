"""The certificate checker: independent of the e-graph that found the proof.

It rebuilds both sides from the statement, repeats every law instance by calling the law's own
function, recomputes the type of every term, closes the instances under congruence, and compares the
roots. It enumerates nothing except inside a law's own condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from axe_eq.errors import ArgumentError, AxeError
from axe_eq.layout.notation import NO_CONTEXT, read_any
from axe_eq.layout.symbolic import terms as layout_terms
from axe_eq.layout.symbolic.check import check as check_layout
from axe_eq.layout.symbolic.check import unknowns
from axe_eq.layout.symbolic.polynomial import parse as parse_number
from axe_eq.layout.symbolic.show import show
from axe_eq.pack import Pack, installed
from axe_eq.program.facts import facts_of, facts_of_input
from axe_eq.program.known import has
from axe_eq.program.terms import VALUE, In, type_of
from axe_eq.program.types import value_type
from axe_eq.prove.certificates.certificate import (
    PROGRAMS,
    Firing,
    Proof,
    Statement,
    own_version,
    parse,
    refuse,
)
from axe_eq.prove.certificates.closure import Closure
from axe_eq.rule.law import Instance, Law
from axe_eq.rule.term import INT, STR, Ground, Sort, Term, postorder


def check_certificate(json: str | bytes, *, packs: Mapping[str, Pack] | None = None) -> bool:
    """Whether a certificate proves its own statement.

    >>> verdict = axe.equivalent(lambda x: x + x, lambda x: 2 * x, "4:f32")
    >>> axe.check_certificate(verdict.certificate)
    True
    >>> axe.check_certificate(verdict.certificate.replace("f32", "f16", 1))
    False

    Args:
        json: the certificate's text. The statement in it is what a true answer vouches for.
        packs: where to look up the packs it names; the installed ones by default.

    Raises:
        ArgumentError: what is given is no text at all.
    """
    return refusal(json, packs=packs) is None


def refusal(json: str | bytes, *, packs: Mapping[str, Pack] | None = None) -> str | None:
    """Why a certificate is refused; None where it is accepted.

    Raises:
        ArgumentError: what is given is no text at all.
    """
    if not isinstance(json, str | bytes):
        wrong = f"is of type {type(json).__name__}"
        raise ArgumentError("certificate", wrong, "its JSON text, as a verdict has it")
    try:
        check(json, packs=packs)
    except AxeError as error:
        return str(error)
    except (RecursionError, MemoryError, OverflowError, ValueError, TypeError) as error:
        return f"certificate: cannot be checked ({type(error).__name__}: {error})"
    return None


def check(json: str | bytes, *, packs: Mapping[str, Pack] | None = None) -> Statement:
    """The statement that a certificate proves.

    Raises:
        AxeError: the certificate is malformed or does not prove its statement.
    """
    proof = parse(json)
    statement = proof.statement
    trusted = believed(statement, installed() if packs is None else packs)
    check_laws(proof, trusted)
    check_statement(statement)
    closure = Closure()
    for number, (left, right) in enumerate(statement.given):
        closure.merge(left, right, number)
    for number, firing in enumerate(proof.firings):
        instance = instantiate(firing, trusted, statement)
        closure.merge(instance.left, instance.right, number)
    for number, (left, right) in enumerate(zip(statement.left, statement.right, strict=True)):
        if not closure.equal(left, right):
            raise refuse(f"does not make root {number} of both sides equal")
    return statement


def believed(statement: Statement, known: Mapping[str, Pack]) -> dict[str, Pack]:
    """The packs whose laws the statement believes.

    Raises:
        AxeError: another version of axe_eq, where operators may mean other things; a pack that is
            not installed in that version, or one whose laws hold on the reals only in a statement
            that is bit for bit.
    """
    if statement.axe_eq != own_version():
        here = f"{own_version()}, which is here: prove it again"
        raise refuse(f"was made by axe_eq {statement.axe_eq}", here)
    packs = {}
    for name, version in statement.packs.items():
        pack = known.get(name)
        if pack is None or pack.version != version:
            have = "nothing" if pack is None else f"version {pack.version}"
            raise refuse(f"believes pack {name!r} version {version!r}", f"what is here: {have}")
        if not pack.exact and statement.numerics != "real":
            raise refuse(f"believes the real pack {name!r} bit for bit", "numerics 'real'")
        packs[name] = pack
    return packs


def check_laws(proof: Proof, packs: Mapping[str, Pack]) -> None:
    """Refuse a certificate whose laws are not those that are here.

    Raises:
        AxeError: a law that no instance uses, or one that states something else here.
    """
    stated = law_statements(proof.firings, packs)  # what is not here is refused when it is used
    if strange := sorted(set(proof.laws) - {firing.law for firing in proof.firings}):
        raise refuse(f"lists {' '.join(strange)}", "only laws that its instances use")
    for key, here in stated.items():
        if proof.laws.get(key) != here:
            said = repr(proof.laws[key]) if key in proof.laws else "nothing"
            raise refuse(f"says that law {key!r} states {said}", f"what it states here, {here!r}")


def law_statements(firings: Iterable[Firing], packs: Mapping[str, Pack]) -> dict[str, str]:
    """What the laws that instances use state, by key; laws that are not here are left out."""
    found = {}
    for key in {firing.law for firing in firings}:
        pack, _, name = key.partition("/")
        if pack in packs and name in packs[pack].laws:
            found[key] = packs[pack].laws[name].statement
    return found


# -- the statement ---------------------------------------------------------------------------------


def check_statement(statement: Statement) -> None:
    """Refuse a statement that makes no sense.

    Raises:
        AxeError: roots that do not correspond, ill-typed terms, unknown inputs, texts that read as
            other layouts.
    """
    if len(statement.left) != len(statement.right) or not statement.left:
        raise refuse(f"has {len(statement.left)} and {len(statement.right)} roots", "as many")
    pairs = [*zip(statement.left, statement.right, strict=True), *statement.assume]
    if statement.texts or statement.context != NO_CONTEXT:
        _check_texts(statement)
    if statement.kind == PROGRAMS:
        inputs = _inputs(statement)
        _check_arrays(statement)
        for left, right in pairs:
            _check_pair(left, right, VALUE)
            for term in (left, right):
                check_terms(term, inputs)
    else:
        for left, right in pairs:
            _check_pair(left, right, layout_terms.LAYOUT)
            check_layouts(left, right)
        unknowns([term for pair in pairs for term in pair])
        _check_definitions(statement)


def _check_texts(statement: Statement) -> None:
    """The layouts are what their texts mean to the readers that are here."""
    roots = (*statement.left, *statement.right)
    if statement.kind == PROGRAMS or len(statement.texts) != len(roots):
        raise refuse(f"has {len(statement.texts)} texts", "one of each layout, or none")
    for text, root in zip(statement.texts, roots, strict=True):
        found = layout_terms.encode(read_any(text, **statement.context._asdict()))
        if found is not root:
            raise refuse(f"says that {text!r} is {show(root)}", f"what is read here, {show(found)}")


def _inputs(statement: Statement) -> dict[str, str]:
    inputs = dict(statement.inputs)
    if len(inputs) < len(statement.inputs):
        raise refuse("names an input twice", "one type per name")
    for name, type in inputs.items():
        if str(value_type(type)) != type or min(value_type(type).shape, default=1) < 1:
            wanted = "a type such as f32[2,3], extents of at least 1"
            raise refuse(f"input {name!r} has type {type!r}", wanted)
    return inputs


def _check_arrays(statement: Statement) -> None:
    """What inputs are said to hold has their types, and is as finite as their names say."""
    inputs, held = dict(statement.inputs), dict(statement.where)
    if len(held) < len(statement.where) or held.keys() - inputs.keys():
        raise refuse(f"says what {' '.join(held)} hold", "inputs that it states, each once")
    for array, constant in statement.given[: len(held)]:
        name, type = array.args
        facts = facts_of.of(constant)
        if type_of.of(constant) != type or not has(facts or 0, facts_of_input(name, type)):
            raise refuse(
                f"says that {name!r} of type {type!r} is another", "an array that it may be"
            )


def _check_pair(left: Term, right: Term, sort: Sort) -> None:
    if left.sort != sort or right.sort != sort:
        raise refuse(f"states that a {left.sort} equals a {right.sort}", f"two of {sort}")
    if sort == VALUE and type_of.of(left) != type_of.of(right):
        raise refuse(f"states that {type_of.of(left)} equals {type_of.of(right)}", "one type")


def check_terms(term: Term, inputs: Mapping[str, str]) -> None:
    """Refuse ill-typed values, and inputs that the statement does not have.

    Raises:
        AxeError: such a term.
    """
    for sub in postorder(term):
        if sub.symbol is In and inputs.get(sub.args[0]) != sub.args[1]:
            raise refuse(f"uses input {sub.args[0]!r} of type {sub.args[1]!r}", "one it states")
        if sub.sort == VALUE and type_of.of(sub) is None:
            raise refuse(f"has an ill-typed term {sub.args[:-1]!r}", "operands that fit")


def check_layouts(left: Term, right: Term) -> None:
    """Refuse layout terms that make no sense for some numbers, or have different sizes.

    Raises:
        AxeError: such a term.
    """
    known = check_layout(left), check_layout(right)
    if left.sort == layout_terms.LAYOUT and known[0].elements != known[1].elements:
        raise refuse(f"states that {known[0].elements} elements are {known[1].elements}", "as many")


def _check_definitions(statement: Statement) -> None:
    names = dict(statement.where)
    if len(names) < len(statement.where):
        raise refuse("defines a name twice", "one definition per name")
    for name, value in statement.where:
        if not name.isidentifier() or str(parse_number(value)) != value:
            raise refuse(f"defines {name!r} as {value!r}", "a name and a polynomial")


# -- instances -------------------------------------------------------------------------------------


def instantiate(firing: Firing, packs: Mapping[str, Pack], statement: Statement) -> Instance:
    """Repeat a law instance.

    Raises:
        AxeError: no such law, parameters of wrong sorts, a condition that fails, or sides that do
            not have one type.
    """
    law = _law(firing.law, packs, statement)
    if len(firing.values) != len(law.params):
        raise refuse(f"law {firing.law!r} has {len(firing.values)} values", f"{len(law.params)}")
    inputs = dict(statement.inputs)
    for value, (name, sort) in zip(firing.values, law.params, strict=True):
        _check_value(firing.law, name, value, sort)
        if isinstance(value, Term) and statement.kind == PROGRAMS:
            check_terms(value, inputs)
    try:
        instance = law.instance(firing.values, firing.choices)
    except AxeError:
        raise
    except Exception as error:  # a law of any pack may fail in any way on values it never saw
        raise refuse(f"law {firing.law!r} fails ({type(error).__name__}: {error})") from None
    if instance is None:
        raise refuse(f"law {firing.law!r} does not hold at {firing.values!r}"[:2000])
    _check_instance(firing.law, instance, inputs, statement)
    return instance


def _law(key: str, packs: Mapping[str, Pack], statement: Statement) -> Law:
    name, _, rest = key.partition("/")
    law = packs[name].laws.get(rest) if name in packs else None
    if law is None:
        raise refuse(f"uses law {key!r}", f"a law of its packs {' '.join(packs)}")
    if law.demand or (not law.exact and statement.numerics != "real"):
        raise refuse(f"uses law {key!r} for a statement it does not support")
    return law


def _check_value(key: str, name: str, value: Ground, sort: Sort) -> None:
    fits = {INT: type(value) is int, STR: type(value) is str}.get(
        sort, isinstance(value, Term) and value.sort == sort
    )
    if not fits:
        raise refuse(f"law {key!r} has parameter {name!r} = {value!r}"[:2000], f"a {sort}")


def _check_instance(
    key: str, instance: Instance, inputs: Mapping[str, str], statement: Statement
) -> None:
    left, right = instance.left, instance.right
    _check_sides(key, (left, right))
    if statement.kind != PROGRAMS:
        check_layouts(left, right)
        return
    check_terms(left, inputs)
    check_terms(right, inputs)
    if left.sort == VALUE and type_of.of(left) != type_of.of(right):
        raise refuse(f"law {key!r} gives {type_of.of(left)} and {type_of.of(right)}", "one type")


def _check_sides(key: str, sides: tuple[object, object]) -> None:
    left, right = sides
    if not isinstance(left, Term) or not isinstance(right, Term) or left.sort != right.sort:
        raise refuse(f"law {key!r} gives sides of two sorts")
