"""Ratios in README's tables are those of the figures that were saved beside them."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
COUNTS = ("none", "one", "two", "three", "four", "five")
Cases = list[dict[str, Any]]


def saved(name: str) -> dict[str, Any]:
    """A file of figures."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def ratios(name: str, key: str = "ratio", **wanted: Any) -> list[float]:
    """A ratio of every case that was measured and is of a kind."""
    some: Cases = saved(name)["cases"]
    return [c[key] for c in some if c.get(key) and all(c[k] == v for k, v in wanted.items())]


def raced(cases: Cases, peer: str) -> list[float]:
    """A peer's time over ours, of every case."""
    return [c["times"][peer]["us"] / c["times"]["axe"]["us"] for c in cases]


def over(name: str, dtype: str) -> list[float]:
    """The best peer's time over ours, of products of an element type."""
    some = [c["us"] for c in saved(name)["cases"] if c["dtype"] == dtype]
    return [min(us[peer] for peer in us if peer != "axe") / us["axe"] for us in some]


def rows() -> Iterator[tuple[str, Sequence[list[float]]]]:
    """How rows of README begin, and the ratios that each of their figures sums up."""
    yield "matrix products, M = 8192", [raced(saved("cuda_h200")["gemm"], "cublas")]
    yield "the same with bias and relu", [raced(saved("cuda_h200")["fused"], "cublaslt")]
    yield "what follows products", [ratios("cuda_fused")]
    yield "products of 1 to 256 rows, four", [over("cuda_small", "f16")]
    yield "the same, 30 drawn", [ratios("cuda_long", group="few")]
    yield "long sums", [ratios("cuda_long", group="long")]
    yield "operands whose rows begin inside", [ratios("cuda_long", group="askew")]
    yield "4096 to 16384 rows", [ratios("cuda_long", group="large")]
    yield "products of odd extents", [over("cuda_odd", "f16")]
    yield "products of f32", [over("cuda_odd", "f32"), over("cuda_odd", "f64")]
    memory: Cases = saved("cuda_h200")["memory"]
    for row, op in ("rmsnorm;", "rmsnorm"), ("softmax,", "softmax"), (
        "bias and gelu,", "bias_gelu"
    ), ("transpose,", "transpose"):  # fmt: skip
        yield row, [[c["ratio"] for c in memory if c["op"] == op]]
    yield "norms, softmax", [ratios("cuda_memory"), ratios("cuda_memory", "of_triton"),
                             ratios("cuda_memory", "of_copy")]  # fmt: skip
    yield "attention without mask", [raced(saved("cuda_attention")["cases"], "cudnn")]
    spelled = [c["large"] for c in saved("cuda_spellings")["cases"] if c["name"][:6] == "causal"]
    yield "causal attention", [raced([c for c in spelled if "torch" in c["times"]], "torch")]
    yield "sums over any dims", [ratios("cuda_sums")]
    yield "programs of several results", [ratios("cuda_outputs")]
    yield "Qwen3-8B's MLP block", [[saved("cuda_h200_mlp8192")["ratio"]]]
    for row, kind in ("product and reduce-scatter", "scatter"), ("all-gather and product",
                                                                 "gathered"):  # fmt: skip
        yield row, [
            [c["ratio"] for c in saved(f"mesh_cuda_{way}")["cases"]
             if c["kind"] == kind and "rows" not in c["name"]]
            for way in ("peers", "nccl")
        ]  # fmt: skip
    yield "MLP block, 8192", [ratios(f"mesh_cuda_{way}", kind="mlp") for way in ("peers", "nccl")]


@pytest.mark.parametrize(("row", "wanted"), [pytest.param(*r, id=r[0]) for r in rows()])
def test_a_row_says_what_its_figures_say(row: str, wanted: Sequence[list[float]]) -> None:
    (line,) = [ln for ln in README.splitlines() if ln.startswith(f"| {row}")]
    said = line.partition(" | ")[2]
    figures = re.findall(r"(\d+\.\d+)(?: \(least (\d+\.\d+)(?:, (\w+) below ([\d.]+))?)?", said)
    assert len(figures) >= len(wanted)
    for (mean, least, count, bar), found in zip(figures, wanted, strict=False):
        assert _same(mean, statistics.geometric_mean(found))
        assert not least or _same(least, min(found))
        assert not count or COUNTS[sum(r < float(bar) for r in found)] == count


def _same(text: str, value: float) -> bool:
    """Whether a text is the value rounded to as many digits."""
    return abs(float(text) - value) <= 0.51 * 10.0 ** -len(text.partition(".")[2])


@pytest.mark.parametrize(
    ("row", "way"),
    [("prepared call", "prepared"), ("plain call, torch tensors", "plain"),
     ("plain call, every result kept", "plain, results kept")],
)  # fmt: skip
def test_calls_take_what_their_file_says(row: str, way: str) -> None:
    (line,) = [ln for ln in README.splitlines() if ln.startswith(f"| {row}")]
    said = re.findall(r"([\d.]+) µs", line)
    host_us = saved("cuda_calls")["host_us"]
    wanted = [host_us[f"{program}, {way}"]["us"] for program in ("softmax", "mlp")]
    assert len(said) == 2
    assert all(map(_same, said, wanted))


def test_regret_is_that_of_its_files() -> None:
    """Kernels, what is within 30 %, median and worst stand in the paragraph that links a file."""
    (paragraph,) = [p for p in README.split("\n\n") if "results/regret.json" in p]
    said = " ".join(paragraph.split())
    for name in re.findall(r"results/(regret\w*)\.json", paragraph):
        f = saved(name)["figures"]
        if "tuned" in f:
            assert f"{min(f['tuned']):.2f} to {max(f['tuned']):.3f} times" in said
            continue
        for figure in (
            f"{f['kernels']} kernels", f"30 % for {100 * f['within_30']:.0f} %",
            f"{f['regret_median']:.3f} times", f"{f['regret_worst']:.2f} times",
        ):  # fmt: skip
            assert figure in said
