"""The nodes of kernels on threads: barriers, scopes, roles, asynchronous copies, clusters of CTAs.

Scopes: a kernel's CTAs have `n_warps` warps. At the top, and in an `if` or `for` there, a
primitive is issued by all of them together (scope "cta"). `Roles` divides the warps into exclusive
branches by warpgroups of 4 warps; inside, every warpgroup issues for itself ("warpgroup"). `Scope`
narrows to one elected thread ("elect") or to every warp or thread for itself ("warp", "thread").
Layouts place tiles on the threads of the scope: axes ``warp`` (of the scope), ``lane``, ``reg``.

A kernel may run in clusters of CTAs that start together. A CTA reaches the memory of the others, at
the same place as its own, by arriving at their barriers, by copying one slice into several, and by
fetching what lies there into its registers.

The nodes of every machine (`axe_eq.kernel.ir`) are here too, so that one name serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

from axe_eq.kernel import ir
from axe_eq.kernel.expr import Int, Var, var
from axe_eq.kernel.ir import (
    Assign,
    Body,
    Buffer,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Index,
    Let,
    Map,
    Merge,
    Primitive,
    Reduce,
    Scan,
    Section,
    Statement,
    Subscript,
    View,
    children,
    span,
)  # fmt: skip
from axe_eq.kernel.placement import number
from axe_eq.kernel.spaces import GLOBAL, PRIVATE, SHARED, Space
from axe_eq.kernel.threads.placement import LANES
from axe_eq.target import Completion

__all__ = [
    "CTA", "GMEM", "GROUPS", "LANE", "N_CTAS", "RANK", "REG", "SMEM", "THREAD", "WARP",
    "WARPS_PER_GROUP", "Arrive", "Assign", "Await", "Body", "Buffer", "Clear", "ClusterArrive",
    "ClusterWait", "Commit", "Copy", "CopyAsync", "Expect", "FenceAsync", "Fetch", "Fill", "For",
    "Gather", "Gemm", "If", "Index", "Kernel", "Let", "MBarrier", "Map", "Merge", "MergeAsync",
    "Primitive", "Reduce", "Role", "Roles", "Scan", "Scope", "Signal", "Statement", "Subscript",
    "Sync", "Tell", "View", "Wait", "WaitGroup", "Where", "children", "span", "walk",
]  # fmt: skip

GMEM = Space("gmem", GLOBAL, ("m",))
SMEM = Space("smem", SHARED, ("m",), align_bytes=128)
REG = Space("reg", PRIVATE, ("warp", "lane", "reg"))

# Groups of asynchronous work, by who may close them and wait for them: an elected thread for the
# copies that it issued, all threads for their own copies, whole warpgroups for products.
GROUPS = (
    Completion("wgmma", ("cta", "warpgroup")),
    Completion("cp_async", ("cta", "warpgroup", "warp", "thread"), closed=True),
    Completion("bulk", ("elect",), closed=True),
    Completion("bulk_read", ("elect",)),
)

LANE = var("lane", high=LANES - 1)
WARP = var("warp", high=LANES - 1)
THREAD = var("thread", high=LANES * LANES - 1)
CTA = var("cta")
N_CTAS = var("n_ctas", low=1)
RANK = "rank"  # the name of a CTA's number in its cluster
WARPS_PER_GROUP = 4


@dataclass(frozen=True)
class Where(ir.Where):
    """Who issues a statement: scope, how many warps it spans, and its role."""

    n_warps: int
    role: Role | None = None

    @property
    def axes(self) -> dict[str, int]:
        """The thread axes that layouts of this scope's tiles must cover, with their sizes."""
        if self.scope == "thread":
            return {}
        return {"lane": LANES} if self.scope == "warp" else {"lane": LANES, "warp": self.n_warps}

    @property
    def numbers(self) -> frozenset[str]:
        """Numbers of the warps or threads that run for themselves here."""
        names = {"warp": [WARP], "thread": [WARP, LANE, THREAD]}.get(self.scope, [])
        return frozenset(v.name for v in names)


@dataclass(eq=False)
class MBarrier:
    """An array of transaction barriers in shared memory.

    Attributes:
        name: unique in its kernel.
        slots: number of barriers.
        arrivals: arrivals that complete one phase; derived when the kernel is built.
        offset: first byte in shared memory.
    """

    name: str
    slots: int
    arrivals: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return self.name


# -- statements -----------------------------------------------------------------------------------


@dataclass(eq=False)
class Role(Statement):
    """What warpgroups low .. high-1 do; `var` is the warpgroup's number in the CTA.

    `registers` per thread is derived from all roles when the kernel is built; 0 leaves them alone.
    """

    low: int
    high: int
    var: Var
    body: Body = field(default_factory=list)
    registers: int = 0

    @property
    def where(self) -> Where:
        """Who issues its body."""
        return Where("warpgroup", WARPS_PER_GROUP, self)

    def line(self) -> str:
        """Its warpgroups."""
        regs = f", {self.registers} registers" if self.registers else ""
        return f"warpgroups {self.low}..{self.high - 1} as {self.var}{regs}:"


@dataclass(eq=False)
class Roles(Statement):
    """Exclusive branches over warpgroups: one node, so that emitters make one if/else chain."""

    branches: list[Role] = field(default_factory=list)
    shown: ClassVar = "roles:"

    def sections(self) -> Sequence[Section]:
        """The branches, each issued by its warpgroups."""
        return [Section(role.body, (role.var,), role.line(), role.where) for role in self.branches]


@dataclass(eq=False)
class Scope(Statement):
    """A narrower issuing scope: "elect" (one thread), "warp" or "thread" (each for itself)."""

    kind: str
    body: Body = field(default_factory=list)

    def narrowed(self, where: ir.Where) -> Where:
        """Who issues its body."""
        outer = cast(Where, where)
        return Where(self.kind, outer.n_warps, outer.role)

    def line(self) -> str:
        """A heading."""
        return {"elect": "one thread:"}.get(self.kind, f"each {self.kind}:")


@dataclass(eq=False)
class Wait(Statement):
    """Wait until phase parity of a barrier slot has completed."""

    barrier: MBarrier
    slot: Int
    parity: Int
    controls: ClassVar = ("slot", "parity")
    shown: ClassVar = "wait {s.barrier}[{s.slot}] parity {s.parity}"


@dataclass(eq=False)
class Arrive(Statement):
    """Arrive at a barrier slot, once per issuing thread.

    `ranks` are the CTAs of the cluster whose barriers these are, by default the own; `landings`
    counts the CTAs that arrive so at one CTA's (derived).
    """

    barrier: MBarrier
    slot: Int
    ranks: tuple[Int, ...] = ()
    landings: int = 1
    controls: ClassVar = ("slot", "ranks")

    def line(self) -> str:
        """Where."""
        return f"arrive {self.barrier}[{self.slot}]{_of_ctas(self.ranks)}"


@dataclass(eq=False)
class Expect(Statement):
    """Arrive and announce the bytes of the copies that complete on this slot (derived)."""

    barrier: MBarrier
    slot: Int
    copies: list[CopyAsync] = field(default_factory=list)
    controls: ClassVar = ("slot",)
    shown: ClassVar = "arrive {s.barrier}[{s.slot}] expecting {s.n_bytes} bytes"

    @property
    def n_bytes(self) -> int:
        """Bytes of all its copies that come to one CTA, from whichever of the cluster."""
        return sum(c.landings * c.dst.size * c.dst.buffer.itemsize for c in self.copies)


@dataclass(eq=False)
class Sync(Statement):
    """Barrier over all threads of the issuing scope."""


@dataclass(eq=False)
class ClusterArrive(Statement):
    """All threads of the CTA arrive at the barrier of their cluster; releases what they did."""

    shown: ClassVar = "arrive at the cluster's barrier"


@dataclass(eq=False)
class ClusterWait(Statement):
    """Wait until all threads of the cluster have arrived; acquires what they did before."""

    shown: ClassVar = "wait for the cluster"


@dataclass(eq=False)
class FenceAsync(Statement):
    """Make earlier ordinary shared-memory accesses of this thread visible to the async proxy."""

    shown: ClassVar = "fence_async"


@dataclass(eq=False)
class Commit(Statement):
    """Close the group of async operations issued so far; kind "bulk" or "cp_async"."""

    kind: str
    shown: ClassVar = "commit {s.kind}"


@dataclass(eq=False)
class WaitGroup(Statement):
    """Wait until at most `pending` groups are open.

    Kind "wgmma" and "cp_async": done; "bulk": written; "bulk_read": shared memory was read.
    """

    kind: str
    pending: int
    shown: ClassVar = "wait_group {s.kind} {s.pending}"


@dataclass(eq=False)
class Gather(Primitive):
    """Copy a part of an argument to `dst`, every element from where tiles of integers say.

    An element of `src` that begins at 0 along a dim of its buffer, and has one index there, is read
    at the index that `at` holds for it. Those must be indices of the dim. Elements outside `src`
    otherwise read as `fill`.

    Attributes:
        indices: (dim of src's buffer, tile of integers that broadcasts to dst).
    """

    name: ClassVar = "gather"
    dst: View
    src: View
    indices: tuple[tuple[int, View], ...]
    fill: float = 0.0

    def views(self) -> tuple[View, ...]:
        """Destination, source, indices."""
        return self.dst, self.src, *(tile for _, tile in self.indices)

    def step(self, dim: int) -> int:
        """Elements between neighbours of a dim of the source's buffer."""
        (i,) = self.src.buffer.place.blocks[dim] or (None,)
        return 0 if i is None else number(i.stride)

    def details(self) -> str:
        """What it says beside its operands."""
        return f", dims {[dim for dim, _ in self.indices]} by tiles"


@dataclass(eq=False)
class Fetch(Primitive):
    """Copy to registers what lies in the shared memory of CTA `rank` of the cluster."""

    name: ClassVar[str] = "fetch"
    dst: View
    src: View
    rank: Int

    def views(self) -> tuple[View, ...]:
        """Destination, source."""
        return self.dst, self.src

    def uniform(self) -> Iterator[Int]:
        """The CTA that has it."""
        yield self.rank

    def details(self) -> str:
        """Of which CTA."""
        return _of_ctas((self.rank,))


@dataclass(eq=False)
class CopyAsync(Primitive):
    """Start a copy between global and shared memory.

    It completes on a barrier slot (inside `arrives`) or with the group that the next `Commit`
    closes. With `ranks` it goes to the same slice of shared memory in each of these CTAs of the
    cluster, and completes on each one's own barrier slot; `landings` counts the CTAs that send such
    a copy to one CTA (derived).
    """

    name: ClassVar = "copy_async"
    tiles: ClassVar = ("dst", "src")
    controls: ClassVar = ("slot", "ranks")
    dst: View
    src: View
    barrier: MBarrier | None = None
    slot: Int = 0
    via: str = ""
    ranks: tuple[Int, ...] = ()
    landings: int = 1

    def details(self) -> str:
        """Where it completes."""
        if self.barrier is None:
            return ""
        return f", completes {self.barrier}[{self.slot}]{_of_ctas(self.ranks)}"


@dataclass(eq=False)
class MergeAsync(CopyAsync):
    """Start to merge shared memory with what global memory holds, by a monoid, and leave it there.

    It completes with the group that the next `Commit` closes.
    """

    name: ClassVar = "merge_async"
    monoid: str = "+"

    def details(self) -> str:
        """By which monoid."""
        return f", by {self.monoid}"


@dataclass(eq=False)
class Signal(Primitive):
    """Tell all devices that what this one did before the kernel is done.

    One thread of the grid adds 1 to every number of `flags`, of which each device has one. Before,
    it sets `last` to 0: the device's own number of the meeting before this one.
    """

    name: ClassVar = "signal"
    tiles: ClassVar = ("flags", "last")
    flags: View
    last: View


@dataclass(eq=False)
class Clear(Primitive):
    """One thread of the grid sets a device's own numbers to 0, which nobody adds to any more."""

    name: ClassVar = "clear"
    tiles: ClassVar = ("flags",)
    flags: View


@dataclass(eq=False)
class Tell(Primitive):
    """Tell devices that elements are stored: a number of each grows by how many.

    All that the issuing thread knows is known to who has waited for such a number.
    """

    name: ClassVar = "tell"
    controls: ClassVar = ("counts",)
    flags: tuple[View, ...]
    counts: tuple[Int, ...]

    def views(self) -> tuple[View, ...]:
        """The numbers."""
        return self.flags

    def details(self) -> str:
        """How many elements there are more."""
        return f", {', '.join(map(str, self.counts))} elements more"


@dataclass(eq=False)
class Await(Primitive):
    """Wait until a number that devices add to is `least`; what they did before is known then."""

    name: ClassVar = "await"
    tiles: ClassVar = ("flag",)
    says: ClassVar = ", at least {s.least}"
    flag: View
    least: int


@dataclass(eq=False)
class Kernel(ir.Kernel):
    """A kernel on threads.

    Attributes:
        n_warps: warps of one CTA.
        barriers: barrier arrays.
        tiles: units of work, each of one cluster; a grid covers them.
        persistent: a CTA loops over tiles (at most one CTA per slot of the machine is launched).
        smem_bytes: shared memory of one CTA.
        cluster: CTAs of one cluster.
        resident: CTAs of a unit that its registers are divided among; 0 leaves that to the
            compiler, which divides them among as many as it can.
        streamed: names of outputs that nothing finds in a cache after the kernel: theirs are the
            first places that caches give up.
        awaited: names of inputs that other devices write while the kernel runs.
        again: names of outputs whose elements a CTA may write again, with the same bits.
    """

    n_warps: int = field(kw_only=True)
    barriers: list[MBarrier] = field(default_factory=list)
    tiles: Int = 1
    persistent: bool = False
    smem_bytes: int = 0
    cluster: int = 1
    resident: int = 0
    streamed: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    issuer: ClassVar[str] = "thread"
    issuer_numbers: ClassVar[frozenset[str]] = frozenset(v.name for v in (WARP, LANE, THREAD))

    @property
    def merged(self) -> frozenset[str]:
        """Names of outputs that hold something before, with which results are merged."""
        found = (s for s, _ in walk(self) if isinstance(s, Merge | MergeAsync))
        return frozenset(s.dst.buffer.name for s in found)

    @property
    def top(self) -> Where:
        """All warps of the CTA."""
        return Where("cta", self.n_warps)

    @property
    def owner(self) -> Where:
        """Beside roles every warpgroup computes the integers of the top for itself."""
        divided = any(isinstance(s, Roles) for s in self.body)
        return Where("warpgroup" if divided else "cta", self.n_warps)

    def given(self) -> Iterator[str]:
        """Parameters, and the CTA's place in the grid."""
        yield from super().given()
        yield from (CTA.name, N_CTAS.name)
        if self.cluster > 1:
            yield RANK

    def names(self) -> Iterator[str]:
        """Those of buffers and barriers."""
        yield from super().names()
        yield from (b.name for b in self.barriers)

    def header(self) -> Iterator[str]:
        """Threads, shared memory, grid."""
        warps = f"{self.n_warps} warp" + ("" if self.n_warps == 1 else "s")
        name, *params = super().header()
        yield f"{name}, {warps}, {self.smem_bytes} bytes of smem"
        yield from params
        if self.cluster > 1:
            yield f"  clusters of {self.cluster} CTAs"
        if self.resident:
            yield f"  {self.resident} CTAs side by side"
        each = "CTA" if self.cluster == 1 else "cluster"
        grid = "persistent over" if self.persistent else f"one {each} for each of"
        yield f"  {grid} {self.tiles} tiles"

    def declarations(self) -> Iterator[str]:
        """Buffers with their places in shared memory, and barriers."""
        for buffer, text in zip(self.parts(), super().declarations(), strict=True):
            at = f" at byte {buffer.offset}" if buffer.space == SMEM else ""
            what, equals, place = text.partition(" = ")
            yield f"{what}{at}{equals}{place}"
        for b in self.barriers:
            yield f"  barrier {b.name}[{b.slots}] at byte {b.offset}, {b.arrivals} arrivals"

    @property
    def n_threads(self) -> int:
        """Threads of one CTA."""
        return LANES * self.n_warps

    @property
    def smem_alignment(self) -> int:
        """Bytes that the start of its shared memory is a multiple of."""
        return max((b.alignment for b in self.buffers if b.space == SMEM), default=16)

    @property
    def launch_smem_bytes(self) -> int:
        """Shared memory that a launch asks for: what it begins with is aligned to 16 bytes only."""
        slack = self.smem_alignment if self.smem_alignment > 16 else 0
        return self.smem_bytes + slack if self.smem_bytes else 0


def walk(kernel: Kernel) -> list[tuple[Statement, Where]]:
    """Every statement with who issues it, in program order."""
    return cast(list[tuple[Statement, Where]], ir.walk(kernel))


def _of_ctas(ranks: Sequence[Int]) -> str:
    return f" of CTAs {', '.join(map(str, ranks))}" if ranks else ""
