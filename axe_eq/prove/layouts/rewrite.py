"""Proofs by rewriting alone: laws with a direction, applied to ground terms until nothing moves.

No e-graph: every law is matched and called in Python. That is fast for one pair of terms and gives
short certificates; it finds only what directions lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from axe_eq.deadline import check_deadline
from axe_eq.errors import SearchError
from axe_eq.prove.certificates.certificate import Firing
from axe_eq.rule.law import Instance, Law, Pattern
from axe_eq.rule.term import Expr, Ground, Primitive, Sort, Symbol, Term, Var

Step = tuple[Firing, Instance]

MAX_STEPS = 50_000


class Rules:
    """Laws ready for rewriting.

    Args:
        laws: by key; those that grow terms, work both ways or answer requests are left out.

    Attributes:
        by_symbol: symbol at the top of the left side -> the laws with a direction.
        computed: sorts of the parameters -> the laws that compute or decide.
    """

    def __init__(self, laws: Mapping[str, Law]) -> None:
        self.by_symbol: dict[Symbol, list[tuple[str, Law, Pattern]]] = {}
        self.computed: dict[tuple[Sort, ...], list[tuple[str, Law]]] = {}
        for key, law in laws.items():
            if law.normal:
                sorts = tuple(sort for _, sort in law.params)
                self.computed.setdefault(sorts, []).append((key, law))
            elif not (law.expands or law.both_ways or law.demand):
                pattern = law.pattern()
                if isinstance(pattern.left, Term) and not _chooses(pattern):
                    entry = key, law, pattern
                    self.by_symbol.setdefault(pattern.left.symbol, []).append(entry)


class Rewriter:
    """Normal forms by some laws.

    Args:
        rules: the laws.
        written: says which terms are written out; where rewriting leads to another, computed laws
            of one term are asked, and those of two only about such terms. Without it those of one
            are not asked, and those of two about all terms.

    Attributes:
        steps: every law instance used so far.
    """

    def __init__(self, rules: Rules, written: Callable[[Term], bool] | None = None) -> None:
        self.steps: list[Step] = []
        self._rules, self._written = rules, written
        self._normal: dict[Term, Term] = {}

    # -- rewriting --------------------------------------------------------------------------------

    def normal(self, term: Term) -> Term:
        """The normal form of a term, innermost first.

        Raises:
            SearchError: over 50,000 steps.
        """
        known, stack = self._normal, [term]
        while stack:
            check_deadline()
            top = stack[-1]
            if top in known:
                stack.pop()
                continue
            missing = [a for a in top.args if isinstance(a, Term) and a not in known]
            if missing:
                stack += missing
                continue
            following = self._rebuilt(top)
            if following is top:
                following = self._rewritten(top)
            if following is top or following in known:
                known[top] = self._settled(top, known.get(following, top))
            else:
                stack.append(following)
            if len(self.steps) + len(stack) > MAX_STEPS:
                raise SearchError("rewriting", f"over {MAX_STEPS} steps", "laws that end")
        return known[term]

    def _settled(self, term: Term, found: Term) -> Term:
        """What a term is written out, where rewriting did not get there; else what it found."""
        if self._written is None or self._written(found):
            return found
        for other in self.computed(term):
            if self._written(other):
                return self.normal(other)
        return found

    def _rebuilt(self, term: Term) -> Term:
        """The term over the normal forms of its arguments."""
        args = tuple(self._normal[a] if isinstance(a, Term) else a for a in term.args)
        return Term(term.symbol, args)

    def _rewritten(self, term: Term) -> Term:
        """The term after the first law that applies at its top."""
        for key, law, pattern in self._rules.by_symbol.get(term.symbol, ()):
            found: dict[str, Ground] = {}
            if not _match(pattern.left, term, found):
                continue
            values = tuple(found[name] for name, _ in law.params if name in found)
            if len(values) < len(law.params):
                continue
            instance = law.instance(values)
            if instance is not None and instance.left is term and instance.right is not term:
                self.steps.append((Firing(key, values), instance))
                return instance.right
        return term

    # -- computed laws ----------------------------------------------------------------------------

    def computed(self, term: Term) -> Iterator[Term]:
        """What computed laws of one term make of it, one after another."""
        for key, law in self._rules.computed.get((term.sort,), ()):
            if self._holds(key, law, (term,)):
                yield self.steps[-1][1].right

    def decided(self, left: Term, right: Term, *, whole: bool) -> bool:
        """Whether computed laws of two terms make these equal, or all parts that differ.

        Args:
            left: a term.
            right: another.
            whole: also ask about the two themselves, not only about their parts.
        """
        todo = [(left, right)]
        while todo:
            a, b = todo.pop()
            if a is b or ((whole or a is not left) and self._decided(a, b)):
                continue
            if a.symbol != b.symbol:
                return False
            for x, y in zip(a.args, b.args, strict=True):
                if isinstance(x, Term) and isinstance(y, Term):
                    todo.append((x, y))
                elif x != y:
                    return False
        return True

    def _decided(self, a: Term, b: Term) -> bool:
        if self._written is not None and not (self._written(a) and self._written(b)):
            return False
        laws = self._rules.computed.get((a.sort, b.sort), ())
        return any(self._holds(key, law, (a, b)) for key, law in laws)

    def _holds(self, key: str, law: Law, values: tuple[Term, ...]) -> bool:
        instance = law.instance(values)
        if instance is None:
            return False
        self.steps.append((Firing(key, values), instance))
        return True


def _chooses(pattern: Pattern) -> bool:
    """Whether a law calls a relation: then one match is several instances."""
    functions = (call.function for call in pattern.calls)
    return any(isinstance(f, Primitive) and f.many for f in functions)


def _match(pattern: object, value: object, found: dict[str, Ground]) -> bool:
    """Whether a value is an instance of a pattern; binds its variables."""
    todo = [(pattern, value)]
    while todo:
        form, given = todo.pop()
        if isinstance(form, Var):
            assert isinstance(given, int | str | Term)
            if found.setdefault(form.name, given) != given:
                return False
        elif isinstance(form, Term):
            if not isinstance(given, Term) or given.symbol is not form.symbol:
                return False
            todo += zip(form.args, given.args, strict=True)
        elif isinstance(form, Expr) or form != given:
            return False
    return True


def laws_about(laws: Mapping[str, Law], sorts: Iterable[Sort]) -> dict[str, Law]:
    """Exact laws whose sides are of these sorts."""
    wanted = set(sorts)
    return {key: law for key, law in laws.items() if law.exact and _about(law) in wanted}


def _about(law: Law) -> Sort:
    if law.normal:
        return law.params[0][1]
    sort: Sort = law.pattern().left.sort
    return sort
