"""What is priced is what is emitted: the schedule, the instruction and the tile of every product.

Random sums of products over shapes that are mostly no matrices' (vectors on either side, batches,
ragged extents), element types, layouts, cells before and after: every kernel that extraction chose
must be lowered as the schedule that it was priced as, with its instruction, tile and no more tiles.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.kernel.threads import ir
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200

xp = axe.array
CASES, SAMPLE = 600, 8
EXTENTS = (1, 2, 3, 7, 8, 16, 17, 64, 100, 128, 333, 1000, 1024, 4096)
FEW = (1, 2, 3, 8, 17)
MOST = 1 << 24
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


@dataclass(frozen=True)
class Emitted:
    """A kernel as it is: its kind of schedule, instruction, tile, and number of tiles."""

    schedule: str
    rows: frozenset[str]
    tile: tuple[int, int]
    tiles: int
    note: str


def emitted(step: Any, graph: Any) -> Emitted:
    kernel = lower(step, graph, h200).kernel
    choices = plan(kernel, h200).choices.items()
    products = [(p, c.plan.row.name) for p, c in choices if isinstance(p, ir.Gemm)]
    rows = frozenset(name for _, name in products)
    if not products:
        return Emitted("lanes", rows, (0, 0), 0, kernel.note)
    m, n = products[0][0].acc.shape
    schedule = "register_products"
    if kernel.persistent:  # the last warpgroup copies
        schedule, m = "tensor_cores", m * (kernel.n_warps // 4 - 1)
    assert isinstance(kernel.tiles, int)
    return Emitted(schedule, rows, (m, n), kernel.tiles, kernel.note)


def check(case: Case) -> list[str]:
    """The schedules of the case's kernels."""
    exe = axe.compile(case.fn, *case.specs, target="h200")
    graph = exe.schedule.graph
    steps = {s.name: s for s in graph.steps}
    for kernel in exe.kernels:
        found = emitted(steps[kernel.name], graph)
        assert found.schedule == kernel.schedule
        assert not found.note
        assert found.rows == ({kernel.row} if kernel.row else set())
        if found.schedule == "lanes":
            continue
        assert found.tiles <= kernel.costs["blocks"]
        for letter in {"p", "q"} & set(kernel.loops):
            # A batch is one index; a side is named by what of it is there.
            sizes = {1, *(min(side, kernel.loops[letter]) for side in found.tile)}
            assert kernel.parameters[letter] in sizes
    return [kernel.schedule for kernel in exe.kernels]


def test_what_is_priced_is_what_is_emitted(full: bool) -> None:
    rng, met = random.Random("products"), Counter[str]()
    for number in range(CASES if full else SAMPLE):
        made = case(rng)
        try:
            met.update(check(made))
        except Exception as error:
            error.add_note(f"case {number}: {made.name} of {made.specs}")
            raise
    print(f"\npriced as emitted: {dict(met)}")
    assert {"lanes", "register_products"} <= set(met)
    assert not full or "tensor_cores" in met


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [(), (1,), (3, 1)])
def test_a_vector_and_a_matrix_are_priced_as_emitted(
    rows: tuple[int, ...], turned: bool, dtype: str
) -> None:
    """One token through a layer, with the matrix as it lies and by columns."""
    w = axe.Layout([(1024, 1), (768, 1024)]) if turned else None

    def layer(x: Any, w: Any, b: Any) -> Any:
        return nn.relu(x @ w + b)

    specs = (axe.Spec((*rows, 1024), dtype), axe.Spec((1024, 768), dtype, layout=w))
    check(Case("a layer", layer, (*specs, axe.Spec((768,), dtype))))
