"""What there is to say about one layout: normal form, extents, aliasing, other notations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from axe_eq.errors import AxeError, NotationError, SearchError
from axe_eq.layout.notation import NOTATIONS, write
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh
from axe_eq.layout.value.reports import Aliasing

MOST_LINES = 12  # of one notation that are printed


class AxisFacts(NamedTuple):
    """One axis: the least and the greatest coordinate, and the memory that it needs."""

    low: int
    high: int
    footprint: int

    @property
    def span(self) -> int:
        """Greatest minus least plus one (Axe, Definition 2.3)."""
        return self.high - self.low + 1


class Description(NamedTuple):
    """What is known of a layout.

    Attributes:
        layout: as given.
        canonical: its normal form, or the text of the limit that stopped the search for it.
        axes: every axis that the layout names.
        copies: coordinates of every element, None where they are too many to count.
        aliasing: whether elements share a coordinate, or the text of the limit.
        places: coordinates in the footprint; `holes` of them hold nothing, None where unknown.
        notations: name -> text, or the error that says why it cannot be expressed.
    """

    layout: Layout
    canonical: Layout | str
    axes: Mapping[str, AxisFacts]
    copies: int | None
    aliasing: Aliasing | str
    places: int
    holes: int | None
    notations: Mapping[str, str | AxeError]

    def data(self) -> dict[str, Any]:
        """The description as JSON data."""
        aliasing: Any = self.aliasing
        if isinstance(aliasing, Aliasing):
            clash = aliasing.clash
            aliasing = {
                "injective": aliasing.injective,
                "clash": clash
                and {"x": clash.x, "y": clash.y, "coordinate": dict(clash.coordinate)},
            }
        return {
            "layout": str(self.layout),
            "canonical": str(self.canonical),
            "size": self.layout.size,
            "copies": self.copies,
            "axes": {
                axis: {"low": a.low, "high": a.high, "span": a.span, "footprint": a.footprint}
                for axis, a in self.axes.items()
            },
            "aliasing": aliasing,
            "places": self.places,
            "holes": self.holes,
            "notations": {n: t for n, t in self.notations.items() if isinstance(t, str)},
            "refused": {n: str(t) for n, t in self.notations.items() if not isinstance(t, str)},
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        padding = f", {self.holes} of {self.places} places hold nothing" if self.holes else ""
        lines = [
            f"layout     {self.layout}",
            f"canonical  {self.canonical}",
            f"size       {self.layout.size} elements{_times(self.copies)}{padding}",
        ]
        for axis, known in self.axes.items():
            padded = f", footprint {known.footprint}" if known.footprint != known.span else ""
            ends = f"from {known.low} to {known.high}" if known.span > 1 else f"at {known.low}"
            lines.append(f"axis {axis:<5} span {known.span}{padded}, {ends}")
        lines.append(f"aliasing   {aliasing_text(self.aliasing)}")
        for name, text in self.notations.items():
            if isinstance(text, str):
                first, *rest = _few(text.splitlines())
                lines += [f"{name:<12} {first}", *(f"{'':<12} {line}" for line in rest)]
        for name, text in self.notations.items():
            if not isinstance(text, str):
                wanted = f"; expected {text.expected}" if text.expected else ""
                lines.append(f"{name:<12} cannot: {text.wrong}{wanted}")
        return lines


def _times(copies: int | None) -> str:
    if copies is None:
        return ", too many copies of each to count"
    return f", {copies} copies of each" if copies > 1 else ""


def _few(lines: list[str]) -> list[str]:
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[: MOST_LINES - 1], f"... {len(lines)} lines; --json has them all"]


def aliasing_text(aliasing: Aliasing | str) -> str:
    """One sentence on aliasing."""
    if isinstance(aliasing, str):
        return f"unknown: {aliasing}"
    clash = aliasing.clash
    if clash is None:
        return "none: no two elements share a place"
    place = " ".join(f"{value}@{axis}" for axis, value in clash.coordinate) or "0"
    return f"elements {clash.x} and {clash.y} share {place}"


def describe(
    layout: Layout,
    *,
    shape: Sequence[int] | None = None,
    mesh: Mesh | None = None,
    stated: Sequence[int] | None = None,
) -> Description:
    """Everything about a layout.

    Args:
        layout: any layout.
        shape: extents of its tensor, which some notations need; by default those of its box.
        mesh: the devices, which notations of shardings need.
        stated: extents that the layout's own text states, slow to fast: notations that count the
            last dim fastest write it over them where no shape is given.

    Raises:
        LayoutError: the shape does not have the layout's size.
    """
    canonical = _or_limit(layout.canonical)
    aliasing = _or_limit(layout.aliasing)
    axes = {
        axis: AxisFacts(*layout.range(axis), extent) for axis, extent in layout.footprint.items()
    }
    normal = layout if isinstance(canonical, str) else canonical
    copies, places = n_copies(normal), prod(known.footprint for known in axes.values())
    injective = isinstance(aliasing, Aliasing) and aliasing.injective
    return Description(
        layout,
        canonical,
        axes,
        copies,
        aliasing,
        places,
        places - layout.size * copies if injective and copies is not None else None,
        expressions(normal, shape=shape, mesh=mesh, stated=stated),
    )


def n_copies(layout: Layout) -> int | None:
    """How many coordinates every element has; None where the copies overlap and are too many."""
    try:
        return layout.copies()
    except SearchError:
        return None


def _or_limit(call: Any) -> Any:
    try:
        return call()
    except SearchError as error:
        return str(error)


def expressions(
    layout: Layout,
    *,
    shape: Sequence[int] | None = None,
    mesh: Mesh | None = None,
    stated: Sequence[int] | None = None,
) -> dict[str, str | AxeError]:
    """The layout in every notation: its text, or the error that says why there is none."""
    found: dict[str, str | AxeError] = {}
    for name, notation in NOTATIONS.items():
        kept = shape is None and not notation.first_fastest
        try:
            found[name] = write(name, layout, shape=stated if kept else shape, mesh=mesh)
        except (NotationError, SearchError) as error:
            found[name] = error
    return found
