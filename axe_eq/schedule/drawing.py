"""Pictures of a schedule graph as SVG: steps and buffers in layers, and the timeline as tracks.

Colours and fonts come from the page that holds them, by class.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from axe_eq.program.types import value_type
from axe_eq.schedule.graph import BufferSpec, KernelStep, ScheduleGraph, SpmdStep, Step
from axe_eq.schedule.memory import buffer_bytes
from axe_eq.schedule.quantity import bytes_text, seconds_text
from axe_eq.schedule.timeline import Event, Timeline

CHAR, MONO = 6.9, 6.8  # mean widths of a character in the two fonts of the page, in pixels
LINE, PAD, GAP_X, GAP_Y = 16.0, 10.0, 26.0, 34.0
MOST_CHARS = 44


@dataclass(eq=False)
class Place:
    """Something drawn: a step, a buffer, or (without lines) where an edge passes a layer.

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


def graph_svg(graph: ScheduleGraph) -> str:
    """Steps and buffers from top to bottom; an input stands just above its first reader."""
    places = _places(graph)
    layers = _layered(places)
    _order(layers)
    _position(layers)
    width = max((p.x + p.width for layer in layers for p in layer), default=0) + GAP_X
    height = max((p.y + p.height for layer in layers for p in layer), default=0) + PAD
    drawn = [_edges(p) for layer in layers for p in layer]
    drawn += [_box(p) for layer in layers for p in layer if p.lines]
    arrow = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="schedule graph">{arrow}{"".join(drawn)}</svg>'
    )


# -- what is drawn --------------------------------------------------------------------------------


def _places(graph: ScheduleGraph) -> list[Place]:
    """Buffers and steps with the edges between them, each after what is above it."""
    buffers = {name: _buffer_place(graph, name) for name in graph.buffers}
    places: list[Place] = []
    placed: set[str] = set()
    for step in graph.steps:
        place = _step_place(step)
        for read in dict.fromkeys(r.buffer for r in step.reads):
            place.above.append(buffers[read])
            if read not in placed:
                placed.add(read)
                places.append(buffers[read])
        places.append(place)
        for write in step.writes:
            buffers[write.buffer].above.append(place)
            placed.add(write.buffer)
            places.append(buffers[write.buffer])
    return places + [p for name, p in buffers.items() if name not in placed]


def _short(text: str, most: int = MOST_CHARS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def layout_words(buffer: BufferSpec) -> str:
    """A buffer's layout: in words where it is the usual one, else its text."""
    dense = f"S[({value_type(buffer.type).size}):(1@m)]"
    return "row-major" if buffer.layout == dense else buffer.layout


def operators(step: KernelStep) -> str:
    """What a kernel computes, each operator once, in the order of its nodes."""
    names = (node.cell or node.text.partition(" ")[0] for node in step.nodes if node.kind != "load")
    return ", ".join(dict.fromkeys(names))


def _wrapped(words: str) -> list[str]:
    """Words in lines of at most `MOST_CHARS`."""
    return textwrap.wrap(words, MOST_CHARS, break_long_words=False) or [""]


def _buffer_place(graph: ScheduleGraph, name: str) -> Place:
    buffer = graph.buffers[name]
    size = bytes_text(buffer_bytes(buffer))
    lines = [
        (_short(f"{name}: {buffer.type}"), "mono"),
        (_short(f"{size}, {layout_words(buffer)}"), "soft"),
    ]
    title = f"{buffer.role} {name}: {buffer.type}\n{buffer.layout}\n{size}"
    return Place(lines, f"buffer {buffer.role}", title)


def _step_place(step: Step) -> Place:
    time = f"{seconds_text(step.time_s)}" if step.time_s else "not estimated"
    if isinstance(step, KernelStep):
        row = f" on {step.row}" if step.row else ""
        sizes = " ".join(f"{k}={v}" for k, v in step.parameters.items())
        roots = ", ".join(step.nodes[r].box or "scalar" for r in step.roots)
        lines = [
            (_short(step.name), "mono"),
            (_short(f"{time}, {step.schedule}{row}"), ""),
            *((line, "soft") for line in _wrapped(operators(step))),
            *((line, "soft") for line in _wrapped(f"box {roots} {sizes}".rstrip())),
        ]
        moved = step.costs.get("gmem_bytes", step.costs.get("ram_bytes"))
        if moved is not None:
            lines.append((f"{bytes_text(moved)} in and out", "soft"))
        title = "\n".join(f"{n.box}: {n.title}" for n in step.nodes if n.kind != "load")
    elif isinstance(step, SpmdStep):
        kernels = [(_short(f"{k.name}: {operators(k)}"), "soft") for k in step.graph.kernels]
        lines = [(_short(step.name), "mono"), (f"{time}, on every device", ""), *kernels]
        title = "\n".join(k.name for k in step.graph.kernels)
    else:
        lines = [(_short(step.name), "mono"), (time, ""), (bytes_text(step.n_bytes), "soft")]
        title = f"{step.kind}, {bytes_text(step.n_bytes)} over links"
    return Place(lines, f"step {step.kind}", title)


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
    radius = 5 if place.kind.startswith("step") else place.height / 2
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


# -- timeline -------------------------------------------------------------------------------------

TRACK, AXIS, LABEL, SPAN = 40.0, 26.0, 70.0, 1100.0


def timeline_svg(graph: ScheduleGraph, times: Timeline) -> str:
    """Tracks with one bar per step, over an axis of time."""
    return tracks_svg(times.tracks, times.events, {s.name: s.kind for s in graph.steps})


def tracks_svg(names: Sequence[str], events: Sequence[Event], kinds: Mapping[str, str]) -> str:
    """Tracks with bars over an axis of time.

    Args:
        names: of the tracks, from the top.
        events: bars, one at least.
        kinds: step -> class of its bars.
    """
    makespan_s = max(e.end for e in events)
    tracks = {track: n for n, track in enumerate(names)}
    scale = (SPAN - LABEL) / makespan_s
    height = len(tracks) * TRACK + AXIS + PAD
    drawn = [_tick(t, scale, height) for t in _ticks(makespan_s)]
    for track, n in tracks.items():
        drawn.append(
            f'<text class="soft" x="{PAD}" y="{n * TRACK + TRACK / 2 + 8:.0f}">{track}</text>'
        )
    drawn += [_bar(e, kinds, tracks[e.track] * TRACK + PAD / 2, scale) for e in events]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SPAN + 2 * GAP_X:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="timeline">{"".join(drawn)}</svg>'
    )


def _ticks(makespan_s: float) -> list[float]:
    """Round times, five to ten of them."""
    step = 10.0 ** math.floor(math.log10(makespan_s))
    for finer in (2.0, 5.0, 10.0):
        if makespan_s / step < 5:
            step = 10.0 ** math.floor(math.log10(makespan_s)) / finer
    return [n * step for n in range(int(makespan_s / step) + 1)]


def _tick(time_s: float, scale: float, height: float) -> str:
    x, y = LABEL + time_s * scale, height - AXIS
    return (
        f'<path class="grid" d="M{x:.1f} 0V{y:.1f}"/>'
        f'<text class="soft" x="{x:.1f}" y="{y + LINE:.0f}" text-anchor="middle">'
        f"{seconds_text(time_s)}</text>"
    )


def _bar(event: Event, kinds: Mapping[str, str], y: float, scale: float) -> str:
    x, width = LABEL + event.start * scale, max((event.end - event.start) * scale, 1.0)
    shown = _short(event.step, int((width - PAD) / MONO)) if width > 4 * MONO else ""
    title = f"{event.step}: {seconds_text(event.start)} to {seconds_text(event.end)}"
    return (
        f'<g class="bar"><title>{escape(title)}</title><rect class="{kinds[event.step]}" '
        f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{TRACK - PAD:.0f}" rx="3"/>'
        f'<text class="mono" x="{x + 5:.1f}" y="{y + 19:.1f}">{escape(shown)}</text></g>'
    )
