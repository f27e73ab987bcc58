"""Pictures of a schedule graph as SVG: steps and buffers in layers, and the timeline as tracks.

Colours and fonts come from the page that holds them, by class.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from html import escape

from axe_eq.draw.graph import GAP_X, LINE, MONO, PAD, Place, layered_svg
from axe_eq.program.types import value_type
from axe_eq.schedule.graph import BufferSpec, KernelStep, ScheduleGraph, SpmdStep, Step
from axe_eq.schedule.memory import buffer_bytes
from axe_eq.schedule.quantity import bytes_text, seconds_text
from axe_eq.schedule.timeline import Event, Timeline

MOST_CHARS = 44


def graph_svg(graph: ScheduleGraph) -> str:
    """Steps and buffers from top to bottom; an input stands just above its first reader."""
    return layered_svg(_places(graph), 'role="img" aria-label="schedule graph"')


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
