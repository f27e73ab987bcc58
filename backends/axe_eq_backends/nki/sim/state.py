"""The run of a kernel: what instructions read and write, what is found, and their steps."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from axe_eq_backends.nki.sim import hazards
from axe_eq_backends.nki.sim.dtypes import F32, Dtype, cast, is_packed
from axe_eq_backends.nki.sim.errors import Finding, Line, NkiError, kernel_line, refuse, shown
from axe_eq_backends.nki.sim.machine import Machine
from axe_eq_backends.nki.sim.storage import Array, MemoryRegion, Region, Storage, Tile, new_storage
from axe_eq_backends.nki.sim.views import Register, Tensor, dense

PSUM, SBUF = MemoryRegion.psum, MemoryRegion.sbuf
MOST_INSTRUCTIONS = 2_000_000


class Step(NamedTuple):
    """One instruction that ran.

    Attributes:
        op: its name in `nki.isa`.
        engine: that it ran on.
        ns: model time that it keeps its engine busy for.
        line: of the kernel.
        reads, writes: bytes, for dependences.
        n_bytes, run: of a DMA: bytes moved, and of its contiguous runs.
    """

    op: str
    engine: str
    ns: float
    line: Line
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    n_bytes: int = 0
    run: int = 0


@dataclass(eq=False)
class Run:
    """One run.

    Attributes:
        machine: whose limits hold.
        dialect: "0.2" or "0.3".
        most: instructions after which it is refused.
        program, programs: which of how many programs of a grid runs.
        steps: instructions so far.
        found: warnings, by check and line.
        tiles: every tile on chip.
        sums: registers that reductions of an engine add up in.
        by_rows: the instruction reads and writes partitions one by one, wherever they are.
        shared: tensors that the programs of a grid share, in the order in which they are declared.
    """

    machine: Machine
    dialect: str = "0.3"
    most: int = MOST_INSTRUCTIONS
    program: int = 0
    programs: int = 1
    grid: tuple[int, ...] = ()
    steps: list[Step] = field(default_factory=list)
    found: dict[tuple[str, Line], Finding] = field(default_factory=dict)
    tiles: list[Tile] = field(default_factory=list)
    addressed: list[weakref.ref[Storage]] = field(default_factory=list)
    sums: dict[str, Array] = field(default_factory=dict)
    shared: list[Tensor] = field(default_factory=list)
    n_shared: int = 0
    op: str = ""
    line: Line = ("", 0)
    by_rows: bool = False
    _reads: list[Tensor] = field(default_factory=list)
    _writes: list[Tensor] = field(default_factory=list)

    # -- tensors --

    def declare(
        self, shape: tuple[int, ...], dtype: Dtype, memory: MemoryRegion, name: str = "",
        address: tuple[int, int] | None = None,
    ) -> Tensor:  # fmt: skip
        """A new tensor that nothing has written; P1, C1, C2, P2 hold of its declaration."""
        line = kernel_line()
        if memory is MemoryRegion.shared_hbm and self.programs > 1:
            self.n_shared += 1
            if self.n_shared <= len(self.shared):
                return self.shared[self.n_shared - 1]
        hazards.declared(self.machine, shape, dtype, memory, name, address, line)
        storage = new_storage(shape, dtype, memory, name=name, line=line, address=address)
        if memory.on_chip:
            self.tiles.append(storage.tile)
            if address is not None:
                self.addressed.append(weakref.ref(storage))
        tensor = dense(storage)
        if memory is MemoryRegion.shared_hbm and self.programs > 1:
            self.shared.append(tensor)
        return tensor

    def given(self, values: Array, name: str = "") -> Tensor:
        """An argument of the kernel, in HBM."""
        storage = new_storage(values.shape, values.dtype, MemoryRegion.shared_hbm, name=name)
        storage.data[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        storage.init[:] = True
        storage.whole = True
        return dense(storage)

    # -- instructions --

    def begin(self, op: str) -> None:
        """An instruction starts."""
        self.op, self.line, self.by_rows = op, kernel_line(), False
        self._reads, self._writes = [], []
        if len(self.steps) >= self.most:
            raise self.wrong("S1", "", f"is instruction {len(self.steps) + 1}",
                             f"at most {self.most} (the limit of this run)")  # fmt: skip

    def wrong(self, check: str, what: str, wrong: str, expected: str) -> NkiError:
        """The error of a check about the instruction, or an argument of it."""
        return refuse(check, f"{self.op} {what}".rstrip(), wrong, expected, self.line)

    def warn(self, check: str, what: str, wrong: str, expected: str) -> None:
        """Note what a check finds and go on."""
        key = check, self.line
        if key in self.found:
            self.found[key].times += 1
        else:
            text = f"{self.op} {what}".rstrip() + f": {wrong}; expected {expected}"
            self.found[key] = Finding(check, text, self.line)

    def tensor(self, what: str, given: Any) -> Tensor:
        """An argument that has to be a tensor."""
        if not isinstance(given, Tensor):
            raise NkiError(f"{self.op} {what}", f"is {given!r}", "a tensor", at=shown(self.line))
        return given

    def settled(self, what: str, t: Tensor) -> Tensor:
        """A view whose offset is read now, where it has one of a register or a tensor of one."""
        if t.moved is None or t.moved.each_row:
            return t
        by = t.moved.by
        if isinstance(by, Tensor):
            at = int(self.read(f"offset of {what}", by, exact=True).reshape(-1)[0])
        else:
            at = Register.__index__(by) if isinstance(by, Register) else int(by)
        view = Tensor(t.storage, t.first + at * t.moved.step, t.shape, t.steps, t.dtype)
        if at < 0:
            raise self.wrong("P1", what, f"starts at {at}", "0 or more")
        view.in_bounds()
        return view

    def read(self, what: str, given: Any, *, exact: bool = False) -> Array:
        """The values of an operand: float32, or as stored where `exact`."""
        t = self.settled(what, self.tensor(what, given))
        self._reads.append(t)
        storage = t.storage
        if not storage.whole:
            written = t.bits(storage.init)
            if not written.all():
                self._unwritten(what, t, written)
        if storage.groups:
            hazards.group_read(t, self.line)
        values = t.array()
        if exact or is_packed(t.dtype):
            return values.copy()
        return values.astype(F32, order="C")  # sums depend on no order in memory

    def uses(self, t: Tensor) -> None:
        """Note that the instruction reads an operand whatever it holds."""
        self._reads.append(t)

    def _unwritten(self, what: str, t: Tensor, written: Array) -> None:
        missing = int(written.size - np.count_nonzero(written)) * t.size // written.size
        if t.storage.clobbered is not None:
            line, tile = t.storage.clobbered
            raise self.wrong("C2", f"{what} {t!r}", f"was overwritten by {tile} at {shown(line)}",
                             "tiles whose addresses do not meet while both are used")  # fmt: skip
        raise self.wrong(
            "U1",
            f"{what} {t!r}",
            f"has {missing} of {t.size} elements that nothing wrote",
            "every element written before it is read",
        )

    def write(self, what: str, given: Any, values: Array, *, product: bool = False) -> None:
        """Put values, in order, cast to the dtype of the destination."""
        t = self.settled(what, self.tensor(what, given))
        self._writes.append(t)
        if values.size != t.size:
            raise self.wrong("P1", f"{what} {t!r}", f"gets {values.size} elements", f"{t.size}")
        if 0 in t.steps and any(n > 1 and s == 0 for n, s in zip(t.shape, t.steps, strict=True)):
            raise self.wrong("P3", f"{what} {t!r}", "is broadcast", "one place for each element")
        values = values if is_packed(t.dtype) else cast(values, t.dtype)
        t.array()[...] = values.reshape(t.shape)
        storage = t.storage
        if not storage.whole:
            if t.covers():
                storage.whole = True
            else:
                t.bits(storage.init)[...] = True
        if storage.product is not None:
            t.bits(storage.product)[...] = product
            if not product and storage.groups:
                hazards.group_cleared(t)
        if storage.tile.address is not None:
            hazards.overwrites(t, self.addressed, self.line)

    def issue(
        self,
        engine: str,
        elements: float = 0.0,
        row: str = "copy",
        *,
        ns: float | None = None,
        n_bytes: int = 0,
        run: int = 0,
    ) -> None:
        """The instruction ends: which engine it took, and for how long.

        Args:
            engine: that ran it.
            elements: per partition, that `row` of the target says the cycles of.
            row: of the target's instructions on that engine; without a dot, by the engine's name.
            ns: the time instead.
            n_bytes: that a DMA moves.
            run: bytes of its contiguous runs.
        """
        views = (*self._writes, *self._reads)
        hazards.reached(self, engine, views)
        name = row if "." in row else f"{engine}.{row}"
        time = self.machine.ns(engine, name, elements) if ns is None else ns
        number = len(self.steps)
        for t in views:
            tile = t.storage.tile
            tile.last = number
            if tile.first < 0:
                tile.first = number
        self.steps.append(Step(
            self.op, engine, time, self.line, tuple(t.region() for t in self._reads),
            tuple(t.region() for t in self._writes), n_bytes, run,
        ))  # fmt: skip

    def engine(self, given: Any, allowed: Sequence[str], default: str | None = None) -> str:
        """The engine of an instruction: the one asked for where it may be, else the default."""
        name = getattr(given, "name", "unknown")
        if name == "unknown":
            return default or allowed[0]
        if name not in allowed:
            raise self.wrong("E1", "", f"is on the {name} engine of {self.machine.name}",
                             " or ".join(allowed))  # fmt: skip
        return name

    def at_least(self, generation: int) -> None:
        """Refuse an instruction that older NeuronCores lack."""
        if self.machine.generation < generation:
            raise self.wrong(
                "E1",
                "",
                f"is no instruction of NeuronCore-v{self.machine.generation} ({self.machine.name})",
                f"NeuronCore-v{generation} or newer",
            )

    def same(self, **views: Tensor) -> None:
        """Refuse operands whose partitions or elements per partition differ."""
        (what, first), *others = views.items()
        for name, t in others:
            if t.partitions != first.partitions or t.free != first.free:
                raise self.wrong(
                    "P1",
                    f"{name} {t!r}",
                    f"has {t.partitions} partitions of {t.free} elements",
                    f"{first.partitions} of {first.free} as {what}",
                )

    def on_chip(self, **views: Any) -> list[Tensor]:
        """Operands that have to be in SBUF or PSUM."""
        out = []
        for what, given in views.items():
            t = self.tensor(what, given)
            if not t.buffer.on_chip:
                raise self.wrong("B2", f"{what} {t!r}", f"is in {t.buffer.value}", "SBUF or PSUM")
            out.append(t)
        return out


_CURRENT: ContextVar[Run | None] = ContextVar("run", default=None)


def running() -> Run | None:
    """The run that is under way, if any."""
    return _CURRENT.get()


def current() -> Run:
    """The run that is under way.

    Raises:
        NkiError: none is.
    """
    run = _CURRENT.get()
    if run is None:
        raise NkiError("nki", "is used while no kernel runs", "a function under nki.jit",
                       at=shown(kernel_line()))  # fmt: skip
    return run


@contextmanager
def within(run: Run) -> Iterator[Run]:
    """Let `run` be the one that is under way."""
    before = _CURRENT.set(run)
    try:
        yield run
    finally:
        _CURRENT.reset(before)
