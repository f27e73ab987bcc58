"""The nodes of kernels: buffers, views, scopes, primitives and synchronisation.

A kernel is a value: print it (`show`), check it (`check`), lower it to a plan (`dispatch`),
interpret it at both levels (`interp`), emit it (a backend). Statements compare by identity, since
plans are kept per statement.

Scopes: a kernel's CTAs have `n_warps` warps. At the top, and in an `if` or `for` there, a
primitive is issued by all of them together (scope "cta"). `Roles` divides the warps into exclusive
branches by warpgroups of 4 warps; inside, every warpgroup issues for itself ("warpgroup"). `Scope`
narrows to one elected thread ("elect") or to every warp or thread for itself ("warp", "thread").
Layouts place tiles on the threads of the scope: axes ``warp`` (of the scope), ``lane``, ``reg``.

A kernel may run in clusters of CTAs that start together. A CTA reaches the memory of the others, at
the same place as its own, by arriving at their barriers and by copying one slice into several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from axe_eq.errors import LayoutError, ScheduleError
from axe_eq.kernel.cells import Cell
from axe_eq.kernel.expr import Int, Var, var
from axe_eq.kernel.placement import LANES, Placement, number, sliced
from axe_eq.kernel.subscripts import Subscript as Subscript
from axe_eq.kernel.subscripts import part
from axe_eq.kernel.subscripts import span as span
from axe_eq.kernel.userline import user_line
from axe_eq.program.types import DTYPES, DType

LANE = var("lane", high=LANES - 1)
WARP = var("warp", high=LANES - 1)
THREAD = var("thread", high=LANES * LANES - 1)
CTA = var("cta")
N_CTAS = var("n_ctas", low=1)
RANK = "rank"  # the name of a CTA's number in its cluster
WARPS_PER_GROUP = 4


@dataclass(eq=False)
class Buffer:
    """Storage: a global tensor, a piece of shared memory, or a register tile of its scope.

    Attributes:
        name: unique in its kernel.
        memory: a memory of the target.
        dtype: element type name.
        shape: logical extents; those of global buffers may be run-time values.
        place: where its elements lie, in elements.
        offset: first byte in shared memory.
    """

    name: str
    memory: str
    dtype: str
    shape: tuple[Int, ...]
    place: Placement
    offset: int = 0

    @property
    def type(self) -> DType:
        """Element type."""
        return DTYPES[self.dtype]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.type.itemsize

    @property
    def n_elements(self) -> int:
        """Elements of storage (shared memory) or registers per thread that it takes."""
        return self.place.extent_on("reg" if self.memory == "reg" else "m")

    @cached_property
    def alignment(self) -> int:
        """Bytes that its start is a multiple of: the swizzle's period, at least 128."""
        swizzle = self.place.swizzle
        return max(128, (1 << swizzle.reach) * self.itemsize if swizzle else 1)

    @property
    def all(self) -> View:
        """The whole buffer."""
        extent = tuple(number(e) for e in self.shape)
        return View(self, (0,) * len(extent), extent, tuple(range(len(extent))))

    def __getitem__(self, index: Subscript | tuple[Subscript, ...]) -> View:
        items = index if isinstance(index, tuple) else (index,)
        if len(items) > len(self.shape):
            wrong = f"has {len(self.shape)} dims, {len(items)} indices"
            raise LayoutError(f"buffer {self.name}", wrong, "one each", at=user_line())
        items += (slice(None),) * (len(self.shape) - len(items))
        parts = [
            part(self, d, i, e) for d, (i, e) in enumerate(zip(items, self.shape, strict=True))
        ]
        kept = tuple(d for d, (_, _, keep) in enumerate(parts) if keep)
        return View(self, tuple(b for b, _, _ in parts), tuple(e for _, e, _ in parts), kept)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class View:
    """A rectangular part of a buffer, with dims dropped (indexed by one position) or reordered.

    Attributes:
        buffer: what it is a part of.
        begin, extent: the part, per dim of the buffer.
        dims: the buffer's dims that the view has, in the view's order.
    """

    buffer: Buffer
    begin: tuple[Int, ...]
    extent: tuple[int, ...]
    dims: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the view's dims."""
        return tuple(self.extent[d] for d in self.dims)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.extent)

    @cached_property
    def place(self) -> Placement:
        """Where its elements lie; the begin is in the offset."""
        whole = sliced(self.buffer.place, self.begin, self.extent, f"view {self}")
        return Placement(
            tuple(whole.blocks[d] for d in self.dims), whole.replica, whole.offset, whole.swizzle
        )

    @property
    def T(self) -> View:
        """The view with its last two dims swapped."""
        if len(self.dims) < 2:
            wrong = f"has {len(self.dims)} dims to swap"
            raise LayoutError(f"view {self}", wrong, "at least 2", at=user_line())
        return View(
            self.buffer, self.begin, self.extent, (*self.dims[:-2], self.dims[-1], self.dims[-2])
        )

    def __getitem__(self, index: Subscript | tuple[Subscript, ...]) -> View:
        items = index if isinstance(index, tuple) else (index,)
        if len(items) > len(self.dims):
            wrong = f"has {len(self.dims)} dims, {len(items)} indices"
            raise LayoutError(f"view {self}", wrong, "one each", at=user_line())
        begin, extent, kept = list(self.begin), list(self.extent), list(self.dims)
        for d, item in zip(self.dims, items, strict=False):
            at, size, keep = part(self.buffer, d, item, self.extent[d])
            begin[d], extent[d] = begin[d] + at, size
            if not keep:
                kept.remove(d)
        return View(self.buffer, tuple(begin), tuple(extent), tuple(kept))

    def __str__(self) -> str:
        parts = [
            f"{b}:+{e}" if d in self.dims else str(b)
            for d, (b, e) in enumerate(zip(self.begin, self.extent, strict=True))
        ]
        text = f"{self.buffer.name}[{', '.join(parts)}]"
        return text if list(self.dims) == sorted(self.dims) else f"{text}.permuted{self.dims}"


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
class Statement:
    """Base of all statements; `at` is the user's source place."""

    at: str = field(default="", kw_only=True)


Body = list[Statement]


@dataclass(eq=False)
class For(Statement):
    """``for var in range(start, stop, step)``; never unrolled by emitters."""

    var: Var
    start: Int
    stop: Int
    step: Int
    body: Body = field(default_factory=list)


@dataclass(eq=False)
class If(Statement):
    """The body, where the condition holds."""

    condition: Int
    body: Body = field(default_factory=list)


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


@dataclass(eq=False)
class Roles(Statement):
    """Exclusive branches over warpgroups: one node, so that emitters make one if/else chain."""

    branches: list[Role] = field(default_factory=list)


@dataclass(eq=False)
class Scope(Statement):
    """A narrower issuing scope: "elect" (one thread), "warp" or "thread" (each for itself)."""

    kind: str
    body: Body = field(default_factory=list)


@dataclass(eq=False)
class Let(Statement):
    """Declare a variable; with `Assign` it is a mutable state."""

    var: Var
    value: Int


@dataclass(eq=False)
class Assign(Statement):
    """Change a mutable state."""

    var: Var
    value: Int


@dataclass(eq=False)
class Wait(Statement):
    """Wait until phase parity of a barrier slot has completed."""

    barrier: MBarrier
    slot: Int
    parity: Int


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


@dataclass(eq=False)
class Expect(Statement):
    """Arrive and announce the bytes of the copies that complete on this slot (derived)."""

    barrier: MBarrier
    slot: Int
    copies: list[CopyAsync] = field(default_factory=list)

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


@dataclass(eq=False)
class ClusterWait(Statement):
    """Wait until all threads of the cluster have arrived; acquires what they did before."""


@dataclass(eq=False)
class FenceAsync(Statement):
    """Make earlier ordinary shared-memory accesses of this thread visible to the async proxy."""


@dataclass(eq=False)
class Commit(Statement):
    """Close the group of async operations issued so far; kind "bulk" or "cp_async"."""

    kind: str


@dataclass(eq=False)
class WaitGroup(Statement):
    """Wait until at most `pending` groups are open.

    Kind "wgmma" and "cp_async": done; "bulk": written; "bulk_read": shared memory was read.
    """

    kind: str
    pending: int


@dataclass(eq=False)
class Primitive(Statement):
    """A statement that dispatch lowers to instruction calls."""

    def views(self) -> tuple[View, ...]:
        """Its operands, written ones first."""
        raise NotImplementedError


@dataclass(eq=False)
class Copy(Primitive):
    """Copy `src` to `dst`, done when the statement is; `via` names a row family to use.

    Elements outside a global source read as `fill`; those outside a destination are not written.
    """

    dst: View
    src: View
    fill: float = 0.0
    via: str = ""

    def views(self) -> tuple[View, ...]:
        """Destination, source."""
        return self.dst, self.src


@dataclass(eq=False)
class CopyAsync(Primitive):
    """Start a copy between global and shared memory.

    It completes on a barrier slot (inside `arrives`) or with the group that the next `Commit`
    closes. With `ranks` it goes to the same slice of shared memory in each of these CTAs of the
    cluster, and completes on each one's own barrier slot; `landings` counts the CTAs that send such
    a copy to one CTA (derived).
    """

    dst: View
    src: View
    barrier: MBarrier | None = None
    slot: Int = 0
    via: str = ""
    ranks: tuple[Int, ...] = ()
    landings: int = 1

    def views(self) -> tuple[View, ...]:
        """Destination, source."""
        return self.dst, self.src


@dataclass(eq=False)
class Gemm(Primitive):
    """acc[m, n] (+)= sum over k of a[m, k] b[n, k]; asynchronous ones form one group each."""

    acc: View
    a: View
    b: View
    accumulate: Int
    asynchronous: bool

    def views(self) -> tuple[View, ...]:
        """Accumulator, operands."""
        return self.acc, self.a, self.b


@dataclass(eq=False)
class Map(Primitive):
    """out[i] = cell(ins[i] ...), rounded to out's dtype; ins broadcast as in numpy."""

    cell: Cell
    out: View
    ins: tuple[View, ...]

    def views(self) -> tuple[View, ...]:
        """Output, operands."""
        return self.out, *self.ins


@dataclass(eq=False)
class Reduce(Primitive):
    """out = monoid over `dims` of `src`; `scratch` is shared memory, needed across warps."""

    monoid: str
    out: View
    src: View
    dims: tuple[int, ...]
    scratch: Buffer | None

    def views(self) -> tuple[View, ...]:
        """Output, operand."""
        return self.out, self.src


@dataclass(eq=False)
class Scan(Primitive):
    """Every element of a state becomes that of all elements up to it along `dim`, in place.

    The carries, of extent 1 along `dim`, are what stands before; they become what stands before a
    next tile. A state is one tile per cell of `merge`, which takes an earlier and a later state.

    Attributes:
        merge: cells over the earlier state's parts, then the later one's.
        states, carries: one tile per part, all states alike.
        dim: along which.
        scratch: shared memory per part, needed across warps.
    """

    merge: tuple[Cell, ...]
    states: tuple[View, ...]
    carries: tuple[View, ...]
    dim: int
    scratch: tuple[Buffer, ...]

    def views(self) -> tuple[View, ...]:
        """The first state, then every tile that is read and written."""
        return (self.states[0], *self.states, *self.carries)


@dataclass(eq=False)
class Fill(Primitive):
    """out = value."""

    out: View
    value: float

    def views(self) -> tuple[View, ...]:
        """Output."""
        return (self.out,)


@dataclass(eq=False)
class Index(Primitive):
    """out[i] = begin + position of i along `dim`; for masks."""

    out: View
    dim: int
    begin: Int

    def views(self) -> tuple[View, ...]:
        """Output."""
        return (self.out,)


@dataclass(eq=False)
class Kernel:
    """A kernel.

    Attributes:
        name: its name in emitted text.
        n_warps: warps of one CTA.
        params: run-time integers, in order.
        tensors: global buffers, in order; `outputs` names those it writes.
        buffers: shared and register buffers.
        barriers: barrier arrays.
        body: statements.
        tiles: units of work, each of one cluster; a grid covers them.
        persistent: a CTA loops over tiles (at most one CTA per slot of the machine is launched).
        smem_bytes: shared memory of one CTA.
        cluster: CTAs of one cluster.
        note: what its text says about it, where something is to be said.
    """

    name: str
    n_warps: int
    params: list[Var] = field(default_factory=list)
    tensors: list[Buffer] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    barriers: list[MBarrier] = field(default_factory=list)
    body: Body = field(default_factory=list)
    tiles: Int = 1
    persistent: bool = False
    smem_bytes: int = 0
    cluster: int = 1
    note: str = ""

    @property
    def n_threads(self) -> int:
        """Threads of one CTA."""
        return LANES * self.n_warps

    @property
    def smem_alignment(self) -> int:
        """Bytes that the start of its shared memory is a multiple of."""
        return max((b.alignment for b in self.buffers if b.memory == "smem"), default=16)

    @property
    def launch_smem_bytes(self) -> int:
        """Shared memory that a launch asks for: what it begins with is aligned to 16 bytes only."""
        slack = self.smem_alignment if self.smem_alignment > 16 else 0
        return self.smem_bytes + slack if self.smem_bytes else 0

    def tensor(self, name: str) -> Buffer:
        """The global buffer called `name`.

        Raises:
            ScheduleError: the kernel has none of that name.
        """
        for buffer in self.tensors:
            if buffer.name == name:
                return buffer
        known = " ".join(b.name for b in self.tensors)
        raise ScheduleError(f"kernel {self.name}", f"has no tensor {name!r}", f"one of {known}")


def children(statement: Statement) -> Sequence[Body]:
    """The bodies inside a statement."""
    if isinstance(statement, Roles):
        return [role.body for role in statement.branches]
    body = getattr(statement, "body", None)
    return [] if body is None else [body]


@dataclass(frozen=True)
class Where:
    """Who issues a statement: scope, how many warps it spans, and its role."""

    scope: str
    n_warps: int
    role: Role | None = None

    @property
    def axes(self) -> dict[str, int]:
        """The thread axes that layouts of this scope's tiles must cover, with their sizes."""
        if self.scope == "thread":
            return {}
        return {"lane": LANES} if self.scope == "warp" else {"lane": LANES, "warp": self.n_warps}

    def inside(self, statement: Statement) -> Where:
        """The scope of a body of `statement`."""
        return (
            Where(statement.kind, self.n_warps, self.role) if isinstance(statement, Scope) else self
        )


def walk(kernel: Kernel) -> list[tuple[Statement, Where]]:
    """Every statement with its issuing scope, in program order."""
    found: list[tuple[Statement, Where]] = []
    _walk(kernel.body, Where("cta", kernel.n_warps), found)
    return found


def _walk(body: Body, where: Where, found: list[tuple[Statement, Where]]) -> None:
    for statement in body:
        found.append((statement, where))
        if isinstance(statement, Roles):
            for role in statement.branches:
                _walk(role.body, Where("warpgroup", WARPS_PER_GROUP, role), found)
        else:
            for inner in children(statement):
                _walk(inner, where.inside(statement), found)
