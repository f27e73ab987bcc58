"""Boxes in boxes: the stages behind the first box that an index goes through.

A stage splits the index into digits, puts them in another order, and moves them to their place in a
padded shape, whose row-major index is the next stage's, or the list's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import LayoutError, said
from axe_eq.layout.value.check import (
    check_box,
    check_extents,
    check_permutation,
    listed,
    number_text,
    tuple_text,
)
from axe_eq.layout.value.indexing import flatten, unflatten
from axe_eq.layout.value.iters import Iters

MAX_STAGES = 1024


class Stage(NamedTuple):
    """One box of a chain.

    Args:
        box: extents of the dims, in the order of the stage.
        padded: extents of the padded dims.
        order: dim i of the stage is dim ``order[i]`` of the index that comes in; () leaves dims as
            they are.
    """

    box: tuple[int, ...]
    padded: tuple[int, ...]
    order: tuple[int, ...] = ()

    def incoming(self) -> tuple[int, ...]:
        """The shape of the index that comes in."""
        if not self.order:
            return self.box
        return tuple(self.box[self.order.index(dim)] for dim in range(len(self.box)))

    def apply(self, index: int) -> int:
        """Where an index of the box lies in the padded shape."""
        digits = unflatten(index, self.incoming())
        moved = [digits[dim] for dim in self.order] if self.order else digits
        return flatten(moved, self.padded)

    def apply_table(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """`apply` on many indices."""
        if not self.box:
            return index
        digits = np.unravel_index(index, self.incoming())
        moved = tuple(digits[dim] for dim in self.order) if self.order else digits
        return np.ravel_multi_index(moved, self.padded).astype(np.int64)

    def __str__(self) -> str:
        order = f" order {tuple_text(self.order)}" if self.order else ""
        return f"box[{tuple_text(self.box)} of {tuple_text(self.padded)}{order}] in "


Boxes = tuple[tuple[int, ...] | None, tuple[int, ...] | None, tuple[Stage, ...]]


def check_boxes(
    shard: Iters,
    elements: int,
    box: Sequence[int] | None,
    padded: Sequence[int] | None,
    inner: Iterable[Sequence[Any]],
) -> Boxes:
    """The box, its padded shape and the boxes inside, or the LayoutError that says what is wrong.

    Args:
        shard: the list at the end.
        elements: its size.
        box: extents of the first box, or None for no box.
        padded: what it is padded to; by default cut from the list, or the box if others are inside.
        inner: the boxes inside.
    """
    stages = inner if isinstance(inner, tuple) else tuple(listed("inner boxes", inner))
    if box is None:
        if padded is not None or stages:
            what = f"padded shape {tuple(padded)}" if padded is not None else "inner boxes"
            raise LayoutError("layout", f"{what} without a box", "both")
        return None, None, ()
    if not stages:
        return *check_box(shard, elements, box, padded), ()
    first = check_stages(None, (), [(box, box if padded is None else padded)])[0]
    return first.box, first.padded, check_stages(elements, first.padded, stages)


def check_order(text: str, rank: int) -> tuple[int, ...]:
    """The order of a box from its text ``1,0,2``, or the LayoutError."""
    try:
        order = tuple(map(int, text.split(",")))
    except ValueError:
        raise LayoutError("order", f"{text!r}", "numbers of dims, separated by commas") from None
    return check_permutation(order, rank)


def check_stages(
    elements: int | None, padded: Sequence[int], stages: Iterable[Sequence[Any]]
) -> tuple[Stage, ...]:
    """The stages behind a first box, or the LayoutError that names the wrong one.

    Args:
        elements: size of the list at the end; None for a first box, about whose size nothing is
            known.
        padded: what the first box is padded to.
        stages: ``(box, padded)`` or ``(box, padded, order)`` each.
    """
    checked: list[Stage] = []
    for item in listed("boxes", stages):
        if len(checked) == MAX_STAGES:
            raise LayoutError("layout", f"over {MAX_STAGES} boxes", f"at most {MAX_STAGES}")
        try:
            parts = tuple(item)
        except TypeError:
            parts = ()
        if len(parts) not in (2, 3):
            raise LayoutError("box", said(item), "(extents, padded extents) and maybe an order")
        box, outer = check_extents("box", parts[0]), check_extents("padded shape", parts[1])
        order = check_permutation(parts[2], len(box)) if len(parts) == 3 and parts[2] else ()
        if len(box) != len(outer) or any(n > m for n, m in zip(box, outer, strict=True)):
            raise LayoutError(f"box {box}", "does not fit", f"at most the padded shape {outer}")
        if elements is not None:
            _check_size(f"box {box}", prod(box), padded)
        checked.append(Stage(box, outer, () if order == tuple(range(len(box))) else order))
        padded = outer
    if elements is not None:
        _check_size("list of iters", elements, padded)
    return tuple(checked)


def _check_size(thing: str, elements: int, padded: Sequence[int]) -> None:
    if elements != prod(padded):
        raise LayoutError(
            thing,
            f"{number_text(elements)} elements",
            f"{number_text(prod(padded))}, as the padded shape {tuple(padded)}",
        )
