"""Programs as text, one line per value, and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from axe_eq.draw.colour import style
from axe_eq.files import write_text
from axe_eq.program.node import INPUT, OP, SCAN, Node, Program


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
        if node.kind != INPUT or node.text in program.constants
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
    if node.kind == INPUT:
        return "captured array"
    operands = ", ".join(names[a] for a in node.args)
    what = _title(node)
    return f"{what}({operands})" if operands else what


def _title(node: Node) -> str:
    """What an operator does: its cell, its selector, or the scan with its axis."""
    if node.kind == OP:
        return node.cell
    return f"scan {node.text}" if node.kind == SCAN else node.text


def _signature(node: Node) -> str:
    return f"[{node.text}]" if node.kind == OP else ""


# -- picture --------------------------------------------------------------------------------------

_CHAR, _LINE, _PAD, _GAP_X, _GAP_Y = 7.3, 16, 8, 24, 44  # pixels of a 12 px monospace font
# Classes of pictures, light and dark.
_TONES = {"input": "h0", "op": "plain", "sel": "h4", "scan": "h2"}

_STYLE = (
    ".axe text{font:12px ui-monospace,monospace}.axe rect{stroke-width:1}.axe .out{stroke-width:3}"
    ".axe .edge{fill:none}"
)
_LINES = "#626b76", "#98a2ae"  # light, dark
_ARROW = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
)


def _style() -> str:
    """The sheet of pictures with that of lines, both as the reader's system asks."""
    light, dark = (
        f".axe .edge,.axe .box{{stroke:{line}}}.axe .tip{{fill:{line}}}" for line in _LINES
    )
    return f"{style()}{_STYLE}{light}@media (prefers-color-scheme:dark){{{dark}}}"


Via = tuple[Node, int]  # where a value passes a layer on its way to users further down
Place = Node | Via
Box = tuple[float, float, float, float]  # x, y, width, height


def program_svg(program: Program, path: str | None = None) -> str:
    """A self-contained picture: values in layers, operands above their users.

    Blue boxes are inputs, grey ones block operators, yellow ones selectors, green ones scans;
    outputs have a thick border. Light or dark as the reader's system asks, on paper of its own.

    Args:
        program: the program.
        path: file to write; none by default.
    """
    names = value_names(program)
    nodes = program.nodes()
    texts = {node: _box_text(node, names) for node in nodes}
    levels = _levels(nodes)
    boxes = _boxes(_layers(nodes, levels), texts)
    width = max((x + w for x, _, w, _ in boxes.values()), default=0) + _GAP_X
    height = max((y + h for _, y, _, h in boxes.values()), default=0) + _GAP_X
    parts = [_line(place, boxes, levels) for place in boxes]
    parts += [_box(node, boxes[node], texts[node], node in program.outputs) for node in nodes]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="axe" width="{width:.0f}" '
        f'height="{height:.0f}"><style>{_style()}</style>{_ARROW}'
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>\n'
        + "\n".join(filter(None, parts))
        + "\n</svg>\n"
    )
    if path is not None:
        write_text(path, svg)
    return svg


def _box_text(node: Node, names: dict[Node, str]) -> list[str]:
    if node.kind == INPUT:
        return [names[node], str(node.type)]
    return [f"{names[node]} = {_expression(node, names)}", _signature(node), str(node.type)]


def _levels(nodes: Sequence[Node]) -> dict[Node, int]:
    """The layer of every value; values without operands stand just above their first user."""
    levels: dict[Node, int] = {}
    for node in nodes:
        levels[node] = max((levels[a] + 1 for a in node.args), default=0)
    first: dict[Node, int] = {}
    for node in nodes:
        for a in node.args:
            first[a] = min(first.get(a, levels[node]), levels[node])
    return levels | {n: first[n] - 1 for n in nodes if not n.args and n in first}


def _parents(place: Place, levels: dict[Node, int]) -> list[Place]:
    """What is drawn in the layer above with a line to this place."""
    if isinstance(place, Node):
        above = levels[place] - 1
        return [a if levels[a] == above else (a, above) for a in place.args]
    node, level = place
    return [node if levels[node] == level - 1 else (node, level - 1)]


def _layers(nodes: Sequence[Node], levels: dict[Node, int]) -> list[list[Place]]:
    """Values and lines by layer, each layer ordered by the mean place of what is above."""
    layers: list[list[Place]] = [[] for _ in range(max(levels.values()) + 1)]
    passing: set[Place] = set()
    for node in nodes:
        layers[levels[node]].append(node)
        for a in node.args:
            for level in range(levels[a] + 1, levels[node]):
                if (a, level) not in passing:
                    passing.add((a, level))
                    layers[level].append((a, level))
    at: dict[Place, float] = {}
    for layer in layers:
        means = {
            place: sum(at[p] for p in parents) / len(parents) if parents else math.inf
            for place in layer
            for parents in [_parents(place, levels)]
        }
        layer.sort(key=means.__getitem__)
        at |= {place: n - len(layer) / 2 for n, place in enumerate(layer)}
    return layers


def _boxes(layers: Sequence[Sequence[Place]], texts: dict[Node, list[str]]) -> dict[Place, Box]:
    """Boxes of the places: layers from top to bottom, each centred."""
    sizes = {
        node: (max(map(len, lines)) * _CHAR + 2 * _PAD, sum(map(bool, lines)) * _LINE + _PAD)
        for node, lines in texts.items()
    }
    boxes: dict[Place, Box] = {}
    y = float(_GAP_X)
    for layer in layers:
        height = max(sizes[p][1] for p in layer if isinstance(p, Node))
        x = -sum((sizes[p][0] if isinstance(p, Node) else 0) + _GAP_X for p in layer) / 2
        for place in layer:
            size = sizes[place] if isinstance(place, Node) else (0.0, height)
            boxes[place] = (x, y, *size)
            x += size[0] + _GAP_X
        y += height + _GAP_Y
    left = min(x for x, _, _, _ in boxes.values()) - _GAP_X
    return {place: (x - left, y, w, h) for place, (x, y, w, h) in boxes.items()}


def _line(place: Place, boxes: dict[Place, Box], levels: dict[Node, int]) -> str:
    """The lines that end at a place, and the line through it where it is no value."""
    parts = [
        _arrow(boxes[p], boxes[place], isinstance(place, Node)) for p in _parents(place, levels)
    ]
    if not isinstance(place, Node):
        x, y, _, height = boxes[place]
        parts.append(f'<path class="edge" d="M{x:.0f} {y:.0f}v{height:.0f}"/>')
    return "".join(parts)


def _arrow(source: Box, target: Box, tip: bool) -> str:
    x1, y1 = source[0] + source[2] / 2, source[1] + source[3]
    x2, y2 = target[0] + target[2] / 2, target[1]
    middle = (y1 + y2) / 2
    curve = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
    marker = ' marker-end="url(#tip)"' if tip else ""
    return f'<path class="edge" d="{curve}"{marker}/>'


def _box(node: Node, box: Box, lines: Sequence[str], is_output: bool) -> str:
    x, y, width, height = box
    kind = f"box {_TONES[node.kind]}" + (" out" if is_output else "")
    parts = [
        f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" rx="4"/>'
    ]
    for n, line in enumerate(filter(None, lines)):
        kind = "" if n == 0 else ' class="soft"'
        parts.append(
            f'<text{kind} x="{x + _PAD:.0f}" y="{y + (n + 1) * _LINE - 2:.0f}">'
            f"{escape(line)}</text>"
        )
    return "".join(parts)
