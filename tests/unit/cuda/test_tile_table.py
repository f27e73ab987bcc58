"""Tiles that fit a product: brute force over sides, and what extraction makes of them."""

from __future__ import annotations

import random
from math import ceil, inf
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq_backends.cuda import tile_cost
from axe_eq_backends.cuda.make import make
from axe_eq_backends.cuda.schedules.gemm import most_held, panel_most
from axe_eq_backends.cuda.schedules.tiles import MOST_PANEL
from axe_eq_backends.cuda.sides import Matrices, as_matrices
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.tile_table import MOST_COLS, TEAMS, WIDE_COLS, WIDE_ROWS, fitted, offered
from benchmarks.offered import offers

ROUND = h200.replace(choices={**h200.choices, "product_waves": ()})


def sides_of(m: int, n: int, turned: bool, monkeypatch: pytest.MonkeyPatch) -> Matrices:
    """Those of a product whose weights are contiguous along its result's columns."""
    seen: list[Any] = []
    price = tile_cost.TensorCores.price

    def noted(self: Any, summary: Any, target: Any) -> Any:
        seen.append(summary)
        return price(self, summary, target)

    with monkeypatch.context() as patched, axe.debug(cache=0):
        patched.setattr(tile_cost.TensorCores, "price", noted)
        specs = axe.Spec((m, 512), "f16"), axe.Spec((512, n), "f16")
        axe.compile(lambda a, b: a @ b, *specs, target="h200", numerics="exact")
    return as_matrices(next(s for s in seen if s.has("p") and s.has("q")), turned)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", range(4))
def test_tiles_fit_in_as_few_columns_as_waves_allow(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(number)
    m, n = (8 * rng.randrange(65, 400) for _ in "mn")
    for turned in (False, True):
        sides = sides_of(m, n, turned, monkeypatch)
        rows, cols = sides.there
        step = 8 if turned else 64  # lines of weights are whole
        found = fitted(sides, h200)
        assert len(set(found)) == len(found)
        for height in h200.sizes("product_rows"):
            for waves in h200.sizes("product_waves"):
                most = waves * h200.n_units // ceil(rows / height)  # tiles side by side
                least = next(
                    (w for w in range(step, MOST_COLS + 1, step) if ceil(cols / w) <= most), None
                )
                if least is not None:
                    fits = [w for h, w in found if h == height and ceil(cols / w) <= most]
                    assert min(fits) == least
        # Wider ones are multiplied by two instructions of whole lines, or eights, of columns.
        wide = {(h, w) for h, w in found if w > MOST_COLS}
        assert all(h <= WIDE_ROWS and w <= WIDE_COLS and w % (2 * step) == 0 for h, w in wide)


def test_more_columns_than_a_box_are_copied_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 columns in parts of 24 are 264, which are no two boxes of whole eights."""
    found = fitted(sides_of(256, 768, True, monkeypatch), h200)
    assert found
    assert all(cols <= MOST_COLS or cols % 16 == 0 for _, cols in found)


def test_results_of_odd_rows_leave_in_panels_that_threads_read_back(full: bool) -> None:
    """Parts of 80, 112, 48 and 24 columns had panels of as many: offered, and never built."""
    specs = axe.Spec((300, 640), "f16"), axe.Spec((640, 3795), "f16")
    (offer,) = (o for o in offers(lambda x, w: x @ w, specs) if o.prices[0].row)
    parts = dict[int, Any]()
    for price in offer.prices:
        sizes = dict(price.parameters)
        if price.schedule == "tensor_cores":
            parts.setdefault(sizes["n"] // sizes["split"] // sizes["across"], price)
    odd = {cols: price for cols, price in parts.items() if cols & (cols - 1)}
    assert {24, 48, 80, 112} <= set(odd)
    for price in (odd if full else {cols: odd[cols] for cols in (24, 80, 112)}).values():
        make(*offer.made(price), h200)


def test_few_rows_are_columns_of_tiles() -> None:
    """73 rows in tiles of 64 took 1.4 times as long as torch.mm."""
    specs = axe.Spec((73, 3072), "bf16"), axe.Spec((3072, 2944), "bf16")
    (kernel,) = axe.compile(lambda a, b: a @ b, *specs, target="h200").kernels
    assert kernel.parameters["turned"] == 1
    assert kernel.parameters["n"] in (40, 80)
    (other,) = axe.compile(lambda a, b: a @ b, *specs, target=ROUND).kernels
    assert other.parameters["turned"] == 0
    assert other.time_s > 1.05 * kernel.time_s


def test_large_products_are_offered_nothing_else() -> None:
    specs = axe.Spec((8192, 4096), "f16"), axe.Spec((4096, 8192), "f16")
    chosen = [
        axe.compile(lambda a, b: a @ b, *specs, target=t).kernels[0].parameters
        for t in (h200, ROUND)
    ]
    assert chosen[0] == chosen[1]


def test_teams_divide_their_tile_and_fit_their_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole instructions for every consumer; one that shares columns shares no steps."""
    known = {(parts, *team) for parts, teams in TEAMS.items() for team in teams}
    for turned in (False, True):
        sides = sides_of(1000, 1064, turned, monkeypatch)
        table = offered(sides, True, h200).chosen
        names = ("m", "n", "consumers", "across", "split")
        rows = list(zip(*(table[name].astype(int).tolist() for name in names), strict=True))
        found = {(m // 64, teams, across) for m, _, teams, across, _ in rows}
        assert found <= known if turned else found == known
        assert all(m % (64 * teams // across) == 0 for m, _, teams, across, _ in rows)
        assert all(split == 1 and n >= 64 for _, n, _, across, split in rows if across > 1)
        assert all(n <= 192 for _, n, teams, *_ in rows if teams == 3)
    priced = tile_cost.TensorCores().price(sides.summary, h200)
    taken = np.isfinite(priced.time_s) & (priced.extra["consumers"] == 3)
    assert taken.any()
    assert (priced.extra["m"] * priced.extra["n"] / 384)[taken].max() <= most_held(3)


def test_large_products_take_the_tile_that_fills_its_waves() -> None:
    """31 x 17 tiles of 192 are four waves, 47 x 13 of 128 x 256 are five."""
    specs = axe.Spec((5952, 6208), "f16"), axe.Spec((3264, 6208), "f16")
    (kernel,) = axe.compile(lambda a, b: a @ b.T, *specs, target="h200").kernels
    sizes = [kernel.parameters[name] for name in ("m", "n", "consumers", "across")]
    assert sizes == [192, 192, 3, 1]


def test_sums_of_large_tiles_leave_registers_for_narrow_panels() -> None:
    """28 x 14 tiles of 192 x 256 are three waves, 42 x 14 of 128 x 256 five."""
    specs = axe.Spec((5376, 4096), "f16"), axe.Spec((3584, 4096), "f16")
    (kernel,) = axe.compile(lambda a, b: a @ b.T, *specs, target="h200").kernels
    assert sorted(kernel.parameters[side] for side in "mn") == [192, 256]
    widths = [int(panel_most(64, 2, m * n / 256, m, 2)) for m, n in ((192, 256), (128, 256))]
    assert widths == [32, MOST_PANEL]


def test_rows_past_the_end_cost_clusters_alone() -> None:
    """85 rows: clusters copy two tiles of 64 of them whole, lone CTAs what is there."""
    specs = axe.Spec((85, 2624), "f16"), axe.Spec((5248, 2624), "f16")
    free = h200.replace(figures={**h200.figures, "fill_bytes_per_s": inf})
    for target, most in ((h200, 1), (free, 2)):
        (kernel,) = axe.compile(lambda a, b: a @ b.T, *specs, target=target).kernels
        assert kernel.parameters["cluster_rows"] * kernel.parameters["cluster_cols"] == most
