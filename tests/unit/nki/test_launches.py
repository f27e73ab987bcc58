"""Kernels as stages of one call: values that stay in SBUF, by price, and as far as they fit."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import DispatchError
from axe_eq.extract.search.launches import launched
from axe_eq.kernel.expr import Int, Var, evaluate
from axe_eq.lower.candidate import Joined
from axe_eq.program.types import DTYPES
from axe_eq_backends.nki.near import ways_to_lie
from axe_eq_backends.nki.sim import simulate
from axe_eq_backends.nki.target import trn2

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "mlp": (lambda x, w, v: nn.silu(x @ w) @ v, ("130x96:bf16", "96x256:bf16", "256x72:bf16")),
    "batched": (lambda x, w, v: nn.silu(x @ w) @ v, ("3x9x20:f32", "3x20x130:f32", "3x130x7:f32")),
    "both": (lambda x, w: (h := nn.softmax(x, axis=-1), h @ w), ("130x256:f32", "256x40:f32")),
    "three": (lambda x, g, w: nn.softmax(nn.rmsnorm(x, weight=g) @ w, axis=-1),
              ("128x256:f16", "256:f16", "256x64:f16")),
}  # fmt: skip


def drawn(specs: tuple[str, ...]) -> list[Any]:
    """An array for each spec."""
    draw = np.random.default_rng(0)
    found = []
    for spec in specs:
        shape, dtype = spec.split(":")
        values = draw.standard_normal([int(e) for e in shape.split("x")]) * 0.2
        found.append(values.astype(DTYPES[dtype].numpy))
    return found


def flat(results: Any) -> list[Any]:
    """Results of a call."""
    return list(results) if isinstance(results, tuple | list) else [results]


@pytest.mark.sampled(3, slow=["three"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_one_kernel_hands_another_stays_in_sbuf(name: str) -> None:
    fn, specs = PROGRAMS[name]
    exe = axe.compile(fn, *specs, target="trn2")
    graph = exe.schedule.graph
    (launch,) = graph.launches
    assert launch.steps == tuple(k.name for k in exe.kernels)
    between = {w.buffer for s in graph.steps for w in s.writes} - set(graph.outputs)
    assert between <= launch.kept.keys()
    (text,) = exe.source.values()
    assert all(f"{b} = nl.ndarray" in text or b in graph.outputs for b in launch.kept)
    args = drawn(specs)
    made, plans, wanted = flat(exe(*args)), flat(exe.interpret(*args)), flat(axe.run(fn, *args))
    for a, b, want in zip(made, plans, wanted, strict=True):
        assert a.tobytes() == b.tobytes()
        np.testing.assert_allclose(a.astype("f8"), want.astype("f8"), rtol=3e-2, atol=3e-2)
    # What it was priced by is what the report of its text shows.
    names = re.search(r"def \w+\((.*)\):", text)[1].split(", ")  # type: ignore[index]
    given = dict(zip(graph.inputs, args, strict=True))
    _, report = simulate(text, launch.name, *(given[n] for n in names), target=trn2)
    assert exe.cost["time_s"] == pytest.approx(
        trn2.launch_s + report.timeline.total_ns * 1e-9, rel=1e-9
    )
    apart = sum(k.time_s for k in exe.kernels)
    assert f"{sorted(launch.kept)[0]} stays in S[" in exe.explain()
    assert exe.cost["time_s"] == pytest.approx(apart, rel=1e-9)
    assert exe.cost["stored_bytes"] == sum(a.nbytes for a in made)


def test_kernels_that_hand_each_other_nothing_are_one_call_for_its_launch() -> None:
    exe = axe.compile(
        lambda x, w, v: (x @ w, x @ v, axe.array.sum(x, axis=0)),
        "100x40:f32", "40x60:f32", "40x9:f32", target="trn2",
    )  # fmt: skip
    ((name, text),) = exe.source.items()
    (launch,) = exe.schedule.graph.launches
    assert (launch.kept, len(exe.kernels)) == ({}, 3)
    assert f"one call, {name}: {' '.join(launch.steps)}\n" in exe.explain()
    assert exe.cost["time_s"] < 2 * trn2.launch_s
    x, w, v = drawn(("100x40:f32", "40x60:f32", "40x9:f32"))
    made, plans = exe(x, w, v), exe.interpret(x, w, v)
    assert [a.tobytes() for a in made] == [b.tobytes() for b in plans]
    for a, want in zip(made, (x @ w, x @ v, x.sum(axis=0)), strict=True):
        np.testing.assert_allclose(a, want, rtol=1e-5, atol=1e-5)
    _, report = simulate(text, name, x, w, v, target=trn2)
    assert exe.cost["time_s"] == pytest.approx(
        trn2.launch_s + report.timeline.total_ns * 1e-9, rel=1e-9
    )


def test_a_value_that_does_not_fit_stays_in_hbm() -> None:
    fn, specs = PROGRAMS["mlp"]
    small = replace(trn2.replace(sbuf=128 * 1800), name="small")
    exe = axe.compile(fn, *specs, target=small)
    assert not exe.schedule.graph.launches
    assert len(exe.source) == len(exe.kernels) == 2
    assert "bytes of sbuf per partition" in exe.explain()
    args = drawn(specs)
    assert exe(*args).tobytes() == exe.interpret(*args).tobytes()


def test_a_saved_program_keeps_its_calls(tmp_path: Path) -> None:
    fn, specs = PROGRAMS["mlp"]
    exe = axe.compile(fn, *specs, target="trn2")
    exe.save(tmp_path / "mlp.axe")
    args = drawn(specs)
    assert axe.load(tmp_path / "mlp.axe")(*args).tobytes() == exe(*args).tobytes()


class Joins:
    """An emitter whose calls take so many seconds."""

    def __init__(self, time_s: float) -> None:
        self.time_s = time_s

    def join(self, steps: Any, graph: Any, target: Any, kept: Any) -> Joined | str:
        if len(steps) > 2:
            return "too long"
        return Joined(self.time_s, {}, {"t": "S[1]"}, tuple(s.parameters for s in steps))


def test_kernels_are_joined_where_a_call_takes_less() -> None:
    specs = "1x64:f32", *["64x64:f32"] * 3
    exe = axe.compile(lambda x, b, c, d: x @ b @ c @ d, *specs, target="cpu")
    graph, target = exe.schedule.graph, exe.target
    assert len(graph.steps) == 3
    a, b, c = graph.steps
    less, more = (launched(graph, Joins(f * (a.time_s + b.time_s)), target) for f in (0.5, 2.0))
    assert [x.name for x in less.calls] == [f"{a.name}_to_k1", c.name]
    assert less.launches[0].steps == (a.name, b.name)
    assert less.apart == (f"{c.name} after {b.name}: too long",)
    assert less.time_s == pytest.approx(0.5 * (a.time_s + b.time_s) + c.time_s)
    assert (more.launches, more.calls) == ((), graph.steps)
    assert all("one call takes longer" in why for why in more.apart)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("seed", range(400))
def test_parts_lie_where_their_elements_are(seed: int) -> None:
    rng = random.Random(seed)
    shape = [rng.choice([1, 2, 3, 5, 64, 128, 130, 256]) for _ in range(rng.choice([1, 2, 3]))]
    order = rng.sample(range(len(shape)), len(shape))
    strides = [0] * len(shape)
    for n, d in enumerate(order):
        strides[d] = prod(shape[e] for e in order[:n])
    ways = list(ways_to_lie(shape, strides, trn2))
    if not ways:
        return
    lying = rng.choice(ways)
    # A part, which a loop takes at several begins; or dims of it that run on together.
    tile = [rng.choice([1, e, min(e, 128), min(e, 64)]) for e in shape]
    begin: Int = 0
    values: list[dict[str, int]] = [{}]
    for d, (e, t) in enumerate(zip(shape, tile, strict=True)):
        if (turns := e // t) > 1:
            v = Var(name=f"i{d}", low=0, high=turns - 1)
            begin = begin + v * (t * strides[d])
            values = [x | {v.name: i} for x in values for i in (0, rng.randrange(turns), turns - 1)]
    try:
        place = lying.place(strides, tile, begin)
    except DispatchError:
        whole = prod(shape) == prod(tile)
        assert not whole or any(e % lying.rows for e in shape)
        return
    chunk = lying.extent, lying.step, lying.rows
    for env in values:
        first = int(evaluate(begin, env))
        for index in itertools.product(*({0, t // 2, t - 1} for t in tile)):
            element = first + sum(i * s for i, s in zip(index, strides, strict=True))
            high, rest = divmod(element, chunk[0] * chunk[1])
            mid, low = divmod(rest, chunk[1])
            free = (high * lying.blocks + mid // lying.rows) * lying.step + low
            found = [
                int(np.broadcast_to(place.coordinate(a), tile)[index])
                + int(evaluate(place.at(a), env))
                for a in ("P", "F")
            ]
            assert found == [mid % lying.rows, free]
