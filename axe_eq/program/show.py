"""Programs as text: one line per value."""

from __future__ import annotations

from axe_eq.program.node import INPUT, OP, Node, Program


def value_names(program: Program) -> dict[Node, str]:
    """A short unique name per value: the input's name, the user's name, or %0, %1, ..."""
    names: dict[Node, str] = {}
    taken: set[str] = set()
    for node in program.nodes():
        wanted = node.text if node.kind == INPUT else program.names.get(node, "")
        if not wanted or wanted in taken:
            wanted = f"%{len(names)}"
        taken.add(wanted)
        names[node] = wanted
    return names


def program_text(program: Program) -> str:
    """The program, operands before users: ``name = cell[signature](operands) : type``."""
    names = value_names(program)
    lines = [f"input {i.name} : {i.node.type}" for i in program.inputs]
    lines += [_line(node, names) for node in program.nodes() if node.kind != INPUT]
    lines.append("return " + ", ".join(names[node] for node in program.outputs))
    return "\n".join(lines)


def _line(node: Node, names: dict[Node, str]) -> str:
    operands = ", ".join(names[a] for a in node.args)
    what = f"{node.cell} [{node.text}]" if node.kind == OP else node.text
    return f"{names[node]} = {what} ({operands}) : {node.type}"


def program_svg(program: Program, path: str | None = None) -> str:
    """A picture of the program."""
    raise NotImplementedError
