"""Families of instruction rows: how their rows are used, in one place each, whoever brings them.

A row of a target belongs to the family that its name begins with, up to the first dot: ``fma.f32``
to ``fma``. The family derives plans for primitives; its instruction calls have a meaning, for the
interpreter of the target's execution model, and a text, for the target's emitter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from axe_eq.errors import PackError, said
from axe_eq.kernel.dispatch import Derive


@dataclass(frozen=True)
class RowFamily:
    """What a family of instruction rows does.

    Attributes:
        name: that of its rows before the first dot.
        derive: the plan of a primitive by one of its rows; refuses with the reason. Its `cycles`
            rank it against the plans of other rows.
        meanings: instruction call -> what it does, as the interpreter calls it.
        texts: instruction call -> what writes it, as the emitter calls it.
        samples: programs that use its rows, for their test: name -> (function, specs).
    """

    name: str
    derive: Derive
    meanings: Mapping[str, Callable[..., Any]] = field(default_factory=lambda: MappingProxyType({}))
    texts: Mapping[str, Callable[..., Any]] = field(default_factory=lambda: MappingProxyType({}))
    samples: Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]] = field(
        default_factory=lambda: MappingProxyType({})
    )


# (target family, name of the row family) -> the pack that brought it, and the family.
_families: dict[tuple[str, str], tuple[str, RowFamily]] = {}


def declare_row_family(owner: str, target_family: str, family: RowFamily) -> None:
    """Say how rows of a family are used on the targets of a target family.

    Raises:
        PackError: it is no row family, lacks the text or meaning of a call, or takes the name of
            another pack's family or call.
    """
    thing = f"row family {said(getattr(family, 'name', family))} for {target_family!r}"
    given: object = family
    if not isinstance(given, RowFamily) or not family.name or "." in family.name:
        raise PackError(thing, "is no row family", "a RowFamily whose name has no dot")
    if not callable(family.derive):
        raise PackError(
            thing, f"has derive={said(family.derive)}", "derive(row, primitive, context)"
        )
    if apart := sorted(family.meanings.keys() ^ family.texts.keys()):
        raise PackError(thing, f"has not both a meaning and a text for {apart[0]!r}", "both")
    for (target, name), (pack, other) in _families.items():
        if target == target_family and pack != owner:
            taken = family.meanings.keys() & other.meanings.keys()
            if name == family.name or taken:
                what = f"call {min(taken)!r}" if taken else "name"
                wrong = f"takes the {what} of row family {name!r} of pack {pack!r}"
                raise PackError(thing, wrong, "names of its own")
    _families[target_family, family.name] = owner, family


def row_families(target_family: str) -> dict[str, RowFamily]:
    """The families that packs brought for a target family, by name."""
    return {name: f for (target, name), (_, f) in _families.items() if target == target_family}


@dataclass(frozen=True)
class Families:
    """The families of a target family: its backend's own, and those that packs bring.

    Attributes:
        target_family: whose targets have the rows.
        own: the backend's families.
    """

    target_family: str
    own: tuple[RowFamily, ...]

    def all(self) -> dict[str, RowFamily]:
        """Every family, by name."""
        return {f.name: f for f in self.own} | row_families(self.target_family)

    def derivations(self) -> dict[str, Derive]:
        """How the rows of every family are planned, by its name."""
        return {name: f.derive for name, f in self.all().items()}

    def meanings(self) -> dict[str, Callable[..., Any]]:
        """What every instruction call does, by its name."""
        return {call: does for f in self.all().values() for call, does in f.meanings.items()}

    def texts(self) -> dict[str, Callable[..., Any]]:
        """What writes every instruction call, by its name."""
        return {call: writes for f in self.all().values() for call, writes in f.texts.items()}


@contextmanager
def replaced(target_family: str, family: RowFamily) -> Iterator[None]:
    """Another family in the place of the declared one of its name, inside."""
    at = target_family, family.name
    owner, declared = _families[at]
    _families[at] = owner, family
    try:
        yield
    finally:
        _families[at] = owner, declared
