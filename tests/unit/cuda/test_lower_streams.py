"""Cones of attention as extraction chooses them, lowered: right in the interpreter, or refused.

The nodes of each kernel are written down; the search that finds them takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import DispatchError
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.interp import interpret
from axe_eq.layout import Layout
from axe_eq.program.types import value_type
from axe_eq.schedule.graph import Access, KernelStep, ScheduleGraph, TileNode
from axe_eq.schedule.summary import Access as Summarised
from axe_eq.schedule.summary import Summary, Work
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.lower import Lowered, lower
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.stream_cost import Streaming
from axe_eq_backends.cuda.target import h200

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A kernel's nodes, what it loads, and its meaning on float64 arrays by name."""

    loads: tuple[tuple[str, str], ...]
    nodes: tuple[tuple[str, str, str, tuple[int, ...]], ...]
    meaning: Callable[..., Any]
    parameters: dict[str, int]


def load(name: str) -> tuple[str, str, str, tuple[int, ...]]:
    return name, "", "", ()


def softmax(z: Any) -> Any:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return softmax(np.einsum("hte,hse->hts", q, k) * 0.125) @ v


def _grouped(q: Any, k: Any, v: Any) -> Any:
    weights = softmax(np.einsum("kgte,kse->kgts", q, k) * 0.125)
    return np.einsum("kgts,kse->kgte", weights, v)


def _causal(q: Any, k: Any, v: Any, bias: Any, gate: Any) -> Any:
    """Tokens first; a bias, a mask by position, a gate per column."""
    scores = np.einsum("thae,shae->hts", q, k) * 0.125 + bias
    at = np.arange(len(q))
    scores = np.where(at[:, None] >= at[None], scores, -np.inf)
    mixed = np.einsum("hts,shae->the", softmax(scores), v)
    return mixed * gate / (1 + np.exp(-gate))


def plain(t: int, s: int, e: int, w: int) -> Case:
    return Case(
        (("q", f"f16[2,{t},{e}]"), ("k", f"f16[2,{s},{e}]"), ("v", f"f16[2,{s},{w}]")),
        (
            load("q"), load("k"), load("v"), ("", "full () 0.125 f16", "f16[]", ()),
            ("mul", "a b d, a c d -> a b c; + d", f"f16[2,{t},{s}]", (0, 1)),
            ("mul", "a b c, -> a b c", f"f16[2,{t},{s}]", (4, 3)),
            ("pair", "a b d, a d c -> a b c; softmax d", f"f16[2,{t},{w}]", (5, 2)),
        ),
        _attention, {"p": min(t, 128), "q": w, "s": 48, "stages": 2},
    )  # fmt: skip


CASES: dict[str, Case] = {
    "plain": plain(130, 100, 64, 64),
    "odd widths": plain(70, 100, 60, 36),
    "one query": plain(1, 100, 64, 64),
    "groups of heads": Case(
        (("q", "f16[2,2,70,64]"), ("k", "f16[2,100,64]"), ("v", "f16[2,100,64]")),
        (
            load("q"), load("k"), load("v"), ("", "full () 0.125 f16", "f16[]", ()),
            ("mul", "a b c e, a d e -> a b c d; + e", "f16[2,2,70,100]", (0, 1)),
            ("mul", "a b c d, -> a b c d", "f16[2,2,70,100]", (4, 3)),
            ("pair", "a b c e, a e d -> a b c d; softmax e", "f16[2,2,70,64]", (5, 2)),
        ),
        _grouped, {"p": 70, "q": 64, "s": 32, "stages": 3},
    ),
    "causal, biased, gated": Case(
        (
            ("q", "f16[100,2,1,64]"), ("k", "f16[100,2,1,64]"), ("v", "f16[100,2,1,64]"),
            ("bias", "f16[100,100]"), ("gate", "f16[64]"),
        ),
        (
            load("q"), load("k"), load("v"), load("bias"), load("gate"),
            ("sigmoid", "a -> a", "f16[64]", (4,)),
            ("mul", "a, a -> a", "f16[64]", (4, 5)),
            ("", "full () 0.125 f16", "f16[]", ()),
            ("", "full () -inf f16", "f16[]", ()),
            ("", "iota 100 i64", "i64[100]", ()),
            ("mul", "b a 0 d, c a 0 d -> a b c; + d", "f16[2,100,100]", (0, 1)),
            ("mul", "a b c, -> a b c", "f16[2,100,100]", (10, 7)),
            ("add", "a b c, b c -> a b c", "f16[2,100,100]", (11, 3)),
            ("ge", "a, b -> a b", "bool[100,100]", (9, 9)),
            ("where", "b c, a b c, -> a b c", "f16[2,100,100]", (13, 12, 8)),
            ("pair", "b a d, d b 0 c -> a b c; softmax d", "f16[100,2,64]", (14, 2)),
            ("mul", "a b c, c -> a b c", "f16[100,2,64]", (15, 6)),
        ),
        _causal, {"p": 64, "q": 64, "s": 64, "stages": 2},
    ),
}  # fmt: skip


def dense(type_: str) -> str:
    return str(Layout([(value_type(type_).size, 1, "m")]))


def step_of(case: Case) -> KernelStep:
    names = [name for name, _ in case.loads]
    nodes = []
    for name, text, type_, operands in case.nodes:
        if name in names:
            access = names.index(name)
            nodes.append(TileNode("load", "", "", "", case.loads[access][1], access=access))
        else:
            kind = "cell" if name else "gather"
            nodes.append(TileNode(kind, text, name, "", type_, operands))
    reads = tuple(Access(name, dense(type_)) for name, type_ in case.loads)
    writes = (Access("out", dense(nodes[-1].type)),)
    return KernelStep(
        "k", tuple(nodes), (len(nodes) - 1,), reads, writes, {}, "streaming", "wgmma.f16",
        case.parameters,
    )  # fmt: skip


def lowered(step: KernelStep) -> Lowered:
    return lower(step, ScheduleGraph("h200", {}, (), (), ()), h200)


def seen(whole: Any, tensor: Any) -> Any:
    """A dense array as a kernel's tensor sees it."""
    place, size = tensor.place, whole.itemsize
    strides = [int(evaluate(b[0].stride, {})) * size if b else 0 for b in place.blocks]
    flat = whole.reshape(-1)[int(evaluate(place.at("m"), {})) :]
    return np.lib.stride_tricks.as_strided(flat, [int(e) for e in tensor.shape], strides)


@pytest.mark.parametrize("name", CASES)
def test_lowered_cones_mean_what_they_say(name: str) -> None:
    case = CASES[name]
    rng = np.random.default_rng(5)
    arrays: Arrays = {}
    for load_, type_ in case.loads:
        arrays[load_] = rng.standard_normal(value_type(type_).shape).astype(np.float16)
    made = lowered(step_of(case))
    wanted = case.meaning(*(a.astype(np.float64) for a in arrays.values()))
    out = np.zeros(wanted.shape, np.float16)
    given = {t.name: seen(arrays.get(made.buffers[t.name], out), t) for t in made.kernel.tensors}
    run = interpret(
        made.kernel, given, {}, planned=plan(made.kernel, h200), meanings=MEANINGS,
        order="random", seed=2,
    )  # fmt: skip
    (name_,) = run.outputs
    tensor = made.kernel.tensor(name_)
    seen(out, tensor)[...] = run.outputs[name_]
    np.testing.assert_allclose(
        out.astype(np.float64), wanted, rtol=0, atol=4e-3 * abs(wanted).max()
    )


def changed(case: Case, **nodes: tuple[str, str, str, tuple[int, ...]]) -> KernelStep:
    """A case with nodes replaced by number (``n6=...``)."""
    made = list(case.nodes)
    for number, node in nodes.items():
        made[int(number[1:])] = node
    return step_of(Case(case.loads, tuple(made), case.meaning, case.parameters))


REFUSED: dict[str, tuple[KernelStep, str]] = {
    "computed values": (
        changed(
            CASES["plain"],
            n3=("exp", "a b c -> a b c", "f16[2,100,64]", (2,)),
            n5=("tanh", "a b c -> a b c", "f16[2,130,100]", (4,)),
            n6=("pair", "a b d, a d c -> a b c; softmax d", "f16[2,130,64]", (5, 3)),
        ),
        "computes what it mixes in the kernel",
    ),
    "computed queries": (
        changed(
            CASES["plain"],
            n3=("exp", "a b c -> a b c", "f16[2,130,64]", (0,)),
            n4=("mul", "a b d, a c d -> a b c; + d", "f16[2,130,100]", (3, 1)),
            n5=("tanh", "a b c -> a b c", "f16[2,130,100]", (4,)),
        ),
        "operands of scores in the kernel|computes scores by",
    ),
    "scores that are reduced otherwise": (
        changed(
            CASES["plain"],
            n3=("id", "a b d -> a b; max d", "f16[2,100]", (1,)),
            n5=("add", "a b c, a c -> a b c", "f16[2,130,100]", (4, 3)),
        ),
        "computes scores by",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_streams_do_not_compute_is_refused_with_the_reason(name: str) -> None:
    step, reason = REFUSED[name]
    with pytest.raises(DispatchError, match=reason):
        lowered(step)


def attention_summary(t: int, s: int, e: int, w: int) -> Summary:
    """What extraction tells the cost model about one head-parallel attention."""
    size = 2.0 * 32
    loads = (
        Summarised(size * t * e, "bp", e, 2, 1, True),
        Summarised(size * s * w, "bqs", 1, 2, 1, True),
        Summarised(size * s * e, "bs", e, 2, 1, True),
    )
    products = (
        Work(2.0 * 32 * t * s * e, "bps", "f16"),
        Work(2.0 * 32 * t * s * w, "bpqs", "f16", True),
    )
    return Summary(
        (("b", 32), ("p", t), ("q", w), ("s", s)), loads,
        (Summarised(size * t * w, "bpq", 1, 2),), products, (), ((1, "bps"), (1, "bpq")), (), 3,
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(8192, 8192, 128, 128), (100, 4000, 64, 64), (333, 77, 256, 96)])
def test_every_tiling_that_the_cost_model_offers_is_planned(shape: tuple[int, ...]) -> None:
    """Shared memory and accumulators fit: planning refuses what they do not."""
    t, s, e, w = shape
    summary = attention_summary(t, s, e, w)
    assert Streaming().refuse(summary, h200) is None
    columns = Streaming().price(summary, h200)
    offered = np.flatnonzero(np.isfinite(columns.time_s))
    assert len(offered)
    order = offered[np.argsort(columns.time_s[offered], kind="stable")]
    for at in {*order[:2], *order[-2:], *order[:: max(1, len(order) // 4)]}:
        sizes = {x: int(columns.size(x, summary.extent(x))[at]) for x in "pqs"}
        parameters = sizes | {"stages": int(columns.extra["stages"][at])}
        case = plain(t, s, e, w)
        made = lowered(step_of(Case(case.loads, case.nodes, case.meaning, parameters)))
        plan(made.kernel, h200)


def test_the_fastest_tiling_fits_without_spills() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    for t, s, e, w in ((8192, 8192, 128, 128), (4096, 4096, 64, 64)):
        summary = attention_summary(t, s, e, w)
        columns = Streaming().price(summary, h200)
        at = int(np.argmin(columns.time_s))
        sizes = {x: int(columns.size(x, summary.extent(x))[at]) for x in "pqs"}
        parameters = sizes | {"stages": int(columns.extra["stages"][at])}
        case = plain(t, s, e, w)
        made = lowered(step_of(Case(case.loads, case.nodes, case.meaning, parameters)))
        source = emit(plan(made.kernel, h200))
        log = compile_text(source.text, 90, source.name).log
        assert "0 bytes spill stores, 0 bytes spill loads" in log
