"""Operands of instruction calls on threads: registers and places in shared memory.

A call is executed by every thread of its primitive's scope, or by the elected one; its expressions
may use `LANE`, `WARP` and the variables in scope.
"""

from __future__ import annotations

from dataclasses import dataclass

from axe_eq.kernel.expr import Int
from axe_eq.kernel.ir import Buffer


@dataclass(frozen=True)
class Regs:
    """Registers of a tile, by element number in the issuing thread."""

    buffer: Buffer
    index: tuple[int, ...]

    def __str__(self) -> str:
        first, n = self.index[0], len(self.index)
        if self.index == tuple(range(first, first + n)):
            return f"{self.buffer}[{first}]" if n == 1 else f"{self.buffer}[{first}:{first + n}]"
        return f"{self.buffer}[{' '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Address:
    """A place in shared memory: bytes from the start of a buffer."""

    buffer: Buffer
    byte: Int

    def __str__(self) -> str:
        return f"{self.buffer} + {self.byte}" if self.byte != 0 else str(self.buffer)
