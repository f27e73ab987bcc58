"""Mutations of substitutions: small mistakes a rewrite could have."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

import axe_eq as axe
from benchmarks.substitution_reader import Case, Pattern, Rule, cases, value

SEEDS = 6  # of random integer inputs on which numpy compares both sides


@dataclass(frozen=True)
class Mutation:
    """A substitution whose right side was changed in one place."""

    kind: str
    case: Case

    def __str__(self) -> str:
        return f"{self.kind}: {self.case.rule} ({self.case})"

    def same_in_numpy(self) -> bool:
        """Whether numpy finds both sides equal on random small integers."""
        return same_in_numpy(self.case)


def same_in_numpy(case: Case) -> bool:
    """Whether numpy finds all pairs of a case equal on random small integers."""
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        given = {
            name: rng.integers(-3, 4, shape).astype(np.float32)
            for name, shape in case.shapes.items()
        }
        if not all(np.array_equal(value(a, given), value(b, given)) for a, b in case.rule.pairs):
            return False
    return True


def mutations(rules: Sequence[Rule], count: int) -> list[Mutation]:
    """So many mutations, every kind as often as its share of possible ones allows."""
    chance = random.Random("mutations")
    pools: list[list[tuple[Rule, str, Pattern]]] = []
    for kind, mutate in KINDS.items():
        pool = [(r, kind, new) for r in rules for new in mutate(r.pairs[0][1])]
        chance.shuffle(pool)
        pools.append(pool)
    found: list[Mutation] = []
    while len(found) < count and any(pools):
        for pool in filter(None, pools):
            found += islice(filter(None, (_made(*pool.pop()) for _ in range(len(pool)))), 1)
    return found[:count]


def _made(rule: Rule, kind: str, right: Pattern) -> Mutation | None:
    """The mutation at small shapes; None where none fit both sides."""
    mutant = Rule(rule.source, rule.number, ((rule.pairs[0][0], right),))
    try:
        for case in cases(mutant, 1):
            a, b = case.programs()
            same = [n.type for n in a.outputs] == [n.type for n in b.outputs]
            return Mutation(kind, case) if same else None
    except axe.AxeError:
        return None
    return None


# -- kinds ----------------------------------------------------------------------------------------

Change = Callable[[Pattern], Iterator[Pattern]]


def _somewhere(change: Change) -> Change:
    """The change at one node, for every node."""

    def everywhere(side: Pattern) -> Iterator[Pattern]:
        yield from change(side)
        for n, arg in enumerate(side.args):
            for new in everywhere(arg):
                yield replace(side, args=(*side.args[:n], new, *side.args[n + 1 :]))

    return everywhere


def _swapped(node: Pattern) -> Iterator[Pattern]:
    if len(node.args) == 2 and node.args[0] != node.args[1]:
        yield replace(node, args=node.args[::-1])


def _another(side: Pattern) -> Iterator[Pattern]:
    inputs = [node for node in side.nodes() if node.op == "input"]

    def change(node: Pattern) -> Iterator[Pattern]:
        if node.op == "input":
            yield from (other for other in inputs if other != node)

    yield from _somewhere(change)(side)


def _dropped(node: Pattern) -> Iterator[Pattern]:
    if node.op in ("relu", "ewadd", "ewmul"):
        yield from node.args
    if node.op == "conv2d" and node.params[1]:
        yield replace(node, params=(node.params[0], 0))


def _axes(side: Pattern) -> Iterator[Pattern]:
    yield from _somewhere(_axis)(side)
    if _all_axes(side) != side:
        yield _all_axes(side)


def _axis(node: Pattern) -> Iterator[Pattern]:
    if node.op in ("concat", "split"):
        yield replace(node, params=(1 - node.params[0], *node.params[1:]))


def _all_axes(node: Pattern) -> Pattern:
    """The expression with the axes of all concatenations and splits changed."""
    changed = replace(node, args=tuple(map(_all_axes, node.args)))
    return next(_axis(changed), changed)


def _shifted(node: Pattern) -> Iterator[Pattern]:
    if node.op == "split":
        axis, part, _ = node.params
        yield replace(node, params=(axis, part, 1 if part == 0 else -1))


def _activated(node: Pattern) -> Iterator[Pattern]:
    if node.op not in ("input", "relu"):
        yield Pattern("relu", (), (node,))


KINDS: dict[str, Change] = {
    "swapped operands": _somewhere(_swapped),
    "another operand": _another,
    "dropped operator": _somewhere(_dropped),
    "other axis": _axes,
    "slice off by one": _somewhere(_shifted),
    "extra activation": _somewhere(_activated),
}
