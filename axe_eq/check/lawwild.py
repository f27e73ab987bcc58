"""Samples of laws at inputs that may be anything: undefined, infinite, or a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from axe_eq.check.lawsample import Sample
from axe_eq.program.facts import ANYTHING
from axe_eq.program.terms import ARGS, VALUE, In
from axe_eq.rule.law import Instance, Law
from axe_eq.rule.term import Ground, Term, mapped, postorder


def wilder(sample: Sample, law: Law) -> Iterator[Instance]:
    """The law where its inputs, one by one and all, may be undefined or infinite.

    It says nothing there where its condition asks for more; inputs of which something is
    stated stay as they are.
    """
    leaves = {t for v in sample.values if isinstance(v, Term) for t in postorder(v)}
    inputs = sorted((t for t in leaves if t.symbol is In), key=repr)
    if sample.facts or law.demand or sample.instance.left.sort not in (VALUE, ARGS):
        return
    for chosen in ([x] for x in inputs), [inputs] if len(inputs) > 1 else []:
        for group in chosen:
            image = {x: In(ANYTHING + x.args[0], x.args[1]) for x in group}
            found = law.instance([replaced(v, image) for v in sample.values])
            if found is not None:
                yield found


def replaced(value: Ground, image: Mapping[Term, Term]) -> Ground:
    """A value with some of its inputs replaced."""
    return mapped(value, known=image) if isinstance(value, Term) else value
