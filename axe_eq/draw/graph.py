"""Graphs as SVG: boxes with text in layers from top to bottom, edges between them.

Colours and fonts come from the page that holds them, or from a sheet, by class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

CHAR, MONO = 6.9, 6.8  # mean widths of a character in the two fonts of the page, in pixels
LINE, PAD, GAP_X, GAP_Y = 16.0, 10.0, 26.0, 34.0


@dataclass(eq=False)
class Place:
    """Something drawn: a box, or (without lines) where an edge passes a layer.

    Attributes:
        lines: (text, class) per line.
        kind: class of the outline.
        title: shown when the pointer rests on it.
        layer: counted from the top.
        above: places with an edge to this one.
        x, y, width, height: of its box, in pixels.
    """

    lines: list[tuple[str, str]]
    kind: str
    title: str = ""
    layer: int = 0
    above: list[Place] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0

    @property
    def middle(self) -> float:
        """Horizontal centre."""
        return self.x + self.width / 2


def layered_svg(places: Sequence[Place], attributes: str, sheet: str = "") -> str:
    """The picture of places, each after what is above it; sources stand just above a first user.

    Args:
        places: what is drawn.
        attributes: of the whole picture.
        sheet: of style, for a picture that stands alone, on paper.
    """
    layers = _layered(places)
    _order(layers)
    _position(layers)
    width = max((p.x + p.width for layer in layers for p in layer), default=0) + GAP_X
    height = max((p.y + p.height for layer in layers for p in layer), default=0) + PAD
    parts = [_edges(p) for layer in layers for p in layer]
    parts += [_box(p) for layer in layers for p in layer if p.lines]
    size = f'width="{width:.0f}" height="{height:.0f}"'
    paper = f'<style>{sheet}</style><rect class="paper" {size}/>' if sheet else ""
    arrow = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {attributes}>'
        f"{paper}{arrow}{''.join(parts)}</svg>"
    )


# -- layers ---------------------------------------------------------------------------------------


def _layered(places: Sequence[Place]) -> list[list[Place]]:
    """Layers from the top, long edges cut into places without lines."""
    below: dict[Place, list[Place]] = {p: [] for p in places}
    for place in places:
        place.layer = max((a.layer + 1 for a in place.above), default=0)
        for above in place.above:
            below[above].append(place)
    for place in places:
        if not place.above and below[place]:
            place.layer = min(b.layer for b in below[place]) - 1
    layers: list[list[Place]] = [[] for _ in range(max((p.layer for p in places), default=-1) + 1)]
    passing: dict[tuple[int, int], Place] = {}
    for place in places:
        layers[place.layer].append(place)
        place.above = [_reach(a, place.layer - 1, layers, passing) for a in place.above]
    return layers


def _reach(
    source: Place, layer: int, layers: list[list[Place]], passing: dict[tuple[int, int], Place]
) -> Place:
    """The place in this layer that an edge from the source comes from; made where there is none."""
    last = source
    for number in range(source.layer + 1, layer + 1):
        key = id(source), number
        if key not in passing:
            passing[key] = Place([], "edge", layer=number, above=[last])
            layers[number].append(passing[key])
        last = passing[key]
    return last


def _order(layers: list[list[Place]]) -> None:
    """Fewer crossings: every layer sorted by the mean place of its neighbours, down and up."""
    below: dict[Place, list[Place]] = {p: [] for layer in layers for p in layer}
    for layer in layers:
        for place in layer:
            for above in place.above:
                below[above].append(place)
    for _ in range(4):
        _sort(layers, lambda place: place.above)
        _sort(layers[::-1], lambda place: below[place])


def _sort(layers: Sequence[list[Place]], near: Callable[[Place], Sequence[Place]]) -> None:
    at: dict[Place, float] = {}
    for layer in layers:
        own = {place: (n + 0.5) / len(layer) for n, place in enumerate(layer)}
        wanted = {
            p: sum(at[q] for q in known) / len(known)
            for p in layer
            if (known := [q for q in near(p) if q in at])
        }
        layer.sort(key=lambda p: wanted.get(p, own[p]))
        at |= {place: (n + 0.5) / len(layer) for n, place in enumerate(layer)}


def _position(layers: Sequence[list[Place]]) -> None:
    """Boxes: sizes from the text, layers centred, then pulled towards what is above."""
    for layer in layers:
        for place in layer:
            place.width, place.height = _size(place)
    widest = max((_width(layer) for layer in layers), default=0.0)
    y = PAD
    for layer in layers:
        height = max((p.height for p in layer), default=0.0)
        x = (widest - _width(layer)) / 2
        for place in layer:
            place.x, place.y = x, y
            place.height = place.height or height
            x += place.width + GAP_X
        y += height + GAP_Y
    for _ in range(3):
        for layer in layers:
            _pull(layer)
    left = min((p.x for layer in layers for p in layer), default=0.0)
    for layer in layers:
        for place in layer:
            place.x += PAD - left


def _width(layer: Sequence[Place]) -> float:
    return sum(p.width + GAP_X for p in layer) - GAP_X


def _size(place: Place) -> tuple[float, float]:
    if not place.lines:
        return 2.0, 0.0
    wide = max(len(t) * (MONO if kind == "mono" else CHAR) for t, kind in place.lines)
    return wide + 2 * PAD, len(place.lines) * LINE + PAD


def _pull(layer: Sequence[Place]) -> None:
    """Move every place towards the mean of what is above it, as far as its neighbours let it."""
    wanted = [
        sum(a.middle for a in p.above) / len(p.above) - p.width / 2 if p.above else p.x
        for p in layer
    ]
    for n in range(len(layer)):
        low = layer[n - 1].x + layer[n - 1].width + GAP_X if n else -math.inf
        high = layer[n + 1].x - layer[n].width - GAP_X if n + 1 < len(layer) else math.inf
        layer[n].x = min(max(wanted[n], low), max(high, low))


# -- SVG ------------------------------------------------------------------------------------------


def _edges(place: Place) -> str:
    tip = ' marker-end="url(#tip)"' if place.lines else ""
    drawn = []
    for above in place.above:
        x1, y1, x2, y2 = above.middle, above.y + above.height, place.middle, place.y
        half = (y1 + y2) / 2
        drawn.append(
            f'<path class="edge" d="M{x1:.1f} {y1:.1f}C{x1:.1f} {half:.1f} {x2:.1f} {half:.1f} '
            f'{x2:.1f} {y2:.1f}"{tip}/>'
        )
    if not place.lines:
        drawn.append(
            f'<path class="edge" d="M{place.middle:.1f} {place.y:.1f}v{place.height:.1f}"/>'
        )
    return "".join(drawn)


def _box(place: Place) -> str:
    radius = place.height / 2 if place.kind.startswith("buffer") else 5
    texts = "".join(
        f'<text class="{kind}" x="{place.middle:.1f}" text-anchor="middle" '
        f'y="{place.y + (n + 1) * LINE:.1f}">{escape(text)}</text>'
        for n, (text, kind) in enumerate(place.lines)
    )
    return (
        f'<g><title>{escape(place.title)}</title><rect class="{place.kind}" x="{place.x:.1f}" '
        f'y="{place.y:.1f}" width="{place.width:.1f}" height="{place.height:.1f}" '
        f'rx="{radius:.0f}"/>{texts}</g>'
    )
