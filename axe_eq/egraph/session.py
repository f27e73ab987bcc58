"""A session: one e-graph with its laws, terms, numbers for classes, and limits.

Terms are inserted as raw AST (100x cheaper than egglog's high-level API); every inserted class gets
a number and is referred to as ``(num_Sort n)``, so no deep term is ever rebuilt. The private
bindings of egglog are used in this package and nowhere else.
"""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from axe_eq.deadline import check_deadline
from axe_eq.egraph import compile as text
from axe_eq.egraph.bindings import egg
from axe_eq.egraph.reach import Reach
from axe_eq.egraph.threads import are_lost, need_threads
from axe_eq.errors import AxeError, PackError, SearchError
from axe_eq.program.terms import type_of
from axe_eq.rule.law import Law, Pattern
from axe_eq.rule.term import Analysis, Primitive, Symbol, Term, postorder

_SPAN = egg.RustSpan("axe_eq", 0, 0)
_ANSWERS = re.compile(r"\(p_(\w+) ")  # those that a rule reads, see `Writer.call`
_TABLES = re.compile(r"\(((?:p|need)_\w+) ")


def literal(value: int | str) -> Any:
    """A primitive value as AST."""
    return egg.Lit(_SPAN, egg.Int(value) if isinstance(value, int) else egg.String(value))


def call(name: str, args: Iterable[Any]) -> Any:
    """An application as AST."""
    return egg.Call(_SPAN, name, list(args))


@dataclass
class Limits:
    """Bounds of a search; reaching one is reported, never silent.

    Attributes:
        rows: rows of all tables together.
        seconds: wall time since the session began.
        values: rows of the table of types, which has one of every value; None for any number.
    """

    rows: int = 2_000_000
    seconds: float = 120.0
    values: int | None = None


@dataclass
class Report:
    """What a saturation did.

    Attributes:
        stopped: "saturated", "rounds", "rows", "values" or "time".
        rounds: rounds run.
        rows: rows at the end.
        matches: firings per law key.
    """

    stopped: str = "saturated"
    rounds: int = 0
    rows: int = 0
    matches: dict[str, int] = field(default_factory=dict)


def _pattern(key: str, law: Law) -> Pattern:
    """A law on variables; errors name its pack too."""
    try:
        return law.pattern()
    except PackError as error:
        error.thing = f"law {key!r}"
        raise


class _Taught:
    """An e-graph that knows laws.

    To teach a law takes long, so a session teaches those that come into its reach, and the e-graph
    is kept for the next session that has the same laws to choose from, which deletes its rows. To
    push and pop its state instead would copy all laws for every session, and forget new ones.

    Attributes:
        egg: the e-graph.
        symbols: constructors, by name.
        primitives: functions that answer requests, by name.
        analyses: facts that it keeps, those that laws ask for included.
        taught: rulesets of the laws that it knows.
        answering: primitives that ever had an answer.
        aside: commands that delete the terms which were set aside: no rule sees them.
        held: rows of all sessions that it served: it keeps some memory of each.
        is_whole: no command broke off in it.
        thread: which one made it.
    """

    def __init__(self, known: _Known) -> None:
        laws, symbols, analyses, record = self._known = known
        self.egg = egg.EGraph()
        self.taught: set[str] = set()
        self.aside: list[Any] = []
        self.held = 0
        self.answering: set[str] = set()
        self._waiting: list[tuple[frozenset[str], str]] = []
        self._together: dict[tuple[str, ...], str] = {}
        self.is_whole, self.thread = True, threading.get_ident()
        patterns = {k: _pattern(k, w) for g in laws.values() for k, w in g.items() if not w.normal}
        names = {s.name: s for s in symbols}
        for found in text.symbols_in(v for p in patterns.values() for v in (p.left, p.right)):
            if names.setdefault(found.name, found) != found:
                raise PackError(f"symbol {found.name!r}", "is declared twice", "one declaration")
        self.symbols = dict(sorted(names.items()))
        called = [c.function for p in patterns.values() for c in p.calls]
        asked = [a for a in text.analyses_in(called) if a.asked]
        analyses = self.analyses = tuple(dict.fromkeys([*analyses, *asked]))
        self.primitives = {p.name: p for p in _primitives(patterns.values(), analyses)}
        self._clearing: dict[str, str] = {}
        tables = map(text.tables_of, self.primitives.values())
        self._undeclared = {table: line for of in tables for table, line in of.items()}
        self._declare(text.declare(list(self.symbols.values()), analyses, record=record))
        self._expect(rule for a in analyses for rule in text.analysis_rules(a))
        self.answered()

    def teach(self, ruleset: str, keys: Sequence[str]) -> str:
        """Teach those of some laws that it does not know; the name of what runs them together.

        Every law has a ruleset of its own: so they run in the order that is given, whenever each
        was taught.
        """
        asked = ruleset, *keys
        if asked not in self._together:
            own = [self._teach(ruleset, key) for key in keys]
            self.answered()
            self._together[asked] = together = f"{ruleset}_{len(self._together)}"
            self.egg.run_program(egg.UnstableCombinedRuleset(_SPAN, together, own))
        return self._together[asked]

    def _teach(self, ruleset: str, key: str) -> str:
        """Teach a law, unless it is known; the ruleset that it has for itself."""
        name = f"{ruleset}_{text.table_name(key)}"
        if name in self.taught:
            return name
        check_deadline()
        law, record = self._known.laws[ruleset][key], self._known.record
        self._run_text(f"(ruleset {name})")
        if record:
            self._declare([text.fired_table(law, key)])
        self._expect(text.law_rules(law, key, name, record=record))
        self.taught.add(name)
        return name

    def _expect(self, rules: Iterable[str]) -> None:
        """Teach rules as soon as all primitives that they call have answers.

        Half of the rules of laws in reach wait for ever.
        """
        waiting = [(frozenset(_ANSWERS.findall(rule)), rule) for rule in rules]
        self._waiting += sorted(waiting, key=lambda rule: len(rule[0]))  # however answers come

    def answered(self, primitives: Iterable[str] = ()) -> None:
        """Teach the rules that waited for an answer of these, and for no other.

        A table is declared where it is needed: whatever looks at all rows takes longer with more.
        """
        self.answering.update(primitives)
        self._need(f"p_{name}" for name in sorted(primitives))
        ready = [rule for needed, rule in self._waiting if needed <= self.answering]
        self._waiting = [rule for rule in self._waiting if not rule[0] <= self.answering]
        for rule in ready:
            self._need(_TABLES.findall(rule))
            self._run_text(rule)

    def _need(self, tables: Iterable[str]) -> None:
        self._declare(self._undeclared.pop(t) for t in tables if t in self._undeclared)

    def _declare(self, lines: Iterable[str]) -> None:
        for line in lines:  # one at a time: parsing is quadratic in the length of a text
            self._run_text(line)
            self._clearing |= text.clearing(line)

    def _run_text(self, source: str) -> None:
        try:
            self.egg.run_program(*self.egg.parse_program(source))
        except egg.EggSmolError as error:
            raise PackError(
                "law compilation", f"egglog refused {source!r}: {error.context}"
            ) from error

    def sizes(self) -> list[tuple[str, int]]:
        """Rows by table."""
        need_threads()
        found: Any = self.egg.run_program(egg.PrintSize(_SPAN, None))[0]
        return list(found.sizes)

    def clear(self) -> None:
        """Delete all rows."""
        for name, size in self.sizes():
            if size and (rule := self._clearing.pop(name, "")):
                self._run_text(rule)
        run = egg.Run(_SPAN, egg.RunConfig(text.CLEARING))
        self.egg.run_program(*self.aside, egg.RunSchedule(run))
        self.aside.clear()


class _Known(NamedTuple):
    """What an e-graph may be taught."""

    laws: Mapping[str, Mapping[str, Law]]
    symbols: tuple[Symbol, ...]
    analyses: tuple[Analysis, ...]
    record: bool

    def key(self) -> tuple[Any, ...]:
        """Equal where the same is taught; ids name laws for as long as `_kept` holds them."""
        laws = tuple((r, k, id(law)) for r, group in self.laws.items() for k, law in group.items())
        return (tuple(self.laws), laws, self.symbols, tuple(map(id, self.analyses)), self.record)


_KEPT_AT_MOST, _ROWS_AT_MOST = 8, 200_000
_kept: dict[tuple[Any, ...], tuple[_Known, _Taught]] = {}


def _take(known: _Known) -> _Taught:
    """An e-graph that knows this: one that is kept, or a new one."""
    kept = _kept.pop(known.key(), None) if _is_main() else None
    if kept is None:
        return _Taught(known)
    kept[1].clear()
    return kept[1]


def _give_back(known: _Known, taught: _Taught) -> None:
    """Keep the e-graph of a session that ended, unless it held much or a command broke off."""
    is_mine = _is_main() and taught.thread == threading.get_ident() and not are_lost()
    if not (is_mine and taught.is_whole):
        return
    taught.held += sum(size for _, size in taught.sizes())
    if taught.held > _ROWS_AT_MOST:
        return
    _kept[known.key()] = known, taught
    while len(_kept) > _KEPT_AT_MOST:
        del _kept[next(iter(_kept))]


def _is_main() -> bool:
    """Only the main thread keeps any: an e-graph must not leave its thread, not even to end."""
    return threading.current_thread() is threading.main_thread()


class Session:
    """An e-graph that knows some laws.

    Args:
        laws: law key ("pack/law") -> law, by ruleset name (a strategy's phases).
        symbols: constructors that terms may use besides those in laws.
        analyses: facts to keep per class.
        record: keep what certificates need.
        limits: bounds.
        began: when its seconds begin, as `time.perf_counter` tells; None for now.
    """

    def __init__(
        self,
        laws: Mapping[str, Mapping[str, Law]],
        symbols: Sequence[Symbol],
        analyses: Sequence[Analysis],
        *,
        record: bool = False,
        limits: Limits | None = None,
        began: float | None = None,
    ) -> None:
        self.laws = {key: law for group in laws.values() for key, law in group.items()}
        self.record = record
        self.limits = limits or Limits()
        self._start = time.perf_counter() if began is None else began
        need_threads()
        self._numbers: dict[Term, int] = {}
        self._count = 0
        self._strings: dict[Any, Any] = {}
        self._closed: dict[str, set[tuple[Any, ...]]] = {}
        self._known_sizes: list[tuple[str, int]] | None = None
        self._answered: list[tuple[str, int]] | None = None  # no request is open at these sizes
        self._groups, self._reach = laws, Reach()
        known = _Known(
            {name: dict(group) for name, group in laws.items()},
            tuple(symbols), tuple(analyses), record,
        )  # fmt: skip
        self._taught = _take(known)
        self.symbols, self.primitives = self._taught.symbols, self._taught.primitives
        self._needs = sorted({text.needed(p) for p in self.primitives.values()})
        self.analyses = {a.name: a for a in self._taught.analyses}
        self._egg = self._taught.egg
        weakref.finalize(self, _give_back, known, self._taught).atexit = False

    def _run(self, *commands: Any) -> list[Any]:
        need_threads()
        self._taught.is_whole = False
        try:
            found = list(self._egg.run_program(*commands))
        except egg.EggSmolError as error:
            raise _trip_wire(error.context) from error
        self._taught.is_whole = True
        reports = [getattr(output, "report", None) for output in found]
        if len(reports) < len(commands) or any(r is None or r.updated for r in reports):
            self._known_sizes = None
        return found

    # --- terms in
    # -------------------------------------------------------------------------------------------

    def insert(self, term: Term) -> int:
        """Insert a term and all its subterms; returns the number of its class."""
        self.insert_all([term])
        return self._numbers[term]

    def insert_all(self, terms: Iterable[Term]) -> None:
        """Insert terms and all their subterms, in one command."""
        commands = []
        for term in terms:
            for sub in postorder(term, self._numbers):
                if sub.symbol.demand and sub is not term:
                    continue
                commands.append(self._number(sub, self._ast(sub)))
        if commands:
            self._run(*commands)

    def _number(self, term: Term, ast: Any) -> Any:
        number = self._numbers[term] = self._count
        self._count += 1
        self._reach.inserted(term)
        return egg.ActionCommand(egg.Set(_SPAN, f"num_{term.sort.name}", [literal(number)], ast))

    def _ast(self, term: Term) -> Any:
        return call(
            term.symbol.name,
            [self.reference(a) if isinstance(a, Term) else literal(a) for a in term.args],
        )

    def reference(self, term: Term) -> Any:
        """AST that denotes the class of an inserted term."""
        return call(f"num_{term.sort.name}", [literal(self._numbers[term])])

    def union_all(self, pairs: Iterable[tuple[Term, Term]]) -> None:
        """Make pairs of terms equal, all at once."""
        commands = []
        for left, right in pairs:
            for sub in (s for t in (left, right) for s in postorder(t, self._numbers)):
                commands.append(self._number(sub, self._ast(sub)))
            sides = self.reference(left), self.reference(right)
            commands.append(egg.ActionCommand(egg.Union(_SPAN, *sides)))
        if commands:
            self._run(*commands)

    def set_aside(self, terms: Iterable[Term]) -> None:
        """Make known terms match no law any more; their classes keep what is equal to them."""
        commands = []
        for term in terms:
            self.insert(term)
            given = [self.reference(a) if isinstance(a, Term) else literal(a) for a in term.args]
            change = egg.Change(_SPAN, egg.Subsume(), term.symbol.name, given)
            commands.append(egg.ActionCommand(change))
            gone = egg.Change(_SPAN, egg.Delete(), term.symbol.name, given)
            self._taught.aside.append(egg.ActionCommand(gone))
        if commands:
            self._run(*commands)

    def set_facts(self, analysis: Analysis, facts: Iterable[tuple[Term, int | str]]) -> None:
        """State many analysis facts at once."""
        self._run(*(
            egg.ActionCommand(egg.Set(_SPAN, analysis.name, [self.reference(t)], literal(f)))
            for t, f in facts
        ))  # fmt: skip

    # --- saturation
    # -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Saturate analyses, computing the primitive entries that are asked for."""
        self._repeat(text.ANALYSIS)
        while self.fill():
            check_deadline()
            self._repeat(text.ANALYSIS)

    def _repeat(self, ruleset: str) -> Any:
        run = egg.Run(_SPAN, egg.RunConfig(ruleset))
        return self._run(egg.RunSchedule(egg.Saturate(_SPAN, run)))

    def fill(self) -> int:
        """Answer open requests for primitive entries; returns how many were answered."""
        if self._known_sizes is not None and self._answered is self._known_sizes:
            return 0
        sizes, closed = dict(self._sizes()), self._closed
        asked = [t for t in self._needs if sizes.get(t, 0) > len(closed.setdefault(t, set()))]
        if not asked:
            self._answered = self._known_sizes
            return 0  # reading the tables copies the whole e-graph
        frozen = self._egg.freeze().functions
        new: dict[str, list[Sequence[Any]]] = {}
        for table in asked:
            rows = [tuple(row.inputs) for row in frozen[table].rows]
            for row in rows:
                if row not in closed[table]:
                    new.setdefault(self.read(row[0], "String"), []).append(row[1:])
            closed[table].update(rows)
        commands, answering = [], set[str]()
        for name, function in self.primitives.items():
            for inputs in new.get(name, ()):
                args = tuple(
                    self.read(v, s.name) for v, s in zip(inputs, function.args, strict=True)
                )
                for result in function.rows(args):
                    answering.add(name)
                    self._reach.answered(result)
                    row_ast = call(f"p_{name}", [literal(x) for x in (*args, *result)])
                    commands.append(egg.ActionCommand(egg.Expr_(_SPAN, row_ast)))
        if commands:
            if not answering <= self._taught.answering:
                self._taught.answered(answering)
            self._run(*commands)
        return sum(map(len, new.values()))

    def run(
        self,
        ruleset: str,
        rounds: int | None = None,
        *,
        finite: bool = False,
        limits: Limits | None = None,
    ) -> Report:
        """Run a phase: analyses to a fixpoint, then one round of its laws, until nothing changes.

        Args:
            ruleset: phase name, a key of `laws`.
            rounds: at most so many rounds; None for a fixpoint.
            finite: the laws make finitely many terms (demand laws): one round is a fixpoint between
                two answers of primitives, which is much faster.
            limits: of this phase; None for those of the session.
        """
        report = Report()
        self.close()
        before = self.rows()
        while rounds is None or report.rounds < rounds:
            if self._over(report, before, limits or self.limits):
                break
            changed = self._count_matches(self._fire(ruleset, finite), report)
            self.close()
            report.rounds += 1
            rows = self.rows()
            if rows == before and not changed:
                break
            before = rows
        else:
            report.stopped = "rounds"
        report.rows = before
        return report

    def _fire(self, ruleset: str, finite: bool) -> list[Any]:
        """Run the laws that are in reach, for a round or to their fixpoint."""
        keys = self._reach.of(self._groups[ruleset], ends=finite)
        if not keys:
            return []
        step = egg.Run(_SPAN, egg.RunConfig(self._taught.teach(ruleset, keys)))
        return self._run(egg.RunSchedule(egg.Saturate(_SPAN, step) if finite else step))

    def _over(self, report: Report, rows: int, limits: Limits) -> bool:
        if rows > limits.rows:
            report.stopped = "rows"
        elif limits.values is not None and self.values() > limits.values:
            report.stopped = "values"
        elif self.elapsed() > limits.seconds:
            report.stopped = "time"
        else:
            return False
        return True

    def _count_matches(self, outputs: list[Any], report: Report) -> bool:
        changed = False
        for output in outputs:
            found = getattr(output, "report", None)
            if found is None:
                continue
            changed |= bool(found.updated)
            for name, count in found.num_matches_per_rule.items():
                if count and " asks " not in name:
                    key = name.removesuffix(" (back)")
                    self._reach.fired(self.laws[key])
                    report.matches[key] = report.matches.get(key, 0) + count
        return changed

    def elapsed(self) -> float:
        """Seconds since the session began."""
        return time.perf_counter() - self._start

    def rows(self) -> int:
        """Rows of all tables."""
        return sum(size for _, size in self._sizes())

    def values(self) -> int:
        """Rows of the table of types: how many values there are."""
        return dict(self._sizes()).get(type_of.name, 0)

    def _sizes(self) -> list[tuple[str, int]]:
        """Rows by table: counted once between two commands that change any."""
        if self._known_sizes is None:
            self._known_sizes = self._taught.sizes()
        return self._known_sizes

    # --- terms out
    # ------------------------------------------------------------------------------------------

    def freeze(self) -> Mapping[str, Any]:
        """Raw rows by table name: objects with `.rows`, each with `.inputs` and `.output`."""
        return self._egg.freeze().functions

    def read(self, value: Any, sort: str) -> Any:
        """A primitive value from a raw row (texts are remembered)."""
        if sort == "i64":
            return self._egg.value_to_i64(value)
        found = self._strings.get(value)
        if found is None:
            found = self._strings[value] = self._egg.value_to_string(value)
        return found

    def class_of(self, term: Term) -> Any:
        """The class (a comparable value) of an inserted term, as of now."""
        return self._egg.eval_expr(self.reference(term))[1]

    def equal(self, left: Term, right: Term) -> bool:
        """Whether two inserted terms are in one class."""
        return bool(self.class_of(left) == self.class_of(right))


def _primitives(patterns: Iterable[Any], analyses: Iterable[Analysis]) -> list[Primitive]:
    found: dict[str, Primitive] = {}
    calls = [c for p in patterns for c in p.calls]
    calls += [c for a in analyses for c in _analysis_calls(a)]
    for item in calls:
        function = item.function
        if not isinstance(function, Primitive):
            continue
        if found.setdefault(function.name, function) is not function:
            name = f"primitive {function.name!r}"
            raise PackError(name, "is declared twice", "one declaration")
    return list(found.values())


def _analysis_calls(analysis: Analysis) -> list[Any]:
    return [c for fn in analysis.rules for c in text.analysis_pattern(fn).calls]


def _trip_wire(message: str) -> AxeError:
    if "llegal merge" in message:
        return PackError(
            "laws", f"two different facts met in one class ({message.strip()})",
            "laws that preserve types: one of those that fired is unsound",
        )  # fmt: skip
    return SearchError("e-graph", message.strip())
