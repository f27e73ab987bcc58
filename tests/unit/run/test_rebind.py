"""Other extents of named dims: the function traced there is computed, or the reason is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
import axe_eq.array as xp
import axe_eq.nn as nn
from axe_eq.errors import ArgumentError, ScheduleError

X = axe.Spec((16, 24), "f64", dims=("tokens", ""))


def causal(x: Any) -> Any:
    """Rows attend to those before them; the mask is made by numpy at the traced extent."""
    mask = np.tril(np.ones((x.shape[0], x.shape[0]), dtype=bool))
    scores = xp.where(mask, x @ xp.permute_dims(x, (1, 0)), -1e9)
    return nn.softmax(scores, axis=-1) @ x


def by_size(x: Any) -> Any:
    return x * 2.0 if x.shape[0] > 20 else xp.exp(x)


# What these compute from the extent is a constant in the schedule.
FOLLOWED: dict[str, Callable[..., Any]] = {
    "slice": lambda x: x[2:5],
    "last row": lambda x: x[-1],
    "mean": lambda x: xp.mean(x, axis=0),
    "variance": lambda x: xp.var(x, axis=0, correction=1),
    "scaled": lambda x: xp.exp(x) / x.shape[0],
    "padded to a multiple": lambda x: xp.concat([x, xp.zeros((64 - x.shape[0], 24))], axis=0),
    "made at its extent": lambda x: (x * 2.0, xp.ones((x.shape[0], 3))),
    "halves": lambda x: xp.sum(xp.reshape(x, (2, x.shape[0] // 2, 24)), axis=0),
    "positions": lambda x: xp.arange(x.shape[0]) * 2 + xp.sum(x),
    "mask of numpy": causal,
    "a number that is no extent": lambda x: xp.sum(x, axis=0) / 16.0,
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_the_function_computes_from_an_extent_follows(
    name: str, rng: np.random.Generator
) -> None:
    exe = axe.compile(FOLLOWED[name], X, target="cpu")
    for tokens in (8, 40):
        x = rng.standard_normal((tokens, 24))
        found, meant = exe.schedule.bind(tokens=tokens).run(x), axe.run(FOLLOWED[name], x)
        pairs = zip(found, meant, strict=True) if name == "made at its extent" else [(found, meant)]
        for a, b in pairs:
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "all rows by chance": (lambda x: xp.sum(x[:16], axis=0), "differs over the reals"),
    "two halves by chance": (
        lambda x: xp.sum(xp.concat([x[:8], x[8:16]], axis=0), axis=0), "differs over the reals",
    ),
    "another branch": (by_size, "differs over the reals"),
    "no meaning": (lambda x: x + np.ones((16, 24)), "the function has no meaning there"),
}  # fmt: skip


def test_a_branch_that_samples_do_not_take_is_compared(rng: np.random.Generator) -> None:
    """Two numbers that are equal by chance, one of them an extent: x times 16 was given for 12."""

    def scaled(x: Any) -> Any:
        return xp.where(xp.max(x) > 1e6, x * float(x.shape[0]), x * 16.0)

    exe = axe.compile(scaled, X, target="cpu")
    with pytest.raises(ScheduleError, match="neither proved nor refuted"):
        exe.schedule.bind(tokens=12)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_kernels_no_longer_compute_is_refused_with_the_reason(
    name: str, rng: np.random.Generator
) -> None:
    fn, reason = REFUSED[name]
    exe = axe.compile(fn, X, target="cpu")
    with pytest.raises(ScheduleError, match=f"schedule bound tokens=40: .*{reason}"):
        exe.schedule.bind(tokens=40)
    with pytest.raises(ArgumentError, match="got arrays with tokens=40"):
        exe(rng.standard_normal((40, 24)))
    x = rng.standard_normal((16, 24))
    np.testing.assert_allclose(exe(x), axe.run(fn, x), rtol=1e-9)


def test_bound_schedules_are_bound_again_and_kept(rng: np.random.Generator) -> None:
    exe = axe.compile(FOLLOWED["mean"], X, target="cpu")
    eight = exe.schedule.bind(tokens=8)
    assert eight is exe.schedule.bind(tokens=8)
    assert exe.schedule.bind(tokens=16) is exe.schedule
    x = rng.standard_normal((12, 24))
    np.testing.assert_allclose(eight.bind(tokens=12).run(x), x.mean(0), rtol=1e-12)


def test_dims_of_one_name_have_one_extent_in_all_arrays(rng: np.random.Generator) -> None:
    exe = axe.compile(lambda a, b: xp.sum(a, axis=0) + xp.sum(b, axis=0), X, X, target="cpu")
    old, new = (rng.standard_normal((n, 24)) for n in (16, 8))
    for arrays in ((old, new), (new, old)):
        with pytest.raises(
            ArgumentError, match=r"argument 'b': has shape .* in dim 0; expected sh"
        ):
            exe(*arrays)
    np.testing.assert_allclose(exe(new, new), 2 * new.sum(0), rtol=1e-12)


# -- saved -----------------------------------------------------------------------------------------


def test_a_saved_schedule_is_bound_where_its_function_was_seen_to_allow_it(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    x = axe.Spec((axe.dim("tokens", divisible=4, example=16), axe.dim("width", example=24)), "f64")
    exe = axe.compile(lambda x: xp.exp(x) / x.shape[1], x, target="cpu")
    exe.save(tmp_path / "saved.axe")
    loaded = axe.load(tmp_path / "saved.axe")
    assert loaded.schedule.bind(tokens=16) is loaded.schedule
    tall = rng.standard_normal((40, 24))
    np.testing.assert_allclose(loaded(tall), np.exp(tall) / 24, rtol=1e-12)
    with pytest.raises(ScheduleError, match="dim 'tokens': bound to 7; expected a multiple of 4"):
        loaded.schedule.bind(tokens=7)
    with pytest.raises(ScheduleError, match="dim 'width' keeps its extent: at width="):
        loaded.schedule.bind(width=12)
    with pytest.raises(ScheduleError, match="dim 'rows': is no dim of the inputs"):
        loaded.schedule.bind(rows=12)
