"""Monoids as cells: how an element becomes a state, and how two states become one.

A monoid whose state is one array says so itself (`Monoid.merges`, `Monoid.lifts`). What has more of
them, a structured monoid, is given in parts, by whoever declares it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from axe_eq.errors import PackError, said
from axe_eq.kernel.cells import Cell


@dataclass(frozen=True)
class Parts:
    """The state of a monoid, one entry per part.

    Attributes:
        lift: cells of the operands of one element.
        merge: cells of the parts of an earlier state, then of a later one.
        units: what changes nothing when it stands before a state.
        finish: a cell of the parts.
    """

    lift: tuple[Cell, ...]
    merge: tuple[Cell, ...]
    units: tuple[float, ...]
    finish: Cell


Make = Callable[[Sequence[str]], Parts]  # of the dtypes that the operands are computed in
_declared: dict[str, Make] = {}


def declare_parts(monoid: str, make: Make) -> None:
    """Say how kernels compute a structured monoid.

    Raises:
        PackError: it is no function, or another one was declared.
    """
    if not callable(make):
        raise PackError(f"monoid {monoid!r}", f"has parts={said(make)}", "a function of dtypes")
    if _declared.setdefault(monoid, make) is not make:
        raise PackError(f"parts of monoid {monoid!r}", "are declared twice", "one declaration")


def forget_parts(monoid: str) -> None:
    """Take back how kernels compute a monoid."""
    _declared.pop(monoid, None)


def all_parts() -> Iterable[Make]:
    """What was declared of all structured monoids."""
    return _declared.values()


def declared_parts(monoid: str) -> Make | None:
    """What was declared of a structured monoid; None where nothing was."""
    return _declared.get(monoid)
