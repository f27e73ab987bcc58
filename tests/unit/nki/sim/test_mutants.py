"""A kernel changed at any site is refused, warned of or computes something else; or why not."""

from __future__ import annotations

import numpy as np
import pytest

from axe_eq_backends.nki.sim import NkiError, simulate
from tests.unit.nki.sim.good_kernels import KERNELS, arguments
from tests.unit.nki.sim.mutants import mutants

LARGER = "a tile is declared larger than what is used of it"
ELSEWHERE = "a tile is in PSUM or SBUF, and the engines that use it reach both"
SURVIVORS = {
    "gemm": {"9: 1024 +1": LARGER, "10: 1024 +1": LARGER},
    "softmax": {f"{n}: sbuf to psum": ELSEWHERE for n in (11, 14, 17)},
    "placed": {"12: psum to sbuf": ELSEWHERE},
    "bits": {},
}


@pytest.mark.parametrize("name", KERNELS)
def test_no_mutant_survives_without_an_argument(name: str) -> None:
    arrays = arguments(name)
    right, _ = simulate(KERNELS[name], name, *arrays)
    survived, tried = set(), list(mutants(KERNELS[name]))
    assert len(tried) > 40
    for what, text in tried:
        try:
            found, report = simulate(text, name, *arrays, most_instructions=200)
        except NkiError:
            continue
        same = (
            found.shape == right.shape
            and found.dtype == right.dtype
            and np.array_equal(found, right)
        )
        if same and not report.warnings:
            survived.add(what)
    assert survived == set(SURVIVORS[name])
