"""Nodes and programs: a hash-consed DAG of block operators, selectors and scans.

Equality of nodes is structural; names and source places live beside the graph (`Program.names`,
`Program.places`) and never take part in it. Roots are ordered: outputs define what must be computed
and what programs mean; whatever no root reaches is not part of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from weakref import WeakValueDictionary

from axe_eq.errors import ProgramError, said
from axe_eq.program.nesting import is_nesting, leaf_numbers
from axe_eq.program.ops import (
    CELLS,
    MONOIDS,
    Cell,
    Monoid,
    cell,
    cell_text,
    join_text,
    scan,
    scan_text,
    selector,
    selector_text,
    split_text,
)
from axe_eq.program.signature import signature
from axe_eq.program.types import Array, ValueType, dtype, promote, value_type
from axe_eq.walk import reached

if TYPE_CHECKING:
    import networkx as nx

    from axe_eq.layout import Layout

    Place = Layout | Literal["any"] | None

INPUT, OP, SEL, SCAN = "input", "op", "sel", "scan"


class Node:
    """One value: an input, or a block operator, a selector or a scan applied to nodes.

    Attributes:
        kind: "input", "op", "sel" or "scan".
        text: input name, canonical signature text, selector text, or scan text.
        cell: cell text of a block operator, "" otherwise.
        args: operand nodes.
        type: element type and shape.
    """

    __slots__ = ("__weakref__", "args", "cell", "kind", "text", "type")
    _known: ClassVar[WeakValueDictionary[tuple[Any, ...], Node]] = WeakValueDictionary()

    kind: str
    text: str
    cell: str
    args: tuple[Node, ...]
    type: ValueType

    def __new__(
        cls, kind: str, text: str, cell: str, args: tuple[Node, ...], type: ValueType
    ) -> Node:
        """The node with these parts: always the same object for the same parts."""
        key = (kind, text, cell, tuple(map(id, args)), type)
        node = cls._known.get(key)
        if node is None:
            node = super().__new__(cls)
            node.kind, node.text, node.cell, node.args, node.type = kind, text, cell, args, type
            cls._known[key] = node
        return node

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """Element type name."""
        return self.type.dtype

    def __repr__(self) -> str:
        return f"<{self.kind} {self.text!r} {self.cell} {self.type}>"

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: object) -> Node:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """As a table of nodes: pickle would go as deep as the graph."""
        return _last, (table([self])[0],)


def table(roots: Sequence[Node]) -> tuple[list[tuple[Any, ...]], dict[Node, int]]:
    """All nodes below some as rows, operands before users and by number; the number of each."""
    number = {node: n for n, node in enumerate(topological(roots))}
    rows = [(n.kind, n.text, n.cell, [number[a] for a in n.args], n.type) for n in number]
    return rows, number


def of_table(rows: Iterable[tuple[Any, ...]]) -> list[Node]:
    """The nodes of a table."""
    made: list[Node] = []
    for kind, text, cell_, args, type_ in rows:
        made.append(Node(kind, text, cell_, tuple(made[n] for n in args), type_))
    return made


def _last(rows: Iterable[tuple[Any, ...]]) -> Node:
    return of_table(rows)[-1]


def input_node(name: str, type: ValueType) -> Node:
    """An input of a program."""
    return Node(INPUT, name, "", (), type)


@cache
def op_type(sig: str, cell_text: str, types: tuple[ValueType, ...]) -> ValueType:
    """Type of a block operator's value: shape from the signature, dtype from cell and monoid.

    Raises:
        ProgramError: shapes, arity or dtypes do not fit.
    """
    parsed = signature(sig)
    declared, params = cell(cell_text)
    if declared.arity not in (None, len(types)):
        raise ProgramError(
            f"cell {cell_text!r}", f"got {len(types)} operands", f"{declared.arity} operands"
        )
    shape = parsed.out_shape([t.shape for t in types])
    dtypes = [t.dtype for t in types]
    result = _value_dtype(declared, cell_text, params, parsed.monoid, dtypes)
    # What laws say of a cell by its name would not hold of one that does more.
    if len(params) != declared.n_params:
        wanted = f"{declared.n_params}, as it declares"
        raise ProgramError(f"cell {cell_text!r}", f"has {len(params)} parameters", wanted)
    return ValueType(result, shape)


def _value_dtype(
    declared: Cell, text: str, params: tuple[Any, ...], reduction: str, dtypes: list[str]
) -> str:
    monoid = MONOIDS[reduction] if reduction else None
    if monoid is not None and not monoid.commutative:
        wrong = "is not commutative, and a reduction has no order"
        raise ProgramError(f"reduction {reduction!r}", wrong, "a scan by it")
    takes = monoid.n_values if monoid else 1
    if declared.n_values != takes:
        wanted = f"reduction {reduction!r} takes {takes}" if monoid else "there is no reduction"
        raise ProgramError(
            f"cell {text!r}", f"gives {declared.n_values} values, but {wanted}", "equal numbers"
        )
    if monoid is not None and takes > 1:
        return dtype_by_rule(monoid.result, f"reduction {reduction!r}", (), dtypes)
    result = dtype_by_rule(declared.result, f"cell {text!r}", params, dtypes)
    return result if monoid is None else _reduced(monoid, result)


def _reduced(monoid: Monoid, name: str) -> str:
    return dtype_by_rule(monoid.result, f"reduction {monoid.name!r}", (), [name])


_KINDS = {"number": "fi", "float": "f", "integer": "i", "logical": "b", "last": "b", "wide": "f"}
_WANTED = {
    "number": "a numeric dtype",
    "float": "a floating dtype",
    "integer": "an integer dtype",
    "logical": "bool operands",
    "last": "a bool condition",
    "wide": "a floating dtype",
}


def dtype_by_rule(rule: str, thing: str, params: tuple[Any, ...], dtypes: Sequence[str]) -> str:
    """The dtype of a value by the rule of its cell or monoid (`Cell.result`, `Monoid.result`).

    Raises:
        ProgramError: the rule takes no operands of these dtypes.
    """
    if rule == "bool":
        return "bool"
    if rule == "param":
        return dtype(params[0] if params else "").name
    if rule == "index":
        if dtype(dtypes[-1]).kind != "i":
            raise ProgramError(thing, f"has indices of {dtypes[-1]}", _WANTED["integer"])
        return dtypes[-1]
    common = promote(*(dtypes[1:] if rule == "last" else dtypes))
    checked = dtypes[0] if rule == "last" else common
    if dtype(checked).kind not in _KINDS.get(rule, "fib"):
        raise ProgramError(thing, f"got {checked}", _WANTED[rule])
    return dtype(common).accumulate if rule == "wide" else common


def op_node(sig: str, cell: str, args: Sequence[Node]) -> Node:
    """Apply a block operator; both texts are made canonical."""
    canonical, name = signature(sig).text, cell_text(cell)
    return Node(OP, canonical, name, tuple(args), op_type(canonical, name, _types(args)))


def _types(args: Sequence[Node]) -> tuple[ValueType, ...]:
    return tuple(a.type for a in args)


@cache
def sel_type(text: str, types: tuple[ValueType, ...]) -> ValueType:
    """Type of a selector's value.

    Raises:
        ProgramError: arity, shapes or parameters do not fit, or a constant is not a value of its
            element type.
    """
    found, kept = _sel_type(text, types)
    if kept != text:
        wrong = f"has a constant that {found.dtype} does not hold"
        raise ProgramError(f"selector {text!r}", wrong, repr(kept))
    return found


@cache
def _sel_type(text: str, types: tuple[ValueType, ...]) -> tuple[ValueType, str]:
    """Type of a selector's value, and its text with constants as their element type holds them."""
    declared, params = selector(text)
    if declared.arity is not None and declared.arity != len(types):
        raise ProgramError(
            f"selector {text!r}", f"got {len(types)} operands", f"{declared.arity} operands"
        )
    found = declared.shape(params, types)
    if declared.held is None:
        return found, text
    kept = declared.held(params, types)
    same = all(a is b for a, b in zip(kept, params, strict=True))
    return found, text if same else join_text(declared.name, *kept)


def sel_node(text: str, args: Sequence[Node]) -> Node:
    """Apply a selector; its text is made canonical, and constants what their type holds."""
    found, canonical = _sel_type(selector_text(text), _types(args))
    return Node(SEL, canonical, "", tuple(args), found)


@cache
def scan_type(text: str, types: tuple[ValueType, ...]) -> ValueType:
    """Type of a scan's value: the shape of its operands, the dtype of the reduction.

    Raises:
        ProgramError: no such monoid or axis, a wrong number of operands, other shapes or dtypes.
    """
    monoid, axis = scan(text)
    if len(types) != monoid.n_values:
        wanted = f"{monoid.n_values} operands"
        raise ProgramError(f"scan {text!r}", f"got {len(types)} operands", wanted)
    shape = types[0].shape
    if any(t.shape != shape for t in types):
        given = " ".join(map(str, types))
        raise ProgramError(f"scan {text!r}", f"got {given}", "operands of one shape")
    if not 0 <= axis < len(shape):
        raise ProgramError(f"scan {text!r}", f"has axis {axis} of {types[0]}", "an axis of it")
    rule = dtype_by_rule(monoid.result, f"scan {text!r}", (), [t.dtype for t in types])
    return ValueType(rule, shape)


def scan_node(text: str, args: Sequence[Node]) -> Node:
    """Apply a scan; its text is made canonical."""
    canonical = scan_text(text)
    return Node(SCAN, canonical, "", tuple(args), scan_type(canonical, _types(args)))


def made_node(kind: str, text: str, cell: str, args: Sequence[Node]) -> Node:
    """Apply an operator of any kind: the node with these parts."""
    if kind == OP:
        return op_node(text, cell, args)
    return sel_node(text, args) if kind == SEL else scan_node(text, args)


@dataclass(frozen=True)
class InputSpec:
    """One input.

    Attributes:
        node: its node.
        dims: names of its dims, "" where unnamed; empty where none is named.
        layout: the layout it arrives in, where that is prescribed; "any" where it is to be chosen.
        divisible: per dim, a number its extent is a multiple of whatever it is bound to; empty
            where nothing is promised.
    """

    node: Node
    dims: tuple[str, ...] = ()
    layout: Place = None
    divisible: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Name of the input."""
        return self.node.text


@dataclass(frozen=True, repr=False)
class Program:
    """A traced program.

    >>> program = axe.trace(lambda x: x * 2.0, "4:f32")
    >>> [spec.name for spec in program.inputs]
    ['x']

    Attributes:
        inputs: in the order of the function's arguments, flattened.
        outputs: observed roots in order.
        structure: nesting of the function's outputs, see `axe_eq.program.nesting`; by default the
            one output, or a tuple of several.
        constants: arrays captured by the function; each is also an input node by the same name.
        names: node -> the user's name for it, where known.
        places: node -> "file:line: source" that made it, where known.
        written: node -> its constant as it is written -> "file:line: source", of constants that
            their element type rounds.
        output_layouts: the layout each output is wanted in, where that is prescribed; "any" where
            it is to be chosen.
        arguments: nesting of the function's arguments, a tuple of one entry per argument.
        retrace: makes the program at other extents of its named dims, see `rebind`.
    """

    inputs: tuple[InputSpec, ...]
    outputs: tuple[Node, ...]
    structure: Any = field(default=None, hash=False)
    # Named by their contents, so nodes tell whether constants are equal.
    constants: dict[str, Array] = field(default_factory=dict, compare=False)
    names: dict[Node, str] = field(default_factory=dict, compare=False)
    places: dict[Node, str] = field(default_factory=dict, compare=False)
    written: dict[Node, dict[float, str]] = field(default_factory=dict, compare=False)
    output_layouts: tuple[Place, ...] = ()
    arguments: Any = field(default=None, hash=False)
    retrace: Callable[[Mapping[str, int]], Program] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Nest the outputs where nobody says how.

        Raises:
            ProgramError: a structure that is no nesting of the outputs.
        """
        numbers = list(range(len(self.outputs)))
        if self.structure is None:
            structure = 0 if len(numbers) == 1 else ["tuple", numbers]
            object.__setattr__(self, "structure", structure)
        found = sorted(leaf_numbers(self.structure)) if is_nesting(self.structure) else None
        if found != numbers:
            wanted = f"outputs {' '.join(map(str, numbers))}, nested as ['tuple', [0, 1]]"
            raise ProgramError("program", f"has structure {said(self.structure)}", wanted)

    def rebind(self, **extents: int) -> Program:
        """The same function traced with other extents for its named dims.

        Tracing again, rather than changing shapes, keeps what the function computes from an extent
        (the divisor of a mean) right.

        Raises:
            ProgramError: a name that no dim has, an extent its dim cannot have, or a program that
                was not traced.
        """
        if self.retrace is None:
            raise ProgramError("program", "was not traced from a function", "a traced program")
        return self.retrace(extents)

    def nodes(self) -> list[Node]:
        """Every node a root reaches, operands before users."""
        return list(topological(self.outputs))

    def graph(self) -> nx.DiGraph[Node]:
        """The program as a networkx graph, edges from operand to user with attribute `operand`."""
        import networkx as nx  # running a compiled program needs no graph library

        graph: nx.DiGraph[Node] = nx.DiGraph()
        for node in self.nodes():
            graph.add_node(node)
            for n, arg in enumerate(node.args):
                graph.add_edge(arg, node, operand=n)
        return graph

    def __repr__(self) -> str:
        given = ", ".join(f"{i.name}: {i.node.type}" for i in self.inputs)
        made = ", ".join(str(node.type) for node in self.outputs)
        return f"<program ({given}) -> ({made})>"

    def __str__(self) -> str:
        from axe_eq.program.show import program_text

        return program_text(self)

    def draw(self, path: str | None = None) -> str:
        """A self-contained SVG of the program; written to `path` where given."""
        from axe_eq.program.show import program_svg

        return program_svg(self, path)


def topological(roots: Iterable[Node]) -> Iterator[Node]:
    """Nodes reachable from the roots, operands first, in a deterministic order (no recursion)."""
    return reached(roots, _args)


_args = attrgetter("args")

__all__ = [
    "CELLS", "INPUT", "OP", "SCAN", "SEL", "InputSpec", "Node", "Program", "input_node",
    "made_node", "op_node", "op_type", "scan_node", "scan_type", "sel_node", "sel_type",
    "split_text", "topological", "value_type",
]  # fmt: skip
