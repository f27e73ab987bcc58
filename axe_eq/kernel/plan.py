"""Plans: what a primitive becomes, instruction calls with addresses and registers.

A call is executed by all who issue its primitive; its expressions may use their numbers and the
variables in scope. A backend gives every instruction a text and a meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from axe_eq.kernel.expr import Int, Var
from axe_eq.target import Instr


class Resource:
    """What a launch needs beside arguments, prepared by its backend; equal ones share a name.

    Attributes:
        stem: what its name begins with.
        of: what it is about: several of one thing are numbered.
    """

    @property
    def stem(self) -> str:
        """The beginning of its name."""
        raise NotImplementedError

    @property
    def of(self) -> object:
        """What it is about."""
        raise NotImplementedError


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
    """One instruction call: its name, and named arguments as its backend reads them.

    Attributes:
        cycles: that one issue of it takes, where its backend says that call by call.
    """

    op: str
    args: Mapping[str, Any]
    cycles: float = 0.0

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
        align: bytes that base addresses of arguments must be multiples of, by name.
        cycles: estimated issue cycles of one unit, to rank plans of one primitive.
        notes: what `explain` shows (bank conflicts, vector width, boxes).
        loops: run-time integers from 0, outermost first, for whose values the calls are repeated:
            what of the primitive one instruction does not cover (Axe, section 3.4).
    """

    row: Instr
    calls: list[Call]
    lets: list[tuple[Var, Int]] = field(default_factory=list)
    requires: list[Require] = field(default_factory=list)
    align: dict[str, int] = field(default_factory=dict)
    cycles: float = 0.0
    notes: str = ""
    loops: list[Var] = field(default_factory=list)
