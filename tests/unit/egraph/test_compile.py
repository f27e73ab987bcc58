"""Rules of egglog: a pattern is a tree that is matched once, from its root down."""

from __future__ import annotations

import re

import pytest

from axe_eq.egraph.compile import analysis_rules, law_rules
from axe_eq.egraph.session import Session
from axe_eq.pack import installed
from axe_eq.pipeline.saturation import saturate_program
from axe_eq.program.facts import facts_of
from axe_eq.program.terms import encode
from benchmarks.compile import FAMILIES


def test_what_is_known_of_a_list_of_operands_is_asked_of_that_list() -> None:
    """A rule that repeats the list joins all lists with an operand in common."""
    (square,) = (r for r in analysis_rules(facts_of) if r.endswith('"facts _facts_square")'))
    body = square[: square.index("((set ")]
    assert body.count("(ACons ") == 2  # of the pattern itself, f(x, x)
    assert body.count("(Op ") == 1


def test_no_rule_matches_a_part_of_its_pattern_twice() -> None:
    """Every pair of equal parts would be found: 35 blocks of attention took 8 s for one round."""
    laws = [law for p in installed().values() if not p.exact for law in p.laws.values()]
    for law in laws:
        for rule in [] if law.normal else law_rules(law, law.name, "real", record=False):
            _, body, _ = rule.split("((", 2)
            for own, same in re.findall(r"\(value-eq (_z\w+) (\w+)\)", body):
                body = re.sub(rf"\b{own}\b", same, body)
            parts = re.findall(r"\((?:Op|Sel|ACons) [^()]*\)", body)
            assert len(parts) == len(set(parts)), law.name


def test_types_are_compared_with_an_answer_and_join_nothing() -> None:
    """Values that share a type would be joined with each other: it took as long as all else."""
    rules = law_rules(installed()["real"].laws["factor_left"], "x", "real", record=False)
    for rule in rules[-2:]:  # what asks for facts, and the law
        answer = re.search(r"\(p_\S+__common_factor v_t (\S+) (\S+) (\S+) ", rule)
        assert answer is not None
        assert all(
            f"(value-eq {t} v_r" in rule and rule.count(f"{t} ") == 2 for t in answer.groups()
        )


def test_facts_about_several_values_are_asked_for_at_once() -> None:
    """Their pattern is matched once more for every rule that asks."""
    law = installed()["reassociate"].laws["to_the_right"]
    rules = law_rules(law, "x", "real", record=False)
    asking = [r for r in rules if "((ask_facts " in r]
    assert len(asking) == 1
    assert asking[0].count("(ask_facts ") == 2


def test_a_deep_program_is_analysed_in_about_as_many_rounds_as_a_shallow_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Facts answered operator by operator would take a round of the whole e-graph for each."""
    rounds: list[int] = []
    fill = Session.fill

    def counted(self: Session) -> int:
        rounds[-1] += 1
        return fill(self)

    monkeypatch.setattr(Session, "fill", counted)
    for n in (4, 40):  # one block, and two
        rounds.append(0)
        program = FAMILIES["transformer"](n)
        saturate_program(program, encode(program.outputs), list(installed().values()), ())
    assert rounds[0] < rounds[1] <= rounds[0] + 25  # if answered one by one, 37 more
