"""Writing kernels on threads: shared memory, registers, roles, barriers, asynchronous copies.

Derived when the kernel is finished: shared-memory offsets, arrival counts of barriers, register
budgets of roles, bytes that a barrier expects. Errors name the user's line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from axe_eq.kernel import given
from axe_eq.kernel.build import Builder
from axe_eq.kernel.expr import Int, Var, bounds, depends, equal, substitute, var
from axe_eq.kernel.given import integer, refuse, whole
from axe_eq.kernel.placement import Iter, Placement, number
from axe_eq.kernel.spaces import Space
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.counts import arrivals, reached
from axe_eq.kernel.threads.derive import budget, lay_out
from axe_eq.kernel.threads.placement import LANES, on_threads, packed, projected
from axe_eq.kernel.userline import user_line
from axe_eq.layout import Layout


def _listed(ranks: Sequence[Int]) -> str:
    return ", ".join(map(str, ranks))


def _numbers(what: str, view: ir.View, n: int = 0) -> ir.View:
    """Integers of a tensor, which devices signal with."""
    buffer = view.buffer
    if not buffer.is_global or buffer.dtype != "i32" or len(view.shape) != 1:
        found = f"{buffer.dtype}{list(view.shape)} of {buffer.memory}"
        raise refuse(what, f"{view} is {found}", "one dim of a tensor of i32")
    if n and view.size != n:
        raise refuse(what, f"{view} has {view.size} numbers", f"{n}")
    return view


class Pipe:
    """Stage number and parity of a ring of barrier slots.

    A consumer's ring starts at parity 0; a producer's at 1: "all slots were freed before".
    """

    def __init__(self, k: ThreadBuilder, stages: int, parity: int) -> None:
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


class ThreadBuilder(Builder):
    """Records one kernel on threads.

    Args:
        name: the kernel's name.
        warps: warps of one CTA.
        cluster: CTAs of one cluster.
        resident: CTAs of a unit that registers are divided among; 0 leaves it to the compiler.
    """

    _arguments: ClassVar[Space] = ir.GMEM

    def __init__(self, name: str, warps: int, cluster: int = 1, resident: int = 0) -> None:
        thing = f"kernel {given.name('kernel', name)}"
        if not 1 <= whole(thing, "warps", warps) <= LANES:
            raise refuse(thing, f"{warps} warps", f"1 to {LANES}")
        if whole(thing, "cluster", cluster) < 1:
            raise refuse(thing, f"a cluster of {cluster} CTAs", "at least 1")
        self.kernel = ir.Kernel(name, n_warps=warps, cluster=cluster, resident=resident)
        super().__init__(self.kernel)
        if cluster > 1:
            self._names[ir.RANK] = 1
        self._expect: ir.Expect | None = None

    @property
    def rank(self) -> Int:
        """The CTA's number in its cluster; 0 where a cluster is one CTA."""
        n = self.kernel.cluster
        return var(ir.RANK, high=n - 1) if n > 1 else 0

    # -- declarations --

    def smem(
        self,
        name: str,
        dtype: str,
        shape: Sequence[int],
        layout: Layout | str | None = None,
        over: ir.Buffer | None = None,
    ) -> ir.Buffer:
        """A piece of the CTA's shared memory, row-major unless `layout` says otherwise.

        With `over` it takes the place of that piece and of those declared after it. Barriers keep
        them apart in time, as the interpreter checks.

        Raises:
            ScheduleError: `over` is no piece of this kernel's shared memory, or there is not room.
        """
        piece = self.buffer(ir.SMEM, name, dtype, shape, layout)
        if over is not None and (over not in self.kernel.buffers or not over.is_shared):
            raise refuse(f"smem {name}", f"over {over}", "a piece of the CTA's shared memory")
        piece.over = over
        return piece

    def reg(
        self, name: str, dtype: str, shape: Sequence[int], layout: Layout | str | Placement
    ) -> ir.Buffer:
        """A register tile of the issuing scope's threads."""
        thing = f"registers {name}"
        extents = given.shape(thing, shape)
        place = self._placed(layout, extents, thing)
        given.place(thing, place, ir.REG.axes, at_zero=True)
        if place.shape != extents:
            raise refuse(thing, f"layout of shape {place.shape}", f"{extents}")
        _fits(thing, place, self._n_warps)
        buffer = self._buffer(thing, name, ir.REG, dtype, extents, place)
        self.kernel.buffers.append(buffer)
        return buffer

    def _split(self, i: Iter, thing: str) -> Sequence[Iter]:
        """An iter on ``tx`` as iters on warps and lanes."""
        return on_threads(i, thing)

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

    def mbarriers(self, name: str, slots: int) -> ir.MBarrier:
        """An array of barriers; arrival counts are derived."""
        if whole(f"barrier {name}", "slots", slots) < 1:
            raise refuse(f"barrier {name}", f"{slots} slots", "at least 1")
        barrier = ir.MBarrier(self._fresh(name), slots)
        self._parts.add(barrier)
        self.kernel.barriers.append(barrier)
        return barrier

    def _barrier(self, thing: str, value: object, slot: Int) -> tuple[ir.MBarrier, Int]:
        """Barriers of this kernel, and one of their slots."""
        if not isinstance(value, ir.MBarrier):
            raise refuse(thing, f"{value!s} is no array of barriers", "k.mbarriers(name, slots)")
        self._parts.own(thing, value, "barriers")
        slot = integer(f"barrier {value}", "slot", slot)
        if isinstance(slot, int) and not 0 <= slot < value.slots:
            raise refuse(f"barrier {value}", f"slot {slot}", f"0 to {value.slots - 1}")
        return value, slot

    def pipe(self, stages: int, parity: int = 0) -> Pipe:
        """A ring's stage and parity; a producer's starts with parity 1."""
        return Pipe(self, stages, parity)

    # -- control --

    def _add(self, statement: ir.Statement) -> None:
        if self._scopes[-1] == "roles":  # nobody would run it
            what = type(statement).__name__.lower()
            raise refuse("roles", f"{what} beside k.warpgroups", "statements inside k.warpgroups")
        super()._add(statement)

    @contextmanager
    def tiles(
        self, count: Int, persistent: bool = True, first: Int = 0, loop: bool = True
    ) -> Iterator[Int]:
        """Loop over this cluster's share of `count` units of work; its CTAs share each of them.

        Args:
            count: units.
            persistent: as many clusters as the machine holds take them in turns; else one each.
            first: those before it are not taken here.
            loop: else a cluster's one unit stands in no loop, around which values would be kept in
                registers. Not of persistent kernels.

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
        mine = first + ir.CTA // n
        if not (persistent or loop):
            yield self.let("tile", mine, high=bounds(count - 1)[1])
            return
        with self.range(count, mine, self._grid // n, "tile") as tile:
            yield tile

    @property
    def _grid(self) -> Var:
        """CTAs of the grid: whole clusters."""
        n = self.kernel.cluster
        return var(ir.N_CTAS.name, n, low=n)

    def whole_waves(self, count: Int) -> Int:
        """Units of work that CTAs take alone, one each in every wave of the grid.

        The others are no more than there are clusters: where more are left, all are taken alone.
        """
        grid, most = self._grid, bounds(count)[1]
        left = self.let("left", count % grid)
        room = self.let("room", grid + grid // self.kernel.cluster - left, low=0)
        return self.let("whole", count - left * (room // grid), low=0, high=most)

    @contextmanager
    def waves(self, whole: Int) -> Iterator[Var]:
        """Loop over this CTA's own units of work of `whole_waves`."""
        with self.range(whole, ir.CTA, self._grid, "tile") as tile:
            yield tile

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
        barrier, slot = self._barrier("wait", barrier, slot)
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
        barrier, slot = self._barrier("arrive", barrier, slot)
        n, named, at = self.kernel.cluster, f"arrive at {barrier}", user_line()
        ranks = given.integers(named, "ranks", ranks)
        landings = reached(ranks, n, named, self._conditions, at, turns=True) if ranks else 1
        self._add(ir.Arrive(barrier, slot, ranks, landings))

    @contextmanager
    def arrives(self, barrier: ir.MBarrier, slot: Int) -> Iterator[None]:
        """Async copies inside complete on the slot; the bytes are derived, one arrival is made."""
        if self._expect is not None or self._scopes[-1] != "elect":
            raise refuse("arrives", f"inside scope {self._scopes[-1]}", "k.one_thread()")
        barrier, slot = self._barrier("arrives", barrier, slot)
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

    def signal(self, flags: ir.View, last: ir.View) -> None:
        """Tell all devices that what this one did before the kernel is done.

        One thread of the grid adds 1 to each of `flags`, integers in the memory of devices, behind
        setting `last` to 0: the device's own of the signals before these.

        Args:
            flags: one per device, this one's too.
            last: one.
        """
        self._add(ir.Signal(_numbers("signal", flags), _numbers("signal", last, 1)))

    def clear(self, flags: ir.View) -> None:
        """Set a device's own numbers to 0, which nobody adds to any more; one thread does."""
        self._add(ir.Clear(_numbers("clear", flags)))

    def tell(self, *told: tuple[ir.View, Int]) -> None:
        """Tell devices that elements are stored, which the issuing thread knows.

        Args:
            told: one number of a device, and how many elements are added to it.
        """
        flags = tuple(_numbers("tell", flag, 1) for flag, _ in told)
        self._add(ir.Tell(flags, tuple(integer("tell", "count", n) for _, n in told)))

    def wait_signals(self, flag: ir.View, least: int) -> None:
        """Wait until so many signals have come to a device's own integer; every thread does."""
        self._add(ir.Await(_numbers("wait", flag, 1), whole("wait", "signals", least, 1)))

    def _group(self, what: str, kind: str, known: Sequence[str]) -> None:
        if kind not in known:
            raise refuse(what, f"kind {kind!r}", f"one of {' '.join(known)}")

    def commit(self, kind: str = "bulk") -> None:
        """Close the group of async copies, of kind "bulk" or "cp_async"."""
        self._group("commit", kind, [g.name for g in ir.GROUPS if g.closed])
        self._add(ir.Commit(kind))

    def wait_group(self, kind: str, pending: int) -> None:
        """Wait until at most `pending` groups of `kind` are open."""
        self._group("wait_group", kind, [g.name for g in ir.GROUPS])
        pending = whole("wait_group", "pending", pending, 0)
        self._add(ir.WaitGroup(kind, pending))

    # -- asynchronous primitives --

    def gather(
        self, dst: ir.View, src: ir.View, at: Sequence[tuple[int, ir.View]], fill: float = 0.0
    ) -> None:
        """Copy a part of an argument to registers, along some dims at indices in registers.

        Args:
            dst: register tile.
            src: part of an argument, of one index, the first, along these dims.
            at: (dim of the argument, tile of i32 or i64 indices, which broadcasts to dst).
            fill: what elements outside the argument along other dims read as.
        """
        self._same_shape("gather", dst, src)
        if dst.buffer.dtype != src.buffer.dtype:
            raise refuse("gather", f"{src.buffer.dtype} to {dst.buffer.dtype}", "one dtype")
        if not src.buffer.is_global or not dst.buffer.is_private:
            raise refuse("gather", f"{src} to {dst}", "an argument to registers")
        for dim, tile in at:
            if self._parts.view("gather", tile).buffer.dtype not in ("i32", "i64"):
                raise refuse("gather", f"at {tile} of {tile.buffer.dtype}", "i32 or i64")
            if (src.begin[dim], src.extent[dim]) != (0, 1):
                raise refuse("gather", f"{src} along dim {dim}", "its first index there")
            fits = len(tile.shape) == len(dst.shape)
            if not fits or any(e not in (1, o) for e, o in zip(tile.shape, dst.shape, strict=True)):
                raise refuse("gather", f"{tile} of shape {tile.shape}", f"broadcast to {dst.shape}")
        fill = given.constant("gather", fill, src.buffer.dtype)
        self._add(ir.Gather(dst, src, tuple(at), fill))

    def fetch(self, dst: ir.View, src: ir.View, rank: Int) -> None:
        """Copy to registers what lies in the shared memory of a CTA of the cluster.

        Args:
            dst: register tile.
            src: part of a buffer of shared memory, of the same shape.
            rank: the CTA.
        """
        self._same_shape("fetch", dst, src)
        if not src.buffer.is_shared or not dst.buffer.is_private:
            raise refuse("fetch", f"{src} to {dst}", "shared memory to registers")
        if dst.buffer.dtype != src.buffer.dtype:
            raise refuse("fetch", f"{src.buffer.dtype} to {dst.buffer.dtype}", "one dtype")
        rank, n = integer("fetch", "rank", rank), self.kernel.cluster
        if isinstance(rank, int) and not 0 <= rank < n:
            raise refuse("fetch", f"CTA {rank} of a cluster of {n}", f"0 to {n - 1}")
        self._add(ir.Fetch(dst, src, rank))

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
        if {dst.buffer.space, src.buffer.space} != {ir.GMEM, ir.SMEM}:
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

    def merge_async(self, dst: ir.View, src: ir.View, monoid: str = "+") -> None:
        """Start to merge shared memory with what a global tensor holds, and leave it there.

        One thread issues it; it is done when its group is, as a store is.

        Args:
            dst: a part of an output, which holds something before the kernel.
            src: in shared memory, of the same shape.
            monoid: one that an instruction of the machine merges by in memory.
        """
        self._merges("merge_async", dst, src, monoid)
        if (dst.buffer.space, src.buffer.space) != (ir.GMEM, ir.SMEM):
            raise refuse("merge_async", f"{src} to {dst}", "shared to global memory")
        self._add(ir.MergeAsync(dst, src, monoid=monoid))

    def gemm_async(self, acc: ir.View, a: ir.View, b: ir.View, accumulate: Int) -> None:
        """Multiply, asynchronously: acc[m, n] (+)= a[m, k] b[n, k]; one group."""
        self._gemm(acc, a, b, accumulate, True)

    # -- finish --

    def finish(self) -> ir.Kernel:
        """Derive offsets, arrival counts and register budgets; the finished kernel."""
        super().finish()
        lay_out(self.kernel)
        for barrier in self.kernel.barriers:
            barrier.arrivals = arrivals(self.kernel, barrier)
        budget(self.kernel)
        return self.kernel


def _fits(thing: str, place: Placement, n_warps: int) -> None:
    """Check that a placement takes no more threads than there are: fewer may be right elsewhere.

    Raises:
        ScheduleError: it takes more lanes or warps.
    """
    for axis, most in (("lane", LANES), ("warp", n_warps)):
        taken = place.extent_on(axis)
        if taken > most:
            raise refuse(thing, f"layout {place} takes {taken} {axis}s", f"{most} at most")
