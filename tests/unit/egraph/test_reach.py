"""Laws are taught when what their left sides name occurs; until then none of them could match."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.egraph import session as sessions
from axe_eq.egraph.reach import Reach
from axe_eq.pack import installed
from axe_eq.pipeline.requests import requests_of
from axe_eq.pipeline.saturation import saturate_program
from axe_eq.program.terms import Int, Text, encode
from axe_eq.rule.law import Law, law
from axe_eq.rule.term import INT, STR, Sort, Symbol, primitive

xp = axe.array
SPEC = axe.Spec((8, 8), "f32")
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "maps": lambda x: xp.exp(x) - x,
    "softmax": lambda x: nn.softmax(x @ x.T) @ x,
    "selectors": lambda x: xp.concat([x[:4], xp.flip(x)[2:]]) * 2.0,
    "scan": lambda x: xp.cumulative_sum(x, axis=1)[:, -1],
}


def saturated(fn: Callable[[Any], Any]) -> tuple[dict[str, int], list[tuple[str, int]], int]:
    """Firings, tables with rows, and how many laws the e-graph was taught."""
    program = axe.trace(fn, SPEC)
    terms = encode(program.outputs)
    found = saturate_program(program, terms, list(installed().values()), (),
                             requests_of(program, terms))  # fmt: skip
    tables = [table for table in found.session._sizes() if table[1]]
    return found.matches, tables, len(found.session._taught.taught)


def all_of(self: Reach, laws: dict[str, Law], *, ends: bool = False) -> list[str]:
    return [key for key, law in laws.items() if not law.normal]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_laws_in_reach_find_what_all_rules_find(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_kept", {})
    matches, sizes, n_taught = saturated(PROGRAMS[name])
    monkeypatch.setattr(sessions, "_kept", {})
    monkeypatch.setattr(Reach, "of", all_of)
    monkeypatch.setattr(sessions, "_ANSWERS", re.compile("(?!)"))  # no rule waits for any
    all_matches, all_sizes, n_all = saturated(PROGRAMS[name])
    assert matches == all_matches
    # What laws out of reach ask for about types alone is not asked.
    found, all_found = ([s for s in of if not s[0].startswith(("need_", "p_"))]
                        for of in (sizes, all_sizes))  # fmt: skip
    assert found == all_found
    assert n_taught < n_all * (0.3 if name == "maps" else 0.8)


THING = Sort("Thing")
Box, Wrap = Symbol("Box", (STR, INT), THING), Symbol("Wrap", (THING,), THING)


@primitive((STR,), (STR,))
def turned(text: str) -> str:
    """Some text."""
    return text[::-1]


def test_what_answers_and_firings_bring_is_in_reach() -> None:
    def turn(t: Text) -> Any:
        """Box(t, 7) = Wrap(Box(turned t, 7))."""
        return Box(t, 7), Wrap(Box(turned(t), 7))

    def of_answer(n: Int) -> Any:
        """Box("ba", n) = Box("c", 0)."""
        return Box("ba", n), Box("c", 0)

    def of_number(t: Text) -> Any:
        """Box(t, 1) = Box("d", 1)."""
        return Box(t, 1), Box("d", 1)

    def of_wrapped(t: Text) -> Any:
        """Wrap(Box("z", 0)) = Box("z", 1)."""
        return Wrap(Box("z", 0)), Box("z", 1)

    made = law(source="folklore: a test")
    laws = {fn.__name__: made(fn) for fn in (turn, of_answer, of_number, of_wrapped)}
    reach = Reach()
    assert reach.of(laws) == []
    reach.inserted(Box("ab", 7))
    assert reach.of(laws) == ["turn"]
    reach.answered(("z", "ba"))
    assert reach.of(laws) == ["turn"]  # it has not fired
    reach.fired(laws["turn"])
    assert reach.of(laws) == ["turn", "of_answer"]
    # Its box holds 0, so the wrapped one is reached, whose box holds 1.
    assert reach.of(laws, ends=True) == list(laws)
