"""Orders of a stream's tiles: the chunks that are counted are those that interpreted loops run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from axe_eq.kernel.cells import Cell, apply, arg, evaluate
from axe_eq.kernel.placement import number
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.interp import interpret, tiles
from axe_eq.lower.read import read_cone
from axe_eq.schedule.graph import KernelStep
from axe_eq.schedule.summary import Access, Columns, Formula, Summary, Work
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.chunks import Problem, Tensor, Tiling, grid
from axe_eq_backends.cuda.schedules.stream import stream
from axe_eq_backends.cuda.schedules.tile_order import IN_ROWS, Order, backwards, busiest
from axe_eq_backends.cuda.stream_cost import Streaming
from axe_eq_backends.cuda.streams import read_problem, taken
from axe_eq_backends.cuda.target import h200
from benchmarks.attention_spellings import SPELLINGS
from benchmarks.cuda_spellings import compiled
from tests.unit.cuda.test_lower_streams import scored, step_of
from tests.unit.cuda.test_streams import attention

SCORE, ROW, KEY = (arg(n) for n in range(3))
ORDERS = [
    IN_ROWS,
    *(Order(n, f, t) for n in (1, 2, 6) for f in (False, True) for t in (False, True)),
]


def after(rng: np.random.Generator) -> Cell:
    """Keys up to some number after their query."""
    return apply("ge", apply("add", ROW, int(rng.integers(-40, 40))), KEY)


def window(rng: np.random.Generator) -> Cell:
    """Keys of a range before their query."""
    far = apply("sub", ROW, KEY)
    return apply("and", apply("ge", far, 0), apply("lt", far, int(rng.integers(1, 120))))


def prefix(rng: np.random.Generator) -> Cell:
    """The first keys, and those up to the query."""
    return apply("or", apply("ge", ROW, KEY), apply("lt", KEY, int(rng.integers(1, 90))))


MASKS = {"after": after, "window": window, "prefix": prefix}


def masked(condition: Cell, batch: tuple[int, ...], m: int, s: int) -> Problem:
    rank = len(batch) + 2
    at = [
        Tensor(f"at{d}", "i32", tuple(int(d == i) for i in range(rank)), counts=True)
        for d in (rank - 2, rank - 1)
    ]
    score = apply("where", condition, apply("mul", SCORE, 0.125), -np.inf)
    return attention(batch, m, s, 64, 64, scores=score, extras=tuple(at))


def operands(p: Problem, rng: np.random.Generator) -> dict[str, Any]:
    shapes = {"Q": (p.m, 64), "K": (p.s, 64), "V": (64, p.s), "O": (p.m, 64)}
    return {n: rng.standard_normal((*p.batch, *e)).astype(np.float16) for n, e in shapes.items()}


def wanted(condition: Cell, p: Problem, arrays: dict[str, Any]) -> Any:
    q, k, v = (arrays[n].astype(np.float64) for n in "QKV")
    i, j = np.arange(p.m, dtype=np.int32)[:, None], np.arange(p.s, dtype=np.int32)
    kept = np.broadcast_to(evaluate(condition, [np.float32(0), i, j]), (p.m, p.s))
    z = np.where(kept, q @ np.swapaxes(k, -1, -2) * 0.125, -np.inf)
    with np.errstate(all="ignore"):
        e = np.exp(z - z.max(-1, keepdims=True))
        return e @ np.swapaxes(v, -1, -2) / e.sum(-1, keepdims=True)


def run(p: Problem, tiling: Tiling, arrays: dict[str, Any], n_ctas: int, planned: bool) -> Any:
    kernel = stream(p, tiling)
    given = {t.name: arrays[t.name].reshape([number(e) for e in t.shape]) for t in kernel.tensors}
    plans = plan(kernel, h200) if planned else None
    found = interpret(
        kernel, given, {}, planned=plans, meanings=MEANINGS, order="random", n_ctas=n_ctas
    )
    return found.outputs["O"].reshape(*p.batch, p.m, 64)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(24))
def test_the_chunks_that_are_counted_are_those_that_each_cta_runs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of drawn masks, odd lengths, tilings and orders; and what comes out is right."""
    rng = np.random.default_rng(seed)
    condition = list(MASKS.values())[seed % 3](rng)
    batch, m, s = (
        ((), (3,), (2, 3))[rng.integers(3)],
        int(rng.integers(1, 220)),
        int(rng.integers(40, 210)),
    )
    p = masked(condition, batch, m, s)
    tiling = Tiling(int(rng.integers(1, 3)), int(rng.choice([32, 48, 80])), 64, 2)
    known = grid(p, tiling)
    orders = [o for o in ORDERS if known.outer % o.band == 0]
    tiling = replace(tiling, order=orders[rng.integers(len(orders))])
    n_ctas = min(int(rng.integers(1, 5)), known.tiles)
    ran = Counter[int]()
    execute = tiles.execute

    def counting(cta: Any, s: ir.Primitive, env: Any, issue: Any) -> None:
        if isinstance(s, ir.CopyAsync) and s.dst.buffer.name == "V_ring":
            ran[env[ir.CTA.name]] += 1
        execute(cta, s, env, issue)

    monkeypatch.setattr(tiles, "execute", counting)
    arrays = operands(p, rng)
    found = run(p, tiling, arrays, n_ctas, planned=False)
    counted = known.taken(n_ctas, 6)
    assert sum(ran.values()) == counted.chunks
    assert max(ran.values()) == busiest(known.table, tiling.order, n_ctas)
    assert counted.busiest == busiest(known.table, counted.order, n_ctas)
    tried = [o for o in orders if o == IN_ROWS or (known.bounded and o.turned)]
    assert counted.busiest <= 1.01 * min(busiest(known.table, o, n_ctas) for o in tried)
    expected = wanted(condition, p, arrays)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-3)


@pytest.mark.parametrize("name", MASKS)
def test_whole_chunks_are_those_in_which_every_row_sees_every_key(name: str) -> None:
    rng = np.random.default_rng(3)
    seen: int = 0
    for _ in range(30):
        condition, m, s = MASKS[name](rng), int(rng.integers(1, 99)), int(rng.integers(60, 290))
        known = grid(masked(condition, (), m, s), Tiling(1, 16, 64, 2))
        kept = evaluate(condition, [0, np.arange(m, dtype=np.int32)[:, None], np.arange(s)])
        for row in range(0, m, 64):
            first, last = map(int, known.whole((), row) or (0, -1))  # type: ignore[arg-type]
            alike = kept[row : row + 64].all(axis=0)
            whole = [c for c in range(s // 16) if alike[16 * c : 16 * c + 16].all()]
            # One range of several may be known.
            assert set(range(first, last + 1)) <= set(whole)
            seen += first <= last
            if name != "prefix":
                assert list(range(first, last + 1)) == whole
    assert seen > 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_results_are_right_in_every_order(order: Order) -> None:
    """Five CTAs of two or three tiles each, rows and keys in parts at their ends."""
    rng = np.random.default_rng(1)
    condition = apply("ge", ROW, KEY)
    p = masked(condition, (2, 3), 70, 70)
    arrays = operands(p, rng)
    found = run(p, Tiling(1, 48, 64, 2, order=order), arrays, 5, planned=True)
    np.testing.assert_allclose(found, wanted(condition, p, arrays), rtol=0, atol=4e-3)


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_every_place_has_one_number(order: Order) -> None:
    for outer, rows in ((6, 1), (6, 7), (12, 5)):
        places = list(zip(*order.place(np.arange(outer * rows), rows), strict=True))
        assert set(places) == {(o, r) for o in range(outer) for r in range(rows)}


def test_a_round_backwards_takes_the_same_tiles() -> None:
    for n_ctas, total in ((1, 5), (4, 4), (4, 10), (7, 20)):
        for first in range(0, total, n_ctas):
            here = range(first, min(first + n_ctas, total))
            assert [backwards(n, n - first, n_ctas, total) for n in here] == list(here)[::-1]


def test_heads_under_a_causal_mask_are_shared_out_evenly() -> None:
    """Row by row of each head the busiest of 132 units has 1.6 times the average, of 16 heads."""
    p = masked(apply("ge", ROW, KEY), (16,), 4096, 4096)
    known = grid(p, Tiling(2, 128, 64))
    found = known.taken(132, 30)
    assert found.chunks == 16 * sum(range(1, 33))
    assert found.busiest <= 1.02 * found.chunks / 132
    assert busiest(known.table, IN_ROWS, 132) > 1.6 * found.chunks / 132
    assert found.order.falling
    # Caches that hold no more than two heads.
    assert known.taken(132, 2).order.band <= 2


def summary_of(heads: int, *kinds: str) -> tuple[KernelStep, Summary]:
    """A cone, and what extraction says of it."""
    case, summary = scored(4096, 128, *kinds)
    loads = tuple((n, t.replace("[2,", f"[{heads},")) for n, t in case.loads)
    nodes = tuple((c, x, t.replace("[2,", f"[{heads},"), o) for c, x, t, o in case.nodes)
    step = step_of(replace(case, loads=loads, nodes=nodes))
    part = heads / summary.extent("b")
    known = replace(
        summary,
        extents=tuple((x, heads if x == "b" else e) for x, e in summary.extents),
        loads=tuple(a._replace(n_bytes=a.n_bytes * part) for a in summary.loads),
        stores=tuple(a._replace(n_bytes=a.n_bytes * part) for a in summary.stores),
        products=tuple(w._replace(flops=w.flops * part) for w in summary.products),
        vector=(Work(8.0 * heads * 4096 * 4096, "bps"),),
    )
    reads, writes = (tuple(a.layout for a in side) for side in (step.reads, step.writes))
    return step, replace(known, formula=Formula(step.nodes, step.roots, reads, writes))


def priced(summary: Summary) -> tuple[Columns, Columns]:
    """Candidates of a cone, and those of the same without its conditions."""
    price = Streaming().price
    return price(summary, h200), price(replace(summary, formula=None), h200)


def test_the_price_of_a_causal_stream_counts_the_chunks_that_are_run() -> None:
    """About half of all, and a part at the diagonal; of every candidate as it would be tiled."""
    step, causal = summary_of(32, "causal")
    problem, _ = read_problem(read_cone(step))
    price, whole = priced(causal)
    at = int(np.argmin(price.time_s))
    assert 0.5 < price.time_s[at] / whole.time_s.min() < 0.56
    parts = {n: price.costs[n] / whole.costs[n] for n in ("matrix_s", "vector_s")}
    assert 0.4 < price.costs["reread_bytes"][at] / whole.costs["reread_bytes"][at] < 0.55
    for n in range(0, len(price), 37):
        tiling = Tiling.of({name: int(column[n]) for name, column in price.extra.items()})
        known = grid(problem, tiling)
        found = taken(problem, tiling, h200)
        assert found.order == tiling.order
        assert found.chunks == known.table.sum()
        run = found.chunks / (known.tiles * known.steps)
        assert all(part[n] == pytest.approx(run) for part in parts.values())


def test_the_price_is_that_of_the_busiest_unit() -> None:
    """Of fewer tiles than units one has the last rows of a head, and all chunks."""
    _, causal = summary_of(2, "causal")
    price, whole = priced(causal)
    assert price.time_s.min() > 0.95 * whole.time_s.min()


def test_columns_that_no_letter_cuts_are_one_block_of_the_grid() -> None:
    _, summary = summary_of(8, "causal")
    cut = Streaming().price(summary, h200)
    whole = replace(
        summary,
        extents=tuple((x, e) for x, e in summary.extents if x != "q"),
        loads=tuple(uncut(a) for a in summary.loads),
        stores=tuple(uncut(a) for a in summary.stores),
        products=tuple(
            w._replace(letters=w.letters.replace("q", ""), star=128 if w.structured else 1)
            for w in summary.products
        ),
        resident=tuple((128 if "q" in x else n, x.replace("q", "")) for n, x in summary.resident),
    )
    found = Streaming().price(whole, h200)
    known = cut.block["q"] == 128
    known &= np.isfinite(found.time_s)
    assert known.sum() > 20
    np.testing.assert_allclose(found.time_s[known], cut.time_s[known])


def uncut(access: Access) -> Access:
    """The same with whole columns."""
    whole = 128 if "q" in access.letters else access.star
    return access._replace(letters=access.letters.replace("q", ""), star=whole)


def test_a_stream_without_conditions_on_positions_runs_everything() -> None:
    _, summary = summary_of(32, "mask")
    price, whole = priced(summary)
    np.testing.assert_array_equal(price.time_s, whole.time_s)


def test_extraction_prices_the_chunks_that_it_emits() -> None:
    sizes = {"h": 16, "s": 4096, "t": 4096, "d": 64, "w": 64}
    (causal,), (plain,) = (
        compiled(SPELLINGS[n], sizes).schedule.graph.steps for n in ("causal", "heads")
    )
    assert causal.schedule == plain.schedule == "streaming"
    assert causal.costs["matrix_s"] < 0.7 * plain.costs["matrix_s"]
