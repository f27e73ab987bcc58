"""Terms as rows of numbers: how small terms get into an e-graph fast, and laws on them there.

egglog checks the types of what it is told node by node, which takes longer than all laws. A table
of primitives is read from a file without. So a term goes in as rows, ``row_F place args...``: the
place is a number, and so are its subterms' places. Rules build the terms inside, from the ends up.

An *item* is a constructor around one more term of its own sort: an iter, a copy, a shift. Laws that
leave at most one item of some that follow each other run on the rows already: such a law adds a row
past the places between, or states that two places are the same. Nothing is replaced and no classes
merge, so nothing has to be rebuilt: where classes merge, egglog goes over every row of every table
that is smaller than 10,000 rows, several times. Of the rows at a place the one that leads furthest
becomes the term. Then the laws run on terms, all of them: what was not found on rows, for whatever
reason, costs time and no answer.

A place is above those of its subterms, so the furthest is the least. Place 0 of a sort is its
constructor without arguments.
"""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from axe_eq.egraph import compile as text
from axe_eq.rule.law import Law
from axe_eq.rule.term import Cond, Sort, Symbol, Term, Var


def is_item(symbol: Symbol) -> bool:
    """Whether a constructor has one subterm, of its own sort, as its last argument."""
    sorts = [sort for sort in symbol.args if not sort.primitive]
    return sorts == [symbol.result] and symbol.args[-1] == symbol.result


def on_rows(sort: Sort) -> str:
    """Ruleset of the other laws on a sort's rows."""
    return f"rows_{sort}"


def drops(sort: Sort) -> str:
    """Ruleset of those laws that drop items, and of places that are the same for it."""
    return f"drop_{sort}"


def builds(sort: Sort) -> str:
    """Ruleset that builds a sort's terms."""
    return f"build_{sort}"


def picks(sort: Sort) -> str:
    """Ruleset that picks what is built, in two rounds."""
    return f"pick_{sort}"


def table(symbol: Symbol) -> str:
    """Name of the table of a constructor's rows."""
    return f"row_{symbol.name}"


def declare(symbols: Sequence[Symbol]) -> list[str]:
    """Tables of rows and of what is at a place, and the rules that build what is no item."""
    lines = []
    for sort in dict.fromkeys(symbol.result for symbol in symbols):
        lines += [f"(ruleset {f(sort)})" for f in (drops, on_rows, picks, builds)]
        lines.append(f"(function at_{sort} (i64) {sort} :merge old)")
        lines.append(f"(function next_{sort} (i64) i64 :merge (min old new))")
        lines.append(f"(function same_{sort} (i64) i64 :merge (min old new))")
        lines.append(f"(function is_{sort} (i64) i64 :merge old)")
    for symbol in symbols:
        if not symbol.args:
            lines.append(f"(set (at_{symbol.result} 0) ({symbol.name}))")
            continue
        columns = ["i64", *(s.name if s.primitive else "i64" for s in symbol.args)]
        tables = [table(symbol), *([_step(symbol)] if is_item(symbol) else [])]
        lines += [f"(function {name} ({' '.join(columns)}) Unit :merge old)" for name in tables]
        if not is_item(symbol):
            lines.append(_built(symbol, table(symbol), ()))
    return lines


def item_rules(sort: Sort, symbols: Iterable[Symbol], laws: Mapping[str, Law]) -> list[str]:
    """The rules about a sort's items, and its laws on them."""
    dropped = _Dropped(laws)
    lines = _same_rules(sort)
    for symbol in symbols:
        if symbol.result == sort and is_item(symbol):
            turned = [found for key, law in laws.items() if (found := _turned(law, key, symbol))]
            lines += [rule for rule, _ in turned]
            lines += _item_rules(symbol, dropped)
            lines.append(_built(symbol, _step(symbol), (unless for _, unless in turned)))
    rules = (_law_rule(law, key, dropped) for key, law in laws.items() if law.sort == sort)
    return [*lines, *filter(None, rules)]


def _same_rules(sort: Sort) -> list[str]:
    """Twice the place that comes next: odd after an item, even where both are the same."""
    same = f"(= q (same_{sort} p))"
    also = [same, f"(= r (same_{sort} q))"]
    leads, far = [same, "(= n (* 2 q))"], [same, f"(= n (next_{sort} p))", "(= n (* 2 q))"]
    there = [f"(= q (is_{sort} p))", f"(= x (at_{sort} q))"]
    return [
        text.rule(also, [f"(set (same_{sort} p) r)"], drops(sort), f"{sort} is also"),
        text.rule(leads, [f"(set (next_{sort} p) n)"], picks(sort), f"{sort} leads on"),
        text.rule(far, [f"(set (is_{sort} p) q)"], picks(sort), f"{sort} is"),
        text.rule(there, [f"(set (at_{sort} p) x)"], builds(sort), f"{sort} is there"),
    ]


def _item_rules(symbol: Symbol, dropped: _Dropped) -> list[str]:
    sort, shown, name = symbol.result, _shown(symbol), symbol.name
    kept = [_row(symbol, "p", shown), *dropped.not_by(symbol, shown)]
    leads = [*kept, f"(= n (+ 1 (* 2 {shown[-1]})))"]
    far = [kept[0], f"(= n (next_{sort} p))", leads[-1]]
    moved, step = _row(symbol, "h", shown), f"({' '.join([_step(symbol), 'p', *shown])})"
    there = [f"(= p (same_{sort} h))", *kept]
    return [
        text.rule(there, [f"(set {moved} ())"], on_rows(sort), f"{name} is there too"),
        text.rule(leads, [f"(set (next_{sort} p) n)"], picks(sort), f"{name} leads on"),
        text.rule(far, [f"(set {step} ())"], picks(sort), f"{name} is picked"),
    ]


def _built(symbol: Symbol, rows: str, unless: Iterable[str]) -> str:
    shown, sort, args = _shown(symbol), symbol.result, []
    body = [f"({' '.join([rows, 'p', *shown])})", *unless]
    for name, part in zip(shown, symbol.args, strict=True):
        if not part.primitive:
            body.append(f"(= {name}_ (at_{part} {name}))")
        args.append(name if part.primitive else f"{name}_")
    action = f"(set (at_{sort} p) ({' '.join([symbol.name, *args])}))"
    return text.rule(body, [action], builds(sort), f"{symbol.name} is built")


def _shown(symbol: Symbol) -> list[str]:
    return [f"_c{n}" for n in range(len(symbol.args))]


def _row(symbol: Symbol, place: str, args: Iterable[str]) -> str:
    return f"({' '.join([table(symbol), place, *args])})"


def _step(symbol: Symbol) -> str:
    """Name of the table of the rows that are picked."""
    return f"step_{symbol.name}"


# -- laws ------------------------------------------------------------------------------------------


class _Dropped:
    """Items that laws drop whatever is around them, such as iters of extent 1.

    A row of such an item only says that two places are the same, and no other law looks at it.
    """

    def __init__(self, laws: Mapping[str, Law]) -> None:
        self._found: dict[Symbol, list[tuple[int, Any]]] = {}
        for law in laws.values():
            pattern = law.pattern()
            items, tail = _items(pattern.left)
            if len(items) != 1 or tail is not pattern.right or pattern.conditions or pattern.calls:
                continue
            given = [(n, arg) for n, arg in enumerate(items[0].args) if isinstance(arg, (int, str))]
            if len(given) == 1:
                self._found.setdefault(items[0].symbol, []).append(given[0])

    def not_by(self, symbol: Symbol, args: Sequence[str]) -> list[str]:
        """That an item with these arguments is none."""
        return [f"(!= {args[n]} {text.quote(value)})" for n, value in self._found.get(symbol, ())]


def _law_rule(law: Law, key: str, dropped: _Dropped) -> str | None:
    """The rule of a law on rows; none where it does not leave at most one item of several."""
    pattern = law.pattern()
    left, tail = _items(pattern.left)
    right, end = _items(pattern.right)
    if not (left and tail is end and isinstance(tail, Var)) or len(right) > 1:
        return None
    writer = text.Writer()
    body = text.bodies(writer, pattern, pattern.left)[0][1:]
    places = ["_p", *(f"_p{n}" for n in range(1, len(left))), writer.text(tail)]
    rows = []
    for n, item in enumerate(left):
        args = [*map(writer.text, item.args[:-1]), places[n + 1]]
        rows.append(_row(item.symbol, places[n], args))
        if right or len(left) > 1:
            body += dropped.not_by(item.symbol, args)
    if right:
        args = [writer.text(arg, hoist=True) for arg in right[0].args[:-1]]
        action = f"(set {_row(right[0].symbol, '_p', [*args, places[-1]])} ())"
    else:
        action = f"(set (same_{tail.sort} _p) {places[-1]})"
    ruleset = on_rows(tail.sort) if right or len(left) > 1 else drops(tail.sort)
    facts = [" ".join(rows), *body, *writer.body]
    return text.rule(facts, [action], ruleset, f"{key} on rows")


_UNLESS = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _turned(law: Law, key: str, symbol: Symbol) -> tuple[str, str] | None:
    """The rule that builds what a law makes of one item, and when the item itself is built.

    None where the law is about more, has no condition or several, or is a law on rows.
    """
    pattern = law.pattern()
    left, tail = _items(pattern.left)
    if [item.symbol for item in left] != [symbol] or _law_rule(law, key, _Dropped({})):
        return None
    args = left[0].args
    plain = len(set(map(id, args))) == len(args) and all(isinstance(arg, Var) for arg in args)
    if not plain or len(pattern.conditions) != 1 or pattern.calls:
        return None
    (condition,) = pattern.conditions
    if condition.op not in _UNLESS:
        return None
    writer = text.Writer()
    given = list(map(writer.text, args[:-1]))
    there = f"(= {writer.text(tail)} (at_{symbol.result} q))"
    action = f"(set (at_{symbol.result} p) {writer.text(pattern.right, hoist=True)})"
    step = f"({' '.join([_step(symbol), 'p', *given, 'q'])})"
    body = [step, there, writer.condition(condition), *writer.body]
    names = dict(zip(given, _shown(symbol), strict=False))
    unless = writer.condition(Cond(_UNLESS[condition.op], condition.left, condition.right))
    unless = re.sub(r"\bv_\w+", lambda found: names[found.group()], unless)
    return text.rule(body, [action], builds(symbol.result), f"{key} when built"), unless


def _items(term: Any) -> tuple[list[Term], Any]:
    """The items that a pattern begins with, and what they are around."""
    found = []
    while isinstance(term, Term) and is_item(term.symbol):
        found.append(term)
        term = term.args[-1]
    return found, term


# -- files -----------------------------------------------------------------------------------------


class MemoryFile:
    """A file for egglog to read, in memory where the system has such files."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._file = os.memfd_create("axe_eq")
            self.path = f"/proc/self/fd/{self._file}"
            weakref.finalize(self, os.close, self._file)
        else:
            self._file, self.path = tempfile.mkstemp(prefix="axe_eq")
            weakref.finalize(self, _remove, self._file, self.path)

    def write(self, content: str) -> None:
        """Replace what is in it."""
        data = content.encode()
        os.ftruncate(self._file, 0)
        written = 0
        while written < len(data):
            written += os.pwrite(self._file, data[written:], written)


def line(row: tuple[Any, ...]) -> str:
    """A row as egglog reads it: texts have no tabs, no line ends and no blanks around them.

    The tab at the end is before the unit that such a table maps a row to.
    """
    return "%s\t" * len(row) % row + "\n"


def _remove(file: int, path: str) -> None:
    os.close(file)
    os.unlink(path)
