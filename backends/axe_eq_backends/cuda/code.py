"""A schedule graph as machine code: what to launch, on which memory, as plain numbers.

Everything that layouts and plans say is worked out when this is made, so that it runs where there
is no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from axe_eq import plain
from axe_eq_backends.cuda.image import Image

FORMAT = "2"


@dataclass(frozen=True)
class Port:
    """A buffer that callers see: an input, a captured constant or an output.

    Attributes:
        name: of the buffer.
        dtype: element type.
        shape, strides: extents, and strides in elements.
        n_bytes: memory from its first to its last element, padding included.
        align: bytes that its address is a multiple of.
        lies: the layout of a value that no strides describe: shape and strides are its memory's.
        value: the shape of that value.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    n_bytes: int
    align: int
    lies: str = ""
    value: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One kernel of the graph.

    Attributes:
        image: the compiled kernel.
        params: its run-time integers.
        places: per tensor of the kernel the port it is, or its byte offset in the arena.
    """

    image: Image
    params: Mapping[str, int]
    places: Mapping[str, str | int]


@dataclass(frozen=True)
class Code:
    """A schedule graph as machine code.

    Attributes:
        target: name of the machine.
        ports: by name; inputs, then constants, then outputs that are none of these.
        inputs, constants, outputs: names of ports, in the order of the program's.
        arena_bytes: memory for values between kernels.
        launches: in order.
    """

    target: str
    ports: Mapping[str, Port]
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    arena_bytes: int
    launches: tuple[Launch, ...]

    @property
    def made(self) -> tuple[str, ...]:
        """Outputs that a call makes; the others are inputs handed back."""
        given = {*self.inputs, *self.constants}
        return tuple(dict.fromkeys(name for name in self.outputs if name not in given))

    def wanted(self, into: Sequence[Any]) -> list[Any]:
        """Per output that a call makes an array that it is stored in, or None.

        Args:
            into: per output of the program; none of all where it is empty.
        """
        goals = dict(zip(self.outputs, into, strict=False))
        return [goals.get(name) for name in self.made]

    def to_bytes(self) -> bytes:
        """Everything in one piece of bytes."""
        return plain.to_bytes(self, FORMAT)

    @staticmethod
    def from_bytes(data: bytes) -> Code:
        """The inverse of `to_bytes`.

        Raises:
            ArgumentError: the bytes are no code of this version.
        """
        return plain.of_bytes("machine code", data, Code, FORMAT)
