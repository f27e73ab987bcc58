"""Programs of every schedule at small odd extents, and every candidate of their kernels."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import axe_eq as axe
from axe_eq import nn
from axe_eq.extract.price.pricer import Price
from axe_eq.extract.search.commit import as_priced
from axe_eq.extract.search.merge import stored
from axe_eq.program.node import Program
from axe_eq.run.timing import alone
from axe_eq.schedule.graph import KernelStep, ScheduleGraph

xp = axe.array
Fn = Callable[..., Any]


def _attend(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(q @ k.mT * 0.125) @ v


def _causal(q: Any, k: Any, v: Any) -> Any:
    at = xp.arange(q.shape[-2])
    scores = xp.where(at[:, None] >= at[None, :], q @ k.mT * 0.125, -xp.inf)
    return nn.softmax(scores) @ v


def _normed(x: Any, r: Any, w: Any) -> Any:
    h = x + r
    return nn.rmsnorm(h) * w, h


def _rope(x: Any, c: Any, s: Any) -> Any:
    half = x.shape[-1] // 2
    return x * c + xp.concat([-x[..., half:], x[..., :half]], axis=-1) * s


PROGRAMS: dict[str, tuple[Fn, tuple[str, ...]]] = {
    # products on tensor cores
    "product": (lambda x, w: x @ w.T, ("391x520:f16", "1352x520:f16")),
    "product of columns": (lambda x, w: x.T @ w, ("264x392:bf16", "264x648:bf16")),
    "few rows": (lambda x, w: x @ w, ("5x1032:f16", "1032x520:f16")),
    "deep product": (lambda x, w: x @ w.T, ("72x8200:f16", "136x8200:f16")),
    "odd product": (lambda x, w: x @ w, ("203x331:f16", "331x157:f16")),
    "batched product": (lambda x, w: x @ w, ("3x65x72:bf16", "3x72x88:bf16")),
    "gelu": (lambda x, w, b: nn.gelu(x @ w + b), ("520x264:f16", "264x1000:f16", "1000:f16")),
    "gated": (lambda x, w, v: nn.silu(x @ w) * (x @ v), ("136x200:f16", *["200x264:f16"] * 2)),
    "residual": (lambda x, w, r: x @ w + r, ("200x136:f16", "136x392:f16", "200x392:f16")),
    # through registers
    "f32 product": (lambda x, w: x @ w, ("131x203:f32", "203x77:f32")),
    "f64 product": (lambda x, w: x @ w, ("131x203:f64", "203x77:f64")),
    "normed product": (lambda x, w: nn.rmsnorm(x) @ w, ("69x129:f16", "129x67:f16")),
    "attention": (_attend, ("3x131x72:f16",) * 3),
    "causal attention": (_causal, ("2x203x64:f16",) * 3),
    "odd attention": (_attend, ("2x67x33:f16",) * 3),
    # rows, columns and other sums
    "softmax": (nn.softmax, ("37x1003:f16",)),
    "long layernorm": (nn.layernorm, ("5x50257:f16",)),
    "two results": (_normed, ("19x1544:f16", "19x1544:f16", "1544:f16")),
    "odd two results": (_normed, ("19x2059:f16", "19x2059:f16", "2059:f16")),
    "many short rows": (lambda x: xp.max(x * 2 + 1, axis=-1), ("1003x17:f32",)),
    "sums of columns": (lambda x: xp.sum(x, axis=0), ("1517x131:f16",)),
    "variances": (lambda x: xp.var(x, axis=0), ("517x133:f32",)),
    "middle sums": (lambda x: xp.mean(x, axis=1), ("9x67x35:f32",)),
    "sum of all": (lambda x: xp.sum(x), ("333x1001:f16",)),
    "positions": (lambda x: xp.argmax(x, axis=-1), ("33x517:f32",)),
    # scans
    "running sums": (lambda x: xp.cumulative_sum(x, axis=-1), ("7x5003:f32",)),
    "running sums of columns": (lambda x: xp.cumulative_sum(x, axis=0), ("1003x37:f16",)),
    # cells and moves
    "gelu of odd rows": (lambda x, b: nn.gelu(x + b), ("64x5003:f16", "5003:f16")),
    "odd rows of f32": (lambda x, b: x * 2 + b, ("16x1551:f32", "1551:f32")),
    "turned": (lambda x: x.T, ("203x331:f16",)),
    "turned blocks": (lambda x: xp.permute_dims(x, (0, 2, 1)) + 1, ("3x72x136:f16",)),
    "rope": (_rope, ("3x65x128:f16", "65x128:f16", "65x128:f16")),
    "joined": (lambda x, y: xp.concat([x, y[:, 3:]], axis=-1), ("67x331:f16", "67x130:f16")),
    "padded": (lambda x: xp.pad(xp.roll(x, 5, axis=1), ((1, 2), (3, 0))), ("67x331:f32",)),
    # reads where integers say
    "rows by number": (lambda t, i: xp.take(t, i, axis=0), ("333x1000:f16", "77:i32")),
    "odd rows by number": (lambda t, i: xp.take(t, i, axis=0), ("333x331:f16", "77:i64")),
    "product of rows": (lambda t, i, w: xp.take(t, i, axis=0) @ w,
                        ("333x72:f16", "77:i32", "72x136:f16")),
    "along": (lambda x, i: xp.take_along_axis(x, i, axis=1), ("67x331:f32", "67x45:i32")),
}  # fmt: skip


@dataclass(frozen=True)
class Offered:
    """A kernel of a program with every candidate, what was chosen first and then by price.

    Attributes:
        exe: the program.
        step, graph: the kernel as chosen, and the graph that it is in.
        prices: of the candidates.
    """

    exe: Any

    step: KernelStep
    graph: ScheduleGraph
    prices: list[Price]

    def made(self, price: Price, name: str = "") -> tuple[KernelStep, ScheduleGraph]:
        """The kernel by a candidate, in a graph of its own; with another name where one is given.

        So what it reads and writes are arguments, each in memory of its own.
        """
        step = replace(as_priced(self.step, price), name=name or self.step.name, rejected={})
        return step, alone(self.graph, step)


def offers(fn: Fn | Program, specs: Sequence[Any] = (), target: Any = "h200") -> Iterator[Offered]:
    """The kernels of a program.

    Raises:
        AxeError: it does not compile.
    """
    with axe.debug(cache=0):
        exe = axe.compile(fn, *specs, target=target)
    found, graph = exe._searched, exe.schedule.graph
    for step, group in zip(graph.kernels, found.groups, strict=True):
        layouts = stored(found.forest, group)
        yield Offered(exe, step, graph, found.prices.offered(group.roots, group.picks, layouts))


def covering(prices: Sequence[Price], seed: int = 0, most: int | None = None) -> list[Price]:
    """What was chosen, and candidates that have every value of every parameter of any of them.

    Args:
        prices: the choice, then all others.
        seed: which of them are taken.
        most: so many at most.
    """
    choice, *others = prices
    random.Random(seed).shuffle(others)
    taken, seen = list[Price](), set[object]()
    for price in (choice, *others):
        marks = {(price.schedule, price.row, *p) for p in price.parameters}
        if price is choice or not marks <= seen:
            taken.append(price)
            seen |= marks
    return taken[:most]
