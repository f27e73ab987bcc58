"""Programs as plain data, for another process and for names in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from axe_eq.program.node import InputSpec, Node, Program, of_table, table
from axe_eq.program.types import Array

if TYPE_CHECKING:
    from axe_eq.program.node import Place


class Stored(NamedTuple):
    """A program with the numbers of its nodes in place of these; without `Program.retrace`.

    Attributes:
        nodes: a table of all, see `axe_eq.program.node.table`.
        inputs: number, dims, layout and divisors of each.
        outputs: their numbers.
        by_node: names, places, and constants as they are written, by number.
        structure, constants, output_layouts, arguments: as in `Program`.
    """

    nodes: list[tuple[Any, ...]]
    inputs: list[tuple[Any, ...]]
    outputs: list[int]
    by_node: list[dict[int, Any]]
    structure: Any
    constants: dict[str, Array]
    output_layouts: tuple[Place, ...]
    arguments: Any

    @property
    def program(self) -> Program:
        """The program: the very same nodes where they still live."""
        nodes: list[Node] = of_table(self.nodes)
        names, places, written = ({nodes[n]: v for n, v in of.items()} for of in self.by_node)
        return Program(
            tuple(InputSpec(nodes[n], *rest) for n, *rest in self.inputs),
            tuple(nodes[n] for n in self.outputs),
            self.structure, self.constants, names, places, written, self.output_layouts,
            self.arguments,
        )  # fmt: skip


def stored(program: Program) -> Stored:
    """A program as plain data."""
    kept = program.names, program.places, program.written
    rows, number = table(
        [*program.outputs, *(i.node for i in program.inputs), *(n for of in kept for n in of)]
    )
    return Stored(
        rows,
        [(number[i.node], i.dims, i.layout, i.divisible) for i in program.inputs],
        [number[node] for node in program.outputs],
        [{number[node]: value for node, value in of.items()} for of in kept],
        program.structure,
        program.constants,
        program.output_layouts,
        program.arguments,
    )
