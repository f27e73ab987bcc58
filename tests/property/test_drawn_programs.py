"""Samples of the campaigns that draw programs and pairs of them: never a wrong answer."""

from __future__ import annotations

from typing import Any

import pytest

from axe_eq.run.executable import Executable
from benchmarks.drawn_programs import FAMILIES, case
from benchmarks.pairs import judged, pair
from benchmarks.programs import CRASH, NOT_EMITTED, RIGHT, WRONG, Outcome, is_large, outcome

PAIRS = 200  # 2 % of those of a whole campaign
SEEDS = range(100_000, 100_060)  # as much, and others than the campaign's own
# By target and kind, 2 % of the 3,000 programs of a campaign: those that an interpreter takes no
# second for, all of them different. But for one, a result that is off by one is seen.
FEW: dict[str, dict[str, tuple[int, ...]]] = {
    "h200": {
        "reduction": (100_070, 100_170, 100_318), "product": (100_004, 100_152, 100_306),
        "bits": (100_580, 100_802), "generic": (100_008, 100_026, 100_064),
        "casts": (100_290, 100_548), "spatial": (100_284,), "stencil": (100_262,),
        "tests": (100_206, 100_488), "rows": (100_050, 100_080), "scans": (100_554, 100_868),
        "cells": (100_074, 100_140), "moves": (100_330, 100_714), "chain": (100_328,),
        "attention": (100_400,), "gathers": (100_036, 100_108, 100_200),
    },
    "cpu": {
        "reduction": (100_055, 100_057, 100_137), "product": (100_159, 100_185, 100_187, 100_555),
        "bits": (100_067, 100_397), "generic": (100_007, 100_025, 100_083),
        "casts": (100_205, 100_433), "spatial": (100_013,), "stencil": (100_195,),
        "tests": (100_537,), "rows": (100_291, 100_317), "scans": (100_015, 100_033),
        "cells": (100_099, 100_135), "moves": (100_239, 100_959), "chain": (100_581,),
        "attention": (100_511,), "gathers": (100_041, 100_089, 100_181),
    },
    "trn2": {  # in the simulator; the second cast makes integers of NaN, of which machines differ
        "reduction": (100_019,), "product": (100_021,), "bits": (100_038,), "generic": (100_047,),
        "casts": (100_205, 510_048), "spatial": (100_013,), "stencil": (100_195,),
        "tests": (100_130,), "rows": (100_050,), "scans": (100_157,), "cells": (100_053,),
        "moves": (100_095,), "chain": (100_214,), "attention": (100_437,), "gathers": (100_051,),
    },
}  # fmt: skip
DRAWN = [(t, kind, seed) for t, of in FEW.items() for kind, seeds in of.items() for seed in seeds]


def check(seed: int, target: str) -> Outcome:
    found = outcome(seed, target, "device" if target == "trn2" else "interpreter")
    assert found.state not in (WRONG, NOT_EMITTED, CRASH), found
    return found


def test_the_few_are_of_every_kind() -> None:
    assert len({seed for target, _, seed in DRAWN if target != "trn2"}) == 60
    assert all(of.keys() == {*FAMILIES, "generic"} for of in FEW.values())


@pytest.mark.sampled(31)
@pytest.mark.parametrize(("target", "kind", "seed"), DRAWN)
def test_a_drawn_program_is_right(target: str, kind: str, seed: int) -> None:
    """What compiles is emitted, and computes what numpy does in float64; all of these compile."""
    found = check(seed, target)
    assert (found.kind, found.state) == (kind, RIGHT), found


@pytest.mark.parametrize("target", FEW)
def test_all_drawn_programs_are_right(target: str, full: bool) -> None:
    if not full:
        pytest.skip("few of every kind run without --full")
    for seed in SEEDS:
        if not is_large(case(seed).program):  # more than an interpreter should be given
            check(seed, target)


@pytest.mark.parametrize("kind", ["reduction", "generic", "casts", "bits", "cells"])
def test_results_that_are_off_by_one_are_judged_wrong(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each output of each, which says that the comparison sees these programs' results."""
    right = Executable.interpret
    seed = FEW["cpu"][kind][0]
    n_outputs = len(case(seed).program.outputs)
    for wrong in range(n_outputs):

        def off(exe: Executable, *arrays: Any, wrong: int = wrong) -> Any:
            given = right(exe, *arrays)
            found = list(given) if n_outputs > 1 else [given]
            found[wrong] = ~found[wrong] if found[wrong].dtype == bool else found[wrong] + 1
            return tuple(found) if n_outputs > 1 else found[0]

        monkeypatch.setattr(Executable, "interpret", off)
        found = outcome(seed, "cpu", "interpreter")
        assert found.state == WRONG, found
        assert found.problem.startswith(f"output {wrong} is ")


@pytest.mark.sampled(14)
@pytest.mark.parametrize("number", range(PAIRS))
def test_what_is_proved_of_a_drawn_pair_is_true(number: int) -> None:
    """Proved means equal wherever numpy looks, by a certificate that is accepted."""
    dtype, left, right, _ = pair(2, number)
    found = judged(dtype, left, right, f"2:{number}", budget=0.2)
    assert found["verdict"] in ("Proved", "Refuted", "Unknown"), found
    assert "wrong" not in found, found
    assert found.get("accepted", True), found
