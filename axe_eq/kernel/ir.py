"""The nodes of kernels that every machine has: buffers, views, control, primitives.

A kernel is a value: print it (`show`), check it (`check`), lower it to a plan (`dispatch`),
interpret it, emit it (a backend). Statements compare by identity, since plans are kept per
statement. An execution model (`axe_eq.kernel.threads` is one) adds scopes, who issues what in them,
and synchronisation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import ClassVar

from axe_eq.errors import LayoutError, ScheduleError
from axe_eq.kernel.cells import Cell
from axe_eq.kernel.expr import Int, Var
from axe_eq.kernel.placement import Placement, number, sliced
from axe_eq.kernel.spaces import GLOBAL, PRIVATE, SHARED, Space
from axe_eq.kernel.subscripts import Subscript as Subscript
from axe_eq.kernel.subscripts import part
from axe_eq.kernel.subscripts import span as span
from axe_eq.kernel.userline import user_line
from axe_eq.program.types import DTYPES, DType


@dataclass(eq=False)
class Buffer:
    """Storage: an argument, a piece of shared memory, or a tile of its scope's own.

    Attributes:
        name: unique in its kernel.
        space: the memory that it lies in.
        dtype: element type name.
        shape: logical extents; those of arguments may be run-time values.
        place: where its elements lie, in elements.
        offset: first byte in shared memory.
        of: the storage that this is a part of, under dims of its own; None where it is storage.
        over: storage of shared memory that this begins with and takes the place of, whenever what
            lies there and after it has been read; None where its place is its own.
    """

    name: str
    space: Space
    dtype: str
    shape: tuple[Int, ...]
    place: Placement
    offset: int = 0
    of: Buffer | None = None
    over: Buffer | None = None

    @property
    def storage(self) -> Buffer:
        """What holds its elements."""
        return self.of or self

    @property
    def memory(self) -> str:
        """Name of its memory."""
        return self.space.name

    @property
    def is_global(self) -> bool:
        """Whether everybody sees it: parts outside of it are masked."""
        return self.space.kind == GLOBAL

    @property
    def is_shared(self) -> bool:
        """Whether those who run one instance of the kernel have it together."""
        return self.space.kind == SHARED

    @property
    def is_private(self) -> bool:
        """Whether every issuer has one of its own."""
        return self.space.kind == PRIVATE

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
        """Elements of storage that it takes, in private memories of every issuer."""
        return self.place.extent_on(self.space.axes[-1])

    @cached_property
    def alignment(self) -> int:
        """Bytes that its start is a multiple of: its memory's, and the swizzle's period."""
        swizzle = self.place.swizzle
        return max(self.space.align_bytes, (1 << swizzle.reach) * self.itemsize if swizzle else 1)

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


# -- statements -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Where:
    """Who issues a statement.

    Attributes:
        scope: name of the scope, one of the target's.
    """

    scope: str

    @property
    def axes(self) -> Mapping[str, int]:
        """The hardware axes that layouts of this scope's tiles must cover, with their sizes."""
        return {}

    @property
    def numbers(self) -> frozenset[str]:
        """Run-time numbers that tell those apart who issue a statement here for themselves."""
        return frozenset()


@dataclass(eq=False)
class Statement:
    """Base of all statements.

    Attributes:
        at: the user's source place.
        controls: names of its fields that `uniform` gives.
        shown: what `line` says, a format over the statement `s`.
    """

    at: str = field(default="", kw_only=True)
    controls: ClassVar[tuple[str, ...]] = ()
    shown: ClassVar[str] = ""

    def sections(self) -> Sequence[Section]:
        """The bodies inside."""
        body = getattr(self, "body", None)
        return [] if body is None else [Section(body)]

    def narrowed(self, where: Where) -> Where:
        """Who issues the bodies inside, where this is issued by `where`."""
        return where

    def inside(self, where: Where) -> Iterator[tuple[Section, Where]]:
        """The bodies inside, with who issues each."""
        for section in self.sections():
            yield section, section.where or self.narrowed(where)

    def uniform(self) -> Iterator[Int]:
        """Expressions that have one value for all who issue it."""
        for name in self.controls:
            value = getattr(self, name)
            yield from value if isinstance(value, tuple) else (value,)

    def line(self) -> str:
        """The statement in one line, without the bodies inside."""
        return self.shown.format(s=self) or type(self).__name__.lower()


Body = list[Statement]


@dataclass(frozen=True)
class Section:
    """A body inside a statement.

    Attributes:
        body: statements.
        variables: run-time integers that it has beside those outside.
        heading: what tells it from other sections of the statement.
        where: who issues it, where the section says so.
    """

    body: Body
    variables: tuple[Var, ...] = ()
    heading: str = ""
    where: Where | None = None


@dataclass(eq=False)
class For(Statement):
    """``for var in range(start, stop, step)``; never unrolled by emitters."""

    var: Var
    start: Int
    stop: Int
    step: Int
    body: Body = field(default_factory=list)
    controls: ClassVar = ("start", "stop", "step")
    shown: ClassVar = "for {s.var} in range({s.start}, {s.stop}, {s.step}):"

    def sections(self) -> Sequence[Section]:
        """What is repeated."""
        return [Section(self.body, (self.var,))]


@dataclass(eq=False)
class If(Statement):
    """The body, where the condition holds."""

    condition: Int
    body: Body = field(default_factory=list)
    controls: ClassVar = ("condition",)
    shown: ClassVar = "if {s.condition}:"


@dataclass(eq=False)
class Let(Statement):
    """Declare a variable; with `Assign` it is a mutable state.

    Attributes:
        anew: what is computed of it is computed here, and not kept in registers around a loop.
    """

    var: Var
    value: Int
    anew: bool = False
    controls: ClassVar = ("value",)
    shown: ClassVar = "{s.var} := {s.value}"


@dataclass(eq=False)
class Assign(Statement):
    """Change a mutable state."""

    var: Var
    value: Int
    controls: ClassVar = ("value",)
    shown: ClassVar = "{s.var} = {s.value}"


@dataclass(eq=False)
class Primitive(Statement):
    """A statement that dispatch lowers to instruction calls.

    Attributes:
        name: what instruction rows call it.
        tiles: names of its fields that are its operands, written ones first.
        says: what it says beside its operands, a format over the statement `s`.
    """

    name: ClassVar[str] = ""
    tiles: ClassVar[tuple[str, ...]] = ("out",)
    says: ClassVar[str] = ""

    def views(self) -> tuple[View, ...]:
        """Its operands, written ones first."""
        return tuple(getattr(self, name) for name in self.tiles)

    def places(self) -> Iterator[Int]:
        """Where its operands begin, which may differ between those who issue it."""
        for view in self.views():
            yield from view.begin

    @property
    def operands(self) -> str:
        """Its name and operands, for messages."""
        out, *ins = self.views()
        return f"{self.name} {out}" + (f" <- {', '.join(map(str, ins))}" if ins else "")

    def line(self) -> str:
        """Operands, and what else it says."""
        return f"{self.operands}{self.details()}"

    def details(self) -> str:
        """What it says beside its operands."""
        return self.says.format(s=self)


@dataclass(eq=False)
class Copy(Primitive):
    """Copy `src` to `dst`, done when the statement is; `via` names a row family to use.

    Elements outside a global source read as `fill`; those outside a destination are not written.
    """

    name: ClassVar = "copy"
    tiles: ClassVar = ("dst", "src")
    dst: View
    src: View
    fill: float = 0.0
    via: str = ""


@dataclass(eq=False)
class Merge(Copy):
    """Merge `src` with what `dst` holds, by a monoid, and leave the result there.

    It is done in memory, element by element and at once: what others merge meanwhile is not lost.
    """

    name: ClassVar = "merge"
    monoid: str = "+"

    def details(self) -> str:
        """By which monoid."""
        return f", by {self.monoid}"


@dataclass(eq=False)
class Gemm(Primitive):
    """acc[m, n] (+)= sum over k of a[m, k] b[n, k]; asynchronous ones form one group each."""

    name: ClassVar = "gemm"
    tiles: ClassVar = ("acc", "a", "b")
    controls: ClassVar = ("accumulate",)
    acc: View
    a: View
    b: View
    accumulate: Int
    asynchronous: bool

    def details(self) -> str:
        """Whether it adds to what is there."""
        return f", accumulate {self.accumulate}" + (", async" if self.asynchronous else "")


@dataclass(eq=False)
class Map(Primitive):
    """out[i] = cell(ins[i] ...), rounded to out's dtype; ins broadcast as in numpy."""

    name: ClassVar = "map"
    says: ClassVar = ": {s.cell}"
    cell: Cell
    out: View
    ins: tuple[View, ...]

    def views(self) -> tuple[View, ...]:
        """Output, operands."""
        return self.out, *self.ins


@dataclass(eq=False)
class Reduce(Primitive):
    """out = monoid over `dims` of `src`; `scratch` is shared memory, where they exchange there."""

    name: ClassVar = "reduce"
    tiles: ClassVar = ("out", "src")
    says: ClassVar = ": {s.monoid} over dims {s.dims}"
    monoid: str
    out: View
    src: View
    dims: tuple[int, ...]
    scratch: Buffer | None


@dataclass(eq=False)
class Scan(Primitive):
    """Every element of a state becomes that of all elements up to it along `dim`, in place.

    The carries, of extent 1 along `dim`, are what stands before; they become what stands before a
    next tile. A state is one tile per cell of `merge`, which takes an earlier and a later state.

    Attributes:
        merge: cells over the earlier state's parts, then the later one's.
        states, carries: one tile per part, all states alike.
        dim: along which.
        scratch: shared memory per part, needed where issuers exchange through it.
    """

    name: ClassVar = "scan"
    merge: tuple[Cell, ...]
    states: tuple[View, ...]
    carries: tuple[View, ...]
    dim: int
    scratch: tuple[Buffer, ...]

    def views(self) -> tuple[View, ...]:
        """The first state, then every tile that is read and written."""
        return (self.states[0], *self.states, *self.carries)

    def details(self) -> str:
        """Cells and dim."""
        return f": {', '.join(map(str, self.merge))} along dim {self.dim}"


@dataclass(eq=False)
class Fill(Primitive):
    """out = value."""

    name: ClassVar = "fill"
    says: ClassVar = ": {s.value}"
    out: View
    value: float


@dataclass(eq=False)
class Index(Primitive):
    """out[i] = begin + position of i along `dim`; for masks."""

    name: ClassVar = "index"
    says: ClassVar = ": {s.begin} + position along dim {s.dim}"
    out: View
    dim: int
    begin: Int

    def places(self) -> Iterator[Int]:
        """Where the tile begins, and the first position."""
        yield from (*self.out.begin, self.begin)


@dataclass(eq=False)
class Kernel:
    """A kernel.

    Attributes:
        name: its name in emitted text.
        params: run-time integers, in order.
        tensors: arguments, in order; `outputs` names those it writes.
        buffers: all others.
        body: statements.
        issuer: whose numbers tell apart who issues a statement, for messages.
    """

    name: str
    params: list[Var] = field(default_factory=list)
    tensors: list[Buffer] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    body: Body = field(default_factory=list)
    issuer: ClassVar[str] = "engine"
    issuer_numbers: ClassVar[frozenset[str]] = frozenset()

    @property
    def top(self) -> Where:
        """Who issues the statements of its body."""
        raise NotImplementedError

    @property
    def owner(self) -> Where:
        """Who computes the integers that its body declares."""
        return self.top

    def given(self) -> Iterator[str]:
        """Names of run-time integers that nothing in it declares."""
        yield from (p.name for p in self.params)

    def parts(self) -> Iterator[Buffer]:
        """Its buffers, arguments first."""
        yield from (*self.tensors, *self.buffers)

    def names(self) -> Iterator[str]:
        """Names that are taken by its parts."""
        yield from (b.name for b in self.parts())

    def header(self) -> Iterator[str]:
        """The lines above its parts."""
        yield f"kernel {self.name}"
        shown = [
            f"{p}" + (f" (multiple of {p.divisor})" if p.divisor > 1 else "") for p in self.params
        ]
        yield from [f"  params {', '.join(shown)}"] if shown else []

    def declarations(self) -> Iterator[str]:
        """A line for each of its parts."""
        for buffer in self.parts():
            shape = "x".join(map(str, buffer.shape))
            yield f"  {buffer.memory} {buffer} {buffer.dtype}[{shape}] = {buffer.place}"

    def tensor(self, name: str) -> Buffer:
        """The argument called `name`.

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
    return [section.body for section in statement.sections()]


def walk(kernel: Kernel) -> list[tuple[Statement, Where]]:
    """Every statement with who issues it, in program order."""
    found: list[tuple[Statement, Where]] = []
    _walk(kernel.body, kernel.top, found)
    return found


def _walk(body: Body, where: Where, found: list[tuple[Statement, Where]]) -> None:
    for statement in body:
        found.append((statement, where))
        for section, narrower in statement.inside(where):
            _walk(section.body, narrower, found)
