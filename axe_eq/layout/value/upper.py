"""What the methods of a layout ask of the files that are built upon it.

`Layout.inverse` is worked out by a file that imports `Layout`. Imports go one way only, so `value`
asks here, and the package `axe_eq.layout`, which an import of any of its files runs first, says
who answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from axe_eq.layout.algebra.slices import Spans
    from axe_eq.layout.value.check import Offsets
    from axe_eq.layout.value.iters import Iters
    from axe_eq.layout.value.layout import Layout
    from axe_eq.layout.value.reports import Clash, Grouped


@dataclass(frozen=True)
class Upper:
    """The functions behind the methods of a layout that need other layouts to be worked out.

    Attributes:
        read: the layout of an axe text.
        svg: its picture.
        normal_form: `Layout.canonical` from the table, of layouts with swizzles.
        normal_boxed: `Layout.canonical` of boxes in boxes, with normal copies and offsets.
        group_boxed: `Layout.group` of boxes in boxes.
        slice_boxed: `Layout.slice` with a box.
        permute_boxed: `Layout.permute` with a box.
        range_boxed: `Layout.range` with a box.
        inverse: `Layout.inverse`.
        clash: the first clash of `Layout.aliasing`.
    """

    read: Callable[[str], Layout]
    svg: Callable[[Layout], str]
    normal_form: Callable[[Layout], Layout]
    normal_boxed: Callable[[Layout, Iters, Offsets], Layout]
    group_boxed: Callable[[Layout, Sequence[int]], Grouped]
    slice_boxed: Callable[[Layout, Sequence[int], Spans], Layout]
    permute_boxed: Callable[[Layout, Sequence[int], Sequence[int]], Layout]
    range_boxed: Callable[[Layout, str], tuple[int, int]]
    inverse: Callable[[Layout, Sequence[str]], Layout]
    clash: Callable[[Layout], Clash | None]


answers: Upper
