"""Cones whose figures say that strides describe them, without reading them, can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq.extract.price import figures, priced
from axe_eq.extract.price.figures import _Figures, summarise
from axe_eq.schedule.summary import Summary
from benchmarks.random_programs import random_program

SEEDS = 2
SPECS = "6x8:f32", "6x8:i32"
NAMED: tuple[Callable[..., Any], ...] = (
    lambda x, i: xp.reshape(xp.permute_dims(xp.exp(x), (1, 0)), (48,)) * 2.0,
    lambda x, i: xp.take_along_axis(x, xp.reshape(i, (6, 8)) % 6, axis=0) + x,
    lambda x, i: xp.pad(x, ((1, 1), (2, 2)))[:6, :8] + xp.flip(x),
)
FULL = 400


@pytest.mark.usefixtures("searched")
def test_what_is_not_read_has_nothing_that_strides_do_not_say(
    monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    plain, scanned = _Figures.summary, figures._read
    read, skipped = list[Any](), 0

    def noted(*given: Any) -> Any:
        read.append(scanned(*given))
        return read[-1]

    def checked(self: _Figures) -> Summary:
        nonlocal skipped
        before = len(read)
        found = plain(self)
        if len(read) == before and not found.n_outside:
            skipped += 1
            assert scanned(self._formula, "any" if self.products else "") == (0, 0)
        return found

    monkeypatch.setattr(figures, "_read", noted)
    monkeypatch.setattr(_Figures, "summary", checked)
    for fn in NAMED:
        axe.compile(fn, *SPECS, target="h200", outputs="any")
    for seed in range(FULL if full else SEEDS):
        rng = np.random.default_rng([71, seed])
        program = random_program(rng, int(rng.integers(3, 14)))
        axe.compile(program, target="h200", outputs="any" if seed % 2 else None)
    assert skipped > 20 * SEEDS
    assert any(isinstance(found, str) for found in read)
    assert len(read) > SEEDS


@pytest.mark.usefixtures("searched")
def test_scans_alike_along_two_dims_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Summary] = []

    def noted(*given: Any) -> Summary:
        found.append(summarise(*given))
        return found[-1]

    monkeypatch.setattr(priced, "summarise", noted)
    both = lambda x: xp.cumulative_sum(xp.cumulative_sum(x, axis=0), axis=1)  # noqa: E731
    axe.compile(both, "16x16:f32", target="cpu")
    assert max((len(f.scans), f.n_scanned) for f in found) == (2, 2)
