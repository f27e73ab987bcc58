"""Cones of attention as extraction chooses them, lowered: right in the interpreter, or refused.

The nodes of each kernel are written down; the search that finds them takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import DispatchError
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.threads.interp import interpret
from axe_eq.layout import Layout
from axe_eq.lower.formulas import Load
from axe_eq.lower.own import Lowered
from axe_eq.lower.read import read_cone
from axe_eq.program.types import value_type
from axe_eq.schedule.graph import Access, KernelStep, TileNode
from axe_eq.schedule.summary import Access as Summarised
from axe_eq.schedule.summary import Summary, Work
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.lane_cost import Lanes
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.stream_cost import Streaming
from axe_eq_backends.cuda.streams import read_problem
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import WRITTEN_BY, graph_of

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
    # Rows that bulk copies do not take go through registers, in one warpgroup.
    carried = e % 8 or w % 8
    bulk = {"consumers": 1, "stages": 1} if carried else {"consumers": -(-min(t, 128) // 64)}
    return Case(
        (("q", f"f16[2,{t},{e}]"), ("k", f"f16[2,{s},{e}]"), ("v", f"f16[2,{s},{w}]")),
        (
            load("q"), load("k"), load("v"), ("", "full () 0.125 f16", "f16[]", ()),
            ("mul", "a b d, a c d -> a b c; + d", f"f16[2,{t},{s}]", (0, 1)),
            ("mul", "a b c, -> a b c", f"f16[2,{t},{s}]", (4, 3)),
            ("pair", "a b d, a d c -> a b c; softmax d", f"f16[2,{t},{w}]", (5, 2)),
        ),
        _attention, {"q": -(-w // 32) * 32, "s": 48} | bulk,
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
        _grouped, {"consumers": 2, "s": 32, "stages": 3},
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
        _causal, {},
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
        WRITTEN_BY["stream"] | case.parameters,
    )  # fmt: skip


def lowered(step: KernelStep) -> Lowered:
    return lower(step, graph_of(step), h200)


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


def batched(rng: np.random.Generator) -> Case:
    """Attention over random batch dims, some of which queries, keys or values do not have."""
    names = "abcd"[: int(rng.integers(1, 5))]
    sizes = dict(zip(names, rng.integers(2, 4, len(names)).tolist(), strict=True)) | {
        "m": 40, "n": 24, "e": 16, "w": 16,
    }  # fmt: skip
    lead = {x: "".join(n for n in names if rng.random() < 0.6) for x in "qkv"}
    lead["o"] = "".join(n for n in names if any(n in held for held in lead.values()))
    scored_ = "".join(n for n in lead["o"] if n in lead["q"] + lead["k"])
    order = "".join(rng.permutation(list(lead["o"] + "m"))) + "w"

    def dims(text: str) -> str:
        return " ".join(text)

    def signed(ins: list[str], out: str, over: str, monoid: str) -> str:
        """A signature in letters of its own: the result's dims in order, then the reduced one."""
        letters = dict(zip([*out, over], "abcdefgh", strict=False))
        texts = [dims("".join(letters[d] for d in x)) for x in (*ins, out)]
        return f"{', '.join(texts[:-1])} -> {texts[-1]}; {monoid} {letters[over]}"

    def type_(text: str) -> str:
        return f"f16[{','.join(str(sizes[d]) for d in text)}]"

    q, k, v = lead["q"] + "me", lead["k"] + "ne", lead["v"] + "nw"
    z = scored_ + "mn"
    nodes = (
        load("q"), load("k"), load("v"),
        ("mul", signed([q, k], z, "e", "+"), type_(z), (0, 1)),
        ("pair", signed([z, v], order, "n", "softmax"), type_(order), (3, 2)),
    )  # fmt: skip

    def meaning(*arrays: Any) -> Any:
        weights = softmax(np.einsum(f"{q},{k}->{z}", *arrays[:2]))
        return np.einsum(f"{z},{v}->{order}", weights, arrays[2])

    loads = tuple((n, type_(text)) for n, text in zip("qkv", (q, k, v), strict=True))
    sizes_ = {"q": 32, "s": 16}
    return Case(loads, nodes, meaning, sizes_)


def test_batches_are_one_where_every_tensor_runs_through_them_as_one(
    full: bool, rng: np.random.Generator
) -> None:
    """Dims that some operands lack, in any order of the result: every element is read and written.

    Compared is where each tensor is read at every index, with what the merged dims say.
    """
    merged = 0
    for _ in range(400 if full else 60):
        step = step_of(batched(rng))
        cone = read_cone(step)
        made, _ = read_problem(cone)
        merged += len(made.batch) < sum(e > 1 for e in cone.shape[: cone.rank]) - 2
        tensors = [t for pair in made.products for t in pair] + [made.values, made.out]
        places = np.stack([offsets(made.batch, t.strides) for t in tensors], axis=-1)
        (root,) = cone.roots
        loads = [x for x in cone.leaves if isinstance(x, Load)]
        given = [*(x.strides for x in loads), root.strides]
        outer = [d for d in range(cone.rank) if cone.shape[d] not in (40, 16)]
        extents = tuple(cone.shape[d] for d in outer)
        wanted = np.stack(
            [offsets(extents, [(*s, 0, 0, 0, 0)[d] for d in outer]) for s in given], -1
        )
        assert sorted(map(tuple, places.reshape(-1, 4))) == sorted(
            map(tuple, wanted.reshape(-1, 4))
        )
    assert merged


def offsets(extents: tuple[int, ...], strides: Any) -> Any:
    """The element at every index of some dims."""
    at = np.zeros(extents, int)
    for dim, (extent, stride) in enumerate(zip(extents, strides, strict=False)):
        at += stride * np.arange(extent).reshape([-1 if d == dim else 1 for d in range(at.ndim)])
    return at.reshape(-1)


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


def test_wide_weights_are_rounded_where_results_are_stored_narrow() -> None:
    """A result of f32 keeps weights of f32, which kernels of matrix units do not have."""
    summary = attention_summary(100, 100, 64, 64)
    scores, mixed = summary.products
    wide = replace(summary, products=(scores, mixed._replace(dtypes=("f16", "f32"))))
    (store,) = wide.stores
    kept = replace(wide, stores=(store._replace(itemsize=4),))
    assert Streaming().refuse(wide, h200) is None
    assert Lanes().refuse(wide, h200) is not None
    assert Streaming().refuse(kept, h200) == "weights that f16 does not hold, for a wider result"
    # Of scores in memory lanes mix what matrix units do not.
    of_lanes = [replace(s, products=s.products[1:]) for s in (wide, kept)]
    assert [Lanes().refuse(s, h200) for s in of_lanes] == ["products that matrix units take", None]
    # Scores of f16 have no weights that are any wider.
    narrow = replace(summary, stores=kept.stores)
    assert Streaming().refuse(narrow, h200) is None


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
        parameters = {name: int(column[at]) for name, column in columns.extra.items()}
        case = plain(t, s, e, w)
        made = lowered(step_of(Case(case.loads, case.nodes, case.meaning, parameters)))
        plan(made.kernel, h200)


def scored(t: int, e: int, *kinds: str) -> tuple[Case, Summary]:
    """Attention of t tokens whose scores or results read more, and what extraction says of it."""
    case, summary = plain(t, t, e, e), attention_summary(t, t, e, e)
    loads, nodes = list(case.loads), list(case.nodes[:3])
    read = list(summary.loads)

    def load_(name: str, type_: str, letters: str, star: int = 1) -> int:
        loads.append((name, type_))
        nodes.append(load(name))
        size = value_type(type_)
        read.append(Summarised(float(size.size * size.itemsize), letters, star, size.itemsize))
        return len(nodes) - 1

    def node(cell: str, text: str, type_: str, *operands: int) -> int:
        nodes.append((cell, text, type_, operands))
        return len(nodes) - 1

    scores, positions = f"f16[2,{t},{t}]", 0
    z = node("mul", "a b d, a c d -> a b c; + d", scores, 0, 1)
    kept: list[int] = []
    if "causal" in kinds:
        iota, positions = node("", f"iota {t} i64", f"i64[{t}]"), 2
        kept.append(node("ge", "a, b -> a b", f"bool[{t},{t}]", iota, iota))
    if "documents" in kinds:
        ends = load_("a", f"i32[{t}]", "p"), load_("b", f"i32[{t}]", "s")
        kept.append(node("eq", "a, b -> a b", f"bool[{t},{t}]", *ends))
    if "mask" in kinds:
        kept.append(load_("m", f"bool[{t},{t}]", "ps"))
    if "bias" in kinds:
        scores = f"f32[2,{t},{t}]"
        z = node("add", "a b c, b c -> a b c", scores, z, load_("bias", f"f32[{t},{t}]", "ps"))
    if kept:
        less = node("", f"full () -inf {scores[:3]}", f"{scores[:3]}[]")
        for k in kept:
            z = node("where", "b c, a b c, -> a b c", scores, k, z, less)
    out = f"f16[2,{t},{e}]"
    mixed = node("pair", "a b d, a d c -> a b c; softmax d", out, z, 2)
    for n in range(3 * ("residuals" in kinds)):
        mixed = node("add", "a b c, a b c -> a b c", out, mixed, load_(f"r{n}", out, "bpq"))
    changed_ = replace(summary, loads=tuple(read), n_positions=positions)
    return Case(tuple(loads), tuple(nodes), case.meaning, case.parameters), changed_


@pytest.mark.parametrize(
    ("e", "kinds"),
    [
        (64, ("causal",)), (64, ("causal", "documents")), (128, ("causal", "mask")),
        (128, ("bias", "documents")), (256, ("residuals",)),
    ],
)  # fmt: skip
def test_what_scores_and_results_read_is_in_the_price(
    e: int, kinds: tuple[str, ...], full: bool
) -> None:
    """Of the tilings that the cost model offers, those with most registers are planned."""
    case, summary = scored(8192, e, *kinds)
    columns = Streaming().price(summary, h200)
    offered = np.isfinite(columns.time_s)
    assert offered.any()
    words = np.where(offered, columns.costs["register_bytes"], 0)
    taken = {int(np.argmin(columns.time_s))}
    for rows in np.unique(columns.block["p"]):
        mine = np.where(columns.block["p"] == rows, words, 0)
        most = mine.max()
        found = np.flatnonzero((mine == most) & (mine > 0))
        taken |= set(map(int, found if full else found[:1]))
    for at in taken:
        parameters = {name: int(column[at]) for name, column in columns.extra.items()}
        plan(lowered(step_of(replace(case, parameters=parameters))).kernel, h200)


def test_the_fastest_tiling_fits_without_spills(full: bool) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    sizes_of = ((4096, 4096, 64, 64), (8192, 8192, 128, 128))
    for t, s, e, w in sizes_of if full else sizes_of[1:]:
        summary = attention_summary(t, s, e, w)
        columns = Streaming().price(summary, h200)
        at = int(np.argmin(columns.time_s))
        parameters = {name: int(column[at]) for name, column in columns.extra.items()}
        case = plain(t, s, e, w)
        made = lowered(step_of(Case(case.loads, case.nodes, case.meaning, parameters)))
        source = emit(plan(made.kernel, h200))
        log = compile_text(source.text, 90, source.name).log
        assert "0 bytes spill stores, 0 bytes spill loads" in log
