"""Leaves and roots of cones as tensors of schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from axe_eq.kernel.cells import Cell, substituted
from axe_eq.lower.formulas import Cone, Leaf, Load, Position, Root
from axe_eq_backends.cuda import contract
from axe_eq_backends.cuda.schedules.tensors import Operand


class Names:
    """Names of tensors: those of their buffers, numbered where a buffer is read in two ways."""

    def __init__(self) -> None:
        self.buffers: dict[str, str] = {}

    def fresh(self, buffer: str) -> str:
        """A name that no other tensor has."""
        name, number = buffer, 1
        while name in self.buffers:
            number += 1
            name = f"{buffer}_{number}"
        self.buffers[name] = buffer
        return name


def operand(cone: Cone, leaf: Leaf, names: Names) -> Operand:
    """A leaf that is no reduction, over all dims of the index space."""
    assert isinstance(leaf, Load | Position)
    if isinstance(leaf, Load) and leaf.end:
        raise cone.refuse(f"reads parts of {leaf.buffer} that end past it", "whole parts")
    name = names.fresh(leaf.buffer) if isinstance(leaf, Load) else ""
    return contract.operand(cone, leaf, name)


def looking(o: Operand, known: Mapping[int, Cell]) -> Operand:
    """The operand with the cells of its looks over other numbers."""
    looks = tuple(replace(look, cell=substituted(look.cell, known)) for look in o.looks)
    return replace(o, looks=looks)


def stored(root: Root, names: Names) -> Operand:
    """A root over all dims of the index space."""
    return Operand(names.fresh(root.buffer), root.dtype, root.strides, root.offset)
