"""The two passes after dispatch: engines and order, and places by lifetimes."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.dispatch import dispatch
from axe_eq.kernel.ir import span
from axe_eq_backends.nki.build import EngineBuilder, rows_of
from axe_eq_backends.nki.families import derivations, meanings
from axe_eq_backends.nki.interpret import interpret
from axe_eq_backends.nki.order import busy, instructions, often, ordered, scheduled, spread, touched
from axe_eq_backends.nki.place import lives, placed
from axe_eq_backends.nki.planning import plan
from axe_eq_backends.nki.target import trn2
from tests.unit.nki.test_texts import KERNELS

SHAPE = (128, 256)


def drawn(seed: int, steps: int = 12) -> ir.Kernel:
    """Maps among a few tiles, loads at the start and a store at the end."""
    rng = random.Random(seed)
    k = EngineBuilder("drawn", trn2)
    x = k.tensor("x", "f32", (3 * 128, 256))
    y = k.tensor("y", "f32", SHAPE, output=True)
    tiles = [k.sbuf(f"t{n}", "f32", SHAPE, rows_of(SHAPE, 0)) for n in range(5)]
    for n in range(3):
        k.copy(tiles[n].all, x[span(128 * n, 128), 0:256])
    known = [0, 1, 2]
    for _ in range(steps):
        a, b, to = rng.choice(known), rng.choice(known), rng.randrange(5)
        cell = rng.choice([apply("add", arg(0), arg(1)), apply("maximum", arg(0), arg(1))])
        k.map(cell, tiles[to].all, tiles[a].all, tiles[b].all)
        known = sorted({*known, to})
    k.copy(y.all, tiles[rng.choice(known)].all)
    return k.finish()


@pytest.mark.parametrize("seed", range(12))
def test_another_order_computes_the_same(seed: int) -> None:
    kernel = drawn(seed)
    planned = dispatch(kernel, trn2, derivations())
    made = ordered(planned)
    x = np.random.default_rng(seed).standard_normal((384, 256)).astype(np.float32)
    arrays = {"x": x, "y": np.zeros(SHAPE, np.float32)}
    first, second = (interpret(p.kernel, arrays, p, meanings())["y"] for p in (planned, made))
    assert (first == second).all()
    assert sorted(map(id, kernel.body)) == sorted(map(id, made.kernel.body))


def finish(body: ir.Body, planned: Any) -> float:
    """When the last statement of a straight body ends: engines in order, waiting for data."""
    free: dict[str, float] = {}
    wrote: dict[ir.Buffer, float] = {}
    used: dict[ir.Buffer, float] = {}
    last = 0.0
    for s in body:
        read, written = touched(s)
        p = planned.plan(s)
        start = max([free.get(p.row.scope, 0.0), *(wrote.get(b, 0.0) for b in read | written),
                     *(used.get(b, 0.0) for b in written)])  # fmt: skip
        end = free[p.row.scope] = start + p.cycles
        for b in read:
            used[b] = max(used.get(b, 0.0), end)
        for b in written:
            wrote[b] = end
        last = max(last, end)
    return last


@pytest.mark.parametrize("seed", range(4))
def test_the_order_is_near_the_best_of_all(seed: int) -> None:
    kernel = drawn(seed, steps=3)
    planned = dispatch(kernel, trn2, derivations())
    spread(planned)
    found = finish(scheduled(list(kernel.body), planned), planned)

    def allowed(order: tuple[int, ...]) -> bool:
        effects = [touched(s) for s in kernel.body]
        at = {n: p for p, n in enumerate(order)}
        return all(
            at[a] < at[b]
            for a, b in itertools.combinations(range(len(effects)), 2)
            if effects[a][1] & (effects[b][0] | effects[b][1]) or effects[a][0] & effects[b][1]
        )

    every = [o for o in itertools.permutations(range(len(kernel.body))) if allowed(o)]
    best = min(finish([kernel.body[n] for n in o], planned) for o in every)
    given = finish(list(kernel.body), planned)
    assert best <= found <= max(given, best) * 1.0001
    assert found <= 1.1 * best


def test_work_goes_to_the_engine_that_is_less_busy() -> None:
    k = EngineBuilder("copies", trn2)
    x = k.tensor("x", "f32", (128, 2048))
    y = k.tensor("y", "f32", (128, 2048), output=True)
    shape = (128, 2048)
    held = [k.sbuf(f"t{n}", "f32", shape, rows_of(shape, 0)) for n in range(7)]
    k.copy(held[0].all, x.all)
    for a, b in itertools.pairwise(held):
        k.copy(b.all, a.all)
    k.copy(y.all, held[-1].all)
    planned = dispatch(k.finish(), trn2, derivations())
    alone = max(t for e, t in busy(planned).items() if e != "dma")
    spread(planned)
    after = busy(planned)
    used = {e for e, t in after.items() if t and e != "dma"}
    assert len(used) > 1
    assert max(t for e, t in after.items() if e != "dma") < alone / 1.5
    reasons = [r for c in planned.choices.values() for _, r in c.lost if "is busier than" in r]
    assert reasons


def test_loops_count_what_they_repeat() -> None:
    k = EngineBuilder("loops", trn2)
    y = k.tensor("y", "f32", (128 * 6, 8), output=True)
    with k.range(6) as i:
        t = k.sbuf("t", "f32", (128, 8), rows_of((128, 8), 0))
        k.fill(t.all, 1.0)
        k.copy(y[span(i * 128, 128), 0:8], t.all)
    kernel = k.finish()
    planned = dispatch(kernel, trn2, derivations())
    assert [times for _, times in often(kernel.body)] == [6, 6]
    assert instructions(planned) == 12


# -- places --


@pytest.mark.parametrize("seed", range(12))
def test_tiles_that_live_together_lie_apart(seed: int) -> None:
    made = plan(drawn(seed), trn2)
    tiles = made.places.tiles
    used = {v.buffer for s in made.planned.kernel.body for v in s.views()}
    assert {p.buffer for p in tiles} == {b for b in used if not b.is_global}
    for a, b in itertools.combinations(tiles, 2):
        if a.begin <= b.end and b.begin <= a.end and a.buffer.memory == b.buffer.memory:
            ends = a.first_byte + a.n_bytes * a.copies, b.first_byte + b.n_bytes * b.copies
            assert ends[0] <= b.first_byte or ends[1] <= a.first_byte
    peak = max(p.first_byte + p.n_bytes * p.copies for p in tiles)
    assert made.places.peaks["sbuf"] == peak <= trn2.memory("sbuf").place_bytes


def chain(length: int) -> ir.Kernel:
    """Each tile is made of the last one alone."""
    k = EngineBuilder("chain", trn2)
    x = k.tensor("x", "f32", SHAPE)
    y = k.tensor("y", "f32", SHAPE, output=True)
    t = k.sbuf("t0", "f32", SHAPE, rows_of(SHAPE, 0))
    k.copy(t.all, x.all)
    for n in range(length):
        new = k.sbuf(f"t{n + 1}", "f32", SHAPE, rows_of(SHAPE, 0))
        k.map(apply("exp", arg(0)), new.all, t.all)
        t = new
    k.copy(y.all, t.all)
    return k.finish()


def test_a_tile_that_is_dead_gives_its_place_to_another() -> None:
    places = plan(chain(20), trn2).places
    assert places.peaks["sbuf"] == 2 * 256 * 4


def test_tiles_of_loops_have_two_copies_where_they_fit() -> None:
    k = EngineBuilder("loop", trn2)
    y = k.tensor("y", "f32", (128 * 6, 64), output=True)
    with k.range(6) as i:
        t = k.sbuf("t", "f32", (128, 64), rows_of((128, 64), 0))
        k.fill(t.all, 1.0)
        k.copy(y[span(i * 128, 128), 0:64], t.all)
    kernel = k.finish()
    (tile,) = placed(kernel, trn2).tiles
    assert (tile.copies, tile.n_bytes) == (2, 256)
    (tile,) = placed(kernel, trn2.replace(sbuf=128 * 300)).tiles
    assert tile.copies == 1
    full = placed(kernel, trn2.replace(sbuf=128 * 300)).copies
    assert full == {"sbuf": 1, "psum": 2}  # each memory by itself
    with pytest.raises(
        ScheduleError, match=r"takes 256 bytes of sbuf per partition \(t f32\[128, 64\] 256\)"
    ):
        placed(kernel, trn2.replace(sbuf=128 * 200))


def test_sums_take_whole_banks() -> None:
    k = EngineBuilder("banks", trn2)
    y = k.tensor("y", "f32", (128, 9 * 8), output=True)
    sums = [k.psum(f"p{n}", "f32", (128, 8), rows_of((128, 8), 0)) for n in range(9)]
    for p in sums:
        k.fill(p.all, 0.0)
    for n, p in enumerate(sums):
        t = k.sbuf(f"t{n}", "f32", (128, 8), rows_of((128, 8), 0))
        k.copy(t.all, p.all)
        k.copy(y[0:128, span(8 * n, 8)], t.all)
    with pytest.raises(
        ScheduleError, match=r"takes 18432 bytes of psum per partition .*; expected at most 16384"
    ):
        placed(k.finish(), trn2)


def test_a_life_ends_after_the_loop_that_uses_the_tile() -> None:
    k = EngineBuilder("lives", trn2)
    y = k.tensor("y", "f32", (128, 64), output=True)
    t = k.sbuf("t", "f32", (128, 64), rows_of((128, 64), 0))
    k.fill(t.all, 1.0)
    with k.range(4):
        inner = k.sbuf("inner", "f32", (128, 64), rows_of((128, 64), 0))
        k.map(apply("add", arg(0), 1.0), inner.all, t.all)
        k.map(apply("add", arg(0), 1.0), t.all, inner.all)
    k.copy(y.all, t.all)
    found, _ = lives(k.finish())
    assert {x.buffer.name: (x.begin, x.end, x.looped) for x in found} == {
        "t": (0, 4, False), "inner": (2, 3, True)
    }  # fmt: skip


def test_a_scan_waits_for_the_constants_that_it_adds() -> None:
    kernel, _, _ = KERNELS["scanned"]()
    (scan,) = (s for s, _ in often(kernel.body) if isinstance(s, ir.Scan))
    (ones,) = scan.scratch
    read, written = touched(scan)
    assert ones in read
    assert {v.buffer for v in (*scan.states, *scan.carries)} <= read
    assert scan.states[0].buffer in written
