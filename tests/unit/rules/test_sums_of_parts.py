"""Reductions over parts of a dim that are merged: the reduction over all, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import axe_eq as axe

xp = axe.array
SPECS = "8x12:i32", "12x6:i32"


def parts(x: Any, w: Any, *ends: tuple[int, int]) -> Any:
    """Products of these columns and rows, added one after the other."""
    products = [x[:, a:b] @ w[a:b] for a, b in ends]
    return sum(products[1:], products[0])


def product(x: Any, w: Any) -> Any:
    return x @ w


SAME: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "in another order": (product, lambda x, w: parts(x, w, (9, 12), (0, 3), (3, 6), (6, 9))),
    "uneven": (product, lambda x, w: parts(x, w, (5, 12), (0, 5))),
    "another order in each row": (
        product,
        lambda x, w: xp.concat(
            [parts(x[:4], w, (0, 6), (6, 12)), parts(x[4:], w, (6, 12), (0, 6))]
        ),
    ),
    "of a function of parts": (
        lambda x, w: xp.abs(x * 2) @ w,
        lambda x, w: xp.abs(x[:, 6:] * 2) @ w[6:] + xp.abs(x[:, :6] * 2) @ w[:6],
    ),
    "the greatest": (
        lambda x, w: xp.max(x, axis=1) + w[0, 0],
        lambda x, w: xp.maximum(xp.max(x[:, 4:], axis=1), xp.max(x[:, :4], axis=1)) + w[0, 0],
    ),
}
OTHERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "a part twice": (product, lambda x, w: parts(x, w, (0, 6), (0, 6))),
    "a part is missing": (product, lambda x, w: parts(x, w, (0, 3), (6, 12))),
    "parts that overlap": (product, lambda x, w: parts(x, w, (0, 7), (6, 12))),
    "rows of another part": (product, lambda x, w: x[:, :6] @ w[6:] + x[:, 6:] @ w[:6]),
    "merged otherwise": (
        lambda x, w: xp.max(x, axis=1) + w[0, 0],
        lambda x, w: xp.max(x[:, 4:], axis=1) + xp.max(x[:, :4], axis=1) + w[0, 0],
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SAME)
def test_merged_parts_are_the_whole(name: str) -> None:
    verdict = axe.equivalent(*SAME[name], *SPECS, numerics="exact")
    assert isinstance(verdict, axe.Proved), verdict
    assert axe.check_certificate(verdict.certificate)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_partition_is_refuted(name: str) -> None:
    assert isinstance(axe.equivalent(*OTHERS[name], *SPECS, numerics="exact"), axe.Refuted)


def test_float_sums_round_in_another_order() -> None:
    """Bit for bit they are not the same; by real numbers they are."""
    specs = "8x12:f32", "12x6:f32"
    both = product, lambda x, w: parts(x, w, (0, 6), (6, 12))
    assert isinstance(axe.equivalent(*both, *specs), axe.Proved)
    assert not isinstance(axe.equivalent(*both, *specs, numerics="exact"), axe.Proved)
