"""Programs as text, one line per value, and as a picture."""

from __future__ import annotations

from axe_eq.draw.colour import style
from axe_eq.draw.graph import Place, layered_svg
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

_TONES = {"input": "h0", "op": "plain", "sel": "h4", "scan": "h2"}
_LINES = "#626b76", "#98a2ae"  # light, dark


def _style() -> str:
    """The sheet of pictures with that of lines, both as the reader's system asks."""
    light, dark = (
        f".axe .edge,.axe .box{{stroke:{line}}}.axe .tip{{fill:{line}}}" for line in _LINES
    )
    own = ".axe .edge{fill:none}.axe .box{stroke-width:1}.axe .out{stroke-width:3}"
    return f"{style()}{own}{light}@media (prefers-color-scheme:dark){{{dark}}}"


def program_svg(program: Program, path: str | None = None) -> str:
    """A self-contained picture: values in layers, operands above their users.

    Blue boxes are inputs, grey ones block operators, yellow ones selectors, green ones scans;
    outputs have a thick border. Light or dark as the reader's system asks, on paper of its own.

    Args:
        program: the program.
        path: file to write; none by default.
    """
    names = value_names(program)
    places: dict[Node, Place] = {}
    for node in program.nodes():
        lines = [names[node], str(node.type)]
        if node.kind != INPUT:
            head = f"{names[node]} = {_expression(node, names)}"
            lines = [head, *filter(None, [_signature(node)]), str(node.type)]
        kind = f"box {_TONES[node.kind]}" + (" out" if node in program.outputs else "")
        shown = [(line, "soft" if n else "") for n, line in enumerate(lines)]
        places[node] = Place(shown, kind, str(node.type), above=[places[a] for a in node.args])
    svg = layered_svg(list(places.values()), 'class="axe"', _style())
    if path is not None:
        write_text(path, svg)
    return svg
