"""Products with a reciprocal as the quotients that they stand for.

Where a divisor is a power of two a law makes a factor of it, bit for bit. At another extent the
function divides by another number, whose reciprocal rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from axe_eq.program.ops import CELLS
from axe_eq.program.signature import make, signature
from axe_eq.schedule.graph import KernelStep, ScheduleGraph, TileNode


def with_quotients(graph: ScheduleGraph, divisors: Mapping[str, str]) -> ScheduleGraph:
    """A schedule graph that divides where it multiplies by reciprocals.

    Args:
        graph: of any kernels.
        divisors: text of a constant -> text of the constant that it is one over.
    """
    if not divisors:
        return graph
    steps = (_divided(s, divisors) if isinstance(s, KernelStep) else s for s in graph.steps)
    return replace(graph, steps=tuple(steps))


def _divided(step: KernelStep, divisors: Mapping[str, str]) -> KernelStep:
    quotients = {CELLS[name].quotient_of: name for name in CELLS if CELLS[name].quotient_of}
    nodes = list(step.nodes)
    for number, node in enumerate(step.nodes):
        factors = [o for o in node.operands if step.nodes[o].text in divisors]
        if node.cell not in quotients or len(node.operands) != 2 or len(factors) != 1:
            continue
        nodes[number] = _quotient(node, quotients[node.cell], factors[0])
        constant = step.nodes[factors[0]]
        nodes[factors[0]] = replace(constant, text=divisors[constant.text])
    return replace(step, nodes=tuple(nodes))


def _quotient(node: TileNode, cell: str, divisor: int) -> TileNode:
    """A product of two operands as a quotient by the second, once that is the divisor."""
    sig = signature(node.text)
    projections, operands = list(sig.operands), list(node.operands)
    if operands[0] == divisor:
        projections.reverse()
        operands.reverse()
    text = make(projections, range(sig.n_out), sig.monoid, sig.reduced, dict(sig.fixed)).text
    return replace(node, cell=cell, text=text, operands=tuple(operands))
