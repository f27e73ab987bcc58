"""Programs rebuilt: the second over the inputs of the first, or both at smaller extents."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from axe_eq.errors import ProgramError
from axe_eq.program.node import (
    INPUT,
    OP,
    SCAN,
    SEL,
    Node,
    Program,
    input_node,
    op_node,
    scan_node,
    sel_node,
    topological,
)
from axe_eq.program.ops import join_text, selector, split_text
from axe_eq.program.signature import signature
from axe_eq.program.types import DTYPES, ValueType

# Smaller numbers in a selector's text may be axes and counts, not extents.
_LEAST_EXTENT = 9


def rebuild(
    roots: Sequence[Node],
    leaf: Callable[[Node], Node],
    sig: Callable[[str], str] = str,
    spec: Callable[[str], str] = str,
    cell: Callable[[str], str] = str,
) -> list[Node]:
    """The same values over other inputs, with the texts of operators rewritten.

    Raises:
        ProgramError: the rewritten texts do not fit.
    """
    new: dict[Node, Node] = {}
    for node in topological(roots):
        args = [new[a] for a in node.args]
        if node.kind == INPUT:
            new[node] = leaf(node)
        elif node.kind == OP:
            new[node] = op_node(sig(node.text), cell(node.cell), args)
        elif node.kind == SCAN:
            new[node] = scan_node(node.text, args)
        else:
            new[node] = sel_node(spec(node.text), args)
    return [new[root] for root in roots]


def over_inputs_of(a: Program, b: Program) -> list[Node]:
    """The outputs of `b` over the inputs of `a`, matched by position, so that both share nodes.

    Captured constants are named by their contents and stay.
    """
    images = {y.node: x.node for x, y in zip(a.inputs, b.inputs, strict=True)}
    return rebuild(b.outputs, lambda node: images.get(node, node))


def type_difference(a: Program, b: Program) -> str | None:
    """Why two programs cannot be compared value by value; None where they can.

    Inputs and outputs are matched by position; names do not matter.
    """
    sides = (
        ("input", [i.node.type for i in a.inputs], [i.node.type for i in b.inputs]),
        ("output", [n.type for n in a.outputs], [n.type for n in b.outputs]),
    )
    for kind, ours, theirs in sides:
        if len(ours) != len(theirs):
            return f"a has {len(ours)} {kind}s, b has {len(theirs)}"
        for n, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            if x != y:
                return f"{kind} {n} is {x} in a, {y} in b"
    return None


# -- smaller extents ------------------------------------------------------------------------------


def reshape_program(program: Program, extents: Mapping[int, int]) -> Program | None:
    """The program with every extent that is a key replaced.

    Extents of inputs, those fixed in signatures and those in selector parameters (9 and above) are
    replaced. Nothing is traced again, so what a function computed from an extent cannot follow.

    Args:
        program: the program.
        extents: old extent to new extent.

    Returns:
        None where the new extents do not fit, a captured constant has an old extent, or a number
        among the constants encodes one (4096, 1/4096, their square roots).
    """

    def leaf(node: Node) -> Node:
        shape = tuple(extents.get(e, e) for e in node.shape)
        if node.text in program.constants and shape != node.shape:
            raise ProgramError(f"constant {node.text!r}", f"has shape {node.shape}")
        return input_node(node.text, ValueType(node.dtype, shape))

    try:
        outputs = rebuild(
            program.outputs, leaf, lambda s: _signature(s, extents), lambda s: _spec(s, extents)
        )
        inputs = tuple(dataclasses.replace(i, node=leaf(i.node)) for i in program.inputs)
    except ProgramError:
        return None
    return dataclasses.replace(
        program, inputs=inputs, outputs=tuple(outputs), names={}, places={}, retrace=None
    )


def _signature(text: str, extents: Mapping[int, int]) -> str:
    sig = signature(text)
    fixed = tuple((d, extents.get(e, e)) for d, e in sig.fixed)
    return dataclasses.replace(sig, fixed=fixed).text


def _spec(text: str, extents: Mapping[int, int]) -> str:
    declared, params = selector(text)
    if declared.fill is not None:
        _refuse_encoded(declared.fill(params), extents)
    return join_text(declared.name, *(_mapped(p, extents) for p in params))


def in_float64(roots: Sequence[Node]) -> list[Node]:
    """The same values with every floating type widened, so that roundings do not show."""

    def word(param: Any) -> Any:
        known = DTYPES.get(param) if isinstance(param, str) else None
        return "f64" if known is not None and known.kind == "f" else param

    def text(of: str) -> str:
        name, params = split_text(of)
        return join_text(name, *map(word, params))

    def leaf(node: Node) -> Node:
        return input_node(node.text, ValueType(word(node.dtype), node.shape))

    return rebuild(roots, leaf, spec=text, cell=text)


def _mapped(param: Any, extents: Mapping[int, int]) -> Any:
    if isinstance(param, tuple):
        return tuple(_mapped(p, extents) for p in param)
    if isinstance(param, int) and not isinstance(param, bool) and abs(param) >= _LEAST_EXTENT:
        return int(math.copysign(extents.get(abs(param), abs(param)), param))
    return param


def _refuse_encoded(value: float | None, extents: Mapping[int, int]) -> None:
    """A constant made from an extent would be wrong at another one."""
    size = abs(float(value or 0))
    if not 0 < size < math.inf:
        return
    for old in extents:
        for power in (1.0, 0.5, -0.5, -1.0):
            if math.isclose(size, float(old) ** power, rel_tol=1e-3):
                raise ProgramError(f"constant {value!r}", f"encodes the extent {old}")


def reductions(programs: Sequence[Program]) -> Iterator[dict[int, int]]:
    """Replacements of all large extents of these programs, smallest results first.

    First each extent by a small number of its own, which shows best; then all divided by one power
    of two, which keeps sums and quotients of extents.
    """
    found = sorted({e for program in programs for e in _extents(program)})
    if not found:
        return
    yield {extent: 2 + n for n, extent in enumerate(found)}
    divisor = 1 << (found[0].bit_length() - 1)
    while divisor > 1:
        if all(extent % divisor == 0 for extent in found):
            yield {extent: extent // divisor for extent in found}
        divisor //= 2


def _extents(program: Program) -> Iterator[int]:
    for node in (*(i.node for i in program.inputs), *program.nodes()):
        yield from _large(node.shape if node.kind == INPUT else ())
        if node.kind == OP:
            yield from _large(e for _, e in signature(node.text).fixed)
        elif node.kind == SEL:
            declared, params = selector(node.text)
            value = declared.fill(params) if declared.fill else None
            yield from _large(p for p in params if p is not value)


def _large(values: Any) -> Iterator[int]:
    for value in values:
        if isinstance(value, tuple):
            yield from _large(value)
        elif isinstance(value, int) and abs(value) >= _LEAST_EXTENT:
            yield abs(value)
