"""Programs that are undefined at different inputs, over the reals: x / x is not 1.

A difference counts where one side is undefined for certain and the other is defined for certain:
its enclosure says so. What overflows, and what is read where integers say, counts as neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from axe_eq.program.facts import facts_of_input
from axe_eq.program.gathers import looks
from axe_eq.program.interval import AT_INFINITY, POLES, Interval
from axe_eq.program.known import FINITE_WHERE_DEFINED, has
from axe_eq.program.meaning import index_views
from axe_eq.program.node import INPUT, OP, SEL, Node, topological
from axe_eq.program.ops import cell, constant_of
from axe_eq.program.signature import signature
from axe_eq.program.types import Array
from axe_eq.prove.programs.enclose import Given, Plan, plan, run
from axe_eq.prove.programs.marks import full_shape, over, reached
from axe_eq.prove.programs.region import whole


def whole_plan(outputs: Sequence[Node], limit: float) -> Plan | None:
    """A plan for every value of programs that may have poles or infinities; None of others.

    Raises:
        SearchError: it costs more than the limit.
    """
    nodes = list(topological(outputs))
    if not any(map(_may_have_poles, nodes)):
        return None
    return plan(nodes, [whole(node.shape) for node in nodes], limit)


def _may_have_poles(node: Node) -> bool:
    if node.kind == INPUT:
        return not has(facts_of_input(node.text, str(node.type)), FINITE_WHERE_DEFINED)
    if node.kind == OP:
        return cell(node.cell)[0].name in POLES
    fill = constant_of(node.text) if node.kind == SEL else None
    return fill is not None and not math.isfinite(fill)


def undefined_apart(
    planned: Plan, outputs: Sequence[tuple[Node, Node]], given: Given
) -> tuple[int, tuple[int, ...], bool] | None:
    """An element that one side of a pair has and the other has not.

    Args:
        planned: from `whole_plan`, of all outputs.
        outputs: pairs of roots.
        given: the value of an input on a region.

    Returns:
        The number of the pair, the index, and whether the first side is the undefined one.
    """
    values = dict(zip(planned.outputs, run(planned, given), strict=True))
    marks: dict[Node, Array] = {}
    with np.errstate(all="ignore"):
        for node in planned.outputs:
            marks[node] = _undefined(node, values, marks)
    for number, (a, b) in enumerate(outputs):
        for one, other in ((a, b), (b, a)):
            apart = marks[one] & np.isfinite(values[other].low) & np.isfinite(values[other].high)
            if apart.any():
                at = np.unravel_index(int(np.argmax(apart)), apart.shape)
                return number, tuple(map(int, at)), one is a
    return None


def _undefined(node: Node, values: dict[Node, Interval], marks: dict[Node, Array]) -> Array:
    """Where a value is undefined for certain."""
    none = np.zeros(node.shape, bool)
    if not node.args:  # an input, or a constant
        return none | np.isnan(values[node].low)
    given, own = [values[a] for a in node.args], [marks[a] for a in node.args]
    if node.kind == SEL and looks(node.text, [a.type for a in node.args]):
        return none
    if node.kind != OP:
        return reached(node, [x.low for x in given], own)
    sig, (declared, _) = signature(node.text), cell(node.cell)
    if declared.n_conditions and sig.n_reduced:
        return none
    # A condition that is not known is taken either way: what both reach is undefined.
    ways = [[x.low > 0 for x in given], [~(x.high == 0) for x in given]]
    found = np.logical_and(*(reached(node, way, own) for way in ways))
    pole = POLES.get(declared.name) or AT_INFINITY.get(declared.name)
    if pole is None:
        return np.asarray(found)
    bounds = [index_views(sig, [x[n] for x in given]) for n in (0, 1)]
    views = [Interval(*x) for x in zip(*bounds, strict=True)]
    here = np.broadcast_to(pole(*views), full_shape(bounds[0]))
    return np.asarray(found | over(sig, here, full_shape(bounds[0])))
