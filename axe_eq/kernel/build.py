"""Writing kernels: `Builder` records statements, checks them where they stand, derives the rest.

Derived when the kernel is finished: shared-memory offsets, arrival counts of barriers, register
budgets of roles, bytes that a barrier expects. Errors name the user's line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import gcd
from typing import Any

from axe_eq.kernel import exchange, given, ir
from axe_eq.kernel.cells import Cell, renumber, used
from axe_eq.kernel.counts import arrivals, reached
from axe_eq.kernel.derive import budget, lay_out
from axe_eq.kernel.expr import (
    Expr,
    Int,
    Var,
    bounds,
    depends,
    divisor,
    equal,
    substitute,
    var,
)  # fmt: skip
from axe_eq.kernel.given import integer, refuse, whole
from axe_eq.kernel.parts import Parts
from axe_eq.kernel.placement import (
    LANES,
    Placement,
    number,
    of_layout,
    packed,
    projected,
    row_major,
    strided,
)  # fmt: skip
from axe_eq.kernel.userline import user_line
from axe_eq.layout import Layout

# Kinds of groups of asynchronous operations.
COMMITTED = ("bulk", "cp_async")
DEEPEST = 100  # statements inside one another, which are walked by recursion
WAITED = ("wgmma", "cp_async", "bulk", "bulk_read")


def _listed(ranks: Sequence[Int]) -> str:
    return ", ".join(map(str, ranks))


class Pipe:
    """Stage number and parity of a ring of barrier slots.

    A consumer's ring starts at parity 0; a producer's at 1: "all slots were freed before".
    """

    def __init__(self, k: Builder, stages: int, parity: int) -> None:
        self._k, self.stages = k, whole("pipe", "stages", stages, 1)
        self.stage = k.state("stage", 0, high=stages)
        self.parity = k.state("parity", parity, high=1)

    def advance(self) -> None:
        """Go to the next slot; the parity flips where the ring wraps."""
        k = self._k
        k.assign(self.stage, self.stage + 1)
        with k.when(equal(self.stage, self.stages)):
            k.assign(self.stage, 0)
            k.assign(self.parity, self.parity ^ 1)


class Builder:
    """Records one kernel.

    Args:
        name: the kernel's name.
        warps: warps of one CTA.
        cluster: CTAs of one cluster.
    """

    def __init__(self, name: str, warps: int, cluster: int = 1) -> None:
        thing = f"kernel {given.name('kernel', name)}"
        if not 1 <= whole(thing, "warps", warps) <= LANES:
            raise refuse(thing, f"{warps} warps", f"1 to {LANES}")
        if whole(thing, "cluster", cluster) < 1:
            raise refuse(thing, f"a cluster of {cluster} CTAs", "at least 1")
        self.kernel = ir.Kernel(name, warps, cluster=cluster)
        self._bodies: list[ir.Body] = [self.kernel.body]
        self._scopes = ["cta"]
        self._names = {ir.RANK: 1} if cluster > 1 else {}  # how often each was taken
        self._parts = Parts(self.kernel.outputs)
        self._lets: dict[str, Int] = {}
        self._expect: ir.Expect | None = None
        self._conditions: list[Int] = []

    @property
    def rank(self) -> Int:
        """The CTA's number in its cluster; 0 where a cluster is one CTA."""
        n = self.kernel.cluster
        return var(ir.RANK, high=n - 1) if n > 1 else 0

    # -- declarations --

    def _fresh(self, name: str) -> str:
        count = self._names.get(given.name("a part of a kernel", name), 0)
        while (found := f"{name}_{count}" if count else name) in self._names and count:
            count += 1
        self._names[name] = count + 1
        self._names.setdefault(found, 1)
        return found

    def param(self, name: str, divisor: int = 1, high: int | None = None) -> Var:
        """A run-time integer argument, at least 1, that `divisor` divides (checked at launch)."""
        divisor = whole(f"param {name}", "divisor", divisor, 1)
        if high is not None:
            high = whole(f"param {name}", "high", high, divisor)
        value = var(self._fresh(name), divisor, low=divisor, high=high)
        self.kernel.params.append(value)
        return value

    def tensor(
        self,
        name: str,
        dtype: str,
        shape: Sequence[Int],
        *,
        strides: Sequence[Int] | None = None,
        layout: Layout | Placement | str | None = None,
        output: bool = False,
    ) -> ir.Buffer:
        """A global tensor argument, row-major unless strides (elements) or a layout are given."""
        thing = f"tensor {name}"
        extents = given.shape(thing, shape)
        if strides is not None:
            steps = given.integers(thing, "strides", strides)
            if len(steps) != len(extents):
                raise refuse(thing, f"{len(steps)} strides for {len(extents)} dims", "one each")
            place = strided(extents, steps)
        else:
            place = row_major(extents) if layout is None else self._placed(layout, extents, thing)
        given.place(thing, place, ("m",), at_zero=False)
        buffer = self._buffer(thing, name, "gmem", dtype, extents, place)
        self.kernel.tensors.append(buffer)
        if output:
            self.kernel.outputs.append(buffer.name)
        return buffer

    def smem(
        self, name: str, dtype: str, shape: Sequence[int], layout: Layout | str | None = None
    ) -> ir.Buffer:
        """A piece of the CTA's shared memory, row-major unless `layout` says otherwise."""
        thing = f"smem {name}"
        extents = given.shape(thing, shape)
        place = row_major(extents) if layout is None else self._placed(layout, extents, thing)
        given.place(thing, place, ("m",), at_zero=True)
        buffer = self._buffer(thing, name, "smem", dtype, extents, place)
        self.kernel.buffers.append(buffer)
        return buffer

    def reg(
        self,
        name: str,
        dtype: str,
        shape: Sequence[int],
        layout: Layout | str | Placement,
    ) -> ir.Buffer:
        """A register tile of the issuing scope's threads."""
        thing = f"registers {name}"
        extents = given.shape(thing, shape)
        place = self._placed(layout, extents, thing)
        given.place(thing, place, ("warp", "lane", "reg"), at_zero=True)
        if place.shape != extents:
            raise refuse(thing, f"layout of shape {place.shape}", f"{extents}")
        given.on_threads(thing, place, self._n_warps)
        buffer = self._buffer(thing, name, "reg", dtype, extents, place)
        self.kernel.buffers.append(buffer)
        return buffer

    @property
    def _n_warps(self) -> int:
        """Warps that issue a statement here, at most."""
        inside = "warpgroup" in self._scopes
        return ir.WARPS_PER_GROUP if inside else self.kernel.n_warps

    def reg_like(self, name: str, dtype: str, view: ir.View) -> ir.Buffer:
        """A register tile on the same threads as the register view, registers numbered densely."""
        tile = self._parts.view(f"registers {name}", view)
        return self.reg(name, dtype, tile.shape, packed(tile.place))

    def reg_reduced(self, name: str, dtype: str, view: ir.View, dims: Sequence[int]) -> ir.Buffer:
        """A register tile for values of `view` reduced over `dims`; other threads hold copies."""
        rank = len(self._parts.view(f"registers {name}", view).shape)
        gone = given.dims(f"registers {name}", dims, rank)
        place = projected(view.place, [d for d in range(rank) if d not in gone])
        return self.reg(name, dtype, [number(e) for e in place.shape], place)

    def _placed(
        self, layout: Layout | Placement | str, shape: Sequence[Int], thing: str
    ) -> Placement:
        if isinstance(layout, Placement):
            return layout
        if not isinstance(layout, Layout | str):
            raise refuse(thing, f"layout {layout!r}", "a Layout or its text")
        with given.at_user_line():
            parsed = Layout.parse(layout) if isinstance(layout, str) else layout
            return of_layout(parsed, [number(e) for e in shape], thing)

    def _buffer(
        self,
        thing: str,
        name: str,
        memory: str,
        dtype: str,
        shape: tuple[Int, ...],
        place: Placement,
    ) -> ir.Buffer:
        kind = given.dtype(thing, dtype)
        if len(place.blocks) != len(shape):
            raise refuse(thing, f"layout of {len(place.blocks)} dims", f"{len(shape)}")
        buffer = ir.Buffer(self._fresh(name), memory, kind, shape, place)
        self._parts.add(buffer)
        return buffer

    def mbarriers(self, name: str, slots: int) -> ir.MBarrier:
        """An array of barriers; arrival counts are derived."""
        if whole(f"barrier {name}", "slots", slots) < 1:
            raise refuse(f"barrier {name}", f"{slots} slots", "at least 1")
        barrier = ir.MBarrier(self._fresh(name), slots)
        self._parts.add(barrier)
        self.kernel.barriers.append(barrier)
        return barrier

    def state(self, name: str, value: Int, low: int | None = 0, high: int | None = None) -> Var:
        """A mutable run-time integer; the interpreter checks that it stays within its bounds."""
        thing = f"state {name}"
        v = var(self._fresh(name), 1, *given.promised(thing, low, high))
        self._parts.add(v)
        self._add(ir.Let(v, self._parts.held(v, value)))
        return v

    def let(self, name: str, value: Int, low: int | None = None, high: int | None = None) -> Int:
        """Name a value; what is proven about it stays known.

        Args:
            name: in texts.
            value: what it is.
            low: the least that it is where the author knows more than is proven; the interpreter
                checks it.
            high: the most.
        """
        value = integer(f"let {name}", "value", value)
        if not isinstance(value, Expr) or isinstance(value, Var):
            return value
        (least, most), promised = bounds(value), given.promised(f"let {name}", low, high)
        least = max((b for b in (least, promised[0]) if b is not None), default=None)
        most = min((b for b in (most, promised[1]) if b is not None), default=None)
        v = var(self._fresh(name), max(divisor(value), 1), least, most)
        self._add(ir.Let(v, value))
        self._lets[v.name] = value
        return v

    def assign(self, state: Var, value: Int) -> None:
        """Change a state."""
        self._add(ir.Assign(state, self._parts.held(state, value)))

    def pipe(self, stages: int, parity: int = 0) -> Pipe:
        """A ring's stage and parity; a producer's starts with parity 1."""
        return Pipe(self, stages, parity)

    # -- control --

    def _add(self, statement: ir.Statement) -> None:
        statement.at = user_line()
        if self._scopes[-1] == "roles":  # nobody would run it
            what = type(statement).__name__.lower()
            raise refuse("roles", f"{what} beside k.warpgroups", "statements inside k.warpgroups")
        self._bodies[-1].append(statement)

    @contextmanager
    def _inside(self, body: ir.Body, scope: str | None = None) -> Iterator[None]:
        if len(self._bodies) > DEEPEST:
            raise refuse("kernel", f"statements of {DEEPEST} levels", "fewer inside one another")
        self._bodies.append(body)
        self._scopes.append(scope or self._scopes[-1])
        try:
            yield
        finally:
            self._bodies.pop()
            self._scopes.pop()

    @contextmanager
    def range(self, stop: Int, start: Int = 0, step: Int = 1, name: str = "i") -> Iterator[Var]:
        """Loop over a range, upwards; ``with k.range(n) as i:``."""
        start, stop = integer("range", "start", start), integer("range", "stop", stop)
        least = bounds(integer("range", "step", step))[0]
        if least is None or least < 1:
            raise refuse("range", f"step {step}", "a step that is proven to be at least 1")
        low, high = bounds(start)[0], bounds(stop - 1)[1]
        v = var(self._fresh(name), max(divisor(start) and _common(start, step), 1), low, high)
        loop = ir.For(v, start, stop, step)
        self._add(loop)
        with self._inside(loop.body):
            yield v

    @contextmanager
    def tiles(self, count: Int, persistent: bool = True) -> Iterator[Var]:
        """Loop over this cluster's share of `count` units of work; its CTAs share each of them.

        Raises:
            ScheduleError: another loop over tiles has another count.
        """
        total = integer("tiles", "count", count)
        while depends(total, frozenset(self._lets)):
            total = substitute(total, self._lets)
        most = bounds(total)[1]
        if most is not None and most < 1:
            raise refuse("tiles", f"count {total}", "at least 1")
        if self.kernel.tiles not in (1, total):
            raise refuse("tiles", f"{total} after {self.kernel.tiles}", "one grid per kernel")
        self.kernel.tiles, self.kernel.persistent = total, persistent
        n = self.kernel.cluster
        grid = var(ir.N_CTAS.name, n, low=n)  # whole clusters
        with self.range(count, ir.CTA // n, grid // n, "tile") as tile:
            yield tile

    @contextmanager
    def when(self, condition: Int) -> Iterator[None]:
        """The body, where the run-time condition holds."""
        branch = ir.If(condition := given.condition("when", condition))
        self._add(branch)
        self._conditions.append(condition)
        try:
            with self._inside(branch.body):
                yield
        finally:
            self._conditions.pop()

    @contextmanager
    def roles(self) -> Iterator[None]:
        """Exclusive branches; inside, `warpgroups` opens one each."""
        if self._scopes[-1] != "cta":
            raise refuse("roles", f"inside scope {self._scopes[-1]}", "at the top of a kernel")
        node = ir.Roles()
        self._add(node)
        with self._inside([], "roles"):  # `_add` lets nothing into it
            self._roles = node
            yield
        covered = sorted((r.low, r.high) for r in node.branches)
        ends = [0, *(high for _, high in covered)]
        if ends[:-1] != [low for low, _ in covered] or 4 * ends[-1] != self.kernel.n_warps:
            raise refuse(
                "roles", f"warpgroups {covered}", f"each of {self.kernel.n_warps // 4} once"
            )

    @contextmanager
    def warpgroups(self, low: int, high: int) -> Iterator[Var]:
        """The role of warpgroups low .. high-1; yields the warpgroup's number."""
        if self._scopes[-1] != "roles":
            raise refuse("warpgroups", f"inside scope {self._scopes[-1]}", "k.roles()")
        low, high = whole("warpgroups", "low", low, 0), whole("warpgroups", "high", high, low + 1)
        role = ir.Role(low, high, var(self._fresh("wg"), 1, low, high - 1), at=user_line())
        self._roles.branches.append(role)
        with self._inside(role.body, "warpgroup"):
            yield role.var

    @contextmanager
    def _scope(self, kind: str) -> Iterator[None]:
        if self._scopes[-1] not in ("cta", "warpgroup"):
            raise refuse(f"scope {kind}", f"inside scope {self._scopes[-1]}", "cta or warpgroup")
        node = ir.Scope(kind)
        self._add(node)
        with self._inside(node.body, kind):
            yield

    def one_thread(self) -> Any:
        """One elected thread of the scope runs the body."""
        return self._scope("elect")

    @contextmanager
    def each_thread(self) -> Iterator[Var]:
        """Every thread runs the body for itself; yields its number in the CTA."""
        with self._scope("thread"):
            yield var(ir.THREAD.name, high=self.kernel.n_threads - 1)

    @contextmanager
    def each_warp(self) -> Iterator[Var]:
        """Every warp runs the body for itself; yields its number in the scope."""
        with self._scope("warp"):
            yield var(ir.WARP.name, high=self.kernel.n_warps - 1)

    # -- synchronisation --

    def wait(self, barrier: ir.MBarrier, slot: Int, parity: Int) -> None:
        """Wait until the phase of this parity of a slot has completed."""
        barrier, slot = self._parts.barrier("wait", barrier, slot)
        parity = integer(f"wait for {barrier}", "parity", parity)
        if isinstance(parity, int) and parity not in (0, 1):
            raise refuse(f"wait for {barrier}", f"parity {parity}", "0 or 1")
        self._add(ir.Wait(barrier, slot, parity))

    def arrive(self, barrier: ir.MBarrier, slot: Int, ranks: Sequence[Int] = ()) -> None:
        """Arrive at a slot; every issuing thread does.

        Args:
            barrier: where.
            slot: which of its slots.
            ranks: the CTAs of the cluster at whose barriers; by default at the own.
        """
        barrier, slot = self._parts.barrier("arrive", barrier, slot)
        n, named, at = self.kernel.cluster, f"arrive at {barrier}", user_line()
        ranks = given.integers(named, "ranks", ranks)
        landings = reached(ranks, n, named, self._conditions, at) if ranks else 1
        self._add(ir.Arrive(barrier, slot, ranks, landings))

    @contextmanager
    def arrives(self, barrier: ir.MBarrier, slot: Int) -> Iterator[None]:
        """Async copies inside complete on the slot; the bytes are derived, one arrival is made."""
        if self._expect is not None or self._scopes[-1] != "elect":
            raise refuse("arrives", f"inside scope {self._scopes[-1]}", "k.one_thread()")
        barrier, slot = self._parts.barrier("arrives", barrier, slot)
        expect = ir.Expect(barrier, slot)
        self._add(expect)
        self._expect, outer, self._conditions = expect, self._conditions, []
        try:
            yield
        finally:
            self._expect, self._conditions = None, outer

    def sync(self) -> None:
        """Barrier of the scope's threads."""
        if self._scopes[-1] in ("elect", "thread"):
            raise refuse("sync", f"inside scope {self._scopes[-1]}: deadlock", "a wider scope")
        self._add(ir.Sync())

    def cluster_arrive(self) -> None:
        """All threads of the CTA arrive at the barrier of their cluster."""
        self._add(ir.ClusterArrive())

    def cluster_wait(self) -> None:
        """Wait until all threads of the cluster have arrived."""
        self._add(ir.ClusterWait())

    def cluster_sync(self) -> None:
        """Barrier of all threads of the cluster."""
        self.cluster_arrive()
        self.cluster_wait()

    def fence_async(self) -> None:
        """Show earlier ordinary shared-memory accesses to the async proxy."""
        self._add(ir.FenceAsync())

    def commit(self, kind: str = "bulk") -> None:
        """Close the group of async copies, of kind "bulk" or "cp_async"."""
        if kind not in COMMITTED:
            raise refuse("commit", f"kind {kind!r}", " or ".join(COMMITTED))
        self._add(ir.Commit(kind))

    def wait_group(self, kind: str, pending: int) -> None:
        """Wait until at most `pending` groups of `kind` are open."""
        if kind not in WAITED:
            raise refuse("wait_group", f"kind {kind!r}", " ".join(WAITED))
        pending = whole("wait_group", "pending", pending, 0)
        self._add(ir.WaitGroup(kind, pending))

    # -- primitives --

    def _same_shape(self, what: str, to: ir.View, src: ir.View) -> None:
        a, b = self._parts.written(what, to), self._parts.view(what, src)
        if a.shape != b.shape:
            raise refuse(what, f"{a} has shape {a.shape}, {b} has {b.shape}", "equal shapes")

    def copy(self, dst: ir.View, src: ir.View, fill: float = 0.0, via: str = "") -> None:
        """Copy between memories or registers; elements outside a global source read as `fill`."""
        self._same_shape("copy", dst, src)
        if dst.buffer.dtype != src.buffer.dtype:
            cast = f'k.map with a cast: apply("cast {dst.buffer.dtype}", arg(0))'
            raise refuse("copy", f"{src.buffer.dtype} to {dst.buffer.dtype}", cast)
        fill = given.constant("copy", fill, src.buffer.dtype)
        self._add(ir.Copy(dst, src, fill, via))

    def copy_async(
        self, dst: ir.View, src: ir.View, via: str = "", ranks: Sequence[Int] = ()
    ) -> None:
        """Start a copy between global and shared memory.

        Args:
            dst: in the one memory.
            src: in the other, of the same shape.
            via: a row family to use.
            ranks: the CTAs of the cluster whose shared memory gets it; by default the own.
        """
        self._same_shape("copy_async", dst, src)
        if {dst.buffer.memory, src.buffer.memory} != {"gmem", "smem"}:
            raise refuse("copy_async", f"{src} to {dst}", "global and shared memory")
        if dst.buffer.dtype != src.buffer.dtype:
            raise refuse("copy_async", f"{src.buffer.dtype} to {dst.buffer.dtype}", "one dtype")
        ranks = given.integers("copy_async", "ranks", ranks)
        copy = ir.CopyAsync(dst, src, via=via, ranks=ranks)
        if self._expect is not None:
            copy.barrier, copy.slot = self._expect.barrier, self._expect.slot
            n, named, at = self.kernel.cluster, f"copies to {dst}", user_line()
            copy.landings = reached(ranks, n, named, self._conditions, at)
            self._expect.copies.append(copy)
        elif ranks:
            raise refuse("copy_async", f"to CTAs {_listed(ranks)}", "k.arrives(barrier, slot)")
        self._add(copy)

    def gemm_async(self, acc: ir.View, a: ir.View, b: ir.View, accumulate: Int) -> None:
        """Multiply, asynchronously: acc[m, n] (+)= a[m, k] b[n, k]; one group."""
        self._gemm(acc, a, b, accumulate, True)

    def gemm(self, acc: ir.View, a: ir.View, b: ir.View, accumulate: Int) -> None:
        """Multiply: acc[m, n] (+)= a[m, k] b[n, k]."""
        self._gemm(acc, a, b, accumulate, False)

    def _gemm(
        self, acc: ir.View, a: ir.View, b: ir.View, accumulate: Int, asynchronous: bool
    ) -> None:
        acc, a, b = (
            self._parts.written("gemm", acc),
            self._parts.view("gemm", a),
            self._parts.view("gemm", b),
        )
        accumulate = given.condition("gemm", accumulate)
        shapes = acc.shape, a.shape, b.shape
        if [len(s) for s in shapes] != [2, 2, 2] or shapes != (
            (a.shape[0], b.shape[0]),
            (acc.shape[0], b.shape[1]),
            (acc.shape[1], a.shape[1]),
        ):
            raise refuse("gemm", f"shapes {shapes}", "(m, n), (m, k), (n, k)")
        self._add(ir.Gemm(acc, a, b, accumulate, asynchronous))

    def map(self, cell: Cell, out: ir.View, *ins: ir.View) -> None:
        """Apply a cell elementwise on registers; operands broadcast as in numpy."""
        out, ins = self._parts.written("map", out), tuple(self._parts.view("map", v) for v in ins)
        cell = given.cell("map", cell, [v.buffer.dtype for v in ins])
        kept = sorted(used(cell))
        cell, ins = renumber(cell, {n: i for i, n in enumerate(kept)}), tuple(ins[n] for n in kept)
        for view in ins:
            padded = (1,) * (len(out.shape) - len(view.shape)) + view.shape
            fits = len(padded) == len(out.shape)
            if not fits or any(e not in (1, o) for e, o in zip(padded, out.shape, strict=True)):
                raise refuse("map", f"{view} of shape {view.shape}", f"broadcast to {out.shape}")
        self._add(ir.Map(cell, out, ins))

    def reduce(
        self,
        monoid: str,
        out: ir.View,
        src: ir.View,
        dims: Sequence[int],
        scratch: ir.Buffer | None = None,
    ) -> None:
        """Reduce registers over `dims`; out keeps them with extent 1."""
        self._add(exchange.reduce(self._parts, monoid, out, src, dims, scratch))

    def scan(
        self,
        merge: Cell | Sequence[Cell],
        states: Sequence[ir.View],
        carries: Sequence[ir.View],
        dim: int,
        scratch: Sequence[ir.Buffer] = (),
    ) -> None:
        """Scan register tiles along `dim` in place, after what the carries hold; see `ir.Scan`."""
        self._add(exchange.scan(self._parts, merge, states, carries, dim, scratch))

    def fill(self, out: ir.View, value: float) -> None:
        """Set every element."""
        out = self._parts.written("fill", out)
        self._add(ir.Fill(out, given.constant("fill", value, out.buffer.dtype)))

    def index(self, out: ir.View, dim: int, begin: Int = 0) -> None:
        """Set every element of an i32 tile to begin + its position along `dim`."""
        if self._parts.written("index", out).buffer.dtype != "i32":
            raise refuse("index", f"into {out.buffer.dtype}", "i32")
        (dim,) = given.dims("index", [dim], len(out.shape))
        self._add(ir.Index(out, dim, integer("index", "begin", begin)))

    # -- finish --

    def finish(self) -> ir.Kernel:
        """Derive offsets, arrival counts and register budgets; the finished kernel."""
        if len(self._bodies) > 1:
            raise refuse(f"kernel {self.kernel.name}", "is finished inside a scope", "at its top")
        lay_out(self.kernel)
        for barrier in self.kernel.barriers:
            barrier.arrivals = arrivals(self.kernel, barrier)
        budget(self.kernel)
        return self.kernel


def _common(start: Int, step: Int) -> int:
    return gcd(divisor(start), divisor(step))


__all__ = ["Builder", "Pipe", "arrivals"]
