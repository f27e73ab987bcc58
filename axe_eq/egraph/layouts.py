"""Many layouts in one e-graph: a layout is inserted once, equal maps end in one class.

Built for speed: a layout goes in as one command, only laws that make layouts canonical run, and
what was seen before is looked up without any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from egglog import bindings as egg

from axe_eq.egraph import compile as text
from axe_eq.layout import Layout
from axe_eq.layout import terms as t
from axe_eq.layout.replicas import by_axis, has_gaps, saturate
from axe_eq.rule.law import Law
from axe_eq.rule.term import INT, STR, Primitive, Sort, Symbol, Term

_SPAN = egg.RustSpan("axe_eq", 0, 0)
_RULES = "canonical"
_SYMBOLS = (
    t.NoIter, t.Iter, t.Here, t.Copy, t.Shift, t.Map, t.Swizzled, t.BoxEnd, t.BoxDim, t.Boxed,
)  # fmt: skip
_ROOT = Symbol("root", (INT,), t.LAYOUT)


class LayoutGraph:
    """An e-graph of layouts.

    Args:
        laws: law key -> law. Those that rewrite lists of iters and copies run in the e-graph;
            computed laws of one layout are asked where these do not reach: for swizzles, boxes,
            and copies off the gap condition.
    """

    def __init__(self, laws: Mapping[str, Law]) -> None:
        self._egg = egg.EGraph()
        self._numbers: dict[Layout, int] = {}
        self._keys: list[Any] = []
        self._axes: list[str] = []
        chosen = {key: law for key, law in laws.items() if _runs(law)}
        self._computed = [law for law in laws.values() if law.normal and _sorts(law) == (t.LAYOUT,)]
        calls = [call for law in chosen.values() for call in law.pattern().calls]
        self._primitives = list({
            call.function.name: call.function
            for call in calls if isinstance(call.function, Primitive)
        }.values())  # fmt: skip
        lines = [
            text.declare(_SYMBOLS, self._primitives, [], record=False),
            f"(function {_ROOT.name} (i64) {t.LAYOUT.name} :merge new)",
            f"(ruleset {_RULES})",
        ]
        for key, law in chosen.items():
            lines += text.law_rules(law, key, _RULES, record=False, asking=False)  # see _order
        for line in lines:
            self._egg.run_program(*self._egg.parse_program(line))
        step = egg.Run(_SPAN, egg.RunConfig(_RULES))
        self._saturate = egg.RunSchedule(egg.Saturate(_SPAN, step))

    def __len__(self) -> int:
        return len(self._numbers)

    def equal(self, a: Layout, b: Layout) -> bool:
        """Whether two layouts are the same map; either may be new.

        Raises:
            SearchError: a canonical form that is needed is not found within its limits.
        """
        numbers = self._numbers
        if a not in numbers or b not in numbers:
            self.add([a, b])
        lookup, keys = self._egg.lookup_function, self._keys
        one = lookup(_ROOT.name, [keys[numbers[a]]])
        return bool(one == lookup(_ROOT.name, [keys[numbers[b]]]))

    def add(self, layouts: Iterable[Layout]) -> None:
        """Insert layouts and make equal ones equal; those seen before cost nothing.

        Raises:
            SearchError: as `equal`.
        """
        new = [layout for layout in dict.fromkeys(layouts) if layout not in self._numbers]
        if not new:
            return
        numbered = list(enumerate(new, start=len(self._numbers)))
        lines = [line for number, layout in numbered for line in self._inserted(layout, number)]
        lines = [*self._order({axis for layout in new for axis in layout.axes}), *lines]
        # A line at a time: parsing is quadratic in the length of a text.
        commands = [command for line in lines for command in self._egg.parse_program(line)]
        self._egg.run_program(*commands, self._saturate)
        for number, layout in numbered:  # known only now: what failed before is in no class
            self._keys.append(self._egg.eval_expr(egg.Lit(_SPAN, egg.Int(number)))[1])
            self._numbers[layout] = number

    def classes(self) -> list[list[Layout]]:
        """The layouts, equal ones together, in the order of insertion."""
        found: dict[Any, list[Layout]] = {}
        for layout, number in self._numbers.items():
            value = self._egg.lookup_function(_ROOT.name, [self._keys[number]])
            found.setdefault(value, []).append(layout)
        return list(found.values())

    # -- insertion --------------------------------------------------------------------------------

    def _inserted(self, layout: Layout, number: int) -> list[str]:
        root = f"({_ROOT.name} {number})"
        lines = [f"(set {root} {_written(layout)})"]
        if _is_hard(layout):
            term = t.encode(layout)
            for law in self._computed:
                instance = law.instance((term,))
                if instance is not None:
                    lines.append(f"(union {root} {_written(t.decode(instance.right))})")
        return lines

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


def _written(layout: Layout) -> str:
    """A term of the layout as egglog writes it: parsing that is far faster than building it.

    Replicas have no order. Sorted, those that absorb each other are neighbours, and laws that sort
    have nothing to do: bringing every order there is into one takes longer than all other laws.
    """
    replica = sorted(layout.replica, key=lambda item: (item[2], abs(item[1]), -item[0]))
    shifts = [(value, axis) for axis, value in layout.offsets]
    copies = _chain(t.Shift, _chain(t.Copy, f"({t.Here.name})", replica), shifts)
    iters = _chain(t.Iter, f"({t.NoIter.name})", layout.shard)
    written = _chain(t.Swizzled, f"({t.Map.name} {iters} {copies})", layout.swizzle)
    if layout.box is None or layout.padded is None:
        return written
    dims = list(zip(layout.box, layout.padded, strict=True))
    return f"({t.Boxed.name} {_chain(t.BoxDim, f'({t.BoxEnd.name})', dims)} {written})"


def _chain(symbol: Symbol, end: str, items: Sequence[tuple[Any, ...]]) -> str:
    """The items as applications of a symbol, each around the next; `end` in the last."""
    heads = [f"({symbol.name} {' '.join(map(_literal, item))} " for item in items]
    return "".join(heads) + end + ")" * len(items)
