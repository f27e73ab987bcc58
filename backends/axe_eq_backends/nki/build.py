"""The execution model of NeuronCores: engines that wait for data, tiles on partitions.

A kernel is one program for all engines of a core. A buffer on chip lies on axis ``P`` (partitions)
and axis ``F`` (elements of one partition).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from axe_eq.kernel import ir
from axe_eq.kernel.build import Builder
from axe_eq.kernel.given import refuse
from axe_eq.kernel.placement import Block, Iter, Placement
from axe_eq.kernel.spaces import GLOBAL, Space, space_of
from axe_eq.target import Target

PARTITION, FREE = "P", "F"


@dataclass
class EngineKernel(ir.Kernel):
    """A kernel of one core."""

    @property
    def top(self) -> ir.Where:
        """The core: rows say which of its engines."""
        return ir.Where("core")


@dataclass(eq=False)
class Gather(ir.Primitive):
    """out[p, ...] = the elements of a flat tensor from element `where[p]` on, by these steps.

    Attributes:
        out: a tile.
        src: the tensor, of one dim.
        where: an i32 per partition of `out`.
        steps: elements between neighbours along the dims of `out`; 0 along the one on partitions.
    """

    name: ClassVar[str] = "copy"
    out: ir.View
    src: ir.View
    where: ir.View
    steps: tuple[int, ...]

    def views(self) -> tuple[ir.View, ...]:
        """Output, tensor, places."""
        return self.out, self.src, self.where

    def details(self) -> str:
        """What it says beside its operands."""
        return f": steps {self.steps}"


@dataclass(eq=False)
class CopyReduce(ir.Primitive):
    """out = src, and reduced = its reduction over some dims: one pass over what is copied.

    Attributes:
        out, reduced: tiles; `reduced` has extent 1 along `dims`.
        src: a tile.
        monoid: of the reduction.
        dims: that are reduced.
    """

    name: ClassVar[str] = "copy_reduce"
    out: ir.View
    reduced: ir.View
    src: ir.View
    monoid: str
    dims: tuple[int, ...]

    def views(self) -> tuple[ir.View, ...]:
        """Outputs, operand."""
        return self.out, self.reduced, self.src

    @property
    def operands(self) -> str:
        """Its name and operands, for messages."""
        return f"{self.name} {self.out}, {self.reduced} <- {self.src}"

    def details(self) -> str:
        """What it says beside its operands."""
        return f": {self.monoid} over dims {self.dims}"


def outputs(s: ir.Primitive) -> tuple[ir.View, ...]:
    """What a primitive writes."""
    return s.views()[: 2 if isinstance(s, CopyReduce) else 1]


def inputs(s: ir.Primitive) -> tuple[ir.View, ...]:
    """What a primitive reads; of a scan also its carries, and constants that stand in scratch."""
    if isinstance(s, ir.Scan):
        return *s.views(), *(b.all for b in s.scratch)
    read = s.views()[len(outputs(s)) :]
    return (*read, s.acc) if isinstance(s, ir.Gemm) and s.accumulate != 0 else read


class EngineBuilder(Builder):
    """Records a kernel of one core.

    Args:
        name: of the kernel.
        target: whose memories it uses.
    """

    _arguments: ClassVar[Space] = Space("hbm", GLOBAL, ("m",))

    def __init__(self, name: str, target: Target) -> None:
        super().__init__(EngineKernel(name))
        self.target = target

    @cached_property
    def _spaces(self) -> Mapping[str, Space]:
        return {m.name: space_of(m) for m in self.target.memories}

    def tile(
        self, memory: str, name: str, dtype: str, shape: Sequence[int], place: Placement
    ) -> ir.Buffer:
        """A piece of a memory on chip.

        Raises:
            ScheduleError: more places than the memory has.
        """
        made = self.buffer(self._spaces[memory], name, dtype, shape, place)
        held = self.target.memory(memory)
        for axis, most in zip(held.axes, held.extents, strict=False):
            if place.extent_on(axis) > most:
                taken = place.extent_on(axis)
                raise refuse(f"{memory} {name}", f"takes {taken} {axis}", f"at most {most}")
        return made

    def sbuf(self, name: str, dtype: str, shape: Sequence[int], place: Placement) -> ir.Buffer:
        """A tile in SBUF."""
        return self.tile("sbuf", name, dtype, shape, place)

    def psum(self, name: str, dtype: str, shape: Sequence[int], place: Placement) -> ir.Buffer:
        """A tile in PSUM."""
        return self.tile("psum", name, dtype, shape, place)

    def gather(self, out: ir.View, src: ir.View, where: ir.View, steps: Sequence[int]) -> None:
        """Copy rows of a flat tensor that begin where a tile of integers says."""
        out = self._parts.written("gather", out)
        src, where = self._parts.view("gather", src), self._parts.view("gather", where)
        if len(steps) != len(out.shape) or where.buffer.dtype != "i32" or len(src.shape) != 1:
            wrong = f"{out} by {len(steps)} steps from {src} at {where.buffer.dtype}"
            raise refuse("gather", wrong, "a step per dim, a flat tensor, i32")
        self._add(Gather(out, src, where, tuple(steps)))

    def copy_reduce(
        self, monoid: str, out: ir.View, reduced: ir.View, src: ir.View, dims: Sequence[int]
    ) -> None:
        """Copy a tile, and reduce it on the way."""
        out, reduced = (self._parts.written("copy_reduce", v) for v in (out, reduced))
        src = self._parts.view("copy_reduce", src)
        once = tuple(1 if d in dims else e for d, e in enumerate(src.shape))
        if out.shape != src.shape or reduced.shape != once:
            wrong = f"{src.shape} to {out.shape} and {reduced.shape}"
            raise refuse("copy_reduce", wrong, f"{src.shape} and {once}")
        self._add(CopyReduce(out, reduced, src, monoid, tuple(dims)))


def rows_of(shape: Sequence[int], across: int | None) -> Placement:
    """A tile with one dim on partitions and the others row-major along the free axis.

    >>> print(rows_of((4, 128, 8), 1))
    (4:8@F) (128:1@P) (8:1@F)
    """
    blocks: list[Block] = []
    stride = 1
    for d in reversed(range(len(shape))):
        if shape[d] == 1:
            blocks.append(())
        elif d == across:
            blocks.append((Iter(shape[d], 1, PARTITION),))
        else:
            blocks.append((Iter(shape[d], stride, FREE),))
            stride *= shape[d]
    return Placement(tuple(reversed(blocks)))
