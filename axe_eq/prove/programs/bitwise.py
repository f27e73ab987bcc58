"""Differences between two programs bit for bit, beyond what an implementation is free to choose.

Sums may run in any order, and functions such as exp are not correctly rounded, so equal values may
differ in their last bits from one evaluation to another. A difference counts only if every operator
that leads to it, and that the two programs do not share, has one possible result for these inputs:
its cell is correctly rounded (IEEE 754, section 5), and what it sums are integers so small that no
partial sum rounds. What comes of an integer that is divided by zero, or of a NaN or an infinity
that is made an integer, is no program's: elements that rest on one differ in nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from axe_eq.program.contract import product_sum
from axe_eq.program.interval import APPROXIMATE, ENCLOSE
from axe_eq.program.meaning import cell_values, evaluate_nodes, index_views
from axe_eq.program.node import OP, SCAN, Node, topological
from axe_eq.program.ops import MONOIDS, cell, scan
from axe_eq.program.signature import signature
from axe_eq.program.types import DTYPES, Array, bits_of, promote
from axe_eq.prove.programs.marks import on_no_integer


def differing_bits(
    outputs_a: Sequence[Node], outputs_b: Sequence[Node], inputs: Mapping[str, Array]
) -> tuple[int, tuple[int, ...], Array, Array] | None:
    """The first element of the first output that certainly differs.

    Args:
        outputs_a: roots.
        outputs_b: as many, over the same inputs.
        inputs: arrays by input name.

    Returns:
        Output number, index, and the two values, or None.
    """
    with np.errstate(all="ignore"):
        values = evaluate_nodes([*outputs_a, *outputs_b], inputs)
        free = _free_nodes(outputs_a, outputs_b, values)
        nobodys = on_no_integer([*outputs_a, *outputs_b], values)
    for n, (a, b) in enumerate(zip(outputs_a, outputs_b, strict=True)):
        if a in free or b in free:
            continue
        apart = bits_of(values[a]) != bits_of(values[b])
        apart &= ~(_is_nan(values[a]) & _is_nan(values[b]))
        for side in (a, b):
            apart &= ~nobodys.get(side, np.zeros(apart.shape, bool))
        if apart.any():
            at = tuple(map(int, np.unravel_index(int(np.argmax(apart)), apart.shape)))
            return n, at, values[a][at], values[b][at]
    return None


def _is_nan(array: Array) -> Array:
    return np.asarray(array != array)


def _free_nodes(
    outputs_a: Sequence[Node], outputs_b: Sequence[Node], values: Mapping[Node, Array]
) -> set[Node]:
    """Nodes whose bits an implementation may choose, or that depend on such a node."""
    shared = set(topological(outputs_a)) & set(topological(outputs_b))
    free: set[Node] = set()
    for node in topological([*outputs_a, *outputs_b]):
        if node in shared:
            continue
        computes = node.kind in (OP, SCAN)
        if not free.isdisjoint(node.args) or (computes and not _determined(node, values)):
            free.add(node)
    return free


def _determined(node: Node, values: Mapping[Node, Array]) -> bool:
    """The operator has one possible result for these operands."""
    declared = cell(node.cell or "id")[0]
    monoid = scan(node.text)[0].name if node.kind == SCAN else signature(node.text).monoid
    operands = [values[a] for a in node.args]
    integer = all(DTYPES[a.dtype].kind != "f" for a in node.args)
    if not integer and declared.name not in ENCLOSE.keys() - APPROXIMATE:
        return False
    selects = declared.commutative and not declared.rounds
    exact = not monoid or MONOIDS[monoid].exact
    # Which zero the larger of 0 and -0 is, is free.
    if (selects or (monoid and exact)) and any(_has_negative_zero(x) for x in operands):
        return False
    return integer or exact or (monoid == "+" and _sums_exactly(node, operands))


def _has_negative_zero(array: Array) -> bool:
    return array.dtype.kind not in "iub" and bool(np.any((array == 0) & np.signbit(array)))


def _sums_exactly(node: Node, operands: Sequence[Array]) -> bool:
    """All terms are integers, and the sums of their magnitudes fit the accumulator."""
    if node.kind == SCAN:
        return False
    sig, (declared, _) = signature(node.text), cell(node.cell)
    views = index_views(sig, operands)
    axes = tuple(sig.reduced)
    if declared.product:
        wide = [np.abs(v.astype(np.float64)) for v in views]
        whole = all(_is_whole(v) for v in wide)
        sizes = product_sum(wide, axes)
    else:
        terms = np.abs(cell_values(node.cell, views)[0].astype(np.float64))
        whole, sizes = _is_whole(terms), np.sum(terms, axis=axes)
    accumulator = DTYPES[promote(*(a.dtype for a in node.args))].accumulate
    limit = 2.0**24 if accumulator == "f32" else 2.0**53
    if not whole or not bool(np.all(sizes < limit)):
        return False
    # A sum of nothing but zeros of both signs may have either sign.
    return bool(np.all(sizes > 0)) or not any(bool(np.signbit(v).any()) for v in views)


def _is_whole(array: Array) -> bool:
    return bool(np.all(np.rint(array) == array))
