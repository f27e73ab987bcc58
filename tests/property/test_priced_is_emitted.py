"""What is priced is what is emitted: the schedule, the instruction, and every parameter.

Random sums of products over shapes that are mostly no matrices' (vectors on either side, batches,
ragged extents), element types, layouts, cells before and after; attention; rows, columns, maps,
relayouts and scans: every kernel that extraction chose must be lowered as the schedule that it was
priced as, with its instruction, the parameters of its candidate, and no more tiles. Parameters are
read from the kernel's own buffers and threads.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.kernel.threads import ir
from axe_eq_backends.cuda import contract
from axe_eq_backends.cuda import lower as lowering
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200

xp = axe.array
CASES, SAMPLE = 500, 8
EXTENTS = (1, 2, 3, 7, 8, 16, 17, 64, 100, 128, 333, 1000, 1024, 4096)
FEW = (1, 2, 3, 8, 17)
MOST = 1 << 24
REGISTERS, LEAST_ROW_THREADS, INFINITE = "register_products", 128, float("inf")
DTYPES = ("f16", "f16", "bf16", "f32", "f32", "f64", "i32", "i64", "f8e4m3")
FLOATS = ("f16", "bf16", "f32", "f64")
# As einsum has them; dims in capitals have few indices.
FORMS = (
    "k,kn->n", "k,nk->n", "nk,k->n", "kn,k->n", "1k,kn->1n", "1k,nk->1n", "mk,k1->m1",
    "mk,kn->mn", "mk,nk->mn", "km,kn->mn", "Bmk,kn->Bmn", "Bmk,Bkn->Bmn",
    "bk,bk->b", "k,k->", "Bk,Bkn->Bn", "Bmk,Bk->Bm", "Bk,Bnk->Bn",
    "B1k,Bkn->B1n", "B1k,kn->B1n", "Bmk,Bk1->Bm1", "Bmk,k->Bm", "BCk,BCnk->BCn", "BCk,BCkn->BCn",
    "CBk,Ckn->BCn", "Kl,Kln->n", "Kl,lKn->n", "mKl,Kl->m", "km,km->m", "k,kBn->Bn", "Bmk,Bmk->Bm",
)  # fmt: skip


def relu(y: Any, _: Any) -> Any:
    return nn.relu(y)


def part(y: Any, _: Any) -> Any:
    return y[..., 1:-2] if y.shape and y.shape[-1] > 4 else y


def counted(y: Any, _: Any) -> Any:
    return y + xp.astype(xp.arange(y.shape[-1]), y.dtype) if y.shape else y


def masked(y: Any, _: Any) -> Any:
    return xp.where(xp.arange(y.shape[-1]) % 3 == 0, y, y + y) if y.shape else y


def less_its_largest(y: Any, _: Any) -> Any:
    return y - xp.max(y, axis=-1, keepdims=True) if y.shape else y


AFTER: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda y, e: y, "relu": relu, "a sum": lambda y, e: y + e, "a part": part,
    "positions": counted, "a mask": masked, "its largest": less_its_largest,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A program of products."""

    name: str
    fn: Callable[..., Any]
    specs: tuple[axe.Spec, ...]


def lying(rng: random.Random, shape: tuple[int, ...]) -> axe.Layout | None:
    """Dense, or any order of dims, perhaps padded and further on."""
    way = rng.random()
    if way < 0.4 or not shape:
        return None
    order, strides, step = list(range(len(shape))), dict[int, int](), 1
    if way < 0.8:
        rng.shuffle(order)
    pad = rng.choice((0, 0, 0, 1, 8))
    for d in reversed(order):
        strides[d] = step
        step = step * shape[d] + (pad if d == order[-1] else 0)
    iters = [(e, strides[d]) for d, e in enumerate(shape)]
    return axe.Layout(iters, offset={"m": rng.choice((0, 0, 0, 3, 8))})


def case(rng: random.Random) -> Case:
    while True:
        form = rng.choice(FORMS)
        size = {x: rng.choice(FEW if x.isupper() else EXTENTS) for x in form} | {"1": 1}
        *given, out = form.replace("->", ",").split(",")
        shapes = [tuple(size[x] for x in dims) for dims in (*given, out)]
        if max(map(prod, shapes)) <= MOST:
            break
    dtype = rng.choice(DTYPES)
    other = dtype if rng.random() < 0.9 else rng.choice(FLOATS)
    twice, computed = rng.random() < 0.1, rng.random() < 0.25 and dtype in FLOATS
    after = rng.choice(list(AFTER))
    dtypes = (dtype, other, dtype)
    specs = [
        axe.Spec(s, d, layout=lying(rng, s)) for s, d in zip(shapes, dtypes, strict=True)
    ]  # fmt: skip
    text = form.replace("1", "z") if "1" in form else form

    def fn(x: Any, w: Any, e: Any, *more: Any) -> Any:
        x = xp.exp(x) if computed else x
        y = nn.einsum(text, x, w)
        for v in more:
            y = y * nn.einsum(text, x, v)
        return AFTER[after](y, e)

    if twice:
        specs.append(axe.Spec(shapes[1], other, layout=lying(rng, shapes[1])))
    name = f"{form} of {dtype} and {other}, {computed=}, {twice=}, then {after}"
    return Case(name, fn, tuple(specs))


def matrices(rng: random.Random) -> Case:
    """Products of tensors as they lie: rows of whole 16 bytes, one or two products, cells after."""
    m, n, k = (rng.choice((1, 8, 16, 64, 72, 136, 512, 1000, 4096)) for _ in "mnk")
    n, k = max(n, 8), max(k, 8)
    dtype, after, twice = rng.choice(("f16", "bf16")), rng.choice(list(AFTER)), rng.random() < 0.3
    shapes = (m, k), (k, n), (m, n), (k, n)

    def fn(x: Any, w: Any, e: Any, v: Any) -> Any:
        return AFTER[after](nn.silu(x @ w) * (x @ v) if twice else x @ w, e)

    specs = tuple(axe.Spec(s, dtype) for s in shapes)
    return Case(f"{m} x {n} x {k} of {dtype}, {twice=}, then {after}", fn, specs)


def attention(rng: random.Random) -> Case:
    """Scores of any width, with a mask, a bias or nothing; heads that share keys."""
    heads, groups = rng.choice((1, 2, 3)), rng.choice((1, 1, 2))
    t, s = (rng.choice((2, 17, 64, 100, 333, 1024)) for _ in "ts")
    e, w = (rng.choice((16, 17, 40, 64, 96, 128)) for _ in "ew")
    dtype, kind = rng.choice(("f16", "bf16")), rng.choice(("nothing", "causal", "bias"))
    shapes = (heads, groups, t, e), (heads, s, e), (heads, s, w), (t, s)

    def fn(q: Any, k: Any, v: Any, bias: Any) -> Any:
        scores = nn.einsum("hgte,hse->hgts", q, k) * 0.125
        if kind == "bias":
            scores = scores + bias
        if kind == "causal":
            kept = xp.expand_dims(xp.arange(t), axis=1) >= xp.arange(s)
            scores = xp.where(kept, scores, -xp.inf)
        return nn.einsum("hgts,hse->hgte", nn.softmax(scores, axis=-1), v)

    specs = tuple(axe.Spec(x, dtype) for x in shapes)
    return Case(f"attention of {dtype}, {kind}", fn, specs)


ON_LANES: dict[str, Callable[[Any], Any]] = {
    "softmax": nn.softmax, "gelu": nn.gelu, "layernorm": nn.layernorm,
    "columns": lambda x: xp.sum(x, axis=0), "a scan": lambda x: xp.cumulative_sum(x, axis=-1),
    "a turn": xp.matrix_transpose,
}  # fmt: skip


def on_lanes(rng: random.Random) -> Case:
    shape = tuple(rng.choice((1, 3, 8, 17, 100, 333, 1024)) for _ in range(rng.randint(2, 3)))
    name, dtype = rng.choice(list(ON_LANES)), rng.choice(FLOATS)
    return Case(f"{name} of {dtype}", ON_LANES[name], (axe.Spec(shape, dtype),))


KINDS = case, matrices, attention, case, on_lanes  # in turn


@dataclass(frozen=True)
class Emitted:
    """A kernel as it is: its kind of schedule, instructions of products, parameters, and tiles."""

    schedule: str
    rows: frozenset[str]
    parameters: dict[str, Any]
    tiles: Any


def emitted(step: Any, graph: Any) -> Emitted:
    kernel = lower(step, graph, h200).kernel
    choices = plan(kernel, h200).choices.items()
    products = [(p, c.plan.row.name) for p, c in choices if isinstance(p, ir.Gemm)]
    rows = frozenset(name for _, name in products)
    warps = kernel.n_warps
    if not products:
        held: dict[str, Any] = {"map_warps": warps, "sweep_warps": warps}
        if (threads := step.parameters.get("row_threads", 0)) <= LEAST_ROW_THREADS:
            assert kernel.n_threads == LEAST_ROW_THREADS or not threads
        else:
            held["row_threads"] = kernel.n_threads
        return Emitted("lanes", rows, held, kernel.tiles)
    shapes = {b.name: b.shape for b in kernel.buffers}
    accs = [p.acc.shape for p, _ in products]

    def of(end: str) -> list[Any]:
        return [shape for name, shape in shapes.items() if name.endswith(end)]

    if of("_shared"):
        m, n = accs[0]
        (depth,) = {shape[2] for shape in of("_shared")}
        held = {"m": m, "n": n, "k": depth, "warps": warps}
        return Emitted("register_products", rows, held, kernel.tiles)
    consumers = warps // 4 - 1 or 1
    held = {"consumers": consumers}
    if slots := {shape[1] for shape in of("_staging")}:
        (held["staging"],) = slots
    if "weights" in shapes:
        (_, s), (_, q) = shapes["scores"], shapes["mixed"]
        held |= {"s": s, "q": q, "stages": max(shape[0] for shape in of("_ring"))}
        return Emitted("streaming", rows, held, kernel.tiles)
    (stages, depth), *others = {(shape[0], shape[2]) for shape in of("_ring")}
    assert not others
    (m, n), (gemm, _) = accs[0], products[0]
    sides = [view.buffer.shape[1] for view in (gemm.a, gemm.b)]
    assert m * n * consumers == prod(sides)
    held |= {
        "across": sides[1] // n,
        "k": depth,
        "stages": stages,
        **dict(zip("mn", sides, strict=True)),
    }
    return Emitted("tensor_cores", rows, held, kernel.tiles)


def check(case: Case, chosen: list[Any]) -> list[str]:
    """The schedules of the case's kernels; `chosen` holds what schedules were given."""
    exe = axe.compile(case.fn, *case.specs, target="h200")
    graph = exe.schedule.graph
    steps = {s.name: s for s in graph.steps}
    for kernel in exe.kernels:
        chosen.clear()
        found = emitted(steps[kernel.name], graph)
        assert found.schedule == ("lanes" if kernel.schedule == "scans" else kernel.schedule)
        assert found.rows == ({kernel.row} if kernel.row else set())
        known = {n: x for n, x in found.parameters.items() if n in kernel.parameters}
        assert known == {name: kernel.parameters[name] for name in known}
        lanes = found.schedule == "lanes"
        tiles = found.tiles * kernel.parameters.get("cluster", 1)  # CTAs share one
        assert tiles <= kernel.costs["blocks"] <= (tiles if lanes else INFINITE)
        for given in chosen:
            wanted = (
                type(given).of(kernel.parameters)
                if kernel.schedule != REGISTERS
                else replace(given, **kernel.parameters)
            )
            assert given == wanted
        assert len(chosen) == (kernel.row != "")
    return [kernel.schedule for kernel in exe.kernels]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tilings that kernels on rows of instructions are written by."""
    given: list[Any] = []
    for module, name in ((contract, "gemm"), (contract, "products"), (lowering, "stream")):
        real = getattr(module, name)

        def noted(problem: Any, tiling: Any, kernel: str, real: Any = real) -> Any:
            given.append(tiling)
            return real(problem, tiling, kernel)

        monkeypatch.setattr(module, name, noted)
    return given


def test_what_is_priced_is_what_is_emitted(full: bool, chosen: list[Any]) -> None:
    rng, met = random.Random("products"), Counter[str]()
    for number in range(CASES if full else SAMPLE):
        made = KINDS[number % len(KINDS)](rng)
        try:
            met.update(check(made, chosen))
        except Exception as error:
            error.add_note(f"case {number}: {made.name} of {made.specs}")
            raise
    print(f"\npriced as emitted: {dict(met)}")
    assert {"lanes", "register_products", "streaming", "tensor_cores"} <= set(met)
    assert not full or "scans" in met


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [(), (1,), (3, 1)])
def test_a_vector_and_a_matrix_are_priced_as_emitted(
    rows: tuple[int, ...], turned: bool, dtype: str, chosen: list[Any]
) -> None:
    """One token through a layer, with the matrix as it lies and by columns."""
    w = axe.Layout([(1024, 1), (768, 1024)]) if turned else None

    def layer(x: Any, w: Any, b: Any) -> Any:
        return nn.relu(x @ w + b)

    specs = (axe.Spec((*rows, 1024), dtype), axe.Spec((1024, 768), dtype, layout=w))
    check(Case("a layer", layer, (*specs, axe.Spec((768,), dtype))), chosen)
