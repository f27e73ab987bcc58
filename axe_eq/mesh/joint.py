"""What all ranks compute together, of rank programs and of plans: the form that proofs take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from axe_eq.layout import Mesh
from axe_eq.program.node import Node, Program

Holder = Callable[[int, dict[str, int], Sequence[int]], int]


@dataclass(frozen=True, eq=False)
class Joint:
    """All ranks as one program of whole arrays.

    Attributes:
        program: outputs with a dim in front per mesh axis of `copies`.
        mesh: the devices.
        copies: per output the axes along which ranks might have other copies of it.
        holder: (output, place along its copies, index) -> the first rank that has that element.
        lemmas: pairs of values that have to be equal for the program to be what ranks compute:
            copies from which messages are sent. A name comes with each.
    """

    program: Program
    mesh: Mesh
    copies: tuple[tuple[str, ...], ...]
    holder: Holder
    lemmas: tuple[tuple[str, Node, Node], ...] = ()
