"""The page of a schedule: well formed, self-contained, complete."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

import axe_eq.array as xp
import axe_eq.nn as nn
from axe_eq.layout import Layout, same_map
from axe_eq.program.node import INPUT
from axe_eq.program.spec import Spec
from axe_eq.program.trace import trace
from axe_eq.program.types import value_type
from axe_eq.schedule.drawing import graph_svg, layout_words
from axe_eq.schedule.graph import Access, BufferSpec, ScheduleGraph, SpmdStep
from axe_eq.schedule.html import schedule_html
from axe_eq.schedule.quantity import bytes_text, cost_text, seconds_text
from axe_eq_backends.cpu.target import cpu

VOID = {"meta", "br"}


class Balanced(HTMLParser):
    """Fails on a tag that is not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def graph(cut_into_kernels: Callable[..., ScheduleGraph]) -> ScheduleGraph:
    def fn(x: Any, w: Any) -> Any:
        return x + nn.softmax(nn.rmsnorm(x) @ w), xp.max(x, axis=0)

    program = trace(fn, Spec((8, 8), "f16"), Spec((8, 8), "f16"))
    kept = [n for n in program.nodes()[::3] if n.kind != INPUT]
    cut = cut_into_kernels(program, kept)
    steps = [
        replace(s, name=f"{s.name}<&>", time_s=n * 1e-6, costs={"ram_bytes": 2048.0 * n})
        for n, s in enumerate(cut.steps)
    ]
    return replace(cut, steps=tuple(steps), time_s=1e-3)


def test_the_page_is_well_formed_and_fetches_nothing(graph: ScheduleGraph) -> None:
    page = schedule_html(graph, cpu, "compared with:\n  all <kept>: x2.00")
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert not {"script", "link", "img", "iframe"} & set(parser.seen)
    assert not re.search(r"(?:src|href)=|url\((?!#)|@import", page)
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg)
    assert "prefers-color-scheme:dark" in page


def test_the_page_names_every_step_and_buffer_and_says_why(graph: ScheduleGraph) -> None:
    page = schedule_html(graph, cpu, "compared with:\n  all <kept>: x2.00")
    for step in graph.steps:
        assert step.name not in page
        assert page.count(step.name.replace("<&>", "&lt;&amp;&gt;")) >= 3
    for buffer in graph.buffers.values():
        assert f"<code>{buffer.name}</code>" in page
        assert f"<code>{buffer.type}</code>" in page
    assert "all &lt;kept&gt;" in page
    assert "x2.00" in page


def test_the_page_says_row_major_and_every_operator(graph: ScheduleGraph) -> None:
    page = schedule_html(graph, cpu)
    dense = [b for b in graph.buffers.values() if layout_words(b) == "row-major"]
    assert dense
    assert all(same_map(Layout.parse(b.layout), Layout.parse(f"S[{value_type(b.type).size}:1]"))
               is None for b in dense)  # fmt: skip
    assert not any(f"<code>{b.layout}</code>" in page for b in dense)
    turned = replace(dense[0], type="f16[8,8]", layout="S[(8,8):(1@m,8@m)]")
    assert layout_words(turned) == turned.layout
    drawn = graph_svg(graph)
    for step in graph.kernels:
        words = [word for node in step.nodes if node.kind != "load" for word in node.cell.split()]
        assert all(f"{word}" in drawn for word in words)
    assert "…" not in re.sub("k[0-9]+_[^<]*", "", drawn)


def test_a_bar_for_every_limit_shows_the_longest(graph: ScheduleGraph) -> None:
    """What a kernel waits for: parts of its time that overlap, and its launch."""
    machine = cpu.replace(costs={"memory_s": "own", "matrix_s": "own"}, launch_s=1e-6)
    costs = {"memory_s": 4e-6, "matrix_s": 2e-6, "ram_bytes": 2048.0}
    steps = tuple(replace(step, costs=costs) for step in graph.steps)
    page = schedule_html(replace(graph, steps=steps), machine)
    for name, most, width in (("memory", " most", 72), ("matrix", "", 36), ("launch", "", 18)):
        bar = f'<div class="limit{most}"><span>{name}</span>'
        assert page.count(bar) == len(steps)
        assert page.partition(bar)[2].startswith(f'<span class="share" style="width:{width}px">')


def test_without_estimates_there_is_no_timeline(graph: ScheduleGraph) -> None:
    steps = tuple(replace(s, time_s=0.0, costs={}) for s in graph.steps)
    page = schedule_html(replace(graph, steps=steps), cpu)
    assert 'aria-label="timeline"' not in page
    assert "Costs" not in page
    assert 'aria-label="timeline"' in schedule_html(graph, cpu)


def many_outputs() -> ScheduleGraph:
    """One step that writes five buffers, and one that reads them all."""
    names = [f"t{n}" for n in range(5)]
    layout = "S[(16):(1@m)]"

    def access(*buffers: str) -> tuple[Access, ...]:
        return tuple(Access(b, layout) for b in buffers)

    own = ScheduleGraph("test", {}, (), (), ())
    buffers = {n: BufferSpec(n, "f32[16]", layout, "temporary") for n in ("x", *names, "y")}
    steps = (
        SpmdStep("a", own, access("x"), access(*names), 64),
        SpmdStep("b", own, access("x", *names), access("y"), 64),
    )
    return ScheduleGraph("test", buffers, steps, ("x",), ("y",))


def test_boxes_of_the_picture_do_not_overlap(graph: ScheduleGraph) -> None:
    for drawn in (graph, many_outputs()):
        tree = ElementTree.fromstring(graph_svg(drawn))
        boxes = [
            tuple(float(r.attrib[k]) for k in ("x", "y", "width", "height"))
            for r in tree.iter("{http://www.w3.org/2000/svg}rect")
        ]
        assert len(boxes) == len(drawn.steps) + len(drawn.buffers)
        for n, (x, y, w, h) in enumerate(boxes):
            assert x >= 0
            for x2, y2, w2, h2 in boxes[n + 1 :]:
                assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_quantities_have_three_digits_and_a_unit() -> None:
    assert [seconds_text(t) for t in (0, 2.36e-3, 45.67e-6, 1.5, float("inf"))] == [
        "0 s", "2.36 ms", "45.7 µs", "1.50 s", "impossible",
    ]  # fmt: skip
    assert [bytes_text(n) for n in (0, 1023, 2048, 201326592)] == [
        "0 B", "1023 B", "2.00 KiB", "192 MiB",
    ]  # fmt: skip
    assert cost_text("gmem_bytes", 2048) == "2.00 KiB"
    assert cost_text("blocks", 6144) == "6,144"
