"""Writing kernels: `Builder` records statements, checks them where they stand, derives the rest.

Derived when the kernel is finished: shared-memory offsets, arrival counts of barriers, register
budgets of roles, bytes that a barrier expects. Errors name the user's line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import gcd
from typing import Any

from axe_eq.errors import AxeError, ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import Cell, n_operands, renumber, used
from axe_eq.kernel.counts import arrivals, reached
from axe_eq.kernel.expr import (
    Expr,
    Int,
    Var,
    bounds,
    divisor,
    equal,
    substitute,
    var,
)  # fmt: skip
from axe_eq.kernel.placement import (
    LANES,
    Placement,
    number,
    of_layout,
    packed,
    projected,
    row_major,
    strided,
)
from axe_eq.kernel.userline import user_line
from axe_eq.layout import Layout
from axe_eq.program.types import dtype as element_type

# Kinds of groups of asynchronous operations.
COMMITTED = ("bulk", "cp_async")
WAITED = ("wgmma", "cp_async", "bulk", "bulk_read")


def _refuse(thing: str, wrong: str, expected: str) -> ScheduleError:
    return ScheduleError(thing, wrong, expected, at=user_line())


def _listed(ranks: Sequence[Int]) -> str:
    return ", ".join(map(str, ranks))


def _check_slot(barrier: ir.MBarrier, slot: Int) -> None:
    if isinstance(slot, int) and not 0 <= slot < barrier.slots:
        raise _refuse(f"barrier {barrier}", f"slot {slot}", f"0 to {barrier.slots - 1}")


class Pipe:
    """Stage number and parity of a ring of barrier slots.

    A consumer's ring starts at parity 0; a producer's at 1: "all slots were freed before".
    """

    def __init__(self, k: Builder, stages: int, parity: int) -> None:
        self._k, self.stages = k, stages
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
        if not 1 <= warps <= LANES:
            raise _refuse(f"kernel {name}", f"{warps} warps", f"1 to {LANES}")
        if cluster < 1:
            raise _refuse(f"kernel {name}", f"a cluster of {cluster} CTAs", "at least 1")
        self.kernel = ir.Kernel(name, warps, cluster=cluster)
        self._bodies: list[ir.Body] = [self.kernel.body]
        self._scopes = ["cta"]
        self._names = {ir.RANK: 1} if cluster > 1 else {}  # how often each was taken
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
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return f"{name}_{count}" if count else name

    def param(self, name: str, divisor: int = 1, high: int | None = None) -> Var:
        """A run-time integer argument, at least 1, that `divisor` divides (checked at launch)."""
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
        if strides is not None:
            place = strided(shape, strides)
        elif isinstance(layout, Placement):
            place = layout
        elif layout is not None:
            place = self._placed(layout, shape, f"tensor {name}")
        else:
            place = row_major(shape)
        buffer = self._buffer(name, "gmem", dtype, shape, place)
        self.kernel.tensors.append(buffer)
        if output:
            self.kernel.outputs.append(buffer.name)
        return buffer

    def smem(
        self, name: str, dtype: str, shape: Sequence[int], layout: Layout | str | None = None
    ) -> ir.Buffer:
        """A piece of the CTA's shared memory, row-major unless `layout` says otherwise."""
        place = row_major(shape) if layout is None else self._placed(layout, shape, f"smem {name}")
        buffer = self._buffer(name, "smem", dtype, shape, place)
        if place.offset or place.has("lane", "warp", "reg"):
            raise _refuse(f"buffer {name}", f"layout {place}", "iters on axis m, no offset")
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
        place = (
            layout
            if isinstance(layout, Placement)
            else self._placed(layout, shape, f"registers {name}")
        )
        if place.has("m"):
            raise _refuse(f"registers {name}", f"layout {place}", "axes warp, lane, tx and reg")
        if place.shape != tuple(shape):
            raise _refuse(f"registers {name}", f"layout of shape {place.shape}", f"{tuple(shape)}")
        buffer = self._buffer(name, "reg", dtype, shape, place)
        self.kernel.buffers.append(buffer)
        return buffer

    def reg_like(self, name: str, dtype: str, view: ir.View) -> ir.Buffer:
        """A register tile on the same threads as the register view, registers numbered densely."""
        return self.reg(name, dtype, view.shape, packed(view.place))

    def reg_reduced(self, name: str, dtype: str, view: ir.View, dims: Sequence[int]) -> ir.Buffer:
        """A register tile for values of `view` reduced over `dims`; other threads hold copies."""
        place = projected(view.place, [d for d in range(len(view.shape)) if d not in dims])
        return self.reg(name, dtype, [number(e) for e in place.shape], place)

    def _placed(self, layout: Layout | str, shape: Sequence[Int], thing: str) -> Placement:
        try:
            parsed = Layout.parse(layout) if isinstance(layout, str) else layout
            return of_layout(parsed, [number(e) for e in shape], thing)
        except AxeError as error:
            error.at = error.at or user_line()
            raise

    def _buffer(
        self, name: str, memory: str, dtype: str, shape: Sequence[Int], place: Placement
    ) -> ir.Buffer:
        return ir.Buffer(self._fresh(name), memory, element_type(dtype).name, tuple(shape), place)

    def mbarriers(self, name: str, slots: int) -> ir.MBarrier:
        """An array of barriers; arrival counts are derived."""
        if slots < 1:
            raise _refuse(f"barrier {name}", f"{slots} slots", "at least 1")
        barrier = ir.MBarrier(self._fresh(name), slots)
        self.kernel.barriers.append(barrier)
        return barrier

    def state(self, name: str, value: Int, low: int | None = 0, high: int | None = None) -> Var:
        """A mutable run-time integer."""
        v = var(self._fresh(name), 1, low, high)
        self._add(ir.Let(v, value))
        return v

    def let(self, name: str, value: Int) -> Int:
        """Name a value; what is proven about it stays known."""
        if not isinstance(value, Expr) or isinstance(value, Var):
            return value
        low, high = bounds(value)
        v = var(self._fresh(name), max(divisor(value), 1), low, high)
        self._add(ir.Let(v, value))
        self._lets[v.name] = substitute(value, self._lets)
        return v

    def assign(self, state: Var, value: Int) -> None:
        """Change a state."""
        self._add(ir.Assign(state, value))

    def pipe(self, stages: int, parity: int = 0) -> Pipe:
        """A ring's stage and parity; a producer's starts with parity 1."""
        return Pipe(self, stages, parity)

    # -- control --

    def _add(self, statement: ir.Statement) -> None:
        statement.at = user_line()
        self._bodies[-1].append(statement)

    @contextmanager
    def _inside(self, body: ir.Body, scope: str | None = None) -> Iterator[None]:
        self._bodies.append(body)
        self._scopes.append(scope or self._scopes[-1])
        try:
            yield
        finally:
            self._bodies.pop()
            self._scopes.pop()

    @contextmanager
    def range(self, stop: Int, start: Int = 0, step: Int = 1, name: str = "i") -> Iterator[Var]:
        """Loop over a range; ``with k.range(n) as i:``."""
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
        total = substitute(count, self._lets)
        if self.kernel.tiles not in (1, total):
            raise _refuse("tiles", f"{total} after {self.kernel.tiles}", "one grid per kernel")
        self.kernel.tiles, self.kernel.persistent = total, persistent
        n = self.kernel.cluster
        with self.range(count, ir.CTA // n, ir.N_CTAS // n, "tile") as tile:
            yield tile

    @contextmanager
    def when(self, condition: Int) -> Iterator[None]:
        """The body, where the run-time condition holds."""
        branch = ir.If(condition)
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
            raise _refuse("roles", f"inside scope {self._scopes[-1]}", "at the top of a kernel")
        node = ir.Roles()
        self._add(node)
        with self._inside([], "roles"):
            self._roles = node
            yield
        covered = sorted((r.low, r.high) for r in node.branches)
        ends = [0, *(high for _, high in covered)]
        if ends[:-1] != [low for low, _ in covered] or 4 * ends[-1] != self.kernel.n_warps:
            raise _refuse(
                "roles", f"warpgroups {covered}", f"each of {self.kernel.n_warps // 4} once"
            )

    @contextmanager
    def warpgroups(self, low: int, high: int) -> Iterator[Var]:
        """The role of warpgroups low .. high-1; yields the warpgroup's number."""
        if self._scopes[-1] != "roles":
            raise _refuse("warpgroups", f"inside scope {self._scopes[-1]}", "k.roles()")
        role = ir.Role(low, high, var(self._fresh("wg"), 1, low, high - 1), at=user_line())
        self._roles.branches.append(role)
        with self._inside(role.body, "warpgroup"):
            yield role.var

    @contextmanager
    def _scope(self, kind: str) -> Iterator[None]:
        if self._scopes[-1] not in ("cta", "warpgroup"):
            raise _refuse(f"scope {kind}", f"inside scope {self._scopes[-1]}", "cta or warpgroup")
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
        _check_slot(barrier, slot)
        if isinstance(parity, int) and parity not in (0, 1):
            raise _refuse(f"wait for {barrier}", f"parity {parity}", "0 or 1")
        self._add(ir.Wait(barrier, slot, parity))

    def arrive(self, barrier: ir.MBarrier, slot: Int, ranks: Sequence[Int] = ()) -> None:
        """Arrive at a slot; every issuing thread does.

        Args:
            barrier: where.
            slot: which of its slots.
            ranks: the CTAs of the cluster at whose barriers; by default at the own.
        """
        _check_slot(barrier, slot)
        n, named, at = self.kernel.cluster, f"arrive at {barrier}", user_line()
        landings = reached(ranks, n, named, self._conditions, at) if ranks else 1
        self._add(ir.Arrive(barrier, slot, tuple(ranks), landings))

    @contextmanager
    def arrives(self, barrier: ir.MBarrier, slot: Int) -> Iterator[None]:
        """Async copies inside complete on the slot; the bytes are derived, one arrival is made."""
        if self._expect is not None or self._scopes[-1] != "elect":
            raise _refuse("arrives", f"inside scope {self._scopes[-1]}", "k.one_thread()")
        _check_slot(barrier, slot)
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
            raise _refuse("sync", f"inside scope {self._scopes[-1]}: deadlock", "a wider scope")
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
            raise _refuse("commit", f"kind {kind!r}", " or ".join(COMMITTED))
        self._add(ir.Commit(kind))

    def wait_group(self, kind: str, pending: int) -> None:
        """Wait until at most `pending` groups of `kind` are open."""
        if kind not in WAITED:
            raise _refuse("wait_group", f"kind {kind!r}", " ".join(WAITED))
        if pending < 0:
            raise _refuse("wait_group", f"pending {pending}", "at least 0")
        self._add(ir.WaitGroup(kind, pending))

    # -- primitives --

    def _same_shape(self, what: str, a: ir.View, b: ir.View) -> None:
        if a.shape != b.shape:
            raise _refuse(what, f"{a} has shape {a.shape}, {b} has {b.shape}", "equal shapes")

    def copy(self, dst: ir.View, src: ir.View, fill: float = 0.0, via: str = "") -> None:
        """Copy between memories or registers; elements outside a global source read as `fill`."""
        self._same_shape("copy", dst, src)
        if dst.buffer.dtype != src.buffer.dtype:
            raise _refuse("copy", f"{src.buffer.dtype} to {dst.buffer.dtype}", "k.map with a cast")
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
            raise _refuse("copy_async", f"{src} to {dst}", "global and shared memory")
        if dst.buffer.dtype != src.buffer.dtype:
            raise _refuse("copy_async", f"{src.buffer.dtype} to {dst.buffer.dtype}", "one dtype")
        copy = ir.CopyAsync(dst, src, via=via, ranks=tuple(ranks))
        if self._expect is not None:
            copy.barrier, copy.slot = self._expect.barrier, self._expect.slot
            n, named, at = self.kernel.cluster, f"copies to {dst}", user_line()
            copy.landings = reached(ranks, n, named, self._conditions, at)
            self._expect.copies.append(copy)
        elif ranks:
            raise _refuse("copy_async", f"to CTAs {_listed(ranks)}", "k.arrives(barrier, slot)")
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
        shapes = acc.shape, a.shape, b.shape
        if [len(s) for s in shapes] != [2, 2, 2] or shapes != (
            (a.shape[0], b.shape[0]),
            (acc.shape[0], b.shape[1]),
            (acc.shape[1], a.shape[1]),
        ):
            raise _refuse("gemm", f"shapes {shapes}", "(m, n), (m, k), (n, k)")
        self._add(ir.Gemm(acc, a, b, accumulate, asynchronous))

    def map(self, cell: Cell, out: ir.View, *ins: ir.View) -> None:
        """Apply a cell elementwise on registers; operands broadcast as in numpy."""
        if n_operands(cell) > len(ins):
            raise _refuse("map", f"cell {cell} of {len(ins)} operands", "all its operands")
        kept = sorted(used(cell))
        cell, ins = renumber(cell, {n: i for i, n in enumerate(kept)}), tuple(ins[n] for n in kept)
        for view in ins:
            padded = (1,) * (len(out.shape) - len(view.shape)) + view.shape
            fits = len(padded) == len(out.shape)
            if not fits or any(e not in (1, o) for e, o in zip(padded, out.shape, strict=True)):
                raise _refuse("map", f"{view} of shape {view.shape}", f"broadcast to {out.shape}")
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
        wanted = tuple(1 if d in dims else e for d, e in enumerate(src.shape))
        if out.shape != wanted:
            raise _refuse("reduce", f"{out} of shape {out.shape}", f"shape {wanted}")
        self._add(ir.Reduce(monoid, out, src, tuple(sorted(dims)), scratch))

    def fill(self, out: ir.View, value: float) -> None:
        """Set every element."""
        self._add(ir.Fill(out, value))

    def index(self, out: ir.View, dim: int, begin: Int = 0) -> None:
        """Set every element of an i32 tile to begin + its position along `dim`."""
        if out.buffer.dtype != "i32":
            raise _refuse("index", f"into {out.buffer.dtype}", "i32")
        self._add(ir.Index(out, dim, begin))

    # -- finish --

    def finish(self) -> ir.Kernel:
        """Derive offsets, arrival counts and register budgets; the finished kernel."""
        _lay_out(self.kernel)
        for barrier in self.kernel.barriers:
            barrier.arrivals = arrivals(self.kernel, barrier)
        _budget(self.kernel)
        return self.kernel


def _common(start: Int, step: Int) -> int:
    return gcd(divisor(start), divisor(step))


def _lay_out(kernel: ir.Kernel) -> None:
    """Assign shared-memory offsets in order of declaration, barriers last."""
    end = 0
    for buffer in kernel.buffers:
        if buffer.memory == "smem":
            buffer.offset = -(-end // buffer.alignment) * buffer.alignment
            end = buffer.offset + buffer.n_elements * buffer.itemsize
    for barrier in kernel.barriers:
        barrier.offset = -(-end // 8) * 8
        end = barrier.offset + 8 * barrier.slots
    kernel.smem_bytes = end


_IDLE_REGISTERS, _PLENTY = (40, 32), 232
_REGISTER_FILE = 65536


def _budget(kernel: ir.Kernel) -> None:
    """Share the registers among roles: those without register tiles keep few, the others gain.

    setmaxnreg moves registers between warpgroups of one CTA: the sum may not exceed what the launch
    gave, and every number is a multiple of 8 (PTX ISA 9.7.19.5).
    """
    for node in kernel.body:
        if isinstance(node, ir.Roles):
            _budget_roles(kernel, node.branches)


def _budget_roles(kernel: ir.Kernel, roles: list[ir.Role]) -> None:
    groups = kernel.n_warps // ir.WARPS_PER_GROUP
    entry = min(_REGISTER_FILE // kernel.n_threads // 8 * 8, 255 // 8 * 8)
    idle = [r for r in roles if not _uses_registers(r.body)]
    busy = [r for r in roles if r not in idle]
    n_idle, n_busy = (sum(r.high - r.low for r in rs) for rs in (idle, busy))
    if not n_idle or not n_busy or entry >= _PLENTY:
        return
    # Fewer for the idle ones only where that leaves the others 8 more each.
    few = min(_IDLE_REGISTERS, key=lambda n: (entry * groups - n * n_idle) % (8 * n_busy))
    share = min((entry * groups - few * n_idle) // n_busy // 8 * 8, 255 // 8 * 8)
    for role in roles:
        role.registers = few if role in idle else share


def _uses_registers(body: ir.Body) -> bool:
    for statement in body:
        views = statement.views() if isinstance(statement, ir.Primitive) else ()
        if any(view.buffer.memory == "reg" for view in views):
            return True
        if any(map(_uses_registers, ir.children(statement))):
            return True
    return False


__all__ = ["Builder", "Pipe", "arrivals"]
