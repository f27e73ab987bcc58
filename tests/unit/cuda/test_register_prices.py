"""Tiles of products through registers that the cost model offers are ones that kernels plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import DispatchError
from axe_eq.program.types import DTYPES
from axe_eq.schedule.summary import Access, Summary, Work
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.register_cost import WRITTEN, RegisterProducts
from axe_eq_backends.cuda.schedules.product_tiles import Tile, few_accumulators, step_depth
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import lowered

N = 4096
READ = (0, 2, 6, 12)


def summary(dtype: str, n_read: int) -> Summary:
    """A product of matrices to whose result so many others are added."""
    size = DTYPES[dtype].itemsize
    n_bytes = float(size * N * N)
    factors = tuple(Access(n_bytes, letters, 1, size, 1, True) for letters in ("kp", "kq"))
    read = (Access(n_bytes, "pq", 1, size),)
    kept = ("p", N, "a"), ("q", N, "b")
    work = Work(2.0 * N**3, "kpq", dtype, dtypes=(dtype,), reduced=(N,), kept=kept)
    return Summary(
        (("k", N), ("p", N), ("q", N)), factors + read * n_read, read, (work,), (), ((1, "pq"),),
        (), 2, order=(("p", N), ("q", N)),
    )  # fmt: skip


def added(n_read: int) -> Any:
    """The same as a function of arrays."""
    names = [f"x{n}" for n in range(2 + n_read)]
    body = " + ".join(["x0 @ x1", *names[2:]])
    found: Any = eval(f"lambda {', '.join(names)}: {body}")
    return found


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_a_tile_that_is_offered_holds_what_results_read(dtype: str, full: bool) -> None:
    """Rows are stored in as many parts as all threads have, which differs between tiles."""
    for n_read in READ if full else READ[2:3]:
        columns = RegisterProducts().price(summary(dtype, n_read), h200)
        offered = np.flatnonzero(np.isfinite(columns.time_s))
        area = columns.extra["m"] * columns.extra["n"]
        program = axe.trace(added(n_read), *[axe.Spec((N, N), dtype)] * (2 + n_read))
        largest = [at for at in offered if full or area[at] == area[offered].max()]
        assert largest
        for at in largest:
            sizes = {name: int(column[at]) for name, column in columns.extra.items()}
            plan(lowered(program, columns.rows[at], sizes).kernel, h200)


def product_of(dtype: str) -> Any:
    """A cube of 1000."""
    return axe.compile(lambda a, b: a @ b, *[axe.Spec((1000, 1000), dtype)] * 2, target="h200")


def test_a_lone_tile_on_lanes_has_steps_that_caches_of_instructions_hold() -> None:
    """Steps of 32 and more of this tile took 90 us on an H200, of 16 they take 54."""
    (kernel,) = product_of("f32").kernels
    size = kernel.parameters
    assert size["m"] * size["n"] * size["k"] / (32 * size["warps"]) < WRITTEN
    deep = h200.replace(choices={**h200.choices, "register_steps": (4,)})
    other = axe.compile(lambda a, b: a @ b, *["1000x1000:f32"] * 2, target=deep)
    assert other.cost["time_s"] > kernel.time_s


def test_steps_are_as_deep_as_registers_hold_what_is_read_one_by_one() -> None:
    """Elements of two bytes have a register each until they are packed: 32 x 128 spilled 140 bytes.

    In steps of 128, of a sum over 129. Over 65, what is read of such a step is half of it.
    """
    for rows, more, deepest, depth in ((16, 2, 129, 128), (32, 2, 129, 64), (32, 2, 65, 128),
                                       (32, 0, 129, 128), (128, 2, 129, 16)):  # fmt: skip
        tile = Tile(rows, 128, 0, True, "f16")
        assert step_depth(tile, 1, deepest, (2, 2), (more, more), 4) == depth


def test_copies_fetch_factors_of_whole_words_that_matrix_units_take_as_they_lie() -> None:
    """Those of lanes pass through registers. Copies of single elements take longer by price."""
    assert "cp.async.wait_group" in "".join(product_of("f64").source.values())
    assert "cp.async" not in "".join(product_of("f32").source.values())
    slower = h200.replace(figures={**h200.figures, "copied_side_s": 1e-9})
    costs = [
        axe.compile(lambda a, b: a @ b, *["1000x1000:f64"] * 2, target=t).cost["time_s"]
        for t in (h200, slower)
    ]
    assert costs[0] < costs[1]


@pytest.mark.parametrize(("m", "k", "n"), [(64, 17, 64), (1024, 64, 17), (1000, 70, 8), (8, 99, 7)])
def test_products_of_f64_have_two_accumulators_of_a_warp(m: int, k: int, n: int) -> None:
    """With one, sums were wrong on an H200: see the row. What is too little goes by lanes."""
    specs = [axe.Spec(shape, "f64") for shape in ((m, k), (k, n))]
    for way, sides in ((lambda x, y: x @ y, (m, n)), (lambda x, y: y.T @ x.T, (n, m))):
        with axe.debug(cache=0):
            exe = axe.compile(way, *specs, target="h200")
        (kernel,) = (kernel for kernel in exe.kernels if kernel.schedule == "register_products")
        assert exe.source
        assert (kernel.row == "fma.f64") == (m == 8)
        rows, cols, depth, warps = (kernel.parameters[x] for x in ("m", "n", "k", "warps"))
        tile = Tile(rows, cols, depth, kernel.row == "mma.f64", "f64", warps)
        assert not tile.matrix or not few_accumulators(tile, "f64", *sides)


def test_tiles_of_few_accumulators_are_refused() -> None:
    sizes = {"m": 16, "n": 32, "k": 32, "warps": 4, "band": 8}
    specs = [axe.Spec(shape, "f64") for shape in ((33, 4000), (4000, 129))]
    with pytest.raises(
        DispatchError, match=r"16 x 32 of f64 by 4 warps, \(33, 129\) there; expected"
    ):
        lowered(axe.trace(lambda x, y: x @ y, *specs), "mma.f64", sizes)
    assert not few_accumulators(Tile(16, 32, 32, matrix=True), "f16", 16, 32)


def test_prices_grow_with_what_is_multiplied() -> None:
    """Along every dim, and for every tile; factors that are read one by one cost more."""
    price = RegisterProducts().price

    def product(m: int, n: int, k: int, aligned: int = 16) -> Summary:
        reads = tuple(
            Access(2.0 * k * e, letters, 1, 2, 1, True, aligned, fast="k")
            for e, letters in ((m, "kp"), (n, "kq"))
        )
        work = Work(2.0 * m * n * k, "kpq", "f16", dtypes=("f16",), reduced=(k,),
                    kept=(("p", m, "a"), ("q", n, "b")))  # fmt: skip
        staged = Work(float(n * k), "kq")  # else as they lie
        return Summary((("k", k), ("p", m), ("q", n)), reads, (Access(2.0 * m * n, "pq", 1, 2),),
                       (work,), (), ((1, "pq"),), (staged,), 2,
                       order=(("p", m), ("q", n)))  # fmt: skip

    sizes = (384, 512, 1024)
    least = price(product(*sizes), h200).time_s
    for at in range(3):
        more = tuple(2 * e if n == at else e for n, e in enumerate(sizes))
        assert np.all(price(product(*more), h200).time_s >= least)
    assert np.all(price(product(*sizes, aligned=2), h200).time_s >= least)
    assert price(product(*sizes, aligned=2), h200).time_s.min() > least.min()
