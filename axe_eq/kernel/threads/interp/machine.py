"""One CTA of the interpreter: strands that run the body, barriers, asynchronous effects.

A kernel with roles has one strand per warpgroup, others have one strand. A strand is a generator
that yields where it waits. Asynchronous effects (bulk copies, matrix products, async copies) change
memory when they are issued ("early"), as late as a wait allows ("late"), or in between ("random"):
only values depend on that, verdicts do not. A primitive is executed from its layouts, or from its
plan's instruction calls where a plan is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from axe_eq.kernel.devices import Told
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.interp import Env, GlobalTensor, Ints, KernelFault, Watch, bind, unwatched
from axe_eq.kernel.plan import Call
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.interp.memory import Clocks, SharedMemory, Threads
from axe_eq.kernel.threads.interp.signals import is_there, number_of
from axe_eq.kernel.threads.placement import LANES
from axe_eq.program.types import DTYPES

if TYPE_CHECKING:
    from axe_eq.kernel.devices import Device
    from axe_eq.kernel.threads.interp.cluster import Meeting

Blocked = tuple[str, Callable[[], bool]]
ORDERS = ("early", "late", "random")


class Meaning(Protocol):
    """What an instruction call does; env holds lane, warp and the variables in scope."""

    def __call__(self, cta: Cta, call: Call, env: Env, issue: Issue) -> None:
        """Change the CTA's state."""


@dataclass(frozen=True)
class Issue:
    """Who issues a primitive, and the primitive itself."""

    who: Threads
    where: ir.Where
    primitive: ir.Primitive

    def __str__(self) -> str:
        return f"{type(self.primitive).__name__} {self.primitive.views()[0]}"

    @cached_property
    def what(self) -> str:
        """For messages: the statement and its place."""
        return f"{self} by {self.who}" + (f" ({self.primitive.at})" if self.primitive.at else "")


@dataclass
class Slot:
    """One transaction barrier: the present phase, and what completed phases know.

    `loaded` is the last phase that a bulk load completes in. `waits` are those by first threads of
    groups after which no phase has completed: who, the phase that it relies on, and when.
    """

    arrivals: int
    actor: int
    pending: int
    seen: Ints
    shown: Ints
    n_bytes: int = 0
    phase: int = 0
    loaded: int = 0
    gathered_seen: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    gathered_shown: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    name: str = ""
    waits: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class Queue:
    """Asynchronous operations of one kind that complete in groups, in order."""

    committed: int = 0
    effects: list[list[Callable[[], None]]] = field(default_factory=lambda: [[]])

    def run(self, groups: int) -> None:
        """Let the first `groups` groups have their effects."""
        for group in self.effects[:groups]:
            while group:
                group.pop(0)()


Execute = Callable[["Cta", Any, Env, Issue], None]
Promise = Callable[["Cta", ir.Primitive, Env, Issue], Callable[[], None] | None]


class Cta:
    """One CTA while it runs; `execute` does a primitive, `promise` says what a plan must do."""

    def __init__(
        self,
        kernel: ir.Kernel,
        tensors: Mapping[str, GlobalTensor],
        env: Env,
        order: str,
        planned: Planned | None,
        meanings: Mapping[str, Meaning],
        execute: Execute,
        promise: Promise,
        watch: Watch = unwatched,
        compare: bool = False,
    ) -> None:
        self.watch, self.compare = watch, compare
        self.execute, self.promise = execute, promise
        self.kernel, self.tensors, self.env = kernel, tensors, env
        self.order = order
        self.planned, self.meanings = planned, meanings
        has_roles = any(isinstance(s, ir.Roles) for s in kernel.body)
        self.n_groups = kernel.n_warps // ir.WARPS_PER_GROUP if has_roles else 1
        names = [f"{b.name}[{i}]" for b in kernel.barriers for i in range(b.slots)]
        self.rank = int(env.get(ir.RANK, 0))
        self.peers: list[Cta] = [self]
        self.meeting: Meeting  # of the cluster that runs it
        self.outside: dict[int, int] = {}  # when other CTAs last reached this one, per actor
        self.clocks = Clocks(kernel.n_warps, self.n_groups, names, self.rank, kernel.cluster)
        self.memory = SharedMemory(kernel, self.clocks, watch)
        self.slots: dict[tuple[str, int], Slot] = {}
        n = len(self.clocks.names)
        for barrier in kernel.barriers:
            for i in range(barrier.slots):
                clock = [np.zeros(n, np.int64) for _ in range(4)]
                actor = self.clocks.slot(len(self.slots))
                count = barrier.arrivals
                self.slots[barrier.name, i] = Slot(
                    count, actor, count, clock[0], clock[1],
                    gathered_seen=clock[2], gathered_shown=clock[3], name=f"{barrier.name}[{i}]",
                )  # fmt: skip
        self.queues: dict[tuple[str, int], Queue] = {}
        self.registers: dict[ir.Buffer, tuple[Any, Any]] = {}
        self.busy: dict[tuple[ir.Buffer, int], int] = {}
        self.lent: dict[tuple[ir.Buffer, int], int] = {}
        self.touched: dict[tuple[ir.Buffer, int], bool] = {}
        self.pending: list[Callable[[], None]] = []
        self.device: Device | None = None  # where several are interpreted together
        self.issuing: Issue | None = None  # whose primitive is executed now
        self.fenced = False  # whether what it tells other devices is behind what it knows
        self.acquired: list[tuple[int, int, Told]] = []  # by which class, when, what it was told
        self.run = -1  # its number among the CTAs of all devices
        self.stored: list[tuple[Ints, Ints]] = []  # per store to shared memories: by whom, when

    # -- storage --

    def regs(self, buffer: ir.Buffer) -> tuple[Any, Any]:
        """Values (warps, lanes, registers) of a register buffer, and which were written."""
        if buffer not in self.registers:
            shape = (self.kernel.n_warps, LANES, buffer.n_elements)
            dtype = DTYPES[buffer.dtype].numpy
            self.registers[buffer] = np.zeros(shape, dtype), np.zeros(shape, bool)
        return self.registers[buffer]

    def read_regs(self, buffer: ir.Buffer, warp: Ints, lane: Ints, reg: Ints, issue: Issue) -> Any:
        """Registers of single threads; they must be written, and no product may be on its way."""
        values, defined = self.regs(buffer)
        self.check_registers(buffer, reg, issue)
        self.touch(buffer, issue, "reads")
        if not defined[warp, lane, reg].all():
            raise KernelFault(issue.what, f"reads registers of {buffer} that were never written")
        return values[warp, lane, reg]

    def write_regs(
        self, buffer: ir.Buffer, warp: Ints, lane: Ints, reg: Ints, values: Any, issue: Issue
    ) -> None:
        """Set registers of single threads, rounding to the buffer's dtype."""
        stored, defined = self.regs(buffer)
        self.check_registers(buffer, reg, issue)
        self.touch(buffer, issue, "changes")
        stored[warp, lane, reg] = np.asarray(values).astype(stored.dtype)
        defined[warp, lane, reg] = True
        self._watch_registers(buffer, warp, lane, reg)

    def _watch_registers(self, buffer: ir.Buffer, warp: Ints, lane: Ints, reg: Ints) -> None:
        """Tell what registers hold now, in the order of their numbers: writing has no order."""
        if self.watch is unwatched:
            return
        shape = np.broadcast_shapes(warp.shape, lane.shape, reg.shape)
        at = [np.broadcast_to(x, shape).ravel() for x in (warp, lane, reg)]
        order = np.lexsort(at[::-1])
        warp, lane, reg = (x[order] for x in at)
        self.watch(buffer.name, warp, lane, reg, self.regs(buffer)[0][warp, lane, reg])

    def check_registers(self, buffer: ir.Buffer, reg: Ints, issue: Issue) -> None:
        """Register numbers are those of the buffer."""
        last = buffer.n_elements - 1
        if reg.size and (reg.min() < 0 or reg.max() > last):
            wrong = f"uses register {int(reg.max())} of {buffer}"
            raise KernelFault(issue.what, wrong, f"0 to {last}")

    def touch(self, buffer: ir.Buffer, issue: Issue, verb: str) -> None:
        """Ordinary code uses a register tile: no product may be on its way to it, or read it."""
        group = issue.who.group
        self.touched[buffer, group] = True
        started, read = (x.get((buffer, group), 0) for x in (self.busy, self.lent))
        done = self.clocks.seen[self.clocks.classes(issue.who), self.clocks.products(group)].min()
        if done < started:
            raise KernelFault(issue.what, f"{verb} {buffer} before its product is done", "a wait")
        if done < read and verb == "changes":
            raise KernelFault(issue.what, f"changes {buffer} while a product reads it", "a wait")

    def queue(self, kind: str, group: int) -> Queue:
        """The asynchronous operations of one kind that a group issued."""
        return self.queues.setdefault((kind, group), Queue())

    # -- scheduling --

    def strand(self, group: int) -> Iterator[Blocked | None]:
        """What one group does; it yields where it waits, and between statements."""
        per_group = self.kernel.n_warps // self.n_groups
        who = Threads(group * per_group, per_group, False, group)
        where = ir.Where("cta" if self.n_groups == 1 else "warpgroup", per_group)
        return self._body(self.kernel.body, dict(self.env), who, where)

    def check_exit(self) -> None:
        """What must be over when the CTA ends: its stores, and what may change its memory.

        Raises:
            KernelFault: something is not known to be.
        """
        for g in range(self.n_groups):
            queue = self.queue("bulk", g)
            done = self.clocks.seen[self.clocks.elected(g), self.clocks.stores(g)]
            if queue.effects[-1] or done < queue.committed:
                raise KernelFault(
                    f"kernel {self.kernel.name}",
                    f"group {g} ends while its bulk stores may still read shared memory",
                    "wait_group bulk 0",
                )
        for (name, number), slot in self.slots.items():
            if self.clocks.seen[: self.clocks.n_classes, slot.actor].max() < slot.loaded:
                raise KernelFault(
                    f"kernel {self.kernel.name}",
                    f"ends while a bulk load on {name}[{number}] may still write shared memory",
                    "a wait for it",
                )
        for actor, time in self.outside.items():
            if self.clocks.seen[: self.clocks.n_classes, actor].max() < time:
                raise KernelFault(
                    f"kernel {self.kernel.name}",
                    f"CTA {self.rank} may end before {self.clocks.names[actor]} arrives in it",
                    "a barrier of the cluster",
                )

    # -- control --

    def _body(
        self, body: ir.Body, env: Env, who: Threads, where: ir.Where
    ) -> Iterator[Blocked | None]:
        for s in body:
            match s:
                case ir.For():
                    for i in range(*(int(evaluate(x, env)) for x in (s.start, s.stop, s.step))):
                        bind(env, s.var, i, s.at)
                        yield from self._body(s.body, env, who, where)
                case ir.If():
                    if evaluate(s.condition, env):
                        yield from self._body(s.body, env, who, where)
                case ir.Roles():
                    for role in s.branches:
                        if role.low <= who.group < role.high:
                            inner = {**env, role.var.name: who.group}
                            at = ir.Where("warpgroup", ir.WARPS_PER_GROUP, role)
                            yield from self._body(role.body, inner, who, at)
                case ir.Scope():
                    one = Threads(who.first_warp, who.n_warps, s.kind == "elect", who.group)
                    yield from self._body(s.body, env, one, s.narrowed(where))
                case ir.Let() | ir.Assign():
                    bind(env, s.var, int(evaluate(s.value, env)), s.at)
                case _:
                    yield from self._statement(s, env, who, where)

    def _statement(
        self, s: ir.Statement, env: Env, who: Threads, where: ir.Where
    ) -> Iterator[Blocked | None]:
        if isinstance(s, ir.Wait):
            slot, parity = self.slot(s.barrier, s.slot, env), int(evaluate(s.parity, env))
            at = f"{s.barrier.name}[{evaluate(s.slot, env)}] parity {parity} ({s.at})"
            if parity not in (0, 1):
                raise KernelFault(f"wait for {at}", "is no phase", "parity 0 or 1")
            self._note_wait(slot, parity, at, who)
            if slot.phase & 1 == parity:
                yield at, lambda: slot.phase & 1 != parity
            self.clocks.join(self.clocks.classes(who), slot.seen, slot.shown)
        elif isinstance(s, ir.ClusterWait):
            yield from self.meeting.wait(self, who, s.at)
        elif isinstance(s, ir.Primitive):
            if isinstance(s, ir.Await):
                of = number_of(s.flag, self, env)
                yield f"{s.flag} to be {s.least} ({s.at})", partial(is_there, *of, s.least)
            self._primitive(s, env, who, where)
        else:
            self._synchronise(s, env, who, where)
        if self.order != "early":
            yield None

    def _synchronise(self, s: ir.Statement, env: Env, who: Threads, where: ir.Where) -> None:
        classes = self.clocks.classes(who)
        match s:
            case ir.Arrive():
                threads = 1 if who.elected else LANES * who.n_warps
                for cta in self.named(s.ranks, env, f"arrive at {s.barrier} ({s.at})"):
                    cta.arrive(cta.slot(s.barrier, s.slot, env), classes, threads, s, self)
            case ir.Expect():
                slot = self.slot(s.barrier, s.slot, env)
                slot.n_bytes += s.n_bytes
                self.arrive(slot, classes, 1, s, self)
            case ir.ClusterArrive():
                self.meeting.arrive(self, who, s.at)
            case ir.Sync():
                self._sync(classes, where, who)
            case ir.FenceAsync():
                self.clocks.fence(classes)
            case ir.Commit():
                queue = self.queue(s.kind, who.group)
                queue.committed += 1
                queue.effects.append([])
            case ir.WaitGroup():
                self._wait_group(s, who)

    def _sync(self, classes: list[int], where: ir.Where, who: Threads) -> None:
        if where.scope != "warp":
            self.clocks.barrier(classes)
            return
        for warp in range(who.first_warp, who.first_warp + who.n_warps):
            self.clocks.barrier([c for c in classes if self.clocks.warp_of[c] == warp])

    # -- barriers --

    def slot(self, barrier: ir.MBarrier, index: Any, env: Env) -> Slot:
        """One slot of a barrier array."""
        i = int(evaluate(index, env))
        if not 0 <= i < barrier.slots:
            raise KernelFault(f"barrier {barrier.name}", f"slot {i}", f"0 to {barrier.slots - 1}")
        return self.slots[barrier.name, i]

    def _note_wait(self, slot: Slot, parity: int, at: str, who: Threads) -> None:
        """A parity tells two phases apart: the one after what is waited for must wait for this."""
        first = self.clocks.elected(who.group)
        known = int(self.clocks.seen[first, slot.actor])
        phase = known + int(known & 1 == parity)
        if slot.phase > phase:
            raise self._lapped(f"wait for {at}", phase)
        self.clocks.tick([first])
        slot.waits.append((first, phase, int(self.clocks.seen[first, first])))

    def _lapped(self, what: str, phase: int) -> KernelFault:
        return KernelFault(
            what,
            f"the phase after the one it waits for ({phase}) may complete before it looks",
            "a wait that every later phase comes after",
        )

    def named(self, ranks: Sequence[Any], env: Env, what: str) -> list[Cta]:
        """The CTAs of the cluster that a statement names; itself where it names none."""
        found = [int(evaluate(r, env)) for r in ranks] or [self.rank]
        if len(set(found)) < len(found) or not set(found) <= set(range(len(self.peers))):
            raise KernelFault(what, f"names CTAs {found}", f"different ones of {len(self.peers)}")
        return [self.peers[r] for r in found]

    def told(self, by: Cta, c: int) -> tuple[Ints, Ints]:
        """What a class of a CTA of the cluster knows, and has shown, as this CTA counts actors."""
        clocks, turn = by.clocks, by.rank - self.rank
        if not turn:
            return clocks.seen[c], clocks.shown[c]
        return clocks.turned(clocks.seen[c], turn), clocks.turned(clocks.shown[c], turn)

    def fetched(
        self, byte: Ints, width: int, warp: Ints, lane: Ints, issue: Issue, by: Cta
    ) -> None:
        """Threads of a CTA of the cluster read the shared memory of this one."""
        if by is self:
            self.memory.access(byte, width, issue.who, warp, lane, False, issue.what)
            return
        k = self.memory.chunks(byte, width, issue.what)
        lane = np.broadcast_to(lane[..., None], k.shape)
        classes = by.clocks.classes_of(issue.who, np.broadcast_to(warp[..., None], k.shape), lane)
        for c in map(int, np.unique(classes)):
            mine = classes == c
            self.memory.check_read_from_outside(k[mine], self.told(by, c)[0], issue.what)
            by.clocks.tick([c])
            self.note_outside(by, c)
            actor, time = self.actor(by, c), int(by.clocks.seen[c, c])
            self.memory.note_read(k[mine], actor, time, lane[mine])

    def actor(self, by: Cta, c: int) -> int:
        """The number of a thread class of a CTA of the cluster, as this CTA counts actors."""
        return (by.rank - self.rank) % len(self.peers) * self.clocks.n_own + c

    def note_outside(self, by: Cta, c: int) -> None:
        """A class of another CTA reaches this one: it must not end before it knows of that."""
        self.outside[self.actor(by, c)] = int(by.clocks.seen[c, c])

    def arrive(self, slot: Slot, classes: list[int], count: int, s: ir.Statement, by: Cta) -> None:
        """Classes of a CTA of the cluster arrive at a slot of this one."""
        if by is not self:
            by.clocks.tick(classes)
        for c in classes:
            seen, shown = self.told(by, c)
            if by is not self:
                self.note_outside(by, c)
            if seen[slot.actor] < slot.phase:
                raise KernelFault(
                    f"arrive at {slot.name} ({s.at})",
                    f"phase {slot.phase} is not known to be complete, so it may count for that one",
                    "a wait for it before",
                )
            np.maximum(slot.gathered_seen, seen, out=slot.gathered_seen)
            np.maximum(slot.gathered_shown, shown, out=slot.gathered_shown)
        slot.pending -= count
        if slot.pending < 0:
            raise KernelFault(f"arrive at {s.at}", f"{-slot.pending} more than its count", "once")
        self.complete(slot)

    def complete(self, slot: Slot) -> None:
        """End the phase where all arrivals and bytes are there."""
        if slot.pending or slot.n_bytes:
            return
        past = [w for w in slot.waits if w[1] <= slot.phase]
        slot.waits = [w for w in slot.waits if w[1] > slot.phase]
        for waiter, phase, time in past:
            if slot.gathered_seen[waiter] < time:
                what = f"wait for {slot.name} by {self.clocks.names[waiter]}"
                raise self._lapped(what, phase)
        slot.phase += 1
        slot.pending = slot.arrivals
        slot.gathered_seen[slot.actor] = slot.gathered_shown[slot.actor] = slot.phase
        np.maximum(slot.seen, slot.gathered_seen, out=slot.seen)
        np.maximum(slot.shown, slot.gathered_shown, out=slot.shown)

    def _wait_group(self, s: ir.WaitGroup, who: Threads) -> None:
        kind = "bulk" if s.kind == "bulk_read" else s.kind
        queue = self.queue(kind, who.group)
        done = max(0, queue.committed - s.pending)
        queue.run(done)
        for c in self.clocks.classes(who):
            warp = int(self.clocks.warp_of[c])
            actor = {
                "wgmma": self.clocks.products(who.group),
                "bulk": self.clocks.stores(who.group),
                "cp_async": self.clocks.async_copies(warp),
            }[kind]
            for clock in (self.clocks.seen, self.clocks.shown):
                clock[c, actor] = max(clock[c, actor], done)

    def defer(self, effect: Callable[[], None]) -> None:
        """Let an asynchronous effect happen at once, or at some later step."""
        if self.order == "early":
            effect()
        else:
            self.pending.append(effect)

    # -- primitives --

    def _primitive(self, s: ir.Primitive, env: Env, who: Threads, where: ir.Where) -> None:
        issue = self.issuing = Issue(who, where, s)
        try:
            self._executed(s, env, issue)
        finally:
            self.issuing = None

    def knows(self, who: Threads, bulk: bool = False) -> list[Told]:
        """What each class of threads knows of all devices, or what of it bulk copies see."""
        assert self.device is not None
        clocks, every = self.clocks.shown if bulk else self.clocks.seen, list[Told]()
        for c in self.clocks.classes(who):
            every.append(Told(self.device.clock.copy()))
            told = [x for of, time, x in self.acquired if clocks[c, of] >= time]
            for one in (self.device.learned, *told):
                every[-1].learn(one)
        return every

    def log(self, actors: Sequence[int], times: Sequence[int]) -> tuple[int, int]:
        """A store to memory that other devices see: the CTA's number, and that of the store."""
        self.stored.append((np.array(actors), np.array(times)))
        return self.run, len(self.stored) - 1

    def done(self, c: int) -> npt.NDArray[np.bool_]:
        """Which stores a class knows to be done."""
        seen = self.clocks.seen[c]
        return np.array([(seen[by] >= when).all() for by, when in self.stored], np.bool_)

    def _executed(self, s: ir.Primitive, env: Env, issue: Issue) -> None:
        who = issue.who
        if self.planned is None:
            self.execute(self, s, env, issue)
            return
        plan = self.planned.plan(s)
        inner = {**env, **self.thread_numbers(who)}
        for v, value in plan.lets:
            inner[v.name] = evaluate(value, inner)
        kept = self.promise(self, s, env, issue) if self.compare else None
        for call in plan.calls:
            self.meanings[call.op](self, call, inner, issue)
        if kept is not None:
            kept()

    def thread_numbers(self, who: Threads) -> Env:
        """Values of lane and warp (of the scope) for every issuing thread."""
        n_warps, n_lanes = (1, 1) if who.elected else (who.n_warps, LANES)
        warp, lane = np.meshgrid(np.arange(n_warps), np.arange(n_lanes), indexing="ij")
        thread = (warp + who.first_warp) * LANES + lane
        return {"warp": warp, "lane": lane, "thread": thread}
