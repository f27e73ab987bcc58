"""Compositions with unknown layouts of what other operations make: their reach is known."""

from __future__ import annotations

import pytest

import axe_eq as axe
from axe_eq.errors import AxeError


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("compose(A[4],compose(S[8:1],S[4:1]))", "compose(A[4],S[4:1])"),
        ("compose(A[4],permute(slice(S[8:1],(8),(0:4)),(2,2),(1,0)))", "permute(A[4],(2,2),(1,0))"),
        ("compose(A[4],direct_sum(S[2:2],(2),S[2:1],(2)))", "A[4]"),
        ("compose(A[4],tile(S[2:1],(2),S[2:1],(2)))", "A[4]"),
        (
            "compose(A[6],direct_sum(S[2:4],(2),I[2 below 2],(2)))",
            "compose(compose(A[6],S[6:1]),direct_sum(S[2:4],(2),I[2 below 2],(2)))",
        ),
    ],
)
def test_what_inner_operations_reach_is_known(left: str, right: str) -> None:
    verdict = axe.equivalent(left, right)
    assert isinstance(verdict, axe.Proved)
    assert axe.check_certificate(verdict.certificate)


@pytest.mark.parametrize(
    "inner",
    [
        "compose(S[8:1],S[(2,2):(1,4)])",
        "direct_sum(S[2:4],(2),S[2:1],(2))",
        "direct_sum(S[2:3],(2),I[2 below 2],(2))",
        "tile(S[2:1],(2),S[2:2],(2))",
    ],
)
def test_an_inner_operation_that_reaches_too_far_is_refused(inner: str) -> None:
    with pytest.raises(AxeError, match="expected them below 4"):
        axe.equivalent(f"compose(A[4],{inner})", "A[4]")
