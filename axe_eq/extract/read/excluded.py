"""What takes no part: alternatives that the emitter cannot write, schedules of no known machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from axe_eq.extract.read.forest import CELL, Forest
from axe_eq.pack import Pack, title_of_schedule

Refuse = Callable[[str, tuple[str, ...]], str | None]
"""(cell text, element types of its operands) -> why it cannot be written, or None."""


def emitter_of(used: Iterable[Pack], family: str) -> Any:
    """The emitter of a target family in these packs; None where there is none."""
    emitters = {f: e for pack in used for f, e in pack.emitters.items()}
    return emitters.get(family)


def without_machine(used: Iterable[Pack], families: Collection[str]) -> tuple[str, ...]:
    """Why schedules are never asked: they are for target families that no pack has a target of.

    Args:
        used: the packs whose schedules take part.
        families: of all known targets.
    """
    return tuple(
        f"{title_of_schedule(schedule.name)}: for {' '.join(schedule.families)}, "
        f"and the known target families are {' '.join(sorted(families))}"
        for pack in used
        for schedule in pack.schedules
        if not set(schedule.families) & set(families)
    )


def drop_unwritable(forest: Forest, emitter: Any) -> tuple[str, ...]:
    """Leave out alternatives whose cells the emitter refuses (its `refuse`, where it has one).

    Sums of products and structured reductions are no cells: what implements them writes them.

    Returns:
        The reasons, each once.
    """
    refuse: Refuse | None = getattr(emitter, "refuse", None)
    if refuse is None:
        return ()
    known: dict[tuple[str, tuple[str, ...]], str | None] = {}
    for tile in forest.tiles:
        kept = []
        for choice in tile.compute:
            if choice.kind == CELL and not choice.product and not choice.structured:
                what = choice.cell, tuple(forest.tiles[c].type.dtype for c in choice.children)
                if what not in known:
                    known[what] = refuse(*what)
                if known[what] is not None:
                    continue
            kept.append(choice)
        tile.compute = kept
    return tuple(dict.fromkeys(reason for reason in known.values() if reason is not None))
