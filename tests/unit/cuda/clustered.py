"""Kernels of clusters for tests: a copy whose tiles are multicast, with room for mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from axe_eq.kernel.dispatch import dispatch
from axe_eq.kernel.expr import Int, equal
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.ir import span
from axe_eq.layout import Layout
from axe_eq_backends.cuda.families import derivations
from axe_eq_backends.cuda.target import h200

ROWS, COLS, TILES = 32, 64, 5
EXTENT = TILES * ROWS - 3  # the last tile has a tail
HELD = Layout([(4, 1, "warp"), (2, 8, "reg"), (4, 8, "lane"), (8, 1, "lane"), (8, 1, "reg")])
RACES = "before the (read|write) by"  # what faults of the interpreter say of them
To = Callable[[ThreadBuilder], Sequence[Int]]


def everyone(k: ThreadBuilder) -> Sequence[Int]:
    """All CTAs of the cluster."""
    return range(k.kernel.cluster)


def own_rank(k: ThreadBuilder) -> Int:
    """The number of the CTA itself."""
    return k.rank


def _ring(k: ThreadBuilder, stages: int) -> ir.Buffer:
    strides = f"({ROWS * COLS},{COLS},1)"
    layout = f"sw(3,3,3)@m . S[({stages},{ROWS},{COLS}):{strides}]"
    return k.smem("ring", "f16", (stages, ROWS, COLS), layout)


def _tensors(k: ThreadBuilder) -> tuple[ir.Buffer, ir.Buffer, ir.Buffer]:
    x = k.tensor("x", "f16", (EXTENT, COLS))
    y = k.tensor("y", "f16", (k.kernel.cluster, EXTENT, COLS), output=True)
    return x, y, k.reg("t", "f16", (ROWS, COLS), HELD)


def spread(
    cluster: int = 2,
    stages: int = 2,
    *,
    send: To = everyone,
    release: To = everyone,
    source: Callable[[ThreadBuilder], Int] = own_rank,
    target: Callable[[ThreadBuilder], Int] = own_rank,
    frees: bool = True,
    end: bool = True,
) -> ir.Kernel:
    """Every CTA of a cluster writes all of x, of which each one loads its part for all.

    Args:
        cluster: CTAs of one.
        stages: slots of the ring.
        send: to which CTAs a part goes.
        release: whose slots are released.
        source: which part of a tile a CTA loads.
        target: where in the slot it goes.
        frees: wait for free slots.
        end: end together.
    """
    k = ThreadBuilder("spread", 4, cluster)
    x, y, t = _tensors(k)
    ring, full, empty = _ring(k, stages), k.mbarriers("full", stages), k.mbarriers("empty", stages)
    pipe, feed = k.pipe(stages), k.pipe(stages, parity=1)
    part = ROWS // cluster
    with k.tiles(TILES) as tile:
        with k.one_thread():
            if frees:
                k.wait(empty, feed.stage, feed.parity)
            with k.arrives(full, feed.stage):
                to = ring[feed.stage, span(target(k) * part, part)]
                of = x[span(tile * ROWS + source(k) * part, part), 0:COLS]
                k.copy_async(to, of, ranks=send(k))
        feed.advance()
        k.wait(full, pipe.stage, pipe.parity)
        k.copy(t.all, ring[pipe.stage])
        k.sync()
        with k.one_thread():
            k.arrive(empty, pipe.stage, ranks=release(k))
        pipe.advance()
        k.copy(y[k.rank, span(tile * ROWS, ROWS)], t.all)
    if end:
        k.cluster_sync()
    return k.finish()


def in_step(
    cluster: int = 2, *, arrive: str = "after", wait: bool = True, sender: int = 0
) -> ir.Kernel:
    """The same by one sender, whose copies wait for the barrier of the cluster.

    Args:
        cluster: CTAs of one.
        arrive: "before" or "after" the slot is read; "" for no barrier.
        wait: wait for the bytes.
        sender: which CTA loads whole tiles for all.
    """
    k = ThreadBuilder("in_step", 4, cluster)
    x, y, t = _tensors(k)
    ring, full = _ring(k, 1), k.mbarriers("full", 1)
    turn = k.pipe(1)
    with k.tiles(TILES) as tile:
        with k.one_thread(), k.arrives(full, 0), k.when(equal(k.rank, sender)):
            k.copy_async(ring[0], x[span(tile * ROWS, ROWS), 0:COLS], ranks=range(cluster))
        if wait:
            k.wait(full, 0, turn.parity)
        turn.advance()
        if arrive == "before":
            k.cluster_arrive()
        k.copy(t.all, ring[0])
        if arrive == "after":
            k.cluster_arrive()
        k.copy(y[k.rank, span(tile * ROWS, ROWS)], t.all)
        if arrive:
            k.cluster_wait()
    k.cluster_sync()
    return k.finish()


def arrays(cluster: int = 2, seed: int = 0) -> dict[str, Any]:
    """Random x, and a place for y."""
    x = np.random.default_rng(seed).standard_normal((EXTENT, COLS)).astype(np.float16)
    return {"x": x, "y": np.zeros((cluster, EXTENT, COLS), np.float16)}


def levels(kernel: ir.Kernel) -> Iterator[Planned | None]:
    """Primitive level, plan level."""
    yield None
    yield dispatch(kernel, h200, derivations())


def changed(kernel: ir.Kernel, change: Callable[[ir.Statement], object]) -> ir.Kernel:
    """The kernel after a change of its statements, with the counts of the right one."""
    for s, _ in list(ir.walk(kernel)):
        change(s)
    return kernel
