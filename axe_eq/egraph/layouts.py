"""Many layouts in one e-graph: a layout is inserted once, equal maps end in one class.

Built for speed: layouts go in as rows of numbers, only laws that make layouts canonical run, and
what was seen before is looked up without any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from axe_eq.egraph import compile as text
from axe_eq.egraph import rows
from axe_eq.egraph.bindings import egg
from axe_eq.egraph.threads import need_threads
from axe_eq.layout import Layout
from axe_eq.layout.normal.nested_boxes import Stage
from axe_eq.layout.normal.replicas import by_axis, has_gaps, saturate
from axe_eq.layout.symbolic import terms as t
from axe_eq.rule.law import Law
from axe_eq.rule.term import STR, Primitive, Sort, Symbol, Term

_SPAN = egg.RustSpan("axe_eq", 0, 0)
_SYMBOLS = (
    t.NoIter, t.Iter, t.Here, t.Copy, t.Shift, t.Map, t.Swizzled, t.BoxEnd, t.BoxDim, t.Boxed,
)  # fmt: skip
_SORTS = (t.ITERS, t.COPIES, t.BOX, t.LAYOUT)  # parts first
_WHOLE = {symbol for symbol in _SYMBOLS if symbol.result == t.LAYOUT}
_ALIKE, _ALIKES = "alike", "alikes"  # places of layouts that a computed law makes equal
_ROOT = f"at_{t.LAYOUT.name}"


class LayoutGraph:
    """An e-graph of layouts.

    Args:
        laws: law key -> law. Those that rewrite lists of iters and copies run in the e-graph;
            computed laws of one layout are asked where these do not reach: for swizzles, boxes,
            and copies off the gap condition.
    """

    def __init__(self, laws: Mapping[str, Law]) -> None:
        need_threads()
        self._egg = egg.EGraph()
        self._places: dict[Layout, int] = {}
        self._place = 0
        self._values: list[Any] = []
        self._axes: list[str] = []
        self._laws = chosen = {key: law for key, law in laws.items() if _runs(law)}
        self._computed = [law for law in laws.values() if law.normal and _sorts(law) == (t.LAYOUT,)]
        calls = [call for law in chosen.values() for call in law.pattern().calls]
        self._primitives = list({
            call.function.name: call.function
            for call in calls if isinstance(call.function, Primitive)
        }.values())  # fmt: skip
        self._run_texts(self._declarations())
        names = [*(rows.table(symbol) for symbol in _SYMBOLS if symbol.args), _ALIKES]
        self._files = {name: rows.MemoryFile() for name in names}
        self._listed: set[Sort] = set()  # sorts whose items egglog knows the rules of
        self._rulesets: set[str] = set()
        self._todo: dict[frozenset[str], tuple[rows.MemoryFile, Any]] = {}
        self._asked: dict[Sort, set[Symbol]] = {sort: set() for sort in _SORTS}  # about, by laws
        self._mixed = False  # whether a law is about terms of several sorts
        for law in chosen.values():
            sides = law.pattern().left, law.pattern().right
            self._asked[law.sort] |= text.symbols_in(sides[:1])
            self._mixed |= any(y.result != law.sort for y in text.symbols_in(sides))

    def _run_texts(self, lines: Iterable[str]) -> None:
        # A line at a time: parsing is quadratic in the length of a text.
        for line in lines:
            self._egg.run_program(*self._egg.parse_program(line))

    def _declarations(self) -> Iterator[str]:
        yield from text.declare(_SYMBOLS, [], record=False)
        yield from (line for p in self._primitives for line in text.tables_of(p))
        yield "(sort Places (Vec i64))"
        yield from rows.declare(_SYMBOLS)
        yield from (f"(ruleset {_ruleset(sort)})" for sort in _SORTS)
        yield f"(ruleset {_ALIKE})\n(function {_ALIKES} (i64 i64) Unit :merge old)"
        body = [f"({_ALIKES} p q)", f"(= x ({_ROOT} p))", f"(= y ({_ROOT} q))"]
        yield text.rule(body, ["(union x y)"], _ALIKE, _ALIKE)
        for key, law in self._laws.items():
            name = _ruleset(law.sort)
            yield from text.law_rules(law, key, name, record=False, asking=False)  # see _order

    def __len__(self) -> int:
        return len(self._places)

    def equal(self, a: Layout, b: Layout) -> bool:
        """Whether two layouts are the same map; either may be new.

        Raises:
            SearchError: a canonical form that is needed is not found within its limits.
        """
        places = self._places
        if a not in places or b not in places:
            self.add([a, b])
        lookup, values = self._egg.lookup_function, self._values
        one = lookup(_ROOT, [values[places[a]]])
        return bool(one == lookup(_ROOT, [values[places[b]]]))

    def add(self, layouts: Iterable[Layout]) -> None:
        """Insert layouts and make equal ones equal; those seen before cost nothing.

        Raises:
            SearchError: as `equal`.
        """
        new = [layout for layout in dict.fromkeys(layouts) if layout not in self._places]
        if not new:
            return
        found: dict[str, list[str]] = {name: [] for name in self._files}
        placed = [(layout, self._inserted(layout, found)) for layout in new]
        order = self._order({axis for layout in new for axis in layout.axes})
        commands = [command for line in order for command in self._egg.parse_program(line)]
        for name, lines in found.items():
            if lines:
                self._files[name].write("".join(lines))
        self._egg.run_program(*commands, self._included(frozenset(n for n in found if found[n])))
        if self._place >= len(self._values):
            self._values = self._numbers(2 * self._place)
        self._places.update(placed)  # known only now: what failed before is in no class

    def classes(self) -> list[list[Layout]]:
        """The layouts, equal ones together, in the order of insertion."""
        found: dict[Any, list[Layout]] = {}
        for layout, place in self._places.items():
            value = self._egg.lookup_function(_ROOT, [self._values[place]])
            found.setdefault(value, []).append(layout)
        return list(found.values())

    def _included(self, tables: frozenset[str]) -> Any:
        """The command that reads the rows of some tables and runs what has something new then.

        Asking where nothing is new takes time, and so does telling egglog much: it reads what to do
        from a file too.
        """
        if tables not in self._todo:
            file = rows.MemoryFile()
            inputs = [f'(input {name} "{self._files[name].path}")' for name in sorted(tables)]
            file.write("\n".join([*inputs, self._schedule(tables)]))
            self._todo[tables] = file, egg.Include(_SPAN, file.path)
        return self._todo[tables][1]

    def _schedule(self, tables: frozenset[str]) -> str:
        used = {symbol for symbol in _SYMBOLS if rows.table(symbol) in tables}
        sorts = [sort for sort in _SORTS if any(y.result == sort for y in used)]
        listed = [s for s in sorts if any(rows.is_item(y) for y in used if y.result == s)]
        parts = [sort for sort in sorts if sort != t.LAYOUT]
        asked = [sort for sort in _SORTS if self._asked[sort] & used]
        for sort in listed:
            if sort not in self._listed:
                self._run_texts(rows.item_rules(sort, _SYMBOLS, self._laws))
                self._listed.add(sort)
        steps = []
        if listed:
            # What drops items comes first: then there are fewer ways to the same rows.
            steps.append(f"(saturate (run {self._together([rows.drops], listed)}))")
            both = self._together([rows.drops, rows.on_rows], listed)
            steps.append(f"(saturate (run {both}))")
            steps += [f"(run {self._together([rows.picks], listed)})"] * 2
        if parts:
            steps.append(f"(saturate (run {self._together([rows.builds], parts)}))")
        # Nothing is built around a layout but swizzles and boxes.
        whole = f"(run {rows.builds(t.LAYOUT)})"
        steps.append(whole if _WHOLE & used == {t.Map} else f"(saturate {whole})")
        if _ALIKES in tables:
            steps.append(f"(run {_ALIKE})")
        for group in [asked] if self._mixed else [[sort] for sort in asked]:
            if group:
                steps.append(f"(saturate (run {self._together([_ruleset], group)}))")
        return f"(run-schedule {' '.join(steps)})"

    def _together(self, kinds: Sequence[Callable[[Sort], str]], sorts: Sequence[Sort]) -> str:
        """A ruleset that is all of those of some kinds for some sorts."""
        names = [kind(sort) for kind in kinds for sort in sorts]
        name = "_and_".join(names)
        if len(names) > 1 and name not in self._rulesets:
            self._rulesets.add(name)
            self._egg.run_program(egg.UnstableCombinedRuleset(_SPAN, name, names))
        return name

    def _numbers(self, count: int) -> list[Any]:
        """How egglog holds the numbers below a bound."""
        call = egg.Call(_SPAN, "vec-range", [egg.Lit(_SPAN, egg.Int(count))])
        return list(self._egg.value_to_vec(self._egg.eval_expr(call)[1]))

    # -- insertion --------------------------------------------------------------------------------

    def _inserted(self, layout: Layout, found: dict[str, list[str]]) -> int:
        if layout.inner:  # only its normal form, which has no order of dims
            return self._rows(layout.canonical(), found)
        place = self._rows(layout, found)
        if _is_hard(layout):
            if layout.inner:
                layout.canonical()  # fails where no law can tell, instead of telling apart
            term = t.encode(layout)
            for law in self._computed:
                instance = law.instance((term,))
                if instance is not None:
                    other = self._rows(t.decode(instance.right), found)
                    found[_ALIKES].append(rows.line((place, other)))
        return place

    def _rows(self, layout: Layout, found: dict[str, list[str]]) -> int:
        """Add a layout's rows; its place.

        Replicas have no order. Sorted, those that absorb each other are neighbours, and laws that
        sort have nothing to do: bringing every order there is into one takes longer than all other
        laws.
        """
        replica = sorted(layout.replica, key=lambda item: (item[2], abs(item[1]), -item[0]))
        shifts = [(value, axis) for axis, value in layout.offsets]
        copies = self._chain(t.Shift, self._chain(t.Copy, 0, replica, found), shifts, found)
        iters = self._chain(t.Iter, 0, layout.shard, found)
        place = self._chain(t.Map, copies, [(iters,)], found)
        place = self._chain(t.Swizzled, place, layout.swizzle, found)
        if layout.box is None or layout.padded is None:
            return place
        for extents, padded, _ in reversed((Stage(layout.box, layout.padded), *layout.inner)):
            dims = list(zip(extents, padded, strict=True))
            box = self._chain(t.BoxDim, 0, dims, found)
            place = self._chain(t.Boxed, place, [(box,)], found)
        return place

    def _chain(
        self, symbol: Symbol, end: int, items: Sequence[tuple[Any, ...]],
        found: dict[str, list[str]],
    ) -> int:  # fmt: skip
        """The items as applications of a symbol, each around the next, `end` in the last."""
        lines = found[rows.table(symbol)]
        place = self._place
        for item in reversed(items):
            place += 1
            lines.append(rows.line((place, *item, end)))
            end = place
        self._place = place
        return end

    def _order(self, axes: Iterable[str]) -> list[str]:
        """Entries of the primitives for axes that are new: laws ask them about nothing else."""
        new = sorted(axis for axis in axes if axis not in self._axes)
        if not new:
            return []
        known, self._axes = set(self._axes), [*self._axes, *new]
        lines = []
        for function in self._primitives:
            for args in product(self._axes, repeat=len(function.args)):
                if known.issuperset(args):
                    continue
                for row in function.rows(args):
                    entry = map(_literal, (*args, *row))
                    lines.append(f"(p_{function.name} {' '.join(entry)})")
        return lines


def _ruleset(sort: Sort) -> str:
    return f"canonical_{sort}"


def _runs(law: Law) -> bool:
    """Whether a law rewrites lists of iters or copies in machine integers, asking about axes."""
    if law.normal or law.expands or law.both_ways or law.demand or not law.exact:
        return False
    pattern = law.pattern()
    asks = (call.function for call in pattern.calls)
    return (
        isinstance(pattern.left, Term)
        and text.symbols_in([pattern.left, pattern.right]) <= set(_SYMBOLS)
        and all(isinstance(f, Primitive) and set(f.args) == {STR} for f in asks)
    )


def _sorts(law: Law) -> tuple[Sort, ...]:
    return tuple(sort for _, sort in law.params)


def _is_hard(layout: Layout) -> bool:
    """Whether rewriting alone may not make a layout canonical."""
    if not layout.is_linear():
        return True
    if len(layout.replica) < 2:
        return False
    steps, _ = by_axis(layout.replica)
    return not all(has_gaps(saturate(mine)) for mine in steps.values())


def _literal(value: object) -> str:
    return str(value) if isinstance(value, int) else f'"{value}"'
