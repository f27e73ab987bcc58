"""Small counterexamples lifted to a program's own shapes: inputs with few classes of indices.

Let inputs be equal at all indices of a dim from the n-th on, in every dim. Operators that read
their operands index by index hand this on: each of their values is known from its first n + 1
indices per dim, and a sum counts its last term as often as its class has indices. Evaluating a
program then costs nothing that grows with its extents, as at reduced extents; but the extents, and
constants made from them, are the program's own, so what differs there differs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from axe_eq.errors import SearchError
from axe_eq.program.node import INPUT, OP, SCAN, Node, topological
from axe_eq.program.ops import Pull, keeps_equal, selector
from axe_eq.program.signature import Affine, signature
from axe_eq.prove.programs.enclose import Plan, node_cost
from axe_eq.prove.programs.region import check_size, represented, size

ALIKE = 3  # indices before this one are classes of their own


def lifted_plan(
    outputs: Sequence[Node], constants: Collection[str], alike: int = ALIKE
) -> Plan | None:
    """What to evaluate for inputs that are equal from index `alike` of every dim on.

    Args:
        outputs: the wanted values, each at its first `alike` + 1 indices per dim.
        constants: names of the inputs whose values are given, whatever they are.
        alike: the first index of the class that all later ones belong to.

    Returns:
        None where some value would not be equal there: a large captured constant or iota, a
        reshape of a large dim, a window, a reduction that counts its terms in another way.
    """
    regions = {}
    cost = 0.0
    try:
        for node in topological(outputs):
            if not _hands_on(node, constants, alike):
                return None
            region = regions[node] = represented(node.shape, alike)
            check_size(size(region))
            cost += node_cost(node, region, alike)
    except SearchError:
        return None
    wanted = tuple(regions[node] for node in outputs)
    return Plan(tuple(outputs), wanted, regions, cost, alike)


def _hands_on(node: Node, constants: Collection[str], alike: int) -> bool:
    """The value depends on classes alone where its operands do."""
    small = all(extent <= alike + 1 for extent in node.shape)
    if node.kind == INPUT:
        return small or node.text not in constants
    if node.kind == OP:
        return _op_hands_on(node, alike)
    if small and all(extent <= alike + 1 for arg in node.args for extent in arg.shape):
        return True
    if node.kind == SCAN:
        return False  # what stands at an index depends on how many stand before it
    declared, params = selector(node.text)
    if not node.args:
        return declared.fill is not None
    if declared.pull is None:
        return False
    rows = declared.pull(params, [arg.type for arg in node.args])
    return all(
        _pull_hands_on(pull, extent, node.shape, alike)
        for row, arg in zip(rows, node.args, strict=True)
        for pull, extent in zip(row, arg.shape, strict=True)
    )


def _pull_hands_on(pull: Pull | None, extent: int, shape: Sequence[int], alike: int) -> bool:
    """One operand dim is read alike at all indices of the class: within the class, or whole."""
    if pull is None:
        return False
    extent_out = shape[pull.axis]
    if extent_out <= alike + 1:
        # Each index is a class of its own, and may read inside or outside the operand.
        return True
    last = pull.scale * (extent_out - 1) + pull.offset
    return pull.scale >= 1 and pull.offset >= 0 and last < extent


def _op_hands_on(node: Node, alike: int) -> bool:
    sig = signature(node.text)
    extents = sig.extents([arg.shape for arg in node.args])

    def reads(affine: Affine) -> bool:
        """Index by index, or from dims without a class of several indices."""
        few = all(extents[d] <= alike + 1 for d, _ in affine.terms)
        return affine.plain is not None or few

    counted = any(extents[d] > alike + 1 for d in sig.reduced)
    return all(reads(p) for operand in sig.operands for p in operand) and (
        not counted or sig.monoid == "+" or keeps_equal(sig.monoid)
    )
