"""Mutations of correct kernels, at every site: each is refused, caught, without effect, or argued.

A sample runs here; ``--full`` runs all of `benchmarks.kernel_campaign`, whose last scoreboard is
benchmarks/results/kernel_mutations.json. The arguments are in `benchmarks.kernel_survivors`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

import pytest

from axe_eq.kernel.show import show
from benchmarks.kernel_campaign import (
    CRASH,
    FAULT,
    ORDERS_OF_EACH,
    REFUSED,
    RESULTS,
    SURVIVES,
    VALUES,
    Outcome,
    all_outcomes,
    campaign,
    in_orders,
    judged,
)
from benchmarks.kernel_subjects import SUBJECTS
from benchmarks.kernel_survivors import REASONS

SAMPLE = 3  # mutants of a subject that are judged by default


def wrong(outcomes: list[Outcome]) -> list[str]:
    """Survivors without an argument, and crashes of the compiler or the interpreter."""
    return [
        f"{o.subject}: {o.mutant} ({o.detail}): {o.verdict.kind} {o.verdict.note}"
        for o in outcomes
        if o.verdict.kind == CRASH or (o.verdict.kind == SURVIVES and not o.reason)
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_sample_of_mutants_is_caught_or_argued_legal(name: str) -> None:
    found = campaign(name)
    assert found.unchanged().kind == SURVIVES
    total = len(found.mutants)
    assert wrong(judged(name, range(total // SAMPLE // 2, total, total // SAMPLE))) == []


def test_every_mutant_is_caught_or_argued_legal(full: bool) -> None:
    if not full:
        pytest.skip("the whole campaign runs under --full")
    outcomes = list(all_outcomes(os.cpu_count() or 1))
    assert wrong(outcomes) == []
    argued = {o.reason for o in outcomes if o.reason}
    assert [r.why for r in REASONS if r.why not in argued] == []
    print(f"{len(outcomes)} mutants:", dict(Counter(o.verdict.kind for o in outcomes)))


def test_every_subject_is_right_in_fifty_orders(full: bool) -> None:
    """By default one of them, in one."""
    names, count = (list(SUBJECTS), ORDERS_OF_EACH) if full else (["swept odd rows"], 1)
    assert [in_orders(name, count) for name in names] == [{}] * len(names)


def test_the_scoreboard_covers_every_subject_and_leaves_nothing_open() -> None:
    board = json.loads((RESULTS / "kernel_mutations.json").read_text(encoding="utf-8"))
    assert set(board["subjects"]) == set(SUBJECTS)
    assert (board["unargued"], board["crashes"]) == (0, [])
    wanted = {"subjects": len(SUBJECTS), "orders": ORDERS_OF_EACH, "wrong": {}}
    assert board["orders"] == wanted
    assert set(board["survivors"]) <= {r.why for r in REASONS}


# -- the operators --


def some(name: str, operator: str, site: str = "") -> list[Any]:
    """The verdicts on the mutants of a subject by operator, and part of the site."""
    found = campaign(name)
    mutants = [m for m in found.mutants if m.operator == operator and site in m.site]
    assert mutants, f"no mutant {operator!r} at {site!r}"
    return [found.verdict(m) for m in mutants]


PERSISTENT, STREAM = "persistent product", "streaming product"
CAUGHT: list[tuple[str, str, str, str, str]] = [
    (PERSISTENT, "delete", "sync", FAULT, "before the write by"),
    (PERSISTENT, "delete", "fence_async", FAULT, "reads ordinary writes through the async proxy"),
    (PERSISTENT, "delete", "wait full", REFUSED, "nobody waits for it"),
    (PERSISTENT, "delete", "one thread: arrive empty", FAULT, "deadlock"),
    (PERSISTENT, "delete", "wait_group bulk 0", FAULT, "ends while its bulk stores"),
    (PERSISTENT, "shift the phase", "parity := 1", FAULT, "deadlock"),
    (PERSISTENT, "shrink the ring", "smem A_ring", FAULT, ""),
    (PERSISTENT, "shrink the ring", "barrier full", FAULT, "slot 2; expected 0 to 1"),
    (PERSISTENT, "one more pending", "wait_group wgmma 0", FAULT, "before its product is done"),
    (PERSISTENT, "do earlier", "sync", FAULT, ""),
    (PERSISTENT, "the next slot", "arrive empty", FAULT, ""),  # an early release
    (PERSISTENT, "count +1", "empty", FAULT, "deadlock"),
    (PERSISTENT, "+8 registers", "warpgroups 0..1", REFUSED, "registers"),
    (PERSISTENT, "wrong swizzle of map", "tma_load 0", VALUES, ""),
    (PERSISTENT, "wrong sbo of a_form", "wgmma 1", FAULT, "reads shared memory before the write"),
    ("gated product of columns", "wrong swizzle of a_form", "wgmma", VALUES, ""),
    (PERSISTENT, "-1 of coords", "tma_store 0", FAULT, "is written 0 times"),
    (PERSISTENT, "the other of trans", "stmatrix 0", FAULT, "its plan leaves"),
    (PERSISTENT, "box +1", "copy_async A_ring", VALUES, ""),
    (STREAM, "delete", "turn_parity = turn_parity", FAULT, "it may count for that one"),
    (STREAM, "delete", "parity_5 = parity_5", FAULT, ""),
    ("transpose by elements", "one off of guard", "ld_global 3", FAULT, "its plan leaves"),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "operator", "site", "kind", "note"), CAUGHT)
def test_classical_mistakes_are_caught_for_their_reason(
    name: str, operator: str, site: str, kind: str, note: str
) -> None:
    found = some(name, operator, site)
    assert any(v.kind == kind and note in v.note for v in found), found


def test_registers_that_should_hold_infinities_are_compared() -> None:
    """A row of minus infinity, not loaded but filled, ends in the same NaN: the load is wrong."""
    found = campaign("swept rows")
    at = "ld_global 0 of copy x_2"
    mutants = [m for m in found.mutants if m.operator == "one off of guard" and at in m.site]
    fewer = [m for m in mutants if m.detail.startswith("(i4 < 5)")]
    assert [found.verdict(m).kind for m in fewer] == [FAULT]


def test_edits_are_undone() -> None:
    found = campaign("transpose by matrices")
    before = show(found.kernel, found.planned)
    for m in found.mutants[::27]:
        found.verdict(m)
        assert show(found.kernel, found.planned) == before, str(m)
    assert found.unchanged().kind == SURVIVES
    assert found._first(found.planned)[1] == found.effects
