"""Congruence closure over terms, with explanations.

Union-find where equal arguments make equal terms, and a proof forest that says which of the given
equalities an equality follows from (Nieuwenhuis and Oliveras, Fast congruence closure and
extensions, Information and Computation 205, 2007).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from axe_eq.rule.term import Term, postorder

Reason = int | None  # number of a given equality; None for congruence
_Key = tuple[Any, ...]


class Closure:
    """Terms, equalities between them, and everything that follows by congruence."""

    def __init__(self) -> None:
        self._parent: dict[Term, Term] = {}
        self._members: dict[Term, list[Term]] = {}
        self._users: dict[Term, list[Term]] = defaultdict(list)
        self._table: dict[_Key, Term] = {}
        self._edge: dict[Term, tuple[Term, Reason]] = {}
        self._pending: list[tuple[Term, Term, Reason]] = []

    def add(self, term: Term) -> None:
        """Make a term and its subterms known."""
        for sub in postorder(term, self._parent):
            self._parent[sub] = sub
            self._members[sub] = [sub]
            for arg in sub.args:
                if isinstance(arg, Term):
                    self._users[self.find(arg)].append(sub)
            self._enter(sub)
        self._settle()

    def merge(self, left: Term, right: Term, reason: int) -> None:
        """State that two terms are equal; `reason` names the equality in explanations."""
        self.add(left)
        self.add(right)
        self._pending.append((left, right, reason))
        self._settle()

    def find(self, term: Term) -> Term:
        """The representative of a known term's class."""
        return self._parent[term]

    def equal(self, left: Term, right: Term) -> bool:
        """Whether two terms are equal by what is known."""
        self.add(left)
        self.add(right)
        return self.find(left) is self.find(right)

    def members(self, term: Term) -> list[Term]:
        """Every known term equal to a known term."""
        return self._members[self.find(term)]

    def _key(self, term: Term) -> _Key:
        return (
            term.symbol,
            *(id(self.find(a)) if isinstance(a, Term) else (a,) for a in term.args),
        )

    def _enter(self, term: Term) -> None:
        twin = self._table.setdefault(self._key(term), term)
        if twin is not term and self.find(twin) is not self.find(term):
            self._pending.append((term, twin, None))

    def _settle(self) -> None:
        while self._pending:
            left, right, reason = self._pending.pop()
            if self.find(left) is not self.find(right):
                self._union(left, right, reason)

    def _union(self, left: Term, right: Term, reason: Reason) -> None:
        small, large = self.find(left), self.find(right)
        if len(self._members[small]) > len(self._members[large]):
            small, large, left, right = large, small, right, left
        self._reroot(left)
        self._edge[left] = (right, reason)
        users = self._users.pop(small, [])
        for member in self._members[small]:
            self._parent[member] = large
        self._members[large] += self._members.pop(small)
        for user in users:
            self._enter(user)
        self._users[large] += users

    def _reroot(self, term: Term) -> None:
        """Turn the edges on the path from a term to its root, so that the term is the root."""
        path = [term]
        while path[-1] in self._edge:
            path.append(self._edge[path[-1]][0])
        for child, parent in reversed(list(pairwise(path))):
            self._edge[parent] = (child, self._edge[child][1])
        self._edge.pop(term, None)

    # -- explanations ------------------------------------------------------------------------------

    def explain(self, pairs: Iterable[tuple[Term, Term]]) -> set[int]:
        """Given equalities from which all these equalities follow; not always the fewest."""
        found: set[int] = set()
        seen: set[Term] = set()
        todo = list(pairs)
        while todo:
            for child in self._path(*todo.pop()):
                if child in seen:
                    continue
                seen.add(child)
                parent, reason = self._edge[child]
                if reason is not None:
                    found.add(reason)
                    continue
                both = zip(child.args, parent.args, strict=True)
                todo += [(a, b) for a, b in both if isinstance(a, Term) and a is not b]
        return found

    def _path(self, left: Term, right: Term) -> list[Term]:
        """Terms whose edges connect two equal terms."""
        up = self._ancestors(left)
        known = {id(t): n for n, t in enumerate(up)}
        for n, term in enumerate(other := self._ancestors(right)):
            if id(term) in known:
                return up[: known[id(term)]] + other[:n]
        raise ValueError("terms are not equal")

    def _ancestors(self, term: Term) -> list[Term]:
        path = [term]
        while path[-1] in self._edge:
            path.append(self._edge[path[-1]][0])
        return path
