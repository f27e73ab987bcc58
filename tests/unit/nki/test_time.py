"""One model of time: what plans are priced by is what the report of their text shows."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product as pairs
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import AxeError, DispatchError, ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import Apply, Cell, Constant, apply, arg
from axe_eq.kernel.dispatch import Planned, dispatch
from axe_eq.target import Target
from axe_eq_backends.nki import order, unroll
from axe_eq_backends.nki.cost import MOST_BLOCKS, nearest, priced
from axe_eq_backends.nki.families import derivations
from axe_eq_backends.nki.order import instructions, ordered, spread
from axe_eq_backends.nki.place import placed
from axe_eq_backends.nki.planning import Made, Spread, on_engines, plan
from axe_eq_backends.nki.schedules.gemm import sizes
from axe_eq_backends.nki.sim import simulate
from axe_eq_backends.nki.sim.capacity import items
from axe_eq_backends.nki.sim.errors import NOWHERE
from axe_eq_backends.nki.sim.state import Step
from axe_eq_backends.nki.sim.storage import MemoryRegion, Tile, region
from axe_eq_backends.nki.sim.timeline import PITCH
from axe_eq_backends.nki.space import Space, Sum, Tensor
from axe_eq_backends.nki.target import trn1, trn2
from tests.unit.nki.levels import gemm, numpy_of, stream, walk, written
from tests.unit.nki.test_machines import product, without
from tests.unit.nki.test_texts import KERNELS, Kernel, attention, tiles


def shown(
    kernel: ir.Kernel, buffers: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]],
    target: Target,
) -> tuple[Made, Any]:  # fmt: skip
    """A kernel's plans, and the report of its text."""
    made = plan(kernel, target)
    draw = np.random.default_rng(0)
    kinds = {b: kernel.tensor(t).dtype for t, b in buffers.items()}
    arrays = {b: draw.integers(0, 5, s).astype(numpy_of(kinds[b])) for b, s in shapes.items()}
    text = written(made, buffers, arrays)
    _, report = simulate(text.text, text.name, *(arrays[p.buffer] for p in text.inputs),
                         target=target)  # fmt: skip
    return made, report


POSITIVE = Apply("where", (apply("gt", arg(0), 0.0), arg(0), Constant(0.0)))
TIMED: dict[str, Callable[[], Kernel]] = {
    **KERNELS,
    "positive": lambda: tiles(
        Space((128, 300), (Tensor("x", "f32", (300, 1)),),
              ((Tensor("y", "f32", (300, 1)), POSITIVE),)),
        512, {"x": (128, 300), "y": (128, 300)}),
}  # fmt: skip


@pytest.mark.parametrize("name", TIMED)
def test_plans_take_what_the_report_of_their_text_shows(name: str) -> None:
    kernel, buffers, shapes = TIMED[name]()
    made, report = shown(kernel, buffers, shapes, trn2)
    steps, _ = unroll.unrolled(made.planned, made.places)
    assert [(s.engine, s.ns, s.n_bytes) for s in steps] == [
        (s.engine, s.ns, s.n_bytes) for s in report.steps
    ]
    assert made.time_s == trn2.launch_s + report.timeline.total_ns * 1e-9


def test_other_figures_change_both_alike() -> None:
    other = replace(trn1, name="other", limits={**trn1.limits, "dma_half_run_bytes": 4000})
    kernel, buffers, shapes = KERNELS["turned"]()
    made, report = shown(kernel, buffers, shapes, other)
    usual, _ = shown(kernel, buffers, shapes, trn1)
    assert made.time_s == other.launch_s + report.timeline.total_ns * 1e-9
    assert made.time_s > 1.05 * usual.time_s


@pytest.mark.parametrize("shape", [(4096, 512, 512), (512, 8192, 512)])
def test_large_kernels_are_timed_by_a_few_turns_of_their_loops(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(gemm(product(*shape), "k", trn2, {"rows": 128, "cols": 512, "deep": 0})[0], trn2)
    exact = unroll.timeline(made.planned, made.places).total_ns
    assert unroll.total_ns(made.planned, made.places) == exact
    monkeypatch.setattr(unroll, "MOST_UNROLLED", instructions(made.planned) // 2)
    found = unroll.total_ns(made.planned, made.places)
    assert found == pytest.approx(exact, rel=0.08)
    assert found != exact


def rows(n: int, cell: Cell) -> ir.Kernel:
    """A cell of so many rows of 512, one tile after another."""
    x, y = (Tensor(name, "f32", (512, 1)) for name in "xy")
    return walk(Space((n, 512), (x,), ((y, cell),)), "k", trn2, {"tile": 512, "across": 0})[0]


def weighed(extent: int) -> ir.Kernel:
    """Functions of rows summed up beside columns, by loops of loops."""
    x, w = Tensor("x", "bf16", (extent, 1, 0)), Tensor("w", "bf16", (0, 64, 1))
    total = Sum("+", (1,), apply("mul", apply("exp", arg(0)), arg(1)))
    space = Space((extent, extent, 64), (x, w, total), ((Tensor("y", "bf16", (64, 0, 1)), arg(2)),))
    return walk(space, "k", trn2, {"tile": 8192, "across": 0})[0]


# Kernels by whether the first turns of their loops say all: of a copy stores wait for loads that
# ran ahead, and memory is full only after so many turns.
REPEATING: dict[str, tuple[Callable[[], ir.Kernel], bool]] = {
    "functions": (lambda: rows(1 << 15, apply("tanh", apply("sin", apply("exp", arg(0))))), True),
    "loops of loops": (lambda: weighed(2048), True),
    "copies": (lambda: rows(1 << 15, apply("add", arg(0), 1.0)), False),
    "product": (lambda: gemm(product(8192, 512, 512), "k", trn2,
                             {"rows": 128, "cols": 512, "deep": 0})[0], False),
}  # fmt: skip


@pytest.mark.parametrize("name", REPEATING)
def test_what_repeats_is_timed_by_its_first_turns(name: str) -> None:
    make, repeats = REPEATING[name]
    made = plan(make(), trn2)
    found = unroll._repeating(made.planned, made.places)
    assert (found is not None) == repeats
    exact = unroll.timeline(made.planned, made.places).total_ns
    assert unroll.total_ns(made.planned, made.places) == pytest.approx(exact, rel=1e-9)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(100))
def test_the_chosen_tiling_is_near_the_best_of_all(seed: int) -> None:
    rng = random.Random(f"tilings {seed}")
    m, n, k = (rng.choice([128, 200, 256, 512, 700, 1024, 2048, 4096]) for _ in range(3))
    c = product(m, n, k)
    offered = sizes(c, trn2)
    cone: Any = SimpleNamespace(name="k")
    found = priced(cone, c, "tensor_engine", trn2, offered[:MOST_BLOCKS])
    times = []
    for parameters in offered:
        with suppress(ScheduleError):  # too large for SBUF
            times.append(plan(gemm(c, "k", trn2, parameters)[0], trn2).time_s)
    chosen = min(x.time_s for x in found) - trn2.launch_s
    assert chosen <= 1.1 * (min(times) - trn2.launch_s)


def test_candidates_left_unplaced_are_none_of_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, made = list[Spread](), Spread.made

    def noted(s: Spread) -> Made:
        tried.append(s)
        return made(s)

    monkeypatch.setattr(Spread, "made", noted)
    left, refused, copies = 0, 0, set[int]()
    for parts in (1, 8, 32):  # SBUF holds two of a tile, or one, or too little
        target = trn2.replace(sbuf=trn2.memory("sbuf").n_bytes // parts)
        for shape in ((128, 512, 2048), (700, 1024, 512), (2048, 256, 1024)):
            c = product(*shape)
            begun = [
                (n, on_engines(gemm(c, "k", target, sizes_)[0], target))
                for n, sizes_ in enumerate(sizes(c, target)[:MOST_BLOCKS])
            ]
            every = list[tuple[float, int]]()
            for n, one in begun:
                with suppress(ScheduleError):
                    every.append((one.made().near_s, n))
            for most in (1, 3):
                tried.clear()
                errors: dict[int, AxeError] = {}
                found = nearest(begun, most, errors)
                assert [(m.near_s, n) for n, m in found] == sorted(every)[:most]
                assert errors.keys() <= {n for n, _ in begun} - {n for _, n in every}
                assert found or len(errors) == len(begun)
                left, refused = left + len(begun) - len(tried), refused + len(errors)
                copies |= {m.places.copies["sbuf"] > 1 for _, m in found}
    assert left > 20
    assert refused > 5
    assert copies == {True, False}


def test_regions_of_a_tile_stay_in_their_partitions() -> None:
    tile = Tile(0, "t", MemoryRegion.sbuf, 8, 40)
    # A tenth of every partition, four times: in memory one step of 32; and all of it.
    for shape, steps, first in (((8, 4), (40, 10), 8), ((8, 20), (40, 2), 0)):
        step = Step("op", "vector", 1.0, NOWHERE, (), (region(tile, first, shape, steps, 2),))
        (item,) = items([step], {0: 1000})
        (found,) = item.writes
        got = {
            found.first + sum(i * s for i, (s, _) in zip(at, found.steps, strict=True)) + b
            for at in pairs(*(range(n) for _, n in found.steps)) for b in range(found.run)
        }  # fmt: skip
        assert got == {
            i * PITCH + 1000 + first + j * steps[1] + b
            for i in range(8) for j in range(shape[1]) for b in range(2)
        }  # fmt: skip


def test_blocks_of_attention_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"chunk": 1024, "kept": 1, "turned": 1}
    kernel, _ = stream(attention(1024, 4096, 128), "k", trn2, sizes)
    planned = dispatch(kernel, trn2, derivations())
    spread(planned)

    def taken(p: Planned[Any]) -> float:
        return unroll.timeline(p, placed(p.kernel, trn2)).total_ns

    given, found = taken(planned), taken(ordered(planned))
    monkeypatch.setattr(order, "turns", lambda loop: 1)  # no loop, whose next turn is looked at
    short = taken(ordered(planned))
    assert found < 0.97 * short
    assert found < 0.85 * given


def streamed(target: Target) -> dict[str, int]:
    """The cheapest way to stream attention."""
    cone: Any = SimpleNamespace(name="k")
    offered = [{"chunk": c, "kept": 1, "turned": t} for c in (512, 2048) for t in (0, 1)]
    found = priced(cone, attention(512, 2048, 128), "stream", target, offered)
    return dict(min(found, key=lambda x: x.time_s).parameters)


def test_attention_takes_what_the_machine_offers() -> None:
    small = trn2.replace(sbuf=trn2.memory("sbuf").n_bytes // 16)
    assert streamed(trn2) == {"chunk": 2048, "kept": 1, "turned": 1}
    assert streamed(small)["chunk"] == 512
    assert streamed(without(trn2, "dma.transpose"))["turned"] == 0
    with pytest.raises(DispatchError, match=r"stream: mixes 128 columns of f32, turned by DMA"):
        stream(attention(512, 2048, 128, "f32"), "k", trn2, {"chunk": 512, "kept": 1, "turned": 1})
