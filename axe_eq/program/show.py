"""Programs as text, one line per value, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path

import networkx as nx

from axe_eq.program.node import INPUT, OP, Node, Program


def value_names(program: Program) -> dict[Node, str]:
    """A unique name per value: the input's, the user's where known, else its number."""
    names: dict[Node, str] = {}
    taken = {node.text for node in program.nodes() if node.kind == INPUT}
    for node in program.nodes():
        if node.kind == INPUT:
            names[node] = node.text
            continue
        wanted = program.names.get(node, "")
        if not wanted or wanted in taken:
            wanted = f"{wanted}%{len(names)}"
        taken.add(wanted)
        names[node] = wanted
    return names


# -- text -----------------------------------------------------------------------------------------


def program_text(program: Program) -> str:
    """The program, operands before users.

    A line has the value's name and type, the operator on its operands, and for block operators the
    signature: ``h : f16[4,8] = mul(x, w)  [a c, c b -> a b; + c]``.
    """
    names = value_names(program)
    rows = [
        (names[node], str(node.type), _expression(node, names), _signature(node))
        for node in program.nodes()
        if node.kind != INPUT
    ]
    widths = [max((len(row[k]) for row in rows), default=0) for k in range(3)]
    lines = [f"program({', '.join(_inputs(program))})"]
    for row in rows:
        name, type_, expression = (text.ljust(w) for text, w in zip(row, widths, strict=False))
        lines.append(f"  {name} : {type_} = {expression}  {row[3]}".rstrip())
    lines.append("  return " + ", ".join(names[node] for node in program.outputs))
    return "\n".join(lines)


def _inputs(program: Program) -> list[str]:
    shown = []
    for spec in program.inputs:
        dims = f" ({', '.join(d or '_' for d in spec.dims)})" if spec.dims else ""
        layout = f" @ {spec.layout}" if spec.layout is not None else ""
        shown.append(f"{spec.name}: {spec.node.type}{dims}{layout}")
    return shown


def _expression(node: Node, names: dict[Node, str]) -> str:
    operands = ", ".join(names[a] for a in node.args)
    what = node.cell if node.kind == OP else node.text
    return f"{what}({operands})" if operands else what


def _signature(node: Node) -> str:
    return f"[{node.text}]" if node.kind == OP else ""


# -- picture --------------------------------------------------------------------------------------

_CHAR, _LINE, _PAD, _GAP_X, _GAP_Y = 7.3, 16, 8, 24, 44  # pixels of a 12 px monospace font
_FILL = {"input": "#e8f0fe", "op": "#ffffff", "sel": "#fff4e0"}

_STYLE = (
    "text{font:12px monospace;fill:#202124}.type{fill:#5f6368}"
    "rect{stroke:#5f6368}.out{stroke-width:3}path{fill:none;stroke:#5f6368}"
)
_ARROW = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#5f6368"/></marker></defs>'
)


def program_svg(program: Program, path: str | None = None) -> str:
    """A self-contained picture: values in layers, operands above their users.

    Blue boxes are inputs, white ones block operators, yellow ones selectors; outputs have a thick
    border.

    Args:
        program: the program.
        path: file to write; none by default.
    """
    names = value_names(program)
    texts = {node: _box_text(node, names) for node in program.nodes()}
    boxes = _placed(_layers(program), texts)
    width = max((x + w for x, _, w, _ in boxes.values()), default=0) + _GAP_X
    height = max((y + h for _, y, _, h in boxes.values()), default=0) + _GAP_X
    parts = [_arrow(boxes[a], boxes[node]) for node in boxes for a in node.args]
    parts += [_box(node, boxes[node], texts[node], node in program.outputs) for node in boxes]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">'
        f"<style>{_STYLE}</style>{_ARROW}\n" + "\n".join(parts) + "\n</svg>\n"
    )
    if path is not None:
        Path(path).write_text(svg, encoding="utf-8")
    return svg


def _box_text(node: Node, names: dict[Node, str]) -> list[str]:
    if node.kind == INPUT:
        return [names[node], str(node.type)]
    return [f"{names[node]} = {_expression(node, names)}", _signature(node), str(node.type)]


def _layers(program: Program) -> list[list[Node]]:
    """Topological generations, each ordered by the mean place of its operands."""
    layers: list[list[Node]] = [list(g) for g in nx.topological_generations(program.graph())]
    place: dict[Node, float] = {}
    for layer in layers:
        layer.sort(key=partial(_mean_place, place))
        place |= {node: n - len(layer) / 2 for n, node in enumerate(layer)}
    return layers


def _mean_place(place: dict[Node, float], node: Node) -> float:
    return sum(place[a] for a in node.args) / max(len(node.args), 1)


Box = tuple[float, float, float, float]  # x, y, width, height


def _placed(layers: Sequence[Sequence[Node]], texts: dict[Node, list[str]]) -> dict[Node, Box]:
    """Boxes of the values: layers from top to bottom, each centred."""
    sizes = {
        node: (max(map(len, lines)) * _CHAR + 2 * _PAD, sum(map(bool, lines)) * _LINE + _PAD)
        for node, lines in texts.items()
    }
    rows = [sum(sizes[node][0] + _GAP_X for node in layer) for layer in layers]
    boxes: dict[Node, Box] = {}
    y = float(_GAP_X)
    for layer, row in zip(layers, rows, strict=True):
        x = _GAP_X + (max(rows) - row) / 2
        for node in layer:
            boxes[node] = (x, y, *sizes[node])
            x += sizes[node][0] + _GAP_X
        y += max(sizes[node][1] for node in layer) + _GAP_Y
    return boxes


def _arrow(source: Box, target: Box) -> str:
    x1, y1 = source[0] + source[2] / 2, source[1] + source[3]
    x2, y2 = target[0] + target[2] / 2, target[1]
    bend = (y2 - y1) / 2
    curve = (
        f"M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"
    )
    return f'<path d="{curve}" marker-end="url(#tip)"/>'


def _box(node: Node, box: Box, lines: Sequence[str], is_output: bool) -> str:
    x, y, width, height = box
    style = ' class="out"' if is_output else ""
    parts = [
        f'<rect{style} x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="4" '
        f'fill="{_FILL[node.kind]}"/>'
    ]
    for n, line in enumerate(filter(None, lines)):
        kind = "" if n == 0 else ' class="type"'
        parts.append(
            f'<text{kind} x="{x + _PAD:.0f}" y="{y + (n + 1) * _LINE - 2:.0f}">'
            f"{escape(line)}</text>"
        )
    return "".join(parts)
