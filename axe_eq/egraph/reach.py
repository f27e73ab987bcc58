"""Which laws may match in a session, by the symbols and texts that occur in it.

A law is in reach where every symbol of its left side, and every text that it names there, such as
``"exp"`` for a cell, has been inserted or made by a law that fired. So of a program without
selectors no law about concatenations is taught: to teach all of them takes longer than a small
program's search. What a variable stands for came from where it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from axe_eq.rule.law import Law
from axe_eq.rule.term import Ground, Primitive, Symbol, Term, postorder

ANY: Final = None
ANSWERED: Final = ...
Mark = Any
"""A symbol, or (symbol, n, what may be its n-th argument): a text, a number, ANSWERED or ANY."""


class Reach:
    """What has occurred so far, and the laws that it leads to."""

    def __init__(self) -> None:
        self._marks: set[Mark] = set()
        self._answers: set[Ground] = set()

    def inserted(self, term: Term) -> None:
        """A term occurs; its operands are told of on their own."""
        self._marks.update(_written(term))

    def answered(self, results: Iterable[Ground]) -> None:
        """Primitives answered with these."""
        self._answers.update(results)

    def fired(self, law: Law) -> None:
        """What a law makes occurs."""
        for _, makes in _ways(law):
            self._marks |= makes

    def of(self, laws: Mapping[str, Law], *, ends: bool = False) -> list[str]:
        """Keys of those laws that may match now, in order.

        Args:
            laws: by key.
            ends: also those that may match after any number of rounds of these laws.
        """
        found: set[str] = set()
        while True:
            new = {k for k, w in laws.items() if k not in found and not w.normal and self._has(w)}
            found |= new
            if not new or not ends:
                return [key for key in laws if key in found]
            for key in new:
                self.fired(laws[key])

    def _has(self, law: Law) -> bool:
        return any(all(map(self._occurs, needs)) for needs, _ in _ways(law))

    def _occurs(self, mark: Mark) -> bool:
        if mark in self._marks:
            return True
        if isinstance(mark, Symbol):
            return False
        where, text = mark[:2], mark[2]
        if (*where, ANSWERED) in self._marks and text in self._answers:
            return True
        return (*where, ANY) in self._marks


@cache
def _ways(law: Law) -> tuple[tuple[frozenset[Mark], frozenset[Mark]], ...]:
    """What each direction of a law needs and what it makes."""
    pattern = law.pattern()
    answers = {id(r) for c in pattern.calls if isinstance(c.function, Primitive) for r in c.results}
    sides = [(pattern.left, pattern.right), (pattern.right, pattern.left)]
    return tuple(_way(*way, answers) for way in sides[: 1 + law.both_ways])


def _way(left: Any, right: Any, answers: set[int]) -> tuple[frozenset[Mark], frozenset[Mark]]:
    needs = frozenset(mark for term in _terms(left) for mark in _written(term))
    held = {(*where, id(arg)) for *where, arg in _open(left)}
    makes = {mark for term in _terms(right) for mark in _written(term)}
    for symbol, n, arg in _open(right):
        if (symbol, n, id(arg)) not in held:
            makes.add((symbol, n, ANSWERED if id(arg) in answers else ANY))
    return needs, frozenset(makes)


def _terms(side: Any) -> Iterator[Term]:
    return postorder(side) if isinstance(side, Term) else iter(())


def _written(term: Term) -> Iterator[Mark]:
    """A term's symbol, and the texts and numbers that it holds."""
    yield term.symbol
    yield from ((term.symbol, n, a) for n, a in enumerate(term.args) if isinstance(a, str | int))


def _open(side: Any) -> Iterator[tuple[Symbol, int, Any]]:
    """Where a side holds variables and expressions for texts and numbers."""
    for term in _terms(side):
        for n, (arg, sort) in enumerate(zip(term.args, term.symbol.args, strict=True)):
            if sort.primitive and not isinstance(arg, str | int):
                yield term.symbol, n, arg
