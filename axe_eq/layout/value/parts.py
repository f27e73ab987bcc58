"""The slots of a layout and how they are filled: once, then never again."""

from __future__ import annotations

from axe_eq.layout.normal.nested_boxes import Stage
from axe_eq.layout.value.check import Offsets
from axe_eq.layout.value.iters import Iters
from axe_eq.layout.value.swizzle import Swizzle


class Parts:
    """What a layout is made of, still open: every slot of it, none checked.

    A layout refuses assignment, and filling slots past its refusal takes four times as long as
    assigning them. So its parts are filled first and become a `Layout` by changing their class.
    """

    __slots__ = (
        "_canonical",
        "_hash",
        "box",
        "inner",
        "offsets",
        "padded",
        "read_for",
        "replica",
        "shard",
        "size",
        "swizzle",
    )

    _canonical: Parts | bool | None  # the canonical layout once known, True if it is this one
    _hash: int | None
    read_for: tuple[int, ...] | None  # the shape that its text was read for; not a part of the map

    def __init__(
        self,
        shard: Iters,
        replica: Iters,
        offsets: Offsets,
        size: int,
        swizzle: tuple[Swizzle, ...],
        box: tuple[int, ...] | None,
        padded: tuple[int, ...] | None,
        inner: tuple[Stage, ...] = (),
    ) -> None:
        self.shard = shard
        self.replica = replica
        self.offsets = offsets
        self.size = size
        self.swizzle = swizzle
        self.box = box
        self.padded = padded
        self.inner = inner
        self._canonical = None
        self._hash = None
        self.read_for = None
