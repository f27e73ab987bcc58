"""Samples of the campaigns that draw programs and pairs of them: never a wrong answer."""

from __future__ import annotations

from typing import Any

import pytest

from axe_eq.run.executable import Executable
from benchmarks.drawn_programs import case
from benchmarks.pairs import judged, pair
from benchmarks.programs import CRASH, NOT_EMITTED, WRONG, is_large, outcome

PAIRS = 200  # 2 % of those of a whole campaign
SEEDS = range(100_000, 100_060)  # as much, and others than the campaign's own
# One of every kind, of finite results, that is compiled and interpreted in a second.
FEW = {
    "reduction": 100_005, "product": 100_004, "bits": 100_006, "generic": 100_007,
    "generic, two outputs": 100_039, "casts": 100_012, "spatial": 100_023, "stencil": 100_018,
    "tests": 100_022, "rows": 100_050, "scans": 100_041, "cells": 100_053,
}  # fmt: skip
ON_CPU = {**FEW, "moves": 100_016, "chain": 100_059}


def check(seed: int, target: str) -> None:
    found = outcome(seed, target, "interpreter")
    assert found.state not in (WRONG, NOT_EMITTED, CRASH), found


@pytest.mark.parametrize("name", FEW)
def test_kernels_of_a_drawn_program_are_right(name: str) -> None:
    """What compiles for an H200 is emitted, and computes what numpy does in float64."""
    check(FEW[name], "h200")


@pytest.mark.parametrize("name", ON_CPU)
def test_a_drawn_program_is_right_on_the_cpu(name: str) -> None:
    check(ON_CPU[name], "cpu")


@pytest.mark.parametrize("target", ["h200", "cpu"])
def test_all_drawn_programs_are_right(target: str, full: bool) -> None:
    if not full:
        pytest.skip("one of every kind runs without --full")
    for seed in SEEDS:
        if not is_large(case(seed).program):  # more than an interpreter should be given
            check(seed, target)


@pytest.mark.parametrize("name", ["reduction", "generic, two outputs", "casts", "bits", "cells"])
def test_results_that_are_off_by_one_are_judged_wrong(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each output of each, which says that the comparison sees these programs' results."""
    right = Executable.interpret
    n_outputs = len(case(FEW[name]).program.outputs)
    for wrong in range(n_outputs):

        def off(exe: Executable, *arrays: Any, wrong: int = wrong) -> Any:
            given = right(exe, *arrays)
            found = list(given) if n_outputs > 1 else [given]
            found[wrong] = ~found[wrong] if found[wrong].dtype == bool else found[wrong] + 1
            return tuple(found) if n_outputs > 1 else found[0]

        monkeypatch.setattr(Executable, "interpret", off)
        found = outcome(FEW[name], "cpu", "interpreter")
        assert found.state == WRONG, found
        assert found.problem.startswith(f"output {wrong} is ")


@pytest.mark.sampled(20)
@pytest.mark.parametrize("number", range(PAIRS))
def test_what_is_proved_of_a_drawn_pair_is_true(number: int) -> None:
    """Proved means equal wherever numpy looks, by a certificate that is accepted."""
    dtype, left, right, _ = pair(2, number)
    found = judged(dtype, left, right, f"2:{number}", budget=0.2)
    assert found["verdict"] in ("Proved", "Refuted", "Unknown"), found
    assert "wrong" not in found, found
    assert found.get("accepted", True), found
