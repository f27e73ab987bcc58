"""Programs as text and as pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import axe_eq.array as xp
import axe_eq.nn as nn
from axe_eq.program.node import Program
from axe_eq.program.trace import Spec, dim, trace
from benchmarks.random_programs import random_program


def mlp(x: Any, params: Any) -> Any:
    h = nn.rmsnorm(x) * params["g"]
    gate = nn.silu(h @ params["gate"])
    up = h @ params["up"]
    return {"y": x + (gate * up) @ params["down"], "h": h}


def traced_mlp() -> Program:
    x = Spec((dim("tokens", 8, 64), 16), "f16", dims=("", "hidden"), layout="S[(64,16):(16,1)]")
    params = {"g": "16:f16", "gate": "16x32:f16", "up": "16x32:f16", "down": "32x16:f16"}
    return trace(mlp, x, params)


def test_text(golden: Callable[..., None]) -> None:
    golden(str(traced_mlp()))


def test_text_of_selectors_and_constants(golden: Callable[..., None]) -> None:
    def fn(x: Any) -> Any:
        y = x[::-2, 1:]
        y = xp.concat([y, y * 2.5], axis=1)
        return xp.pad(xp.reshape(y, (-1,)), (1, 2)) + np.arange(7.0), xp.max(x, axis=(0, 1))

    golden(str(trace(fn, "4x2:f64")))


def test_names_are_unique_and_every_value_is_shown() -> None:
    for seed in range(20):
        program = random_program(np.random.default_rng(seed), 12)
        lines = str(program).split("\n")
        names = [line.split(" : ")[0].strip() for line in lines[1:-1]]
        assert len(set(names)) == len(names)
        assert len(names) == sum(node.kind != "input" for node in program.nodes())


def test_picture_is_svg_with_every_value_and_line(tmp_path: Path) -> None:
    program = traced_mlp()
    text = program.draw(str(tmp_path / "mlp.svg"))
    assert (tmp_path / "mlp.svg").read_text() == text == program.draw()
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    boxes = [r for r in root.iter(f"{space}rect") if r.get("class", "").startswith("box ")]
    assert len(boxes) == len(program.nodes())
    assert sum(box.get("class", "").endswith(" out") for box in boxes) == 2
    heads = [p for p in root.iter(f"{space}path") if p.get("marker-end")]
    assert len(heads) == sum(len(node.args) for node in program.nodes())
    shown = " ".join(t.text or "" for t in root.iter(f"{space}text"))
    assert "gate = mul" in shown
    assert "[a c, c b -> a b; + c]" in shown
    _check_apart(
        [tuple(float(box.get(k, 0)) for k in ("x", "y", "width", "height")) for box in boxes]
    )
    size = float(root.get("width", 0)), float(root.get("height", 0))
    assert all(float(b.get("x", 0)) + float(b.get("width", 0)) <= size[0] for b in boxes)
    assert all(float(b.get("y", 0)) + float(b.get("height", 0)) <= size[1] for b in boxes)


def _check_apart(boxes: list[tuple[float, ...]]) -> None:
    """No two boxes overlap."""
    for n, (x1, y1, w1, h1) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[:n]:
            assert x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1


def test_picture_of_random_programs_is_well_formed() -> None:
    for seed in range(20):
        ElementTree.fromstring(random_program(np.random.default_rng(seed), 12).draw())


def test_a_program_is_a_networkx_graph() -> None:
    program = traced_mlp()
    graph = program.graph()
    assert set(graph.nodes) == set(program.nodes())
    product = program.outputs[0]
    assert {(a, d["operand"]) for a, _, d in graph.in_edges(product, data=True)} == {
        (arg, n) for n, arg in enumerate(product.args)
    }
