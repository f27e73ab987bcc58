"""Targets are data: other figures choose otherwise, and what does not fit is refused before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import AxeError, ScheduleError
from axe_eq.extract.search.search import Search
from axe_eq.kernel import ir
from axe_eq.kernel.cells import Apply, apply, arg
from axe_eq.program.types import DTYPES
from axe_eq.schedule.memory import buffer_elements
from axe_eq.target import Instr, Target
from axe_eq_backends.nki.cost import MOST_BLOCKS, priced
from axe_eq_backends.nki.planning import plan
from axe_eq_backends.nki.schedules.contraction import Contraction, contraction
from axe_eq_backends.nki.schedules.gemm import banks, sizes
from axe_eq_backends.nki.space import Space, Sum, Tensor
from axe_eq_backends.nki.target import trn1, trn2, trn3
from tests.unit.nki.levels import gemm, numpy_of, walk


def product(m: int, n: int, k: int, dtype: str = "bf16") -> Contraction:
    """C[m, n] = A[k, m]^T B[k, n]."""
    a, b = Tensor("a", dtype, (1, 0, m)), Tensor("b", dtype, (0, 1, n))
    total = Sum("+", (2,), Apply("mul", (arg(0), arg(1))), True, (dtype, dtype))
    return contraction(Space((m, n, k), (a, b, total), ((Tensor("c", dtype, (n, 1, 0)), arg(2)),)))


def best(c: Contraction, target: Target, most: int = 6) -> dict[str, int]:
    """The cheapest of a product's candidates."""
    cone: Any = SimpleNamespace(name="k")
    found = priced(cone, c, "tensor_engine", target, sizes(c, target)[:most])
    return dict(min(found, key=lambda x: x.time_s).parameters)


def slow(target: Target, factor: float) -> Target:
    """All memories move bytes so many times slower."""
    return replace(target, memories=tuple(
        replace(m, bytes_per_s=m.bytes_per_s / factor) for m in target.memories))  # fmt: skip


HALF: dict[str, Callable[[Target], Target]] = {
    **{m: lambda t, m=m: t.replace(**{m: t.memory(m).n_bytes // 2}) for m in ("sbuf", "psum")},  # type: ignore[misc]
    "dma": lambda t: slow(t, 2),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("half", HALF)
def test_half_of_a_machine_takes_other_blocks_of_the_same_product(half: str) -> None:
    """By the search, as a user's program is compiled."""
    m, n, k = (512, 1024, 2048) if half == "psum" else (1024, 2048, 4096)
    blocks = []
    for target in (trn1, replace(HALF[half](trn1), name=f"half the {half}")):
        exe = axe.compile(lambda a, b: a.mT @ b, f"{k}x{m}:bf16", f"{k}x{n}:bf16", target=target)
        blocks.append(dict(exe.schedule.graph.kernels[0].parameters))
    assert blocks[0] != blocks[1]
    if half == "sbuf":
        held = [x["rows"] * x["cols"] * x["deep"] for x in blocks]
        assert held[1] < held[0]
    if half == "dma":  # which reads less
        read = [m * k * n // x["cols"] + n * k * -(-m // x["rows"]) for x in blocks]
        assert read[1] < read[0]


def test_half_of_psum_adds_sums_up_in_sbuf() -> None:
    c, half = product(512, 1024, 8192), trn1.replace(psum=trn1.memory("psum").n_bytes // 2)
    whole, less = (best(c, t, MOST_BLOCKS) for t in (trn1, half))
    assert banks(whole["rows"], whole["cols"], c, trn1) == 8
    assert (whole["held"], less["held"]) == (1, 0)
    times = [plan(gemm(c, "k", trn1, sizes_)[0], trn1).time_s for sizes_ in (whole, less)]
    assert times[0] < times[1]


def test_a_smaller_bank_takes_narrower_sums() -> None:
    small = replace(trn2, memories=tuple(
        replace(m, bank_bytes=m.bank_bytes // 2) for m in trn2.memories))  # fmt: skip
    whole, half = (
        gemm(product(128, 512, 128), "k", t, {"rows": 128, "cols": 512, "deep": 0})[0]
        for t in (trn2, small)
    )

    def widest(kernel: ir.Kernel) -> int:
        return max(b.n_elements for b in kernel.buffers if b.memory == "psum")

    assert (widest(whole), widest(half)) == (512, 256)
    plan(half, small)


def without(target: Target, row: str) -> Target:
    rows: tuple[Instr, ...] = tuple(r for r in target.instrs if r.name != row)
    return replace(target, name=f"{target.name} without {row}", instrs=rows)


def test_without_a_row_another_engine_computes() -> None:
    c = product(256, 512, 128)
    other = without(without(trn2, "scalar.cast"), "scalar.copy")
    sizes_ = {"rows": 256, "cols": 512, "deep": 0}
    made = [plan(gemm(c, "k", t, sizes_)[0], t) for t in (trn2, other)]
    rows = [{choice.plan.row.name for choice in m.planned.choices.values()} for m in made]
    assert "scalar.cast" in rows[0]
    assert "vector.cast" in rows[1]
    assert "scalar.cast" not in rows[1]
    assert (made[0].busy["vector"], made[1].busy["scalar"]) == (0, 0)
    assert made[1].time_s > made[0].time_s  # the vector engine is the slower one


def test_scalar_copies_are_of_later_generations() -> None:
    names = {t.name: {r.name for r in t.instrs} for t in (trn1, trn2, trn3)}
    assert "scalar.copy" not in names["trn1"]
    assert {"scalar.copy", "scalar.cast"} <= names["trn2"] & names["trn3"]


@pytest.mark.parametrize(
    ("fn", "specs", "reason"),
    [
        (lambda x: x * 2, ("64:f64",), "holds f64"),
        (lambda x: axe.array.cumulative_sum(x, axis=0, dtype="i32"), ("9:i32",), "scans i32"),
    ],
)
def test_what_no_engine_computes_is_refused_in_the_search(
    fn: Callable[..., Any], specs: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(AxeError, match=reason):
        axe.compile(fn, *specs, target="trn2")


def test_a_kernel_over_sbuf_names_the_tiles_that_hold_it(golden: Callable[..., None]) -> None:
    small = trn2.replace(sbuf=128 * 4096)
    kernel, _ = gemm(product(256, 1024, 1024), "k", small, {"rows": 256, "cols": 1024, "deep": 0})
    with pytest.raises(ScheduleError) as caught:
        plan(kernel, small)
    golden(str(caught.value))


def test_a_kernel_too_large_to_trace_says_how_many_instructions_it_has(
    golden: Callable[..., None],
) -> None:
    low = replace(trn2, limits={**trn2.limits, "instructions": 100})
    kernel, _ = gemm(product(512, 4096, 512), "k", low, {"rows": 256, "cols": 1024, "deep": 0})
    with pytest.raises(ScheduleError) as caught:
        plan(kernel, low)
    golden(str(caught.value))


def test_a_search_takes_what_fits_a_small_sbuf() -> None:
    small = replace(trn2.replace(sbuf=128 * 6144), name="small")
    kernel, _ = walk(
        Space((128, 4096), (Tensor("x", "f32", (4096, 1)),),
              ((Tensor("y", "f32", (4096, 1)), apply("add", apply("exp", arg(0)), 1.0)),)),
        "k", small, {"tile": 512, "across": 0},
    )  # fmt: skip
    made = plan(kernel, small)
    assert 0 < made.places.peaks["sbuf"] <= 6144
    assert DTYPES["f32"].itemsize * 512 * 2 <= made.places.peaks["sbuf"]


@pytest.mark.parametrize("target", ["trn1", "trn3"])
def test_factors_of_a_type_that_an_engine_lacks_are_multiplied_in_a_wider_one(target: str) -> None:
    exe = axe.compile(lambda a, b: a @ b, "9x20:f8e4m3", "20x5:f8e4m3", target=target)
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(s).astype(numpy_of("f8e4m3")) for s in ((9, 20), (20, 5)))
    want = (a.astype("f4") @ b.astype("f4")).astype(a.dtype)
    assert (exe(a, b) == want).all()


def test_a_product_takes_what_its_tiles_hold_once() -> None:
    c = product(129, 130, 256)
    fits, less = (replace(trn2.replace(sbuf=128 * n), name="small") for n in (1032, 1031))
    assert best(c, fits)["rows"] == 128
    with pytest.raises(AxeError, match=r"takes 1032 bytes of sbuf per partition \(.*a bf16"):
        best(c, less)


def centred(a: Any, b: Any, w: Any, u: Any) -> Any:
    largest = axe.array.maximum(a, b)
    centre = largest - axe.array.mean(largest, axis=-1, keepdims=True)
    return axe.array.rsqrt(1.0 + ((centre @ w.T) @ u.T) ** 2)


SHAPES = "131x131:bf16", "131x131:bf16", "8x131:bf16", "131x8:bf16"


def test_a_search_of_many_values_comes_back_from_what_figures_took() -> None:
    padded = replace(trn2, kept=("padded", *trn2.kept), name="padded")  # none can be written
    with axe.debug(cache=0):
        assert len(axe.compile(centred, *SHAPES, target=padded).kernels) > 1


def test_values_lie_as_the_target_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = list[Search]()
    made = Search.__init__

    def noted(search: Search, *given: Any) -> None:
        made(search, *given)
        searches.append(search)

    monkeypatch.setattr(Search, "__init__", noted)
    with axe.debug(cache=0):
        axe.compile(lambda x, w, v: x @ w @ v, "9x131:bf16", "131x70:bf16", "70x131:bf16",
                    target="trn2")  # fmt: skip
    held = {(s.forest.type_of(v).size, s.forest.layout_of(v)) for s in searches for v in s.values}
    assert held
    assert all(buffer_elements(layout) == size for size, layout in held)
