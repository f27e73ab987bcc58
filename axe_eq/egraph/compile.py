"""Compile the term language to egglog text: sorts, tables, rules.

Arithmetic is hoisted into rule bodies (egglog panics on right-hand sides). A law that calls
primitives becomes one rule that fires and one rule per call that asks for the missing table entry.
In a recording session every firing is written to a table of primitive columns and *names*; names
are terms of a sort that is never merged, so a certificate can be read back although classes have
merged since (`tid` keeps the oldest name).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from inspect import signature
from itertools import count as count_from
from typing import Any, NamedTuple, get_args

from axe_eq.errors import PackError
from axe_eq.rule.law import Law, Pattern, annotations_of
from axe_eq.rule.term import (
    MODE,
    Analysis,
    Call,
    Cond,
    Expr,
    Primitive,
    Recorder,
    Sort,
    Symbol,
    Term,
    Var,
    postorder,
)  # fmt: skip

ANALYSIS, CLEARING = "analysis", "clearing"
_OPS = {"//": "/"}


def quote(value: Any) -> str:
    """A primitive value as egglog text."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


class Writer:
    """Turns patterns into s-expressions, hoisting arithmetic of right-hand sides into the body."""

    def __init__(self) -> None:
        self.body: list[str] = []
        self._count = 0

    def fresh(self) -> str:
        """A new variable name."""
        self._count += 1
        return f"_h{self._count}"

    def text(self, value: Any, *, hoist: bool = False) -> str:
        """The s-expression of a pattern value."""
        if isinstance(value, Var):
            return f"v_{value.name}"
        if isinstance(value, Expr):
            left, right = map(self.text, value.args)
            text = f"({_OPS.get(value.op, value.op)} {left} {right})"
            if not hoist:
                return text
            name = self.fresh()
            self.body.append(f"(= {name} {text})")
            return name
        if isinstance(value, Term):
            words = [value.symbol.name, *(self.text(a, hoist=hoist) for a in value.args)]
            return f"({' '.join(words)})"
        return quote(value)

    def condition(self, condition: Cond) -> str:
        """The s-expression of a condition."""
        return f"({condition.op} {self.text(condition.left)} {self.text(condition.right)})"

    def call(self, call: Call, facts: Collection[str] = ()) -> list[str]:
        """That a call holds; `facts` are the variables that stand for facts about values.

        Many values share a type, so an answer about types is no place to find values from: where a
        law has the texts to look it up by, the facts are compared with those of the answer.
        """
        results = " ".join(self.text(r) for r in call.results)
        if isinstance(call.function, Analysis):
            args = " ".join(self.text(a) for a in call.args)
            return [f"(= {results} ({call.function.name} {args}))"]
        named = [isinstance(a, Var) and a.name in facts for a in call.args]
        found = any(isinstance(a, Var) and not n for a, n in zip(call.args, named, strict=True))
        columns, guards = [], []
        for arg, is_fact in zip(call.args, named, strict=True):
            columns.append(self.fresh() if found and is_fact else self.text(arg))
            if found and is_fact:
                guards.append(_same(columns[-1], self.text(arg)))
        return [f"(p_{call.function.name} {' '.join(columns)} {results})", *guards]

    def question(self, call: Call) -> str:
        """The request for facts that are kept only where asked for."""
        return f"(ask_{call.function.name} {' '.join(self.text(a) for a in call.args)})"

    def need(self, call: Call) -> str:
        """The request for a call's table entry."""
        assert isinstance(call.function, Primitive)
        asked = f'{needed(call.function)} "{call.function.name}"'
        return f"({asked} {' '.join(self.text(a) for a in call.args)})"


def _same(left: str, right: str) -> str:
    """That two variables are equal, compared once both are known."""
    return f"(value-eq {left} {right})"


_CONSTANT = re.compile(r"\((\w+)\)")
_ROOT = "(= _root "
_VARIABLE = re.compile(r"\bv_\w+")


def _once(facts: list[str]) -> tuple[list[str], list[str]]:
    """The pattern with every part that is repeated under a name, and the other facts.

    A constructor gives equal arguments one class, so a name says as much as the part. What is known
    of the operands of ``f(x, x)`` would otherwise be matched as a list of its own, for every list
    with an operand in common; and each of ``exp(z) / sum(exp(z))`` is a place to begin at, from
    which all pairs are found before what divides them.
    """
    head, rest = facts[:1], facts[1:]
    if not head or not head[0].startswith(_ROOT):
        return head, rest
    whole = head[0].removeprefix(_ROOT)[:-1]
    rest = [fact.replace(whole, "_root") for fact in rest]
    for number, part in enumerate(_parts(whole)[1:]):
        if sum(fact.count(part) for fact in [*head, *rest]) > 1:
            name = f"_part{number}"
            head = [fact.replace(part, name) for fact in head] + [f"(= {name} {part})"]
            rest = [fact.replace(part, name) for fact in rest]
    return head, rest


def _parts(term: str) -> list[str]:
    """The calls with arguments in a term's text, the largest first, each once."""
    opened: list[int] = []
    found: set[str] = set()
    for at, letter in enumerate(term):
        if letter == "(":
            opened.append(at)
        elif letter == ")":
            found.add(term[opened.pop() : at + 1])
    return sorted((t for t in found if " " in t), key=lambda t: (-len(t), t))


def apart(body: Iterable[str]) -> list[str]:
    """The body with every constant constructor and repeated pattern variable under its own name.

    Egglog would make one join variable of the ends of all lists, and so a product of all lists that
    end: 200 times slower at 500 operators. A single end is a place to begin at, from which all
    lists are found. Likewise of a variable that a pattern repeats, such as the common factor of two
    products: it joined every pair of products with a common operand before it looked at what adds
    them, which grows with the square of the program. Comparing as a primitive keeps the pattern a
    tree, which is matched from its root down.
    """
    pattern, rest = _once(list(body))
    facts = [*pattern, *rest]
    found = {name for fact in facts for name in _CONSTANT.findall(fact)}
    ends = {name for name in found if f"{_ROOT}({name}))" not in facts}
    number = count_from(1)
    guards: list[str] = []
    seen: set[str] = set()

    def own(same: str) -> str:
        name = f"_z{next(number)}"
        guards.append(_same(name, same))
        return name

    def constant(match: re.Match[str]) -> str:
        name = match.group(1)
        return own(f"_z_{name}") if name in ends else match.group(0)

    def variable(match: re.Match[str]) -> str:
        name = match.group(0)
        if name in seen:
            return own(name)
        seen.add(name)
        return name

    facts = [_CONSTANT.sub(constant, fact) for fact in facts]
    n = len(pattern)
    facts[:n] = [_VARIABLE.sub(variable, fact) for fact in facts[:n]]
    return [*facts, *(f"(= _z_{name} ({name}))" for name in sorted(ends)), *guards]


def rule(body: Iterable[str], actions: Iterable[str], ruleset: str, name: str) -> str:
    """One egglog rule."""
    facts, done = " ".join(apart(body)), " ".join(actions)
    return f"(rule ({facts}) ({done}) :ruleset {ruleset} :name {quote(name)})"


def variables_in(value: Any) -> set[str]:
    """Names of the variables in a pattern."""
    if isinstance(value, Var):
        return {value.name}
    parts = value.args if isinstance(value, Expr | Term) else ()
    if isinstance(value, Cond):
        parts = value.left, value.right
    return set().union(*map(variables_in, parts))


def _root_alone(writer: Writer, left: Term, call: Call) -> list[str] | None:
    """The body that asks for a call from the root node alone, where that binds its arguments.

    It asks at more roots than the law matches, operands being anything, but of few different texts;
    in return the answers are a small table that the law itself is joined from. A law whose
    condition on the root's texts is such a call is tried only where they hold.
    """
    own = {a.name for a in left.args if isinstance(a, Var)}
    asked = {a.name for a in call.args if isinstance(a, Var)}
    if not asked or not asked <= own or len(asked) < len(call.args):
        return None
    number = count_from(1)

    def skeleton(value: Any) -> str:
        if not isinstance(value, Term):
            return writer.text(value)
        if value is not left and value.sort == left.sort:
            return f"_w{next(number)}"
        return f"({' '.join([value.symbol.name, *map(skeleton, value.args)])})"

    return [f"(= _root {skeleton(left)})"]


class Ask(NamedTuple):
    """What is asked for, and where."""

    body: list[str]
    questions: list[str]
    of_facts: bool = False


def bodies(writer: Writer, pattern: Pattern, left: Any) -> tuple[list[str], list[Ask]]:
    """The whole body, and what asks for what its calls need."""
    body = [f"(= _root {writer.text(left)})"]
    bound, facts = variables_in(left), set[str]()
    waiting = list(pattern.conditions)
    asks: list[Ask] = []

    def settle() -> None:
        for condition in [c for c in waiting if variables_in(c) <= bound]:
            waiting.remove(condition)
            body.append(writer.condition(condition))

    settle()
    for before, call in zip([None, *pattern.calls], pattern.calls, strict=False):
        if isinstance(call.function, Primitive):
            asks.append(Ask(_root_alone(writer, left, call) or list(body), [writer.need(call)]))
        elif call.function.asked and before is not None and before.function is call.function:
            asks[-1].questions.append(writer.question(call))  # found where the first is asked
        elif call.function.asked:
            asks.append(Ask(list(body), [writer.question(call)], of_facts=True))
        body += writer.call(call, facts)
        results = {r.name for r in call.results}
        facts |= results if isinstance(call.function, Analysis) else set()
        bound |= results
        settle()
    if waiting:
        raise PackError(
            "law", f"condition {waiting[0]!r} has unbound variables", "variables of the left side"
        )
    return body, asks


def law_rules(law: Law, key: str, ruleset: str, *, record: bool) -> list[str]:
    """Egglog rules of a law: rewriting, asking for primitives, and recording, where wanted."""
    pattern = law.pattern()
    directions = [(pattern.left, pattern.right)]
    if law.both_ways:
        directions.append((pattern.right, pattern.left))
    rules = []
    for n, (left, right) in enumerate(directions):
        _check_direction(law, pattern, left)
        writer = Writer()
        body, asks = bodies(writer, pattern, left)
        name = key if n == 0 else f"{key} (back)"
        for m, ask in enumerate(asks):
            # Facts are asked for as soon as primitives are answered, not a round later.
            within = ANALYSIS if ask.of_facts else ruleset
            rules.append(rule(ask.body, ask.questions, within, f"{name} asks {m}"))
        actions = [f"(union _root {writer.text(right, hoist=True)})"]
        extra = _recording(law, pattern, key, writer) if record else ([], [])
        rules.append(rule([*body, *writer.body, *extra[0]], [*actions, *extra[1]], ruleset, name))
    return rules


def _check_direction(law: Law, pattern: Pattern, left: Any) -> None:
    if not isinstance(left, Term):
        raise PackError(f"law {law.name!r}", "its left side is a bare variable", "an operator term")
    results = {r.name for call in pattern.calls for r in call.results}
    missing = {p.name for p in pattern.params} - variables_in(left) - results
    if missing:
        raise PackError(
            f"law {law.name!r}", f"parameters {sorted(missing)} are not on the side it starts from",
            "every parameter on that side",
        )  # fmt: skip


def _recording(law: Law, pattern: Pattern, key: str, writer: Writer) -> tuple[list[str], list[str]]:
    body, columns = [], []
    for var in pattern.params:
        if var.sort.primitive:
            columns.append(writer.text(var))
        else:
            body.append(f"(= n_{var.name} (tid_{var.sort.name} v_{var.name}))")
            columns.append(f"n_{var.name}")
    columns += [writer.text(r) for r in chosen(pattern)]
    return body, [f"(fired_{table_name(key)} {' '.join(columns)})"]


def chosen(pattern: Pattern) -> list[Var]:
    """Results of the relations a law calls: part of a firing's identity."""
    return [
        r
        for c in pattern.calls
        if isinstance(c.function, Primitive) and c.function.many
        for r in c.results
    ]


def table_name(key: str) -> str:
    """A law's key as an egglog identifier."""
    return key.replace("/", "__").replace("-", "_").replace(".", "_")


def fired_table(law: Law, key: str) -> str:
    """Declaration of a law's firing table."""
    pattern = law.pattern()
    sorts = [s.name if s.primitive else "Name" for _, s in law.params]
    sorts += [r.sort.name for r in chosen(pattern)]
    return f"(relation fired_{table_name(key)} ({' '.join(sorts)}))"


def analysis_pattern(fn: Callable[..., tuple[Term, Any]]) -> Pattern:
    """An analysis rule run on variables: its left side, and the fact as its right side."""
    hints = annotations_of(fn)
    params = tuple(
        Var(p, next(h for h in get_args(hints[p])[1:] if isinstance(h, Sort)))
        for p in signature(fn).parameters
    )
    recorder = MODE.recorder = Recorder()
    try:
        left, fact = fn(*params)
    finally:
        MODE.recorder = None
    return Pattern(params, left, fact, (), tuple(recorder.calls))


def analysis_rules(analysis: Analysis) -> list[str]:
    """Egglog rules that compute an analysis."""
    rules = []
    for fn in analysis.rules:
        pattern = analysis_pattern(fn)
        writer = Writer()
        body, asks = bodies(writer, pattern, pattern.left)
        if analysis.asked:
            gate = f"(ask_{analysis.name} _root)"
            body, asks = [*body, gate], [a._replace(body=[*a.body, gate]) for a in asks]
        name = f"{analysis.name} {fn.__name__}"
        rules += [
            rule(a.body, a.questions, ANALYSIS, f"{name} asks {m}") for m, a in enumerate(asks)
        ]
        value = writer.text(pattern.right, hoist=True)
        action = f"(set ({analysis.name} _root) {value})"
        rules.append(rule([*body, *writer.body], [action], ANALYSIS, name))
    return rules


def analyses_in(called: Iterable[object]) -> list[Analysis]:
    """The analyses among some functions, with those that their rules call."""
    found: list[Analysis] = []
    todo = [f for f in called if isinstance(f, Analysis)]
    while todo:
        analysis = todo.pop()
        if analysis not in found:
            found.append(analysis)
            calls = (c.function for fn in analysis.rules for c in analysis_pattern(fn).calls)
            todo += [f for f in calls if isinstance(f, Analysis)]
    return found


def symbols_in(values: Iterable[Any]) -> set[Symbol]:
    """Symbols that occur in patterns."""
    return {t.symbol for v in values if isinstance(v, Term) for t in postorder(v)}


def declare(symbols: Sequence[Symbol], analyses: Sequence[Analysis], *, record: bool) -> list[str]:
    """Sorts, constructors and tables; those of primitives are `tables_of` them."""
    sorts = sorted({s.name for y in symbols for s in (*y.args, y.result) if not s.primitive})
    lines = [f"(ruleset {ANALYSIS})", f"(ruleset {CLEARING})", *(f"(sort {s})" for s in sorts)]
    for y in symbols:
        tail = " :unextractable" if y.demand else ""
        lines.append(
            f"(constructor {y.name} ({' '.join(s.name for s in y.args)}) {y.result.name}{tail})"
        )
    lines += [f"(function num_{s} (i64) {s} :merge old)" for s in sorts]
    for a in analyses:
        merge = f":merge {a.merge}" if a.merge else ":no-merge"
        lines.append(f"(function {a.name} ({a.sort.name}) {a.results[0].name} {merge})")
        if a.asked:
            lines.append(f"(relation ask_{a.name} ({a.sort.name}))")
    if record:
        lines += _names(symbols, sorts)
    return lines


def needed(primitive: Primitive) -> str:
    """The table of what is asked of all primitives with such arguments.

    To look at an e-graph takes as long as it has tables, and most primitives are asked seldom.
    """
    return "need_" + "".join(s.name[0] for s in primitive.args)


def tables_of(primitive: Primitive) -> dict[str, str]:
    """What is asked of a primitive, after its name, and its answers: declarations by table."""
    args = " ".join(s.name for s in primitive.args)
    results = " ".join(s.name for s in primitive.results)
    asked, answered = needed(primitive), f"p_{primitive.name}"
    return {
        asked: f"(relation {asked} (String {args}))",
        answered: f"(relation {answered} ({args} {results}))",
    }


_TABLE = re.compile(r"\((?:constructor|relation|function) (\w+) \(([^)]*)\)")


def clearing(declared: str) -> dict[str, str]:
    """The rule that deletes the rows of a table, by its name; nothing where none is declared."""
    if (table := _TABLE.match(declared)) is None:
        return {}
    row = " ".join([table[1], *(f"x{n}" for n, _ in enumerate(table[2].split()))])
    return {table[1]: f"(rule ((= _y ({row}))) ((delete ({row}))) :ruleset {CLEARING})"}


def _names(symbols: Sequence[Symbol], sorts: Sequence[str]) -> list[str]:
    lines = ["(sort Name)", *(f"(function tid_{s} ({s}) Name :merge old)" for s in sorts)]
    for y in symbols:
        if y.demand:
            continue
        columns = " ".join(s.name if s.primitive else "Name" for s in y.args)
        lines.append(f"(constructor N_{y.name} ({columns}) Name)")
        variables = [f"x{i}" for i in range(len(y.args))]
        names = [v if s.primitive else f"n{v}" for v, s in zip(variables, y.args, strict=True)]
        body = [f"(= _root ({' '.join([y.name, *variables])}))"]
        body += [
            f"(= n{v} (tid_{s.name} {v}))"
            for v, s in zip(variables, y.args, strict=True) if not s.primitive
        ]  # fmt: skip
        action = f"(set (tid_{y.result.name} _root) ({' '.join([f'N_{y.name}', *names])}))"
        lines.append(rule(body, [action], ANALYSIS, f"name {y.name}"))
    return lines
