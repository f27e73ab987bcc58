"""Computed laws of layouts in an e-graph: Python picks what they are applied to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from axe_eq.egraph.normal import Class, Normalizer, Row, build, read_rows, representatives
from axe_eq.layout.symbolic import terms as t
from axe_eq.rule.law import Law
from axe_eq.rule.term import Sort, Term

MAX_PAIRED = 24  # classes of one sort that laws about two terms are tried on


class LayoutNormalizer(Normalizer):
    """Applies computed laws to operations whose parts are written out, and to pairs of terms."""

    def round(self) -> int:
        """Compute what was not tried before; returns the number of new equalities."""
        rows = read_rows(self.session)
        written = representatives([row for row in rows if row[0] in t.LITERALS])
        known = {**representatives(rows), **written}
        pairs: list[tuple[Term, Term]] = []
        for term in self._terms(rows, known, written):
            if term not in self._tried:
                self._tried.add(term)
                pairs += self._normal_forms(term)
        for sort, laws in self._by_pairs().items():
            terms = [term for (name, _), term in written.items() if name == sort.name]
            pairs += self._decided(laws, terms[:MAX_PAIRED])
        self.session.union_all(pairs)
        return len(pairs)

    def _terms(
        self, rows: list[Row], known: Mapping[Class, Term], written: Mapping[Class, Term]
    ) -> Iterator[Term]:
        yield from (term for (name, _), term in written.items() if name == t.LAYOUT.name)
        for symbol, args, _ in rows:
            if symbol in t.OPERATIONS:
                term = build(symbol, args, known)
                if term is not None:
                    yield term

    def _normal_forms(self, term: Term) -> Iterator[tuple[Term, Term]]:
        for key, law in self.laws.items():
            if len(law.params) == 1 and law.params[0][1] == term.sort:
                instance = law.instance((term,))
                if instance is not None:
                    self.instances.append((key, (term,)))
                    yield term, instance.right

    def _by_pairs(self) -> dict[Sort, dict[str, Law]]:
        found: dict[Sort, dict[str, Law]] = {}
        for key, law in self.laws.items():
            if len(law.params) == 2:
                found.setdefault(law.params[0][1], {})[key] = law
        return found

    def _decided(self, laws: Mapping[str, Law], terms: list[Term]) -> Iterator[tuple[Term, Term]]:
        for place, right in enumerate(terms):
            for left in terms[:place]:
                if self._equal(left, right):
                    continue
                for key, law in laws.items():
                    instance = law.instance((left, right))
                    if instance is not None:
                        self.instances.append((key, (left, right)))
                        yield left, right
                        break

    def _equal(self, left: Term, right: Term) -> bool:
        for term in (left, right):
            self.session.insert(term)
        return self.session.equal(left, right)
