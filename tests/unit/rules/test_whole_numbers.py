"""Powers of two as shifts and masks: every integer of 8 bits, every constant."""

from __future__ import annotations

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.program.meaning import evaluate_op, evaluate_sel
from axe_eq.program.ops import join_text
from axe_eq.program.types import DTYPES
from axe_eq.prove.certificates.verdict import Proved
from axe_eq_rules.whole_numbers import in_bits


@pytest.mark.parametrize("dtype", ["i8", "u8"])
@pytest.mark.parametrize("cell", ["shl", "remainder", "floor_divide"])
def test_bits_are_what_powers_of_two_do(cell: str, dtype: str) -> None:
    ends, n_found = np.iinfo(DTYPES[dtype].numpy), 0
    every = np.arange(ends.min, ends.max + 1).astype(DTYPES[dtype].numpy)
    for k in range(ends.min, ends.max + 1):
        spec = join_text("full", (), k, dtype)
        if not 0 <= k < 8 and cell == "shl":
            assert in_bits.fn(cell, spec, f"{dtype}[256]") is None
            continue
        found = in_bits.fn(cell, spec, f"{dtype}[256]")
        if found is None:
            continue
        n_found += 1
        a, b = (
            evaluate_op("a, -> a", f, [every, evaluate_sel(m, ())])
            for f, m in ((cell, spec), found)
        )
        assert np.array_equal(a, b)
    assert n_found == (8 if dtype == "u8" else 7)


def test_bits_prove_programs_of_integers_equal() -> None:
    found = axe.equivalent(
        lambda x, y: ((x ^ y) ^ y, x % 8, x * 8),
        lambda x, y: (x, x & 7, x << 3), "4:i32", "4:i32", numerics="exact",
    )  # fmt: skip
    assert isinstance(found, Proved)
    assert axe.check_certificate(found.certificate)
