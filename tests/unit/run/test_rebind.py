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
    "a sum of ones": lambda x: x + xp.sum(xp.ones((x.shape[0], 24), dtype=xp.float64), axis=0),
    "a number that is no extent": lambda x: xp.sum(x, axis=0) / 16.0,
}


@pytest.mark.sampled(4, always=("mask of numpy",))
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


# At 16 rows a law makes a factor of the divisor, bit for bit: its reciprocal is a number there.
DIVIDED: dict[str, Callable[..., Any]] = {
    "mean": FOLLOWED["mean"],
    "scaled": FOLLOWED["scaled"],
    "factor first": lambda x: xp.sum(xp.exp(x) / x.shape[0], axis=1),
    "layernorm": lambda x: nn.layernorm(x.T),
    "root": lambda x: xp.sum(x, axis=0) / np.float32(np.sqrt(x.shape[0])),
    "steps": lambda x: x * xp.linspace(0, 1, x.shape[0], dtype=x.dtype)[:, None],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("numerics", ["real", "exact"])
@pytest.mark.parametrize("name", DIVIDED)
def test_a_divisor_whose_reciprocal_rounds_is_divided_by(
    name: str, numerics: str, dtype: str, rng: np.random.Generator, tmp_path: Path
) -> None:
    """A reciprocal that the element type does not hold was an error at 12 rows, by any numerics."""
    rows = axe.dim("rows", example=16)
    exe = axe.compile(DIVIDED[name], axe.Spec((rows, 6), dtype), target="cpu", numerics=numerics)
    exe.save(tmp_path / "saved.axe", extents={"rows": [12]})
    x = rng.standard_normal((12, 6)).astype(np.dtype(f"float{dtype[1:]}"))
    meant = axe.run(DIVIDED[name], x)
    for schedule in (exe.schedule, axe.load(tmp_path / "saved.axe").schedule):
        found = schedule.bind(rows=12).run(x)
        if numerics == "exact":  # but for the order of sums
            np.testing.assert_array_max_ulp(found, meant, 4)
        else:
            np.testing.assert_allclose(found, meant, rtol=4e-3, atol=4e-3)


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


def by_odd(x: Any) -> Any:
    """Another function at 7 and at 100 rows: none of a few extents near 16 tells."""
    return xp.exp(x) if x.shape[0] in (7, 100) else x * 2.0


def test_a_saved_schedule_is_bound_to_nothing_that_was_not_proved(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Three extents tried when it was saved let it run at all others: x times 2 was given for 3."""
    exe = axe.compile(by_odd, X, target="cpu")
    exe.save(tmp_path / "saved.axe", extents={"tokens": (4, 8)})
    loaded = axe.load(tmp_path / "saved.axe")
    for tokens in (16, 4, 8):
        x = rng.standard_normal((tokens, 24))
        np.testing.assert_array_equal(loaded(x), by_odd(x))
    with pytest.raises(ScheduleError, match="bound tokens=7: was not proved to compute") as refused:
        loaded.schedule.bind(tokens=7)
    assert "expected tokens=16; tokens=4; tokens=8" in str(refused.value)
    assert "save(path, extents={dim: extents})" in str(refused.value)
    with pytest.raises(ArgumentError, match="got arrays with tokens=100"):
        loaded(rng.standard_normal((100, 24)))


def test_extents_at_which_kernels_do_not_compute_the_function_are_not_saved(tmp_path: Path) -> None:
    exe = axe.compile(by_odd, X, target="cpu")
    with pytest.raises(ScheduleError, match=r"bound tokens=7: .*differs over the reals"):
        exe.save(tmp_path / "saved.axe", extents={"tokens": range(6, 9)})
    assert not list(tmp_path.iterdir())


SAVED_WRONGLY: dict[str, tuple[Any, str]] = {
    "no dim": ({"rows": [4]}, "dim 'rows': is no dim of the inputs"),
    "one number": ({"tokens": 4}, r"extents of dim 'tokens': got 4; expected several, as range"),
    "no extent": ({"tokens": [0]}, "dim 'tokens': bound to 0"),
    "endless": ({"tokens": range(1, 10**12)}, "at least 4097 combinations.*at most 4096"),
}


@pytest.mark.parametrize("name", SAVED_WRONGLY)
def test_extents_to_save_that_are_none_are_refused(name: str, tmp_path: Path) -> None:
    extents, reason = SAVED_WRONGLY[name]
    exe = axe.compile(lambda x: x * 2.0, X, target="cpu")
    with pytest.raises(ScheduleError, match=reason):
        exe.save(tmp_path / "saved.axe", extents=extents)
    assert not list(tmp_path.iterdir())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FOLLOWED)
def test_a_saved_schedule_follows_its_function_to_the_extents_it_was_saved_for(
    name: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    exe = axe.compile(FOLLOWED[name], X, target="cpu")
    if name == "mask of numpy":
        with pytest.raises(ScheduleError, match="it captures other arrays there"):
            exe.save(tmp_path / "saved.axe", extents={"tokens": [8]})
        return
    exe.save(tmp_path / "saved.axe", extents={"tokens": [8, 40]})
    loaded = axe.load(tmp_path / "saved.axe").schedule
    for bound in (loaded.bind(tokens=8), loaded.bind(tokens=8).bind(tokens=40)):
        x = rng.standard_normal((bound.call.types[0].shape[0], 24))
        found, meant = bound.run(x), axe.run(FOLLOWED[name], x)
        pairs = zip(found, meant, strict=True) if name == "made at its extent" else [(found, meant)]
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert loaded.bind(tokens=8).bind(tokens=16).graph == loaded.graph


def test_several_dims_are_saved_in_every_combination(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    x = axe.Spec((axe.dim("tokens", divisible=4, example=16), axe.dim("width", example=24)), "f64")
    exe = axe.compile(lambda x: xp.exp(x) / x.shape[1], x, target="cpu")
    with pytest.raises(ScheduleError, match=r"tokens=7.*multiple of 4"):
        exe.save(tmp_path / "saved.axe", extents={"tokens": [7]})
    exe.save(tmp_path / "saved.axe", extents={"tokens": [40], "width": [24, 12]})
    loaded = axe.load(tmp_path / "saved.axe")
    tall = rng.standard_normal((40, 12))
    np.testing.assert_allclose(loaded(tall), np.exp(tall) / 12, rtol=1e-12)
    with pytest.raises(ScheduleError, match=r"bound width=12, tokens=16|bound tokens=16, width=12"):
        loaded.schedule.bind(width=12)
