"""Products of few tiles over a long dim are summed in parts where that is cheaper."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import DispatchError
from axe_eq.program.meaning import evaluate_op
from axe_eq.program.ops import selector, split_text
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.target import h200
from axe_eq_rules.split_products import FITTING, LEAST, NEAR, TILES, UNITS, product_parts

DRAWN = 30
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
# Of the largest result: those in f16 and bf16 round to 11 and 8 bits.
TOLERANCES = {"f16": 2e-3, "bf16": 8e-3, "f32": 1e-4, "f64": 1e-11}
# A machine on which one more kernel costs little: small products are in parts there too.
FREE = h200.replace(
    launch_s=0.0, memories=(replace(h200.memories[0], latency_s=1e-9), *h200.memories[1:])
)


def turned(order: str) -> Callable[[Any, Any], Any]:
    """A product of operands that lie as they are ("N") or transposed ("T")."""

    def product(a: Any, b: Any) -> Any:
        return (a if order[0] == "N" else a.T) @ (b if order[1] == "N" else b.T)

    return product


def shapes(m: int, k: int, n: int, order: str) -> list[tuple[int, int]]:
    return [(m, k) if order[0] == "N" else (k, m), (k, n) if order[1] == "N" else (n, k)]


def drawn(number: int) -> tuple[int, int, int, str, str]:
    """Few rows and columns, a long dim of any alignment, every order and element type."""
    rng = random.Random(f"split {number}")
    m, n = rng.choice((1, 2, 7, 16, 33, 65)), rng.choice((1, 8, 16, 33))
    k = rng.randint(4096, 20_000)
    k -= k % rng.choice((8, 16, 64, 1024))
    k = k if rng.random() < 0.9 else k // 8 + 1  # rows that no bulk copy takes
    dtype = rng.choice(("f16", "f16", "f16", "bf16", "bf16", "bf16", "f32", "f64"))
    if np.dtype(DTYPES[dtype]).itemsize > 2:
        m, k = min(m, 16), min(k, 6144)
    return m, k, n, ("NN", "NT", "TN", "TT")[number % 4], dtype


def compiled(
    m: int, k: int, n: int, order: str = "NN", dtype: str = "f16", **more: Any
) -> axe.Executable:
    specs = [axe.Spec(shape, dtype) for shape in shapes(m, k, n, order)]
    return axe.compile(turned(order), *specs, **{"target": "h200", **more})


def offered(sig: str, x: str, y: str) -> list[tuple[str, ...]]:
    """Every way that the law has."""
    return [tuple(map(str, way)) for way in product_parts.rows((sig, x, y))]


def in_parts(exe: axe.Executable) -> bool:
    """Whether some product is kept wide, for a sum of parts."""
    return any(n.cell == "product" for k in exe.kernels for n in k.nodes)


def unequal(exe: axe.Executable) -> bool:
    """Whether the last part is shorter than others: views of memory say where equal ones lie."""
    return any(n.text.startswith("parts ") for k in exe.kernels for n in k.nodes)


def parts(exe: axe.Executable) -> int:
    """In how many parts the first kernel sums, those of a cluster's CTAs among them."""
    first = next(k for k in exe.kernels if k.row or k.nodes[-1].cell == "product")
    return int(first.loops.get("b", 1) * first.parameters.get("split", 1))


@pytest.mark.sampled(1, slow=("9",))
@pytest.mark.parametrize("number", range(DRAWN))
def test_drawn_products_over_a_long_dim_are_right(number: int) -> None:
    m, k, n, order, dtype = drawn(number)
    exe, rng = compiled(m, k, n, order, dtype, target=FREE), np.random.default_rng(number)
    assert in_parts(exe) or k % 8 or min(m, n) == 1
    a, b = (rng.standard_normal(s).astype(DTYPES[dtype]) for s in shapes(m, k, n, order))
    want = turned(order)(a.astype(np.float64), b.astype(np.float64))
    found = exe.interpret(a, b).astype(np.float64)
    assert np.abs(found - want).max() <= TOLERANCES[dtype] * np.abs(want).max()


def test_parts_that_are_not_equal_end_with_the_tensor() -> None:
    """Ones beyond the end would be counted: what bulk copies fill in there is zero."""
    exe = compiled(16, 4104, 8, "NT", target=FREE)
    assert unequal(exe)
    a, b = (np.ones(s, np.float16) for s in shapes(16, 4104, 8, "NT"))
    assert (exe.interpret(a, b) == 4104).all()


def test_a_sum_of_parts_is_of_the_kernel_of_what_reads_it() -> None:
    def layer(x: Any, w: Any, c: Any) -> Any:
        return nn.gelu(x @ w + c)

    specs = [axe.Spec(s, "f16") for s in ((8, 2048), (2048, 16), (16,))]
    exe = axe.compile(layer, *specs, target=FREE.replace(launch_s=1e-7))
    assert len(exe.kernels) == 2
    rng = np.random.default_rng(0)
    x, w, c = (rng.standard_normal(s.shape).astype(np.float16) / 8 for s in specs)
    got = exe.interpret(x, w, c, orders=2)
    np.testing.assert_allclose(got, axe.run(layer, x, w, c), atol=4e-3)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("m", "k", "n"), [(192, 104768, 512), (64, 524288, 64), (128, 43904, 448)])
def test_named_products_fill_the_machine(m: int, k: int, n: int) -> None:
    """They ran on 24, 1 and 14 of 132 units, for 237, 1200 and 99 us."""
    lone: dict[str, tuple[int, ...]] = {"product_split": (1,), "product_rest": ()}
    one = h200.replace(choices={**h200.choices, **lone})
    exe = compiled(m, k, n)
    whole = compiled(m, k, n, without=("long_product_in_parts",), target=one)
    assert parts(exe) > 1
    assert max(kernel.costs["blocks"] for kernel in exe.kernels if kernel.row) >= 60
    assert exe.cost["time_s"] < whole.cost["time_s"] / 2
    floor = 2 * k * (m + n) / h200.memories[0].bytes_per_s
    assert floor < exe.cost["time_s"] < 2 * floor + 5e-6


def test_a_machine_of_half_the_units_has_half_the_parts() -> None:
    lone: dict[str, tuple[int, ...]] = {"product_waves": (), "product_cluster": (1,)}
    whole = h200.replace(choices={**h200.choices, **lone, "product_rest": ()})
    small = whole.replace(n_units=h200.n_units // 2)
    found = [parts(compiled(192, 104768, 512, target=t)) for t in (whole, small)]
    assert found == [33, 16]


@pytest.mark.parametrize(("m", "k", "n"), [(4096, 4096, 4096), (64, 1000, 64), (2048, 65536, 2560)])
def test_products_of_many_tiles_and_short_ones_are_offered_no_parts(m: int, k: int, n: int) -> None:
    assert not offered("a c, c b -> a b; + c", f"f16[{m},{k}]", f"f16[{k},{n}]")


def test_exact_numerics_sum_in_one_kernel() -> None:
    assert in_parts(compiled(64, 16384, 64))
    assert not in_parts(compiled(64, 16384, 64, numerics="exact"))


@pytest.mark.parametrize(
    ("sig", "x", "y", "axes"),
    [
        ("a c, c b -> a b; + c", "f16[64,65536]", "f16[65536,512]", (1, 0)),
        ("c a, b c -> a b; + c", "bf16[65536,64]", "f16[512,65536]", (0, 1)),
        ("e a c, e c b -> e a b; + c", "f16[3,64,9000]", "f16[3,9000,64]", (2, 1)),
        ("a c d, c d b -> a b; + c d", "f32[64,16,8192]", "f32[16,8192,64]", (2, 1)),
        ("c, c b -> b; + c", "f64[100000]", "f64[100000,8]", (0, 0)),
    ],
)
def test_what_the_law_offers_is_the_product(
    sig: str, x: str, y: str, axes: tuple[int, int]
) -> None:
    """Both operands are cut alike, along the longest dim that both are reduced over."""
    ways = offered(sig, x, y)
    assert 1 <= len(ways) <= 3
    for _, _, *cut, _, _ in ways:
        assert [int(text.split()[1]) for text in cut] == [*axes]
        assert len({text.split(None, 2)[2] for text in cut}) == 1


def test_parts_of_an_axis_are_filled_up_with_zeros() -> None:
    declared, params = selector("parts 1 4")
    cut = declared.run(params, [np.arange(1, 13).reshape(2, 6)])
    assert cut.tolist() == [[[1, 2, 3, 4], [5, 6, 0, 0]], [[7, 8, 9, 10], [11, 12, 0, 0]]]


def test_a_product_kept_wide_is_not_rounded() -> None:
    x = np.full((1, 3), 1.001, np.float16)
    wide = evaluate_op("a c, b c -> a b; + c", "product", [x, x])
    assert wide.dtype == np.float32
    assert wide[0, 0] == 3 * np.float32(x[0, 0]) ** 2
    assert evaluate_op("a c, b c -> a b; + c", "mul", [x, x]).dtype == np.float16


def test_parts_of_no_whole_steps_are_refused() -> None:
    """A step would read on into the next part."""
    exe = compiled(64, 20008, 64)
    graph = exe.schedule.graph
    step = next(k for k in graph.kernels if k.row)
    assert unequal(exe)
    with pytest.raises(DispatchError, match="whole steps"):
        lower(replace(step, parameters={**step.parameters, "k": 80}), graph, h200)


def test_tiles_stay_few_and_parts_long() -> None:
    """As many pieces of work as a machine has units, of what fills its memory's latency."""
    for m, n in ((1, 64), (64, 5000), (129, 2496), (300, 700)):
        ways = offered("a c, c b -> a b; + c", f"f16[{m},65536]", f"f16[65536,{n}]")
        hows = [split_text(way[2])[1][1] for way in ways]
        counts = [ceil(65536 / (how if isinstance(how, int) else how[1])) for how in hows]
        tiles = [ceil(m / rows) * ceil(n / cols) for rows, cols in TILES]
        fitting = {ceil(m / r) * ceil(n / c) for t in FITTING for r, c in (t, t[::-1])}
        assert len(UNITS) <= len(counts) <= len(UNITS) + 1
        for place, (units, count) in enumerate(zip((*UNITS, UNITS[0]), counts, strict=False)):
            tiles += fitting if place == len(UNITS) else ()
            assert 65536 / count >= LEAST
            assert any(units - t < count * t * (1 + 1 / NEAR) and
                       count * t <= units * (1 + 1 / NEAR) for t in tiles)  # fmt: skip
