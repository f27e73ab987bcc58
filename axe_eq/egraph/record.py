"""Reading law firings back out of a recording session.

Classes merge, names do not: a firing's equality-sort parameters were recorded as names, terms of a
sort of their own that no law touches, so every firing is a ground law instance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from axe_eq.egraph.compile import table_name
from axe_eq.egraph.session import Session
from axe_eq.rule.law import Law
from axe_eq.rule.term import Ground, Primitive, Symbol, Term

Record = tuple[str, tuple[Ground, ...], tuple[tuple[Ground, ...], ...]]


def read_firings(session: Session) -> Iterator[Record]:
    """Law key, parameters and the results of the relations it called, of every firing."""
    frozen = session.freeze()
    names = _Names(session)
    for key, law in session.laws.items():
        if (fired := frozen.get(f"fired_{table_name(key)}")) is None:  # it was never taught
            continue
        sorts = [s for _, s in law.params]
        widths = _choice_sorts(law)
        columns = [*sorts, *(s for row in widths for s in row)]
        for row in fired.rows:
            values = [
                session.read(v, s.name) if s.primitive else names.term(v)
                for v, s in zip(row.inputs, columns, strict=True)
            ]
            rest = iter(values[len(sorts) :])
            choices = tuple(tuple(next(rest) for _ in row) for row in widths)
            yield key, tuple(values[: len(sorts)]), choices


def _choice_sorts(law: Law) -> list[tuple[Any, ...]]:
    """Result sorts of every relation that a law calls, in order."""
    calls = (c.function for c in law.pattern().calls)
    return [f.results for f in calls if isinstance(f, Primitive) and f.many]


class _Names:
    """Terms of names."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: dict[Any, tuple[Symbol, Any]] = {}
        self._terms: dict[Any, Term] = {}
        frozen = session.freeze()
        for name, symbol in session.symbols.items():
            if not symbol.demand:
                for row in frozen[f"N_{name}"].rows:
                    self._rows[row.output] = symbol, row.inputs

    def term(self, name: Any) -> Term:
        """The term that a name denotes (no recursion: names may be deep)."""
        stack = [name]
        while stack:
            symbol, inputs = self._rows[stack[-1]]
            pairs = list(zip(inputs, symbol.args, strict=True))
            missing = [v for v, s in pairs if not s.primitive and v not in self._terms]
            if missing:
                stack += missing
                continue
            args = (
                self._session.read(v, s.name) if s.primitive else self._terms[v] for v, s in pairs
            )
            self._terms[stack.pop()] = Term(symbol, tuple(args))
        return self._terms[name]
