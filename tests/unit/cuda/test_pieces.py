"""Maps over parts of a dim, and over tiles of three dims: right by every candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.lower.own import Lowered
from axe_eq.lower.read import read_cone
from axe_eq_backends.cuda.interpret import POISON, SWEEP, launch
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.prefixes import alone
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.ways import ways_of

xp = axe.array
Parameters = Mapping[str, int]


def rope(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    c, s = cos[:, None], sin[:, None]
    return xp.concat([a * c - b * s, a * s + b * c], axis=-1)


def numbered(x: Any) -> Any:
    """Positions that are compared, and used."""
    at = xp.arange(x.shape[1])
    return xp.astype(xp.where(at < x.shape[1] // 2, x, 3 * x), "f32") + xp.astype(at, "f32")


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], int]] = {
    # Functions, shapes, and pieces; 1 where there are none.
    "halves of heads": (rope, ((5, 3, 24), (5, 12), (5, 12)), 2),
    "halves of few heads": (rope, ((150, 2, 16), (150, 8), (150, 8)), 2),
    "three in turn": (lambda x, y: xp.concat([x, y * 2, x * y], axis=0), ((5, 36), (5, 36)), 3),
    "parts of other lengths": (
        lambda x, y: xp.concat([x, y], axis=1), ((3, 12, 8), (3, 24, 8)), 3,
    ),
    "no common part": (lambda x, y: xp.concat([x, y], axis=1), ((3, 7), (3, 12)), 1),
    "turned by half": (lambda x: xp.roll(x, 32, axis=1), ((7, 64),), 2),
    "behind zeros": (
        lambda x: xp.concat([xp.zeros((7, 64), dtype=x.dtype), x], axis=1), ((7, 64),), 2,
    ),
    "positions": (numbered, ((7, 64),), 2),
    "a row beside each": (lambda x, b: x + b, ((40, 33), (33,)), 1),
    "few rows of several": (lambda x, b: x[:, ::2] * b, ((130, 6, 20), (130, 1, 20)), 1),
}  # fmt: skip


def written(name: str) -> tuple[Any, list[Any], list[tuple[Parameters, Lowered]]]:
    """The chosen kernel's step and graph, random inputs, and its kernels by all candidates."""
    fn, shapes, _ = PROGRAMS[name]
    exe = axe.compile(fn, *(axe.Spec(s, "f16" if s is shapes[0] else "f32") for s in shapes),
                      target="h200")  # fmt: skip
    (step,) = exe.schedule.graph.kernels
    cone = read_cone(step, alone)
    ways, buffers = ways_of(cone)
    found = [
        (c.parameters, Lowered(way.kernel(c.parameters, "k"), buffers))
        for way in ways
        for c in way.candidates(h200)
    ]
    rng = np.random.default_rng(len(name))
    arrays = [
        rng.standard_normal(s).astype(np.float16 if s is shapes[0] else np.float32) for s in shapes
    ]
    return exe, arrays, found


def check(name: str, orders: int) -> None:
    exe, arrays, found = written(name)
    fn, _, pieces = PROGRAMS[name]
    graph = exe.schedule.graph
    (step,) = graph.kernels
    (out,) = {w.buffer for w in step.writes}
    wanted = np.asarray(axe.run(fn, *arrays))
    assert {p.get("pieces", 1) for p, _ in found} == {1, pieces}
    for parameters, lowered in found:
        planned = plan(lowered.kernel, h200)
        for n in range(orders):
            flat = {b: a.reshape(-1) for b, a in zip(graph.inputs, arrays, strict=True)}
            flat[out] = np.full(wanted.size, POISON, wanted.dtype)
            order = SWEEP[n] if n < len(SWEEP) else "random"
            launch(lowered, flat, planned=planned, order=order, seed=n)
            np.testing.assert_allclose(
                flat[out].reshape(wanted.shape), wanted, rtol=2e-3, atol=2e-3,
                err_msg=str(dict(parameters)),
            )  # fmt: skip


@pytest.mark.sampled(4, slow=("halves of few heads", "halves of heads"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_candidate_of_a_map_means_what_the_program_means(name: str, full: bool) -> None:
    check(name, 50 if full else 1)


def test_halves_are_two_results_that_share_what_they_read() -> None:
    _, _, found = written("halves of heads")
    for parameters, lowered in found:
        read = len(lowered.kernel.tensors) - len(lowered.kernel.outputs)
        halves = "pieces" in parameters
        # Both halves and both angles once; else under masks, for either half anew.
        assert (len(lowered.kernel.outputs), read) == ((2, 4) if halves else (1, 7))


def test_tiles_of_three_dims_leave_no_thread_without_rows() -> None:
    _, _, found = written("halves of few heads")
    tiles = {p["vector"]: k.kernel.tiles for p, k in found if p.get("pieces") and p["vectors"] == 1}
    assert tiles[4] == -(-150 // 32)  # 32 x 2 rows of two vectors are 128 threads


def test_positions_along_a_dim_of_one_index_are_zeros() -> None:
    """The index space is without such a dim: what is padded along it could not be written."""
    widths = ((1, 3), (1, 0), (2, 2), (2, 3))
    x = np.arange(16 * 300).reshape(16, 1, 1, 300)
    exe = axe.compile(lambda x: xp.pad(xp.permute_dims(x, (0, 1, 3, 2)), widths), x, target="h200")
    (kernel,) = exe.kernels
    assert "pieces" in kernel.parameters
    assert np.array_equal(exe.interpret(x), np.pad(x.transpose(0, 1, 3, 2), widths))
