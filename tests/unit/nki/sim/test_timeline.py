"""The model of time: waits against brute force, engines in order, queues side by side, traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from axe_eq_backends.nki.sim import Item, schedule, simulate
from axe_eq_backends.nki.sim.capacity import items, peaks, placement
from axe_eq_backends.nki.sim.machine import machine
from axe_eq_backends.nki.sim.state import Run, within
from axe_eq_backends.nki.sim.storage import MemoryRegion, Region, Tile, region
from axe_eq_backends.nki.sim.timeline import ACCESS_CYCLES, dependences
from tests.unit.nki.sim.good_kernels import GEMM, arguments
from tests.unit.nki.sim.tiles import NISA, NL

TRN2 = machine("trn2")


def bytes_of(r: Region) -> set[int]:
    return {
        r.first + sum(i * s for i, (s, _) in zip(at, r.steps, strict=True)) + b
        for at in product(*(range(n) for _, n in r.steps)) for b in range(r.run)
    }  # fmt: skip


def drawn(rng: np.random.Generator, n: int) -> Iterator[Item]:
    def place() -> Region:
        space = str(rng.choice(["a", "b"]))
        return Region(
            space,
            4 * int(rng.integers(0, 16)),
            ((int(rng.choice([16, 32])), int(rng.integers(1, 4))),),
            4 * int(rng.integers(1, 4)),
        )

    for _ in range(n):
        yield Item(
            str(rng.choice(["vector", "scalar", "dma"])),
            1.0,
            tuple(place() for _ in range(rng.integers(0, 3))),
            (place(),),
        )


def in_order(given: list[Item], n: int) -> list[int]:
    return [m for m in range(n) if given[m].engine == given[n].engine != "dma"]


def test_waits_are_those_of_bytes(rng: np.random.Generator) -> None:
    for _ in range(20):
        given = list(drawn(rng, 20))
        found = [[*results, *stops] for results, stops in dependences(given)]
        for n, item in enumerate(given):
            # All earlier items that share a byte which one of both writes; found waits reach them.
            # An engine that is in order has done what it took before.
            reached, todo = set[int](), [*found[n], *in_order(given, n)]
            while todo:
                m = todo.pop()
                if m not in reached:
                    reached.add(m)
                    todo += [*found[m], *in_order(given, m)]
            for m, other in enumerate(given[:n]):
                both = [
                    (item.writes, other.writes),
                    (item.writes, other.reads),
                    (item.reads, other.writes),
                ]
                meets = any(
                    a.space == b.space and bytes_of(a) & bytes_of(b)
                    for mine, theirs in both
                    for a in mine
                    for b in theirs
                )
                if meets:
                    assert m in reached
                elif m in found[n]:
                    pytest.fail(f"{n} waits for {m}, which it does not meet")


def test_a_region_takes_contiguous_dims_as_one() -> None:
    assert region("a", 8, (4, 2, 8), (64, 32, 4), 4) == Region("a", 8, (), 256)
    assert region("a", 0, (4, 2, 8), (128, 32, 4), 4) == Region("a", 0, ((128, 4),), 64)
    assert region("a", 0, (4, 8), (64, 8), 4) == Region("a", 0, ((8, 32),), 4)
    assert region("a", 0, (4, 5, 1), (16, 0, 4), 4) == Region("a", 0, ((16, 4),), 4)


def test_steps_backwards_wait_for_the_bytes_that_they_reach() -> None:
    """A tile is written flipped, and one end of each row of it is read."""
    for flipped in (False, True):
        with within(Run(TRN2)) as run:
            t, src, out = (
                NL.ndarray((4, n), dtype=NL.float32, buffer=NL.sbuf) for n in (32, 16, 8)
            )
            NISA.memset(dst=t, value=0)
            NISA.memset(dst=src, value=1)
            pattern = [[32, 4], [-1, 16]] if flipped else [[32, 4], [1, 16]]
            NISA.tensor_copy(dst=t.ap(pattern, offset=15 if flipped else 0), src=src)
            NISA.tensor_copy(dst=out, src=t[0:4, 0:8], engine=NISA.engine.scalar)
            NISA.tensor_copy(dst=out, src=t[0:4, 16:24], engine=NISA.engine.scalar)
        (*_, low, high) = dependences(items(run.steps, {}))
        assert 2 in low[0]
        assert 2 not in high[0]


def whole(name: str) -> tuple[Region, ...]:
    return (Region(name, 0, (), 4096),)


def test_engines_are_in_order_and_wait_for_data() -> None:
    lines = schedule(
        [
            Item("vector", 100, (), whole("a")),
            Item("scalar", 50, whole("a"), whole("b")),
            Item("scalar", 10, (), whole("c")),
            Item("vector", 30, (), whole("d")),
        ],
        TRN2,
    )
    spans = {s.item: (s.start, s.stop) for s in lines.spans}
    there = 100 + ACCESS_CYCLES / TRN2.ghz["vector"]
    assert spans[0] == (0, 100)
    assert spans[1] == pytest.approx((there, there + 50))
    assert spans[2][0] == spans[1][1]  # in order, although nothing holds it back
    assert spans[3] == (100, 130)
    assert lines.total_ns == max(lines.ends)
    assert lines.utilisation()["vector"] == pytest.approx(130 / lines.total_ns)


def test_products_of_one_sum_follow_without_a_gap_and_its_reader_waits_for_the_result() -> None:
    lines = schedule(
        [
            Item("tensor", 100, whole("a"), whole("sum")),
            Item("tensor", 100, whole("b"), whole("sum")),
            Item("vector", 10, whole("sum"), whole("out")),
            Item("tensor", 100, whole("a"), whole("sum")),
            Item("vector", 10, whole("c"), whole("d")),
            Item("vector", 10, whole("d"), whole("e")),
        ],
        TRN2,
    )
    start = {s.item: s.start for s in lines.spans}
    assert (start[0], start[1]) == (0, 100)
    there = 200 + ACCESS_CYCLES / TRN2.ghz["tensor"]
    assert start[2] == pytest.approx(there)
    assert start[3] == pytest.approx(there + 10)  # a write after a read waits for no result
    assert start[5] == pytest.approx(start[4] + 10 + ACCESS_CYCLES / TRN2.ghz["vector"])


def test_a_waiting_store_does_not_hold_a_load_back() -> None:
    big = 16 * 4096
    lines = schedule(
        [
            Item("dma", 160, (), whole("a"), n_bytes=big, run=4096),
            Item("vector", 10_000, whole("a"), whole("b")),
            Item("dma", 160, whole("b"), whole("out"), n_bytes=big, run=4096),
            Item("dma", 160, (), whole("c"), n_bytes=big, run=4096),
        ],
        TRN2,
    )
    start = {s.item: s.start for s in reversed(lines.spans)}
    assert start[3] == 160
    assert start[2] > 10_000
    assert lines.ends[0] == 160 + TRN2.dma_latency_ns
    assert len({s.lane for s in lines.spans if s.item == 0}) == TRN2.dma_queues


def test_a_small_transfer_has_one_queue_and_sixteen_go_side_by_side() -> None:
    small = [Item("dma", 10, (), whole(str(n)), n_bytes=512, run=512) for n in range(17)]
    lines = schedule(small, TRN2)
    assert [s.start for s in lines.spans] == [0.0] * 16 + [160.0]
    assert len({s.lane for s in lines.spans}) == 16


def test_a_slower_machine_takes_longer_and_reuse_of_memory_serialises() -> None:
    _, report = simulate(GEMM, "gemm", *arguments("gemm"))
    base = report.timeline.total_ns
    placed = items(report.steps, report.placed)
    slow = [
        Item(
            i.engine, 4 * i.ns if i.engine == "dma" else i.ns, i.reads, i.writes, n_bytes=i.n_bytes
        )
        for i in placed
    ]
    assert schedule(slow, TRN2).total_ns > base
    tiles = sorted(report.placed.values())
    assert len(set(tiles)) > 4  # what is free is reused as late as may be
    fresh = schedule(items(report.steps, {}), TRN2).total_ns
    assert fresh <= base


def test_a_psum_tile_that_fits_a_bank_crosses_none() -> None:
    sizes = (1000, 1000, 1500, 48, 500, 4096)
    tiles = [
        Tile(n, "", MemoryRegion.psum, 128, size, first=0, last=9) for n, size in enumerate(sizes)
    ]
    assert placement(tiles, TRN2) == {0: 0, 1: 1000, 2: 2048, 3: 3548, 4: 3596, 5: 4096}
    assert placement([replace(t, bytes_per_partition=16_000) for t in tiles[:2]], TRN2) == {0: 0}


def test_a_peak_counts_the_tiles_of_each_line() -> None:
    held = [("a", 1), ("a", 1), ("b", 2)]
    tiles = [
        Tile(n, "", MemoryRegion.sbuf, 128, 100 * (n + 1), line, first=n, last=3 + n)
        for n, line in enumerate(held)
    ]
    tiles.append(Tile(3, "", MemoryRegion.sbuf, 128, 250, ("c", 3), first=4, last=9))
    peak = peaks(tiles, TRN2)["sbuf"]
    assert (peak.n_bytes, peak.step) == (750, 4)
    assert peak.lines() == [(("b", 2), 1, 300), (("c", 3), 1, 250), (("a", 1), 1, 200)]
    peak = peaks(tiles[:3], TRN2)["sbuf"]
    assert (peak.n_bytes, peak.step) == (600, 2)
    assert sorted(peak.lines()) == [(("a", 1), 2, 300), (("b", 2), 1, 300)]
    fixed = [replace(t, address=(0, 50 * n)) for n, t in enumerate(tiles[:3])]  # bytes 0 to 400
    assert peaks(fixed, TRN2)["sbuf"].n_bytes == 400


def test_times_are_cycles_of_the_engine_that_ran() -> None:
    """Architecture guide of NeuronCore-v2, "Cost Model"; nki.api.shared, engine selection."""
    with within(Run(TRN2)) as run:

        def tile(*shape: int, buffer: Any = NL.sbuf, dtype: Any = NL.float32) -> Any:
            t = NL.ndarray(shape, dtype=dtype, buffer=buffer)
            NISA.memset(dst=t, value=1)
            return t

        t, one, bf = tile(128, 512), tile(128, 1), tile(128, 512, dtype=NL.bfloat16)
        p, turned = tile(128, 512, buffer=NL.psum), tile(128, 128, buffer=NL.psum)
        scale: dict[str, Any] = {"op0": NL.multiply, "operand0": 2.0}
        cases: tuple[tuple[Callable[[], Any], str, int], ...] = (
            (lambda: NISA.nc_matmul(p, bf[0:128, 0:128], bf, accumulate=False), "tensor", 512),
            (lambda: NISA.nc_matmul(p, t[0:128, 0:128], t, accumulate=False), "tensor", 4 * 512),
            (
                lambda: NISA.nc_matmul(
                    p[0:128, 0:8], bf[0:128, 0:128], bf[0:128, 0:8], accumulate=False
                ),
                "tensor",
                64,
            ),
            (lambda: NISA.nc_transpose(turned, t[0:128, 0:128]), "tensor", 4 * 128),
            (lambda: NISA.tensor_tensor(t, t, t, NL.add), "vector", 2 * 512),
            (lambda: NISA.tensor_scalar(t, t, **scale), "vector", 512),
            (lambda: NISA.tensor_scalar(t, t, **scale, engine=NISA.engine.scalar), "scalar", 512),
            (lambda: NISA.tensor_copy(t, p), "vector", 512),
            (lambda: NISA.tensor_copy(one, one), "vector", 64),
            (lambda: NISA.reciprocal(t, t), "vector", 8 * 512),
            (lambda: NISA.tensor_reduce(one, NL.add, t, 1), "vector", 512),
            (lambda: NISA.activation(t, NL.exp, t), "scalar", 512),
            (lambda: NISA.activation_reduce(t, NL.exp, t, NL.add, one), "scalar", 512 + 64),
            (lambda: NISA.tensor_tensor_scan(t, t, t, 0.0, NL.add, NL.add), "vector", 2 * 512),
        )
        for act, engine, cycles in cases:
            act()
            step = run.steps[-1]
            assert step.engine == engine
            assert step.ns * TRN2.ghz[engine] == pytest.approx(cycles)
        NISA.dma_copy(dst=NL.ndarray((128, 512), dtype=NL.float32, buffer=NL.shared_hbm), src=t)
        moved = 128 * 2048 / TRN2.dma_bytes_per_ns
        assert run.steps[-1].ns == pytest.approx(moved * (1 + TRN2.dma_half_run / 2048))
        assert (run.steps[-1].n_bytes, run.steps[-1].run) == (128 * 2048, 2048)


def test_placed_tiles_that_live_together_do_not_meet() -> None:
    rng = np.random.default_rng(5)
    tiles = []
    for n in range(200):
        first = int(rng.integers(0, 1000))
        tiles.append(Tile(n, "", MemoryRegion.sbuf, 128, int(rng.integers(1, 40_000)), first=first,
                          last=first + int(rng.integers(0, 20))))  # fmt: skip
    placed = placement(tiles, TRN2)
    assert len(placed) > 190
    for a, b in product(tiles, tiles):
        if (
            a.number < b.number
            and {a.number, b.number} <= set(placed)
            and a.first <= b.last
            and b.first <= a.last
        ):
            low, high = sorted((a, b), key=lambda t: placed[t.number])
            assert placed[low.number] + low.bytes_per_partition <= placed[high.number]
    assert all(
        placed[t.number] + t.bytes_per_partition <= TRN2.sbuf_bytes
        for t in tiles
        if t.number in placed
    )


def test_a_trace_is_what_perfetto_reads_and_says_that_it_is_a_model() -> None:
    _, report = simulate(GEMM, "gemm", *arguments("gemm"))
    timeline = report.timeline
    trace = json.loads(timeline.perfetto())
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(spans) == len(timeline.spans)
    assert {e["name"] for e in spans} == {"dma_copy", "nc_matmul", "tensor_copy"}
    assert all(e["dur"] >= 0 and "<gemm.nki>:" in e["args"]["line"] for e in spans)
    assert trace["otherData"] == {"time": "model, not measured"}
    assert "simulated, not measured" in timeline.text()


def test_nothing_takes_no_time() -> None:
    assert schedule([], TRN2).total_ns == 0
    assert schedule([], TRN2).utilisation() == {}
