"""Plans: what a primitive becomes, instruction calls with addresses and registers.

A call is executed by every thread of its primitive's scope (or by the elected one); its expressions
may use `LANE`, `WARP` and the variables in scope. A backend gives every instruction a text and a
meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from axe_eq.kernel import ir
from axe_eq.kernel.expr import Int, Var
from axe_eq.layout.swizzle import Swizzle
from axe_eq.target import Instr


@dataclass(frozen=True)
class Regs:
    """Registers of a tile, by element number in the issuing thread."""

    buffer: ir.Buffer
    index: tuple[int, ...]

    def __str__(self) -> str:
        first, n = self.index[0], len(self.index)
        if self.index == tuple(range(first, first + n)):
            return f"{self.buffer}[{first}]" if n == 1 else f"{self.buffer}[{first}:{first + n}]"
        return f"{self.buffer}[{' '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Address:
    """A place in shared memory: bytes from the start of a buffer."""

    buffer: ir.Buffer
    byte: Int

    def __str__(self) -> str:
        return f"{self.buffer} + {self.byte}" if self.byte != 0 else str(self.buffer)


@dataclass(frozen=True)
class TensorMap:
    """A hardware descriptor of a global tensor, encoded by the host at launch.

    Attributes:
        buffer: the tensor.
        shape, strides: per map dim, fastest first, in elements.
        box: elements of one copy per map dim.
        swizzle_bytes: width of the shared-memory swizzle, 0 for none.
        offset: the element that its first one is.
    """

    buffer: ir.Buffer
    shape: tuple[Int, ...]
    strides: tuple[Int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    offset: Int = 0

    def __str__(self) -> str:
        dims = " x ".join(map(str, self.shape))
        swizzle = f", swizzle {self.swizzle_bytes}B" if self.swizzle_bytes else ""
        first = "" if self.offset == 0 else f" from element {self.offset}"
        box = " x ".join(map(str, self.box))
        return f"map of {self.buffer}{first}: {dims}, box {box}{swizzle}"


@dataclass(frozen=True)
class Require:
    """A run-time precondition of a plan: `value` is a multiple of `multiple`."""

    what: str
    value: Int
    multiple: int

    def __str__(self) -> str:
        return f"{self.what}: {self.value} is a multiple of {self.multiple}"


@dataclass(frozen=True)
class Call:
    """One instruction call: its name, and named arguments as its backend reads them."""

    op: str
    args: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def __str__(self) -> str:
        shown = ", ".join(f"{k}={v}" for k, v in self.args.items() if v is not None)
        return f"{self.op}({shown})"


@dataclass
class Plan:
    """What dispatch chose for one primitive.

    Attributes:
        row: the instruction row.
        calls: in order; every element of the primitive is covered exactly once.
        lets: values computed once before the calls.
        requires: run-time preconditions.
        align: bytes that base addresses of global tensors must be multiples of, by name.
        cycles: estimated issue cycles of one SM, to rank plans of one primitive.
        notes: what `explain` shows (bank conflicts, vector width, boxes).
    """

    row: Instr
    calls: list[Call]
    lets: list[tuple[Var, Int]] = field(default_factory=list)
    requires: list[Require] = field(default_factory=list)
    align: dict[str, int] = field(default_factory=dict)
    cycles: float = 0.0
    notes: str = ""


def swizzle_bytes(swizzle: Swizzle | None, itemsize: int) -> int:
    """Width in bytes of one row of the swizzle's pattern; 0 without one."""
    if swizzle is None or not swizzle.bits:
        return 0
    return itemsize << (swizzle.base + swizzle.bits)
