"""Programs of many pieces and many steps: the search grows with them, and no faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq.debug import debug
from axe_eq.extract.search import merge as choose
from axe_eq.pack import installed
from axe_eq.pipeline.saturation import saturate_program
from axe_eq.program.array.joining import MOST_JOINED
from axe_eq.program.terms import encode
from axe_eq.program.traced import select


def rolled(x: Any) -> Any:
    return 0.25 * xp.roll(x, 1, axis=-1) + 0.5 * x + 0.25 * xp.roll(x, -1, axis=-1)


def sliced(x: Any) -> Any:
    return 0.25 * x[..., :-2] + 0.5 * x[..., 1:-1] + 0.25 * x[..., 2:]


def crossed(x: Any) -> Any:
    p = xp.pad(x, ((1, 1), (1, 1)))
    return 0.5 * x + 0.125 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])


def steps(step: Callable[[Any], Any], n: int) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for _ in range(n):
            x = step(x)
        return x

    return run


def searched(fn: Callable[..., Any], *specs: str, target: str = "cpu") -> Any:
    with debug(cache=0):
        return axe.compile(fn, *specs, target=target)


def rows(fn: Callable[[Any], Any], spec: str) -> int:
    program = axe.trace(fn, spec)
    terms = encode(program.outputs)
    return saturate_program(program, terms, list(installed().values()), ()).rows


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("step", "spec"), [(rolled, "64:f32"), (sliced, "64:f32"), (crossed, "32x30:f32")]
)
def test_the_search_grows_with_the_steps_of_a_stencil(
    step: Callable[[Any], Any], spec: str
) -> None:
    """Twice the steps take at most 2.5 times the rows: demand alone took 8 times as many."""
    assert rows(steps(step, 6), spec) < 2.5 * rows(steps(step, 3), spec)


def test_many_steps_of_a_stencil_are_right() -> None:
    x = np.random.default_rng(3).normal(size=64).astype(np.float32)
    wanted = x.astype(np.float64)
    for _ in range(5):
        wanted = 0.25 * wanted[:-2] + 0.5 * wanted[1:-1] + 0.25 * wanted[2:]
    exe = searched(steps(sliced, 5), "64:f32")
    np.testing.assert_allclose(np.asarray(exe(x)), wanted, rtol=1e-4, atol=1e-5)


def test_two_steps_of_a_stencil_still_are_one_kernel() -> None:
    assert len(searched(steps(sliced, 2), "4096:f32", target="h200").kernels) == 1


def slices(n: int) -> Callable[..., Any]:
    return lambda x: xp.concat([x[:, i : i + 2] for i in range(n)], axis=1)


def joined(*xs: Any) -> Any:
    return xp.concat(list(xs), axis=1)


def stacked(*xs: Any) -> Any:
    return xp.stack(list(xs), axis=1)


@pytest.mark.parametrize("n", [MOST_JOINED + 1, 60])
def test_any_number_of_arrays_is_joined(n: int) -> None:
    """Different inputs, and inputs with a new dim."""
    pieces = np.random.default_rng(n).normal(size=(n, 3, 2)).astype(np.float32)
    specs = ["3x2:f32"] * n
    got = searched(joined, *specs)(*pieces)
    np.testing.assert_array_equal(np.asarray(got), np.concatenate(pieces, axis=1))
    if n < 60:
        got = searched(stacked, *specs)(*pieces)
        np.testing.assert_array_equal(np.asarray(got), np.stack(list(pieces), axis=1))


@pytest.mark.parametrize(("n", "axis"), [(3, 0), (3, 1), (MOST_JOINED, 0), (MOST_JOINED + 1, 1)])
def test_any_number_of_arrays_is_interleaved(n: int, axis: int) -> None:
    """Three had no kernel: the law was about two."""
    pieces = np.random.default_rng(n).normal(size=(n, 3, 2)).astype(np.float32)
    exe = searched(lambda *xs: select(f"interleave {axis}", *xs), *["3x2:f32"] * n)
    shape = (3 * n, 2) if axis == 0 else (3, 2 * n)
    wanted = np.stack(list(pieces), axis=axis + 1).reshape(shape)
    np.testing.assert_array_equal(np.asarray(exe(*pieces)), wanted)


def test_interleaved_arrays_are_written_for_a_gpu() -> None:
    pieces = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
    exe = searched(lambda *xs: select("interleave 1", *xs), *["4x3:f32"] * 5, target="h200")
    wanted = np.stack(list(pieces), axis=2).reshape(4, 15)
    np.testing.assert_array_equal(np.asarray(exe.interpret(*pieces)), wanted)


def test_any_number_of_arrays_is_joined_by_the_text_of_a_selector() -> None:
    """Forty had no kernel, though `concat` of the array namespace took them."""
    pieces = np.random.default_rng(40).normal(size=(40, 3, 2)).astype(np.float32)
    got = searched(lambda *xs: select("concat 1", *xs), *["3x2:f32"] * 40)(*pieces)
    np.testing.assert_array_equal(np.asarray(got), np.concatenate(pieces, axis=1))


def test_many_slices_are_joined() -> None:
    wide = np.random.default_rng(1).normal(size=(5, 50)).astype(np.float32)
    wanted = np.concatenate([wide[:, i : i + 2] for i in range(48)], axis=1)
    np.testing.assert_array_equal(np.asarray(searched(slices(48), "5x50:f32")(wide)), wanted)


def test_many_inputs_are_joined_in_texts_of_bounded_length() -> None:
    source = searched(joined, *["43x2:f32"] * 60, target="h200").source
    assert len(source) > 1
    assert max(map(len, source.values())) < 60_000


def test_flattened_arrays_are_joined_in_order() -> None:
    given = [np.arange(6, dtype=np.float32).reshape(2, 3) + i for i in range(MOST_JOINED + 2)]
    exe = searched(lambda *xs: xp.concat(list(xs), axis=None), *["2x3:f32"] * len(given))
    np.testing.assert_array_equal(np.asarray(exe(*given)), np.concatenate(given, axis=None))


def test_outputs_that_touch_one_value_are_not_all_offered_to_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each to its share of partners: 80 outputs offered 6,078 pairs, 160 of them 24,928."""
    monkeypatch.setattr(choose, "MOST_PAIRS", 400)  # of 2,000, for half as many outputs
    offered, join = [], choose._Grouping._join

    def counted(*pair: Any) -> Any:
        offered.append(pair)
        return join(*pair)

    monkeypatch.setattr(choose._Grouping, "_join", counted)
    exe = searched(lambda x: tuple(x * (n + 1) for n in range(40)), "64:f32", target="h200")
    assert len(offered) <= 2 * choose.MOST_PAIRS
    assert len(exe.kernels) <= 6
