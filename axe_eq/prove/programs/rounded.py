"""Constants that a refutation hinges on: those that their element type holds as another number.

`x + 2049` of an f16 x adds 2048. Whoever reads that it is not x + 2048 + 1 must be told so, and who
reads of another difference must not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from axe_eq.program.interval import Interval, literal
from axe_eq.program.node import Node, Program, topological
from axe_eq.program.ops import constant_of
from axe_eq.program.terms import Sel
from axe_eq.program.types import DTYPES
from axe_eq.prove.certificates.verdict import number
from axe_eq.prove.programs.enclose import Constants
from axe_eq.rule.term import Term, postorder

Key = tuple[str, str]  # a selector's text, with what its type holds, and the type


@dataclass(frozen=True)
class Rounded:
    """Constants of two programs that are written as their types do not hold them.

    Attributes:
        written: by selector and type: the numbers that stand for it, and where.
    """

    written: Mapping[Key, Mapping[float, str]]

    @staticmethod
    def of(a: Program, b: Program) -> Rounded:
        """The constants of both."""
        found: dict[Key, dict[float, str]] = {}
        for program in (a, b):
            for node, written in program.written.items():
                found.setdefault(_key(node), {}).update(written)
        for program in (a, b):
            for node in program.nodes():
                if _key(node) in found and node not in program.written:
                    found[_key(node)][_kept(_key(node))] = ""  # written so in this one
        return Rounded(found)

    @property
    def as_written(self) -> Constants:
        """What encloses the numbers that are written."""
        made = {}
        for key, numbers in self.written.items():
            each = [literal(number, "f64") for number in numbers]
            made[key] = Interval(
                np.minimum.reduce([x.low for x in each]), np.maximum.reduce([x.high for x in each])
            )
        return made

    def said_of(self, roots: Iterable[Node]) -> tuple[str, ...]:
        """One sentence for each of them that these values depend on."""
        return self._said(map(_key, topological(roots)))

    def said_between(self, left: Term, right: Term) -> tuple[str, ...]:
        """One sentence for each of them that one of two terms has and the other has not."""
        apart = _selectors(left) ^ _selectors(right)
        return self._said(key for key in self.written if key[0] in apart)

    def _said(self, keys: Iterable[Key]) -> tuple[str, ...]:
        lines: dict[str, None] = {}
        for key in keys:
            for value, place in self.written.get(key, {}).items():
                if value != (kept := _kept(key)):
                    name = DTYPES[key[1]].numpy.name
                    line = f"the constant {number(value)} is {number(kept)} in {name}"
                    lines[f"{line}, at {place}"] = None
        return tuple(lines)


def _key(node: Node) -> Key:
    return node.text, node.dtype


def _kept(key: Key) -> float:
    kept = constant_of(key[0])
    assert kept is not None
    return kept


def _selectors(term: Term) -> set[str]:
    return {str(t.args[0]) for t in postorder(term, ()) if t.symbol is Sel}
