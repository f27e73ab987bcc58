"""The CPU's cost model: what it must prefer, and what changes when the machine does."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from axe_eq.extract.price.pricer import Pricer
from axe_eq.schedule.summary import Access, Summary, Work
from axe_eq.target import Target
from axe_eq_backends.cpu.cost import Blas, Loops
from axe_eq_backends.cpu.pack import PACK
from axe_eq_backends.cpu.target import DGEMM, cpu


def product(m: int, n: int, k: int, dtype: str = "f32", itemsize: int = 4) -> Summary:
    """A matrix product in one kernel, k streamed."""
    loads = (
        Access(m * k * itemsize, "kp", 1, itemsize, feeds_product=True),
        Access(k * n * itemsize, "kq", 1, itemsize, feeds_product=True),
    )
    return Summary(
        (("k", k), ("p", m), ("q", n)), loads, (Access(m * n * itemsize, "pq", 1, itemsize),),
        (Work(2.0 * m * n * k, "kpq", dtype),), (), ((1, "pq"),), (), 1,
    )  # fmt: skip


def cells(m: int, n: int, nodes: int) -> Summary:
    """A chain of cells on one value."""
    access = Access(m * n * 4, "pq", 1, 4)
    work = (Work(float(nodes * m * n), "pq"),)
    return Summary((("p", m), ("q", n)), (access,), (access,), (), work, (), (), nodes)


def pricer_of(target: Target) -> Pricer:
    return Pricer(target, PACK.schedules)


def best_blocks(summary: Summary, target: Target) -> dict[str, int]:
    return dict(pricer_of(target).price(summary).parameters)


def test_products_go_to_blas_and_the_rest_to_loops() -> None:
    pricer = pricer_of(cpu)
    chosen = pricer.price(product(512, 512, 512))
    assert (chosen.schedule, chosen.row) == ("blas", "sgemm")
    assert pricer.price(product(512, 512, 512, "f64", 8)).row == "dgemm"
    assert pricer.price(cells(512, 512, 3)).schedule == "loops"
    assert Blas().refuse(cells(4, 4, 1), cpu) == "no sum of products"


def test_without_a_row_a_product_is_slow_but_possible() -> None:
    summary = product(512, 512, 512)
    bare = cpu.replace(instrs=(DGEMM,))
    assert Blas().refuse(summary, bare) == "no gemm row for f32"
    slow, fast = (pricer_of(t).price(summary) for t in (bare, cpu))
    assert slow.schedule == "loops"
    assert slow.time_s > 5 * fast.time_s


@pytest.mark.parametrize("extents", [(1, 1, 1), (7, 4096, 30000), (1 << 20, 3, 5)])
def test_every_cone_has_a_price(extents: tuple[int, int, int]) -> None:
    assert np.isfinite(pricer_of(cpu).price(product(*extents)).time_s)


def test_time_grows_with_work_and_narrow_types_pay_for_widening() -> None:
    pricer = pricer_of(cpu)
    times = [pricer.price(product(n, n, n)).time_s for n in (64, 256, 1024, 4096)]
    assert times == sorted(times)
    narrow = pricer.price(product(512, 512, 512, "f16", 2))
    assert narrow.time_s > pricer.price(product(512, 512, 512)).time_s


def test_a_smaller_cache_makes_smaller_blocks() -> None:
    quick = replace(cpu, limits={**cpu.limits, "tile_ns": 100})
    shrunk = quick.replace(l2=cpu.memory("l2").n_bytes // 8)
    large, small = (best_blocks(cells(4096, 4096, 12), t) for t in (quick, shrunk))
    assert math.prod(small.values()) < math.prod(large.values())


def test_dearer_interpreting_makes_larger_blocks() -> None:
    chain = cells(4096, 4096, 12)
    quick = replace(cpu, limits={**cpu.limits, "tile_ns": 100})
    slow = replace(cpu, limits={**cpu.limits, "tile_ns": 10_000_000})
    small, large = (best_blocks(chain, t) for t in (quick, slow))
    assert math.prod(small.values()) < math.prod(large.values())


def test_blocks_that_do_not_fit_in_memory_are_ruled_out_with_their_reason() -> None:
    tiny = cpu.replace(ram=1 << 20)
    columns = Loops().price(cells(4096, 4096, 2), tiny)
    assert columns.rejected == {"tiles exceed half of ram 1048576 B": 56}
    assert np.isfinite(columns.time_s).any()


def test_the_pack_registers_target_schedules_and_runner() -> None:
    assert PACK.targets == {"cpu": cpu}
    assert [s.name for s in PACK.schedules] == ["blas", "loops"]
    assert set(PACK.runners) == {"cpu"}
    assert all("cpu" in s.families for s in PACK.schedules)
