"""TASO's and Tensat's substitutions: what is claimed, what is proved, what numpy says.

A fifteenth runs here; ``--full`` runs all of `benchmarks.substitutions`, whose last scoreboard is
benchmarks/results/substitutions.json.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import axe_eq as axe
from axe_eq.prove.programs.search import Budget
from benchmarks.substitution_mutations import KINDS, mutations
from benchmarks.substitution_reader import FOLDER, Pattern, Rule, _tensat_value, cases, taso, tensat
from benchmarks.substitutions import (
    MUTATIONS,
    PROVED,
    RESULTS,
    UNKNOWN,
    counts,
    judged,
    judged_mutation,
    report,
    wrong,
)

RULES = {rule.name: rule for rule in (*taso(), *tensat())}
SAMPLE = [name for n, name in enumerate(RULES) if n % 15 == 5]
LEAST_PROVED = {"taso": 110, "tensat": 105}


@pytest.fixture(scope="module")
def scoreboard() -> dict[str, Any]:
    found = json.loads((RESULTS / "substitutions.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def renamed(rule: Rule) -> str:
    """The claim with inputs named alike in both notations, and open kernels as TASO has them."""
    text = str(rule).replace("input_", "x")
    return re.sub(r"\(conv2d 0 ", "(conv2d 3 ", text)


# -- reading --------------------------------------------------------------------------------------


def test_both_corpora_are_read_whole() -> None:
    assert len(taso()) == 133
    assert [len(rule.pairs) for rule in tensat()] == [1] * 120 + [2] * 13
    assert sum(len(rule.pairs) for rule in taso()) == 120 + 26


def test_tensat_says_what_taso_says() -> None:
    # The two notations were written independently of these readers, so agreement checks both, and
    # that consecutive lines of Tensat's rules of two outputs belong together.
    assert sorted(map(renamed, taso())) == sorted(map(renamed, tensat()))


def test_a_substitution_of_each_kind_reads_as_it_is_written() -> None:
    line = (FOLDER / "tensat_single.txt").read_text(encoding="utf-8").splitlines()[2]
    assert line.startswith("(matmul 0 (concat 0 2 ?input_4 (matmul 0 ?input_1 ?input_4)) ?input_5)")
    assert str(tensat()[2]).startswith(
        "(matmul 0 (concat 0 2 input_4 (matmul 0 input_1 input_4)) input_5) = (concat 0 2 "
    )
    assert str(taso()[77].pairs[1][1]) == "(split 1 1 0 (matmul 0 x1 (concat 1 2 x4 x5)))"


@pytest.mark.parametrize("text", ["(enlarge ?x ?y)", "(conv2d 2 2 0 0 ?x ?w)"])
def test_what_the_corpora_do_not_have_is_refused(text: str) -> None:
    with pytest.raises(axe.NotationError):
        _tensat_value(text)


def test_every_rule_has_shapes_and_both_sides_have_one_type() -> None:
    for rule in RULES.values():
        found = cases(rule, 1)
        assert found, rule
        left, right = found[0].programs()
        assert [n.type for n in left.outputs] == [n.type for n in right.outputs]


def test_shapes_of_a_concatenation_follow_from_its_equations() -> None:
    x, y = Pattern("input", name="x"), Pattern("input", name="y")
    both = Pattern("concat", (1, 2), (x, y))
    for case in cases(Rule("test", 0, ((both, Pattern("ewadd", (), (both, both))),))):
        assert case.shapes["x"][0] == case.shapes["y"][0]
    assert cases(Rule("test", 1, ((both, x),))) == []  # x cannot be as wide as x ++ y


# -- verdicts -------------------------------------------------------------------------------------


def test_the_scoreboard_is_whole_and_meets_its_bars(scoreboard: dict[str, Any]) -> None:
    rows, mutants = scoreboard["rules"], scoreboard["mutations"]
    assert [row["name"] for row in rows] == list(RULES)
    assert [row["rule"] for row in rows] == [str(rule) for rule in RULES.values()]
    for source, least in LEAST_PROVED.items():
        assert counts(rows, source)[PROVED] >= least
        assert all(row["verdict"] != UNKNOWN for row in rows), "say what is missing"
    assert wrong(rows, mutants) == []
    assert len(mutants) == MUTATIONS
    assert {m["kind"] for m in mutants} == set(KINDS)
    assert (RESULTS / "substitutions.md").read_text(encoding="utf-8") == report(rows, mutants)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_has_the_verdicts_of_the_scoreboard(name: str, scoreboard: dict[str, Any]) -> None:
    known = {c["case"]: c["verdict"] for row in scoreboard["rules"] for c in row["cases"]}
    for outcome in judged(RULES[name], 1)["cases"]:
        assert outcome["numpy"], outcome
        assert outcome["verdict"] == known[outcome["case"]], outcome


def test_no_sampled_mutation_that_changes_the_meaning_is_proved(full: bool) -> None:
    few = Budget(rows=2000, seconds=3.0)
    count = 8 if full else 2
    rows = [judged_mutation(mutation, few) for mutation in mutations(taso()[::7], count)]
    assert wrong([], rows) == []
    assert len(rows) == count


def test_the_whole_campaign(full: bool) -> None:
    if not full:
        pytest.skip("needs --full: ten minutes")
    rows = [judged(rule) for rule in RULES.values()]
    mutants = [judged_mutation(mutation) for mutation in mutations(taso(), MUTATIONS)]
    assert wrong(rows, mutants) == []
    for source, least in LEAST_PROVED.items():
        assert counts(rows, source)[PROVED] >= least
